"""BORDER: the web page that shows a run from both sides, with a client for people in browsers."""
