"""An answer as a person reads it, and the contacts of it kept, so that a letter needs a number."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from coatcheck.cli.output import plain
from coatcheck.errors import Misuse
from coatcheck.files import read_bytes, write_bytes


def answer_text(found: Mapping[str, Any], round_url: str = "") -> Iterator[str]:
    """Tell an answer line by line; in full, with every key, by --json."""
    partners = _partners(found)
    if "values" in found:
        yield f"Your answer: {plain('values', found['values'])}"
    if "shared" in found:
        yield f"For everybody: {plain('shared', found['shared'])}"
    for number, one in enumerate(partners, start=1):
        where = one.get("estimate")
        near = "" if where is None else f", read as {plain('estimate', where)} (with noise)"
        yield f"Partner {number} (group {one['group']}){near}: {plain('contact', one['contact'])}"
    if not partners and not found.get("values") and "shared" not in found:
        yield "Nobody was named to you this time."
    for one in found.get("settled", {}).get("partners", ()):
        yield f"Settled with {plain('contact', one['contact'])}: {one['words']}"
    if "settled" in found and not found["settled"]["partners"]:
        yield "Nobody settled with you this time."
    if partners and round_url:
        yield f"Write to the first: coatcheck letters write {round_url} --to 1 --message TEXT"


def _partners(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*found.get("partners", ()), *found.get("second", ())]


def keep_contacts(ticket: Path, found: Mapping[str, Any]) -> None:
    """Keep the contacts of an answer beside the ticket, for its owner alone."""
    contacts = [one["contact"] for one in _partners(found)]
    write_bytes(_beside(ticket), msgspec.json.encode(contacts), secret=True, replace=True)


def contact_of(ticket: Path, text: str) -> bytes:
    """Find whom a letter is for: a partner by number, or a contact in hexadecimal."""
    if text.isdigit() and len(text) < 4:
        kept = msgspec.json.decode(read_bytes(_beside(ticket)), type=list[str])
        if not 1 <= int(text) <= len(kept):
            raise Misuse(f"your answer named {len(kept)} partners, and --to says {text}")
        text = kept[int(text) - 1]
    try:
        return bytes.fromhex(text)
    except ValueError:
        told = "a partner's number, or a contact in hexadecimal"
        raise Misuse(f"--to is {told}, as `coatcheck take-part` prints it") from None


def _beside(ticket: Path) -> Path:
    return Path(f"{ticket}.contacts")
