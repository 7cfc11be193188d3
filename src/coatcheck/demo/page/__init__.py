"""BORDER: the page, which shows a round from two chairs, and a person's client for browsers."""
