"""The cost of privacy: laws of mechanisms, amplification by a crowd, and many rounds together."""
