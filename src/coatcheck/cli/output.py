"""What commands print: a document as JSON, as lines or as tables; hints go to standard error."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from coatcheck.protocol.records import document

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
