"""What commands print: a document as JSON, as lines or as tables; hints go to standard error."""

import math
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.wire.encoding import document

if TYPE_CHECKING:
    from rich.table import Table

STAMP = "SIMULATION: one process saw every place, and the seed repeats; it protected nobody"
_WIDTH = 100  # columns that the widest table needs
_TIMES = ("opens", "closes", "expires")
_KEY = re.compile(r"[0-9a-f]{32,}")
_SAID = [0.0]  # when the last hint was printed


def show(
    found: Any, *, as_json: bool, text: str | Callable[[], Iterable["str | Table"]] = ""
) -> None:
    """Print a result: one JSON document (NaN and infinity as null), or its text.

    The text is a plain one, or lines with rich's markup and tables; by default one line per field.
    """
    if as_json:
        click.echo(document(found), nl=False)
    elif text and isinstance(text, str):
        click.echo(text)
    elif isinstance(text, str):
        wide = max(map(len, found), default=0)
        for name, field in found.items():
            told = field if isinstance(field, str) else plain(name, field)
            click.echo(f"{name.replace('_', ' '):<{wide}}  {told}")
    else:
        from rich.console import Console  # noqa: PLC0415 - only where a table is printed

        console = Console(highlight=False)
        # A narrower terminal breaks lines, which is better than a figure cut short.
        console.width = max(console.width, _WIDTH)
        for part in text():
            console.print(part)


def plain(name: str, field: Any) -> str:
    """Tell a field to a person: times by the clock, no brackets, long keys by their ends."""
    if name in _TIMES and isinstance(field, int):
        return told_time(field)
    if isinstance(field, bool) or field is None:
        return {True: "yes", False: "no", None: "-"}[field]
    if isinstance(field, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {plain(key, one)}" for key, one in field.items())
    if isinstance(field, list | tuple):
        inner = "; " if any(isinstance(one, Mapping) for one in field) else ", "
        return inner.join(plain(name, one) for one in field) or "none"
    if isinstance(field, float):
        return f"{field:.6g}"
    text = str(field)
    return f"{text[:8]}…{text[-4:]}" if _KEY.fullmatch(text) else text


def told_time(seconds: float) -> str:
    """Tell a time in seconds since 1970 as people do: the local date and minute."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%d %b %H:%M")


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str], **look: Any
) -> "Table":
    """Return a table; columns with these headings are aligned to the right."""
    from rich import box  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415 - only where a table is printed

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, **look)
    for heading in headings:
        # Folded, never cut: an address that is cut short cannot be typed.
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def service_table(service: Mapping[str, Any], unit: str) -> "Table":
    """Return how well people were served, beside what they could have had."""
    headings = ("", "served", "pairs", "mean distance", "median", "within radius")
    rows = [
        (
            label,
            f"{row['served']:,}",
            f"{row['pairs']:,}",
            length(row["mean_distance"], unit),
            length(row["median_distance"], unit),
            "" if math.isnan(row["within"]) else f"{row['within']:.1%}",
        )
        for label, row in (
            ("private, by letter", service.get("settled")),
            ("private, server alone" if service.get("settled") else "private", service["private"]),
            ("with true places", service["without_noise"]),
            ("by chance", service["at_random"]),
        )
        if row is not None
    ]
    return table(headings, rows, right=headings[1:])


def hint(text: str) -> None:
    """Print something that is not the result, to standard error."""
    click.echo(f"coatcheck: {text}", err=True)
    _SAID[0] = time.monotonic()


def last_hint() -> float:
    """Tell when the last hint was printed, by the clock that never goes back."""
    return _SAID[0]


def length(value: float, unit: str) -> str:
    """Write a distance to three digits, in kilometres from 1,000 metres up."""
    if math.isnan(value):
        return "-"
    if unit == "m" and value >= 1_000:
        return f"{value / 1_000:.2f} km"
    return f"{value:.0f} m" if unit == "m" else f"{value:.3g}"


# HOUSE-DOC cli.silence: 'No long silence: a command that takes its time says so, on a terminal and without one.'
_SOON: Final = 0.7
"""Seconds until the first sign on a terminal, where somebody waits for it."""
_LATER: Final = 10.0
"""Seconds of silence until any other sign."""


@contextmanager
def at_work(doing: str | Callable[[], str]) -> Iterator[None]:
    """Say what is being done, and for how long already, whenever nothing was said for a while."""
    over, begun = Event(), time.monotonic()
    silent = _SOON if sys.stderr.isatty() else _LATER

    def watch(silent: float) -> None:
        while not over.wait(max(0.05, max(begun, last_hint()) + silent - time.monotonic())):
            if time.monotonic() - max(begun, last_hint()) < silent:
                continue  # something was said meanwhile
            text = doing if isinstance(doing, str) else doing()
            hint(f"{text} ({time.monotonic() - begun:.0f} s)")
            silent = _LATER

    watcher = Thread(target=watch, args=(silent,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


# HOUSE-DOC cli.answers: 'An answer as a person reads it, and the contacts of it kept, so that a letter needs a number.'
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
