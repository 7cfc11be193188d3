"""BORDER: what survives a crash, one small store per role, in SQLite or PostgreSQL.

A store keeps bytes, and the phase of each round. It opens nothing and understands no report. Each
write is one transaction that is durable when the call returns. It asks the role's table whether
the move is allowed, and carries the fencing token of the process that leads: a process that lost
its lease changes nothing any more.

Calls block, and may be made from any thread. They raise `Unavailable` (`Full` when there is no
room) if nothing was done and a later try is right, `Fenced` if another process leads, and
`Refused` if the round is in another phase than the move needs.
"""
