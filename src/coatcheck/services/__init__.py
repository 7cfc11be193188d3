"""BORDER: the roles over HTTP, as separate processes that lose nothing.

There is a folder per role: it imports that role and none of the others. `http` is what they share.
Beyond its role a service knows who asked and when, and writes none of it down.
"""
