"""The witness as a process."""
