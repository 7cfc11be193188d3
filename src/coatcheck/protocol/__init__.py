"""The protocol of one round: terms, keys, messages and the four roles. Nothing here does I/O."""
