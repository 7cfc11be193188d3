"""The board's log: Merkle trees, signed notes and their verification.

`merkle` proves that a log only grew and checks such proofs (`Prover.consistency`,
`check_consistency`). The board signs a checkpoint of its tree and serves the proofs
(`services.board.log`). Two readers check them: each person at every look at the board
(`verification.follow`), and each witness before it cosigns (`signed_notes.examine`).
"""
