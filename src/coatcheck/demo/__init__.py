"""BORDER: the whole system on one machine, as real processes, with a crowd that takes part.

`city` and `gradients` make up people, `plays` casts a round, `stage` starts the roles and ends
them, `performance` lets everybody take part, `story` tells it from both chairs.
"""
