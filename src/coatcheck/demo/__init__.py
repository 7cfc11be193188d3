"""BORDER: the whole system on one machine, as real processes, with a crowd that takes part.

`city` and `gradients` make up people, `scenarios` drafts a round for them, `run` lets everybody
take part over HTTP and tells `events`, `summary` says what each side saw. `page` shows a run live
in a browser.
"""
