"""One service in a process that ends when the process that started it does.

The starter holds the other end of standard input. However it ends, even by `kill -9`, this end
closes, and the service and its workers end too. `cluster` starts its services this way.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from coatcheck.errors import Error
from coatcheck.services.run import serve


def _end_with_the_starter() -> None:
    # Not through sys.stdin: its lock would be held when the interpreter ends by itself.
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    try:
        sys.exit(serve(sys.argv[1], Path(sys.argv[2]), listen=sys.argv[3] or None))
    except Error as error:
        sys.exit(f"coatcheck: {error}")
