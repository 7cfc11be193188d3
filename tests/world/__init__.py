"""The four roles under every kind of fault."""
