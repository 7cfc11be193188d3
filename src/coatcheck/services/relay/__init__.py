"""The relay as a process."""
