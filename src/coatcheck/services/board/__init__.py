"""BOARD: publishes bulletins and letters in a log that only grows."""
