"""One role of a demo: what `coatcheck serve` runs, in a process that ends when the demo does.

The demo holds the other end of standard input. However it ends, even by `kill -9`, this end
closes, and the role and its workers go too.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from coatcheck.errors import Error
from coatcheck.services.run import serve


def _end_with_the_demo() -> None:
    # Not through sys.stdin: its lock would be held when the interpreter ends by itself.
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    try:
        sys.exit(serve(sys.argv[1], Path(sys.argv[2])))
    except Error as error:
        sys.exit(f"coatcheck: {error}")
