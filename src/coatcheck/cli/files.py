"""What commands read from files and standard input, and what they write to files."""

import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from coatcheck.cli.output import hint
from coatcheck.domains import Categories, Domain, Product
from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Malformed, Misuse
from coatcheck.protocol.agreement import POLICY, ROLES, SignedTerms, Trust, read_signed
from coatcheck.protocol.keys import read_public
from coatcheck.protocol.log.witness_policy import Policy, read_policy

_DEMO_BYTES = 1 << 30  # more than the largest demo writes


def read_file(path: Path) -> bytes:
    """Return the bytes of a file, or of standard input for `-`."""
    return sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)


def write_file(path: Path, raw: bytes, *, secret: bool = False, replace: bool = False) -> None:
    """Write a file durably, whole or not at all; `-` is standard output, except for secrets."""
    if str(path) == "-" and not secret:
        sys.stdout.buffer.write(raw)
        return
    write_bytes(path, raw, secret=secret, replace=replace)


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        return msgspec.json.decode(read_file(path), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Misuse(f"{path} is not a JSON object: {error}") from None


def read_terms_file(path: Path) -> SignedTerms:
    """Read signed terms; the caller must verify their signatures."""
    return read_signed(read_file(path))


def read_trust(listed: Sequence[str], *, witnesses: int = 0) -> Trust:
    """Read the public keys that a person trusts, as ROLE=FILE; a FILE without a role is for any.

    Every shuffler in the list must be in the cascade. While a shuffler changes its keys, give both
    files in one entry: shuffler=NEW,OLD. policy=FILE is a policy file (C2SP tlog-policy) that says
    which witnesses must have cosigned.

    Args:
        listed: the entries.
        witnesses: how many of the witnesses must have cosigned; 0 is all of them.
    """
    parties, policies = [], []
    for text in listed:
        role, _, names = text.partition("=")
        if role == POLICY:
            policies.append(read_policy_file(Path(names)))
            continue
        files = names.split(",") if role in ROLES else [text]
        keys = [bytes.fromhex(read_public(Path(name)).verifying) for name in files]
        parties.append((role if role in ROLES else "", keys))
    if any(not role for role, _ in parties):
        hint(
            "a key without a role is trusted in every role; name the role, such as"
            " `--trust shuffler=FILE`"
        )
    trusted = Trust.of(parties)
    if len(policies) > 1 or (policies and witnesses):
        raise Misuse("a policy file says how many witnesses it demands; give one, and no number")
    for policy in policies:
        trusted = trusted.under(policy)
    return trusted.demanding(witnesses) if witnesses else trusted


def read_policy_file(path: Path) -> Policy:
    """Read a policy file of witnesses."""
    try:
        return read_policy(read_bytes(path))
    except Malformed as error:
        raise Malformed(f"{path}: {error}") from None


def read_value(text: str, domain: Domain) -> Any:
    """Parse a value of a domain; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read().strip()
    if isinstance(domain, Categories):
        return text
    try:
        if isinstance(domain, Product):
            return json.loads(text)
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        # The value is private: the message does not repeat it.
        raise Misuse(
            "`--value` must be numbers such as 31.23,121.47, a label, or a JSON object with one"
            " value per field"
        ) from None


def now() -> int:
    """Return the time in seconds since 1970; commands read no other clock for a round's times."""
    return int(time.time())


def memory_folder(where: Path = Path("/dev/shm")) -> Path | None:  # noqa: S108 - each demo makes its own in it
    """Return a folder in memory with enough space, unless the user chose a temporary folder.

    A demo deletes all its files, so none needs to reach a disk, where writing them would take
    longer than the demo itself.
    """
    chosen = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if chosen or not (where.is_dir() and os.access(where, os.W_OK | os.X_OK)):
        return None
    return where if shutil.disk_usage(where).free >= _DEMO_BYTES else None
