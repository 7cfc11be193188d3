"""What the commands read from files and write to files."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coatcheck.cli.output import hint
from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.agreement import ROLES, SignedTerms, Trust, read_signed
from coatcheck.protocol.keys import read_public

_ROOM = 1 << 30  # bytes: plenty for the largest demo


def read_file(path: Path) -> bytes:
    """Read a whole file, or standard input for `-`."""
    return sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)


def write_file(path: Path, raw: bytes, *, secret: bool = False, replace: bool = False) -> None:
    """Write a whole file durably or nothing; `-` is standard output, but not for secrets."""
    if str(path) == "-" and not secret:
        sys.stdout.buffer.write(raw)
        return
    write_bytes(path, raw, secret=secret, replace=replace)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        return msgspec.json.decode(read_file(path), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Misuse(f"{path} is not a JSON document with an object: {error}") from None


def read_terms_file(path: Path) -> SignedTerms:
    """Read signed terms; whoever uses them checks the signatures."""
    return read_signed(read_file(path))


def read_trust(listed: Sequence[str], *, witnesses: int = 0) -> Trust:
    """Read the public keys that a person knows, as ROLE=FILE; a FILE without a role is for any.

    Every shuffler that is named must be in the cascade. While a shuffler changes its keys, give
    both files at once: shuffler=NEW,OLD. `witnesses` is how many of the witnesses are demanded.
    """
    known = []
    for text in listed:
        role, _, names = text.partition("=")
        files = names.split(",") if role in ROLES else [text]
        keys = [bytes.fromhex(read_public(Path(name)).verifying) for name in files]
        known.append((role if role in ROLES else "", keys))
    if any(not role for role, _ in known):
        hint("a key without a role is trusted in every role: --trust shuffler=FILE says which")
    trusted = Trust.of(known)
    return trusted.demanding(witnesses) if witnesses else trusted


def now() -> int:
    """Return the time in seconds: the only clock of the command line."""
    return int(time.time())


def memory_folder(where: Path = Path("/dev/shm")) -> Path | None:  # noqa: S108 - each demo makes its own in it
    """Give a folder in memory if this machine has one with room, and nobody named another.

    A demo leaves nothing, so nothing has to reach a disk, which costs more than the demo does.
    """
    named = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if named or not (where.is_dir() and os.access(where, os.W_OK | os.X_OK)):
        return None
    return where if shutil.disk_usage(where).free >= _ROOM else None
