"""BORDER: the roles over HTTP, as separate processes that lose nothing.

`services/x.py` is role x with a socket: it imports that role and none of the others. What a
service knows beyond its role is who asked and when; none of it is written down.
"""
