"""`coatcheck inspect`: what a file is, and what everybody may know of it."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from coatcheck.cli.files import read, read_terms_file
from coatcheck.cli.options import Json, command
from coatcheck.cli.output import show
from coatcheck.cli.shuffle_and_answer import count
from coatcheck.cli.terms import describe
from coatcheck.errors import Error, Misuse
from coatcheck.protocol.agreement import SettledTerms, read_signed, settle
from coatcheck.protocol.manifest import Batch
from coatcheck.protocol.notices import Checkpoint, Posting
from coatcheck.protocol.parcels import Upload
from coatcheck.protocol.receipts import Receipt
from coatcheck.protocol.ticket import read_ticket
from coatcheck.protocol.verification import verify_bulletin


@command()
def inspect(
    file: Path,
    *,
    terms_file: Annotated[Path | None, "--terms", "The terms, for files of a round."] = None,
    as_json: Json = False,
) -> None:
    """Say what a file is and what everybody may know of it; secrets are not shown."""
    raw = read(file)
    looks: dict[str, Callable[[bytes], dict[str, Any]]] = dict(_ALONE)
    if terms_file is not None:
        round_ = settle(read_terms_file(terms_file))
        looks |= {kind: partial(look, round_=round_) for kind, look in _WITH_TERMS.items()}
    for kind, look in looks.items():
        # What does not decode as this kind may be another.
        with contextlib.suppress(Error):
            show({"kind": kind, "bytes": len(raw), **look(raw)}, as_json=as_json)
            return
    more = "" if terms_file else "; uploads, batches, bulletins and letters need --terms"
    raise Misuse(f"{file} is not a file that this version knows{more}")


def _ticket(raw: bytes) -> dict[str, Any]:
    ticket = read_ticket(raw)
    return {
        "round": ticket.round,
        "digest": ticket.digest.hex(),
        "address": ticket.keys.address.hex(),
        "receipt": bool(ticket.receipt),
        "letters_written": ticket.written,
        "letters_read": len(ticket.seen),
    }


def _receipt(raw: bytes) -> dict[str, Any]:
    receipt = Receipt.decode(raw)
    return {"digest": receipt.digest.hex(), "id": receipt.id.hex(), "of": receipt.content.hex()}


def _checkpoint(raw: bytes) -> dict[str, Any]:
    point = Checkpoint.decode(raw)
    return {"size": point.size, "root": point.root.hex()}


def _upload(raw: bytes, round_: SettledTerms) -> dict[str, Any]:
    upload = Upload.decode(raw, round_)
    return {"group": round_.terms.groups[upload.group].name, "id": upload.id.hex()}


def _batch(raw: bytes, round_: SettledTerms) -> dict[str, Any]:
    batch = Batch.decode(raw, round_)
    return {"hop": batch.manifest.hop, "reports": [len(group) for group in batch.items]}


def _bulletin(raw: bytes, round_: SettledTerms) -> dict[str, Any]:
    bulletin = verify_bulletin(raw, round_)
    return {**count(raw, round_), "root": bulletin.heading.root.hex()}


def _letter(raw: bytes, round_: SettledTerms) -> dict[str, Any]:
    return {"to": Posting.decode(raw, round_).recipient.hex()}


_ALONE: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "signed terms": lambda raw: describe(settle(read_signed(raw))),
    "ticket": _ticket,
    "receipt": _receipt,
    "checkpoint": _checkpoint,
}
_WITH_TERMS: dict[str, Callable[..., dict[str, Any]]] = {
    "upload": _upload,
    "batch": _batch,
    "bulletin": _bulletin,
    "letter": _letter,
}
