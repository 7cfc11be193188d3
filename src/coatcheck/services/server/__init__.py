"""The server as a process: terms out, a batch in, a bulletin out."""
