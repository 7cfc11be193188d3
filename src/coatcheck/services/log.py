"""How an unforeseen error is told in the log: by its kind and place, never by its message."""

import logging
import traceback
from pathlib import Path

log = logging.getLogger("coatcheck")


def place_of(error: BaseException) -> str:
    """Tell an unforeseen error by its kind and the lines it passed, never by its message.

    A message may quote what a person sent (a database's refusal names the key), and no line of
    a log is about one report.
    """
    steps = traceback.walk_tb(error.__traceback__)
    lines = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in steps]
    return f"{type(error).__name__} at {' < '.join(reversed(lines)) or 'an unknown line'}"
