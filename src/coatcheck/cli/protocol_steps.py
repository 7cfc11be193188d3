"""A round over files, step by step: each command reads what the step before it wrote.

`keygen` and `terms` prepare the round; `join`, `collect`, `write` and `read` are a person's steps,
`shuffle` and `answer` a shuffler's and the server's. Everything private stays in key files and in
the ticket, which only their owner can read. `inspect` prints what is public about any of the files.
"""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands
from coatcheck.cli.documents import (
    answer_document,
    bulletin_document,
    letters_document,
    terms_document,
)
from coatcheck.cli.files import (
    now,
    read_file,
    read_object,
    read_terms_file,
    read_trust,
    read_value,
    write_file,
)
from coatcheck.cli.options import (
    HEX,
    Json,
    Key,
    TakingPart,
    Terms,
    Ticket,
    To,
    Trust,
    command,
    one_of,
)
from coatcheck.cli.output import answer_text, hint, hint_caveat, show
from coatcheck.entropy import system
from coatcheck.errors import Error, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import (
    AgreedTerms,
    accept,
    check_own_entry,
    countersign,
    propose,
    read_signed,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.client import Limit
from coatcheck.protocol.keys import Contact, SecretKeys, read_keys, read_public
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import SUITES, Anybody, Tokens, read_terms, suite_named
from coatcheck.protocol.ticket import Receipt, read_ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.bulletins import Checkpoint, Posting
from coatcheck.protocol.wire.encoding import document
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.person.store import TicketFile

# -- keys and terms

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@command()
def keygen(
    name: str,
    *,
    out: Annotated[Path, "Your key file, readable by you only (mode 0600)."],
    url: Annotated[
        str, "Your address for people, https://HOST[:PORT]; a service takes it from its settings."
    ] = "",
    suite: Annotated[str, one_of(SUITES), " | ".join(SUITES)] = "x25519",
) -> None:
    """Make the keys of a server, shuffler, board or witness, and print the public keys.

    Publish the output where people can trust it: they need it to recognise you.
    """
    try:
        keys = msgspec.convert(
            {"name": name, "suite": suite, "seed": system().token(32).hex()}
            | ({"url": url} if url else {}),
            type=SecretKeys,
        )
    except msgspec.ValidationError as error:
        raise Misuse(f"this name or address is not valid: {error}") from None
    write_file(out, document(keys), secret=True)
    click.echo(document(keys.public).decode(), nl=False)
    hint(f"keep {out} secret; publish the keys printed above")


@click.group(cls=Commands)
def terms() -> None:
    """Write, sign and check the public terms of a round."""


@command(terms, name="propose")
def propose_terms(
    draft: Path,
    *,
    key: Key,
    shuffler: Annotated[
        tuple[Path, ...], "Public keys of a shuffler; once per shuffler, in order."
    ],
    board: Annotated[Path, "Public keys of the board."],
    opens: Annotated[str, "When uploads begin: `now`, +10m or a Unix time."] = "now",
    closes: Annotated[str, "When uploads end and the round is released."] = "+1h",
    expires: Annotated[str, "When the round ends if its crowd is too small."] = "+2h",
    open_: Annotated[
        bool, "--open", "Admit anybody at the first shuffler, not only people with tokens."
    ] = False,
    out: Annotated[Path, "File for the signed terms."] = Path("-"),
) -> None:
    """Draft terms from a DRAFT, with their sizes and promises, and sign them as the server."""
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - loads mechanisms and tasks

    keys = read_keys(key)
    start = now()
    first = Anybody() if open_ else Tokens()
    unsigned = read_draft(read_object(draft)).terms(
        suite=suite_named(keys.suite),
        server=keys.public.party,
        shufflers=[
            read_public(path).shuffler(Tokens() if hop else first)
            for hop, path in enumerate(shuffler)
        ],
        board=read_public(board).notary,
        times=(_time(opens, start), _time(closes, start), _time(expires, start)),
    )
    write_file(out, write_signed(propose(unsigned, keys=keys.pairs)))
    hint("next, every shuffler must sign these terms with `coatcheck terms sign`")


@command(terms, name="sign")
def sign_terms(
    file: Path,
    *,
    key: Key,
    pledges: Annotated[Path, "File that records which terms you have signed."],
    out: Annotated[Path, "File for the terms with your signature added."] = Path("-"),
) -> None:
    """Sign terms as a shuffler; the pledge file allows one version of the terms per round."""
    stored: dict[str, str] = msgspec.json.decode(read_file(pledges)) if pledges.exists() else {}
    pledged = {name: bytes.fromhex(digest) for name, digest in stored.items()}
    proposed, keys = read_terms_file(file), read_keys(key)
    signed = countersign(proposed, keys=keys.pairs, pledged=pledged)
    for entry in read_terms(proposed.document.encode()).terms.shufflers:
        if entry.verifying == keys.public.verifying:
            check_own_entry(entry, url=keys.public.party.url, admission=entry.admission)
            hint(f"you sign that you admit people by: {entry.admission.__struct_config__.tag}")
    # The pledge is stored before the signature is: after a crash no other version can be signed.
    digests = {name: digest.hex() for name, digest in pledged.items()}
    write_file(pledges, document(digests), secret=True, replace=True)
    write_file(out, write_signed(signed), replace=out == file)


@command(terms, name="check")
def check_terms(file: Path, *, trust: Trust = (), as_json: Json = False) -> None:
    """Check every signature and print what the terms state."""
    signed = read_terms_file(file)
    round_ = accept(signed, trusted=read_trust(trust)) if trust else verify_signatures(signed)
    show(terms_document(round_), as_json=as_json)


def _time(text: str, start: int) -> int:
    """Parse `now`, a time from now such as +10m, or seconds since 1970."""
    if text == "now":
        return start
    try:
        if text[0] in "+-":
            return start + int(text[:-1]) * _UNITS[text[-1]]
        return int(text)
    except (ValueError, KeyError, IndexError):
        raise Misuse(f"a time must be `now`, +10m, -1h or a Unix time, got {text!r}") from None


# -- a person's steps


@command()
def join(
    *,
    terms_file: Terms,
    person: TakingPart,
    note: Annotated[bytes, HEX, "Bytes (hex) sent without noise, if the terms allow a note."] = b"",
    ticket: Annotated[Path, "File for your ticket, readable by you only (mode 0600)."],
    out: Annotated[Path, "File for the sealed report; send it to the first shuffler."],
    as_json: Json = False,
) -> None:
    """Check the terms, randomize your value once, and seal the report.

    If the ticket exists already, the report stored in it is written again: the same bytes, without
    new noise and at no further cost.
    """
    trusted = read_trust(person.trust)
    signed, limit = read_terms_file(terms_file), Limit(person.epsilon, person.delta, disclosures=0)
    invitation = client.examine(signed, group=person.group, trusted=trusted, limit=limit, now=now())
    promise = invitation.guarantee
    hint_caveat(promise)
    ledger, store = Ledger.open(person.ledger), TicketFile(ticket)
    stored = ticket.exists()
    if stored:
        hint("this ticket already holds your report; the same bytes are written again")
    value = None if stored else read_value(person.value, invitation.randomizer.domain)
    joined = invitation.join(value, ledger=ledger, store=store, note=note, clamp=person.clamp)
    for hop, raw in enumerate(joined.registrations, start=2):
        write_file(Path(f"{out}.trap{hop}"), raw, replace=True)
        hint(f"send {out}.trap{hop} to shuffler {hop} before you send {out} to the first shuffler")
    write_file(out, joined.upload, replace=True)
    document = {
        "address": joined.keys.address.hex(),
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "crowd": promise.crowd,
        "spent": ledger.spent,
        "left": ledger.left,
    }
    show(document, as_json=as_json)


@command()
def collect(
    *,
    terms_file: Terms,
    ticket: Ticket,
    bulletin: Annotated[Path, "The round's bulletin."],
    receipt: Annotated[Path | None, "The shuffler's receipt; it is stored in your ticket."] = None,
    ledger: Annotated[Path | None, "Your ledger, to record the round's outcome."] = None,
    as_json: Json = False,
) -> None:
    """Find your answer on the bulletin and open it."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    stored = store.read()
    if receipt is not None:
        stored = client.keep_receipt(stored, read_file(receipt), round_)
        store.update(stored)
    verified = verify_bulletin(read_file(bulletin), round_)
    ledger_file = None if ledger is None else Ledger.open(ledger)
    opened = answer_document(client.collect(stored, verified, ledger=ledger_file), round_)
    show(opened, as_json=as_json, text="\n".join(answer_text(opened)))


@command()
def write(
    *,
    terms_file: Terms,
    ticket: Ticket,
    to: To,
    message: Annotated[str, "The text; - reads standard input."],
    out: Annotated[Path, "File for the sealed letter; post it on the board."],
) -> None:
    """Write a sealed letter to a partner."""
    round_ = _round(terms_file)
    if message == "-":
        message = sys.stdin.read()
    contact = Contact.decode(round_.suite, to)
    store = TicketFile(ticket)
    posting, after = client.write(store.read(), message.encode(), to=contact.raw, round_=round_)
    # The ticket is stored first, so that no counter is used twice.
    store.update(after)
    write_file(out, posting)


@command()
def read(
    postings: tuple[Path, ...], *, terms_file: Terms, ticket: Ticket, as_json: Json = False
) -> None:
    """Open the letters to you among POSTINGS; each letter is shown once."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    inbox = client.read(store.read(), [read_file(path) for path in postings], round_)
    store.update(inbox.ticket)
    show(letters_document(inbox), as_json=as_json)


def _round(path: Path) -> AgreedTerms:
    """Read the terms of a ticket, which holds their digest, so that no trusted key is needed."""
    try:
        return verify_signatures(read_terms_file(path))
    except Error as error:
        raise Refused(f"{path} does not hold the signed terms of a round: {error}") from None


# -- a shuffler's and the server's step


@command()
def shuffle(
    uploads: tuple[Path, ...] = (),
    *,
    terms_file: Terms,
    key: Key,
    batch: Annotated[Path | None, "The batch of the shuffler before you in the cascade."] = None,
    receipts: Annotated[Path | None, "Folder for the receipts of the uploads."] = None,
    out: Annotated[Path, "File for the batch; send it to the next shuffler or the server."],
    as_json: Json = False,
) -> None:
    """Take in uploads, peel your layer, and release the reports in a secret random order.

    A later shuffler of a cascade passes people's `.trap` files as UPLOADS, and the batch of the
    shuffler before it as `--batch`. No batch is written unless every group has its minimum crowd.
    """
    round_ = verify_signatures(read_terms_file(terms_file))
    keys = read_keys(key).pairs
    shuffler = Shuffler(round_, keys=keys, state=fresh_state(system()))
    signed = {path.name: _receive(shuffler, path) for path in uploads}  # receipts
    if batch is None:
        shuffler.close(now=now())
    else:
        shuffler.accept(read_file(batch))
    raw = shuffler.release()
    if receipts is not None:
        receipts.mkdir(parents=True, exist_ok=True)
        for name, receipt in signed.items():
            if receipt is not None:
                write_file(receipts / f"{name}.receipt", receipt, replace=True)
    write_file(out, raw)
    rejected = sum(receipt is None for receipt in signed.values())
    show({"taken": len(signed) - rejected, "turned_away": rejected}, as_json=as_json)


def _receive(shuffler: Shuffler, path: Path) -> bytes | None:
    """Take in one upload and return its receipt; reject a bad upload without stopping."""
    try:
        return shuffler.receive(read_file(path), now=now())
    except Error as error:
        hint(f"an upload was rejected: {error}")
        return None


@command()
def answer(
    batch: Path,
    *,
    terms_file: Terms,
    key: Key,
    out: Annotated[Path, "File for the bulletin; publish it."],
    as_json: Json = False,
) -> None:
    """Open the reports of a batch, run the task, and seal one answer to each address."""
    from coatcheck.protocol.server import Server  # noqa: PLC0415 - loads every mechanism and task

    round_ = verify_signatures(read_terms_file(terms_file))
    raw = Server(round_, keys=read_keys(key).pairs).answer(read_file(batch))
    write_file(out, raw)
    show(bulletin_document(raw, round_), as_json=as_json)


# -- any file of a round


@command()
def inspect(
    file: Path,
    *,
    terms_file: Annotated[
        Path | None,
        "--terms",
        "The signed terms, for files of a round.",
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what a file is and what is public about it; secrets are not shown."""
    raw = read_file(file)
    kinds: dict[str, Callable[[bytes], dict[str, Any]]] = dict(_WITHOUT_TERMS)
    if terms_file is not None:
        round_ = verify_signatures(read_terms_file(terms_file))
        kinds |= {kind: partial(decode, round_=round_) for kind, decode in _WITH_TERMS.items()}
    for kind, decode in kinds.items():
        # A file that does not decode as this kind may be of another.
        with contextlib.suppress(Error):
            show({"kind": kind, "bytes": len(raw), **decode(raw)}, as_json=as_json)
            return
    hint_terms = "" if terms_file else "; for an upload, batch, bulletin or letter give `--terms`"
    raise Misuse(f"{file} is not a file of any kind that this version knows{hint_terms}")


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
    checkpoint = Checkpoint.decode(raw)
    return {"size": checkpoint.size, "root": checkpoint.root.hex()}


def _upload(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    upload = Upload.decode(raw, round_)
    return {"group": round_.terms.groups[upload.group].name, "id": upload.id.hex()}


def _batch(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    batch = Batch.decode(raw, round_)
    return {"hop": batch.manifest.hop, "reports": [len(group) for group in batch.items]}


def _bulletin(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    bulletin = verify_bulletin(raw, round_)
    return {**bulletin_document(raw, round_), "root": bulletin.heading.root.hex()}


def _letter(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    return {"to": Posting.decode(raw, round_).recipient.hex()}


_WITHOUT_TERMS: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "signed terms": lambda raw: terms_document(verify_signatures(read_signed(raw))),
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
