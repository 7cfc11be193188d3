"""The commands that look and change nothing of a round: `inspect` and `ledger`."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coatcheck.cli.files import FILE, hint, read, read_terms_file, show
from coatcheck.cli.papers import describe
from coatcheck.cli.roles import count
from coatcheck.errors import Error, Misuse
from coatcheck.protocol.agreement import SettledTerms, read_signed, settle
from coatcheck.protocol.notices import Checkpoint, Posting
from coatcheck.protocol.parcels import Batch, Receipt, Upload
from coatcheck.protocol.ticket import read_ticket
from coatcheck.protocol.verification import verify_bulletin

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.command(name="inspect")
@click.argument("file", type=FILE)
@click.option("--terms", "terms_file", type=FILE, help="Signed terms, for records of a round.")
@_JSON
def inspect(*, file: Path, terms_file: Path | None, as_json: bool) -> None:
    """Say what a file is and what everybody may know of it; secrets are not shown."""
    raw = read(file)
    round_ = settle(read_terms_file(terms_file)) if terms_file is not None else None
    for kind, look in _LOOKS.items():
        # Whatever does not decode as this kind may be another.
        with contextlib.suppress(Error):
            show({"kind": kind, "bytes": len(raw), **look(raw, round_)}, as_json=as_json)
            return
    more = "" if round_ else "; records of a round need --terms"
    raise Misuse(f"{file} is nothing that this version knows{more}")


def _need(round_: SettledTerms | None) -> SettledTerms:
    if round_ is None:
        raise Misuse("records of a round need --terms")
    return round_


def _signed(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    del round_
    return describe(settle(read_signed(raw)))


def _ticket(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    del round_
    ticket = read_ticket(raw)
    return {
        "round": ticket.round,
        "digest": ticket.digest.hex(),
        "address": ticket.keys.address.hex(),
        "receipt": bool(ticket.receipt),
        "letters_written": ticket.written,
        "letters_read": len(ticket.seen),
    }


def _upload(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    made = _need(round_)
    upload = Upload.decode(raw, made)
    return {"group": made.terms.groups[upload.group].name, "id": upload.id.hex()}


def _receipt(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    del round_
    receipt = Receipt.decode(raw)
    return {"digest": receipt.digest.hex(), "id": receipt.id.hex(), "of": receipt.content.hex()}


def _batch(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    batch = Batch.decode(raw, _need(round_))
    return {"hop": batch.hop, "reports": [len(group) for group in batch.items]}


def _bulletin(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    made = _need(round_)
    bulletin = verify_bulletin(raw, made)
    return {**count(raw, made), "root": bulletin.heading.root.hex()}


def _posting(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    return {"to": Posting.decode(raw, _need(round_)).recipient.hex()}


def _checkpoint(raw: bytes, round_: SettledTerms | None) -> dict[str, Any]:
    del round_
    point = Checkpoint.decode(raw)
    return {"size": point.size, "root": point.root.hex()}


_LOOKS: dict[str, Callable[[bytes, SettledTerms | None], dict[str, Any]]] = {
    "signed terms": _signed,
    "ticket": _ticket,
    "upload": _upload,
    "receipt": _receipt,
    "checkpoint": _checkpoint,
    "batch": _batch,
    "bulletin": _bulletin,
    "letter": _posting,
}


@click.group()
def ledger() -> None:
    """Your own book of rounds: what you have spent, and what is left."""


@ledger.command()
@click.argument("file", type=FILE)
@click.option("--epsilon", type=float, required=True, help="The most that all rounds may cost.")
@click.option("--delta", type=float, required=True, help="With what chance they may cost more.")
def begin(*, file: Path, epsilon: float, delta: float) -> None:
    """Begin a ledger with a limit for all rounds together."""
    from coatcheck.accounting.ledger import Ledger  # noqa: PLC0415 - loads the accountant

    if file.exists():
        raise Misuse(f"{file} exists already: a limit is set once, at the beginning")
    Ledger.open(file, epsilon=epsilon, delta=delta)
    hint(f"{file} says no when all your rounds together would cost more")


@ledger.command(name="show")
@click.argument("file", type=FILE)
@_JSON
def show_(*, file: Path, as_json: bool) -> None:
    """Print the limit, what is spent and left, and the rounds."""
    from coatcheck.accounting.ledger import Ledger  # noqa: PLC0415 - loads the accountant

    book = Ledger.open(file)
    epsilon, delta = book.limit
    show(
        {
            "epsilon": epsilon,
            "delta": delta,
            "spent": book.spent,
            "left": book.left,
            "rounds": list(book.rounds),
        },
        as_json=as_json,
    )
