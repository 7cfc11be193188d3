"""What commands print: documents as JSON, lines or tables; answers; hints and progress.

Results go to standard output, hints and progress to standard error.
"""

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

    from coatcheck.accounting.guarantee import Guarantee

STAMP = "SIMULATION: one process saw every place, and the seed repeats; it protected nobody"
_WIDTH = 100  # columns of the widest table
_TIMES = ("opens", "closes", "expires")
_KEY = re.compile(r"[0-9a-f]{32,}")
_last_hint = [0.0]  # when the last hint was printed, by the monotonic clock


def show(
    result: Any, *, as_json: bool, text: str | Callable[[], Iterable["str | Table"]] = ""
) -> None:
    """Print a result as one JSON document (NaN and infinity as null) or as text.

    Args:
        result: the document.
        as_json: whether to print it as JSON.
        text: plain text, or a function that yields lines with rich's markup and tables; by default
            the fields of the result, one per line.
    """
    if as_json:
        click.echo(document(result), nl=False)
    elif text and isinstance(text, str):
        click.echo(text)
    elif isinstance(text, str):
        width = max(map(len, result), default=0)
        for name, field in result.items():
            words = field if isinstance(field, str) else plain(name, field)
            click.echo(f"{name.replace('_', ' '):<{width}}  {words}")
    else:
        from rich.console import Console  # noqa: PLC0415 - only where a table is printed

        console = Console(highlight=False)
        # A narrower terminal wraps the lines: that is better than a figure cut short.
        console.width = max(console.width, _WIDTH)
        for part in text():
            console.print(part)


def plain(name: str, field: Any) -> str:
    """Write a field for a person: local times, no brackets, the two ends of a long key."""
    if name in _TIMES and isinstance(field, int):
        return local_time(field)
    if isinstance(field, bool) or field is None:
        return {True: "yes", False: "no", None: "-"}[field]
    if isinstance(field, Mapping):
        return ", ".join(
            f"{key.replace('_', ' ')} {plain(key, part)}" for key, part in field.items()
        )
    if isinstance(field, list | tuple):
        separator = "; " if any(isinstance(part, Mapping) for part in field) else ", "
        return separator.join(plain(name, part) for part in field) or "none"
    if isinstance(field, float):
        return f"{field:.6g}"
    text = str(field)
    return f"{text[:8]}…{text[-4:]}" if _KEY.fullmatch(text) else text


def local_time(seconds: float) -> str:
    """Write a time in seconds since 1970 as the local day, month, hour and minute."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%d %b %H:%M")


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str], **style: Any
) -> "Table":
    """Return a table; the columns whose headings are in `right` are aligned to the right."""
    from rich import box  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415 - only where a table is printed

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, **style)
    for heading in headings:
        # Cells wrap and are never cut: nobody can type half an address.
        result.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        result.add_row(*row)
    return result


def service_table(service: Mapping[str, Any], unit: str) -> "Table":
    """Return how well people were served: privately, with true places, and by chance."""
    headings = (
        "",
        "served",
        "pairs",
        "mean distance",
        "median",
        "of named, near",
        "of near, found",
    )
    rows = [
        (
            label,
            f"{row['served']:,}",
            f"{row['pairs']:,}",
            length(row["mean_distance"], unit),
            length(row["median_distance"], unit),
            *("" if math.isnan(row[key]) else f"{row[key]:.1%}" for key in ("within", "recall")),
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
    """Print a line that is not part of the result, to standard error."""
    click.echo(f"coatcheck: {text}", err=True)
    _last_hint[0] = time.monotonic()


def last_hint() -> float:
    """Return when the last hint was printed, by the monotonic clock."""
    return _last_hint[0]


def hint_caveat(guarantee: "Guarantee") -> None:
    """Print what the promise does not cover, before anything is sent."""
    for text in filter(None, (guarantee.caveat, guarantee.disclosure)):
        hint(text[0].lower() + text[1:].removesuffix("."))


def length(value: float, unit: str) -> str:
    """Write a distance to three digits; 1,000 metres and more in kilometres."""
    if math.isnan(value):
        return "-"
    if unit == "m" and value >= 1_000:
        return f"{value / 1_000:.2f} km"
    return f"{value:.0f} m" if unit == "m" else f"{value:.3g}"


# -- progress: a command that takes long says so, on a terminal and without one

_FIRST_SIGN: Final = 0.7
"""Seconds until the first line of progress on a terminal, where a person waits for it."""
_SILENCE: Final = 10.0
"""Seconds without a hint until any other line of progress."""


@contextmanager
def at_work(doing: str | Callable[[], str]) -> Iterator[None]:
    """Print what is being done, and for how long, after every pause without a hint."""
    done, start = Event(), time.monotonic()
    patience = _FIRST_SIGN if sys.stderr.isatty() else _SILENCE

    def watch(patience: float) -> None:
        while not done.wait(max(0.05, max(start, last_hint()) + patience - time.monotonic())):
            if time.monotonic() - max(start, last_hint()) < patience:
                continue  # a hint was printed meanwhile
            text = doing if isinstance(doing, str) else doing()
            hint(f"{text} ({time.monotonic() - start:.0f} s)")
            patience = _SILENCE

    watcher = Thread(target=watch, args=(patience,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


# -- answers as text, and their contacts in a file, so that a letter needs only a partner's number


def answer_text(answer: Mapping[str, Any], round_url: str = "") -> Iterator[str]:
    """Yield the lines of an answer; `--json` prints it in full, with every key."""
    partners = _partners(answer)
    if "values" in answer:
        yield f"Your answer: {plain('values', answer['values'])}"
    if "shared" in answer:
        yield f"For everybody: {plain('shared', answer['shared'])}"
    for number, partner in enumerate(partners, start=1):
        where, contact = partner.get("estimate"), plain("contact", partner["contact"])
        near = "" if where is None else f", estimated as {plain('estimate', where)} (with noise)"
        yield f"Partner {number} (group {partner['group']}){near}: {contact}"
    if not partners and not answer.get("values") and "shared" not in answer:
        yield "The answer names no partner for you this time."
    for partner in answer.get("settled", {}).get("partners", ()):
        words = f": {partner['words']}" if partner["words"] else ""
        yield f"Settled with {plain('contact', partner['contact'])}{words}"
    if "settled" in answer and not answer["settled"]["partners"]:
        yield "Nobody settled with you this time."
    if partners and round_url:
        yield f"Write to the first: coatcheck letters write {round_url} --to 1 --message TEXT"


def _partners(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [*answer.get("partners", ()), *answer.get("second", ())]


def store_contacts(ticket: Path, answer: Mapping[str, Any]) -> None:
    """Store the contacts of an answer beside the ticket, readable by its owner only."""
    contacts = [partner["contact"] for partner in _partners(answer)]
    write_bytes(_contacts_file(ticket), msgspec.json.encode(contacts), secret=True, replace=True)


def contact_of(ticket: Path, text: str) -> bytes:
    """Return the contact that a letter is for, from a partner's number or from hexadecimal."""
    if text.isdigit() and len(text) < 4:
        contacts = msgspec.json.decode(read_bytes(_contacts_file(ticket)), type=list[str])
        if not 1 <= int(text) <= len(contacts):
            raise Misuse(
                f"`--to` must be the number of a partner, and your answer named"
                f" {len(contacts)} partners; got {text}"
            )
        text = contacts[int(text) - 1]
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Misuse(
            "`--to` must be a partner's number, or a contact in hexadecimal as"
            " `coatcheck take-part` prints it"
        ) from None


def _contacts_file(ticket: Path) -> Path:
    return Path(f"{ticket}.contacts")
