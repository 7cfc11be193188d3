"""What privacy costs: laws of mechanisms, amplification by a crowd, and many rounds together."""
