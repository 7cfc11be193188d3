"""BORDER: the page, which shows a run from both sides, and a person's client for browsers."""
