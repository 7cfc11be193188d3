"""A person's folder, in which one program at a time replaces a file."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coatcheck.errors import Misuse


@contextmanager
def alone_beside(path: Path) -> Iterator[None]:
    """Keep other programs of this person out of a file's folder while the file is replaced.

    One lock for the whole folder, so that none tells of a ticket that is gone.
    """
    try:
        lock = os.open(path.with_name(".coatcheck.lock"), os.O_WRONLY | os.O_CREAT, 0o600)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
