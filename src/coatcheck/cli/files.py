"""Files and words of the command line: what is read, written, shown and hinted at."""

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from coatcheck.protocol.agreement import SignedTerms, read_signed
from coatcheck.protocol.keyfiles import (
    PublicKeys,
    SecretKeys,
    document,
    read_bytes,
    read_keys,
    read_public,
    read_secret,
    write_bytes,
)
from coatcheck.protocol.trust import ROLES, Trust

__all__ = [
    "CA",
    "FILE",
    "TRUST",
    "PublicKeys",
    "SecretKeys",
    "document",
    "hint",
    "now",
    "read",
    "read_keys",
    "read_public",
    "read_secret",
    "read_terms_file",
    "read_trust",
    "show",
    "write",
]

FILE = click.Path(path_type=Path)
TRUST = partial(
    click.option,
    "--trust",
    multiple=True,
    metavar="ROLE=FILE",
    help="Public keys that you know: server=FILE, shuffler=FILE or board=FILE.",
)
CA = click.option(
    "--ca", default="", help="Certificates to trust instead of the system's, a PEM file."
)


def read(path: Path) -> bytes:
    """Read a whole file, or standard input for `-`."""
    return sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)


def write(path: Path, raw: bytes, *, secret: bool = False, replace: bool = False) -> None:
    """Write a whole file durably or nothing; `-` is standard output, but not for secrets."""
    if str(path) == "-" and not secret:
        sys.stdout.buffer.write(raw)
        return
    write_bytes(path, raw, secret=secret, replace=replace)


def read_terms_file(path: Path) -> SignedTerms:
    """Read signed terms; their signatures are checked by whoever uses them."""
    return read_signed(read(path))


def read_trust(listed: Sequence[str]) -> Trust:
    """Read the public keys that a person knows, each in its role; a bare FILE is for any role.

    Every shuffler named must be in the cascade. Two files of one shuffler whose keys change stand
    together: shuffler=NEW,OLD.
    """
    known = []
    for text in listed:
        role, _, names = text.partition("=")
        files = names.split(",") if role in ROLES else [text]
        keys = [bytes.fromhex(read_public(Path(name)).verifying) for name in files]
        known.append((role if role in ROLES else "", keys))
    if any(not role for role, _ in known):
        hint("a key without a role is trusted in any: --trust shuffler=FILE says which")
    return Trust.of(known)


def show(value: dict[str, Any], *, as_json: bool) -> None:
    """Print a result: one JSON document, or a line a field."""
    if as_json:
        click.echo(json.dumps(value, indent=1))
        return
    wide = max((len(name) for name in value), default=0)
    for name, field in value.items():
        text = json.dumps(field) if isinstance(field, dict | list) else str(field)
        click.echo(f"{name.replace('_', ' '):<{wide}}  {text}")


def hint(text: str) -> None:
    """Say something that is not the result."""
    click.echo(f"coatcheck: {text}", err=True)


def now() -> int:
    """Return the time in seconds: the one clock of the command line."""
    return int(time.time())
