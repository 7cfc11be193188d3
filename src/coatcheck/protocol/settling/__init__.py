"""Settling: candidates agree by letter.

`rules` decides who meets whom (`Settling.verdict`), without keys or a board. `candidates` drives
the rules from a ticket, and `nearness` lets candidates find out only whether they are near. The
network side is `services.person.letters.settle`.
"""
