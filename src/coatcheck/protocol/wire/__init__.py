"""Byte layouts of what the roles exchange."""
