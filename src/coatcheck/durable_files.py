"""Durable writes of whole files: a crash leaves either the old or the new content.

For files that a person must not lose: tickets, ledgers, keys.
"""

import os
import stat
import threading
from pathlib import Path

from coatcheck.errors import Misuse, Refused

_OTHERS = 0o077


def replace_file(path: Path, raw: bytes, *, mode: int) -> None:
    """Write a temporary file, then move it to `path`; an `OSError` leaves the old file.

    *Guarantee:* when this returns, the bytes and the name are on disk. It raises if the disk takes
    only some of the bytes.
    """
    # Named by process and thread, so a file of this name is left from a crash and unused.
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.unlink(missing_ok=True)
    try:
        # A buffered stream writes until all bytes are written, or raises.
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_file(path: Path, raw: bytes, *, mode: int) -> bool:
    """Write a new file whole; return False and change nothing if another process was first."""
    fresh = path.with_name(f".{path.name}.new.{os.getpid()}.{threading.get_ident()}")
    replace_file(fresh, raw, mode=mode)
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def erase_file(path: Path) -> None:
    """Overwrite and remove a file that has secrets; its name is gone when this returns."""
    # In place: on most disks this overwrites the old bytes before their block is free.
    with path.open("r+b") as stream:
        stream.write(bytes(path.stat().st_size))
        stream.flush()
        os.fsync(stream.fileno())
    path.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that new names are there and removed ones are gone."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_bytes(path: Path) -> bytes:
    """Read a whole file; raise `Misuse` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error.strerror}") from None


def read_secret(path: Path) -> bytes:
    """Read a file, which only its owner may be able to read."""
    raw = read_bytes(path)
    if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        raise Refused(f"other users can read {path}: run `chmod 600 {path}`, or create a new one")
    return raw


def write_bytes(path: Path, raw: bytes, *, secret: bool = False, replace: bool = False) -> None:
    """Write a whole file durably, or nothing; keep an existing file unless `replace`."""
    if path.exists() and not replace:
        raise Misuse(f"{path} already exists: remove it or choose another name")
    try:
        replace_file(path, raw, mode=0o600 if secret else 0o644)
    except OSError as error:
        raise Misuse(f"cannot write {path}: {error.strerror}") from None
