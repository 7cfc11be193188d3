"""The study: every table and figure of the paper, with our figures beside it.

Lives outside the wheel and imports only public names of `coatcheck`; if it needed something
private, the library would be wrong. `python -m study list` says what there is.
"""
