"""Whole files, durably: all bytes are on disk under the name, or the old file is as it was.

For what a person cannot lose: tickets, ledgers, keys. Knows nothing of what is written.
"""

import os
import stat
import threading
from pathlib import Path

from coatcheck.errors import Misuse, Refused

_OTHERS = 0o077


def replace_file(path: Path, raw: bytes, *, mode: int) -> None:
    """Write a file beside its place, then move it there; an `OSError` leaves the old one.

    *Guarantee:* when this returns, the bytes and the name are on disk. A disk that takes only some
    of the bytes is an error too.
    """
    # Named by process and thread: a file of this name is what a crash left, and nobody uses it.
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.unlink(missing_ok=True)
    try:
        # A buffered stream writes again until all is written, or raises.
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk: new ones, and that removed ones are gone."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """Read a whole file, or say that it is not there."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None


def read_secret(path: Path) -> bytes:
    """Read a file that nobody else may read."""
    raw = read_bytes(path)
    if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        raise Refused(f"{path} can be read by others: run `chmod 600 {path}`, or make a new one")
    return raw


def write_bytes(path: Path, raw: bytes, *, secret: bool = False, replace: bool = False) -> None:
    """Write a whole file durably, or nothing; an existing one stays unless told otherwise."""
    if path.exists() and not replace:
        raise Misuse(f"{path} exists already: remove it or choose another name")
    try:
        replace_file(path, raw, mode=0o600 if secret else 0o644)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
