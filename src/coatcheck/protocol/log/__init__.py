"""The board's log: Merkle trees, signed notes and their verification."""
