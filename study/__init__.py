"""The study: every table and figure of the paper, with our figures beside it.

It lives outside the wheel and imports only public names of `coatcheck`; if it needed something
private, the library would be wrong. `python -m study list` lists the items.
"""
