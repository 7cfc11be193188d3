"""The shuffler as a process: uploads in, one batch out."""
