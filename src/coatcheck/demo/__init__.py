"""BORDER: the whole system on one machine, as real processes, with a crowd that takes part.

`city` and `scenarios` make up people and draft a round for them, `people` are their clients, `run`
lets everybody take part over HTTP and reports `events`, and `summary` says what each side saw.
`page` shows a run live in a browser. `trilateration` is the attack that the demo opens with.
"""
