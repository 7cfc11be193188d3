"""`coatcheck join`, `collect`, `write` and `read`: a person's side of a round, over files.

Everything private stays in the ticket, a file that only its owner can read.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from coatcheck.accounting.amplification import Guarantee
from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands
from coatcheck.cli.files import now, read_file, read_object, read_terms_file, read_trust, write_file
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
from coatcheck.cli.output import answer_text, hint, show
from coatcheck.domains import Categories, Product
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
from coatcheck.protocol.client import Inbox, Invitation, Limit
from coatcheck.protocol.keys import Contact, SecretKeys, read_keys, read_public
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.outcomes import OUTCOMES, outcome_text
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import SUITES, Anybody, Round, Tokens, read_terms, suite_named
from coatcheck.protocol.ticket import Receipt, read_ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.bulletins import Checkpoint, Heading, Posting, heading_size
from coatcheck.protocol.wire.encoding import document
from coatcheck.protocol.wire.messages import Answer, PayloadFormat
from coatcheck.protocol.wire.uploads import REASONS, Upload
from coatcheck.randomizers import from_params
from coatcheck.services.person.store import TicketFile

# HOUSE-DOC cli.terms: '`coatcheck keygen` and `coatcheck terms`: the keys of the roles, and terms that they sign.'
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@command()
def keygen(
    name: str,
    *,
    out: Annotated[Path, "The key file, for you alone (mode 0600)."],
    url: Annotated[
        str, "Where people find you: https://HOST[:PORT]; a service's settings say it."
    ] = "",
    suite: Annotated[str, one_of(SUITES), " | ".join(SUITES)] = "x25519",
) -> None:
    """Make the keys of a server, shuffler or board; print the public ones.

    Publish what is printed in a place that people trust: they need it to recognise you.
    """
    try:
        keys = msgspec.convert(
            {"name": name, "suite": suite, "seed": system().token(32).hex()}
            | ({"url": url} if url else {}),
            type=SecretKeys,
        )
    except msgspec.ValidationError as error:
        raise Misuse(f"this name or address does not work: {error}") from None
    write_file(out, document(keys), secret=True)
    click.echo(document(keys.public).decode(), nl=False)
    hint(f"keep {out} secret; publish what was printed")


@click.group(cls=Commands)
def terms() -> None:
    """Write, sign and check the public terms of a round."""


@command(terms)
def propose_(
    draft: Path,
    *,
    key: Key,
    shuffler: Annotated[tuple[Path, ...], "A shuffler's public keys, once per shuffler in order."],
    board: Annotated[Path, "The board's public keys."],
    opens: Annotated[str, "`now`, +10m or a Unix time."] = "now",
    closes: Annotated[str, "When a full round is released."] = "+1h",
    expires: Annotated[str, "When it ends without a crowd."] = "+2h",
    open_: Annotated[bool, "--open", "Admit anybody, not only people with a token."] = False,
    out: Annotated[Path, "The signed terms."] = Path("-"),
) -> None:
    """Compute the sizes and promises of a DRAFT and sign it as the server."""
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - loads mechanisms and tasks

    keys = read_keys(key)
    begin = now()
    admission = Anybody() if open_ else Tokens()
    made = read_draft(read_object(draft)).terms(
        suite=suite_named(keys.suite),
        server=keys.public.party,
        shufflers=[read_public(path).shuffler(admission) for path in shuffler],
        board=read_public(board).notary,
        times=(_time(opens, begin), _time(closes, begin), _time(expires, begin)),
    )
    write_file(out, write_signed(propose(made, keys=keys.pairs)))
    hint("next, every shuffler signs these terms: coatcheck terms sign")


@command(terms)
def sign(
    file: Path,
    *,
    key: Key,
    pledges: Annotated[Path, "A file that remembers what you signed."],
    out: Annotated[Path, "The terms with your signature added."] = Path("-"),
) -> None:
    """Sign terms as a shuffler, once per round: the pledge file remembers which version."""
    known: dict[str, str] = msgspec.json.decode(read_file(pledges)) if pledges.exists() else {}
    pledged = {name: bytes.fromhex(digest) for name, digest in known.items()}
    offered, mine = read_terms_file(file), read_keys(key)
    signed = countersign(offered, keys=mine.pairs, pledged=pledged)
    for entry in read_terms(offered.document.encode()).terms.shufflers:
        if entry.verifying == mine.public.verifying:
            check_own_entry(entry, url=mine.public.party.url, admission=entry.admission)
            hint(f"you sign that you admit people by: {entry.admission.__struct_config__.tag}")
    # Stored before the signature leaves: after a crash no other version can be signed.
    write_file(
        pledges, document({n: d.hex() for n, d in pledged.items()}), secret=True, replace=True
    )
    write_file(out, write_signed(signed), replace=out == file)


@command(terms)
def check(file: Path, *, trust: Trust = (), as_json: Json = False) -> None:
    """Check every signature and print what the terms say."""
    signed = read_terms_file(file)
    round_ = accept(signed, trusted=read_trust(trust)) if trust else verify_signatures(signed)
    show(describe(round_), as_json=as_json)


def _named(params: dict[str, Any]) -> str:
    """Name a mechanism; of a coin also how often it speaks, and the mechanism behind it."""
    part = params.get("part")
    if not isinstance(part, dict):
        return str(params.get("name"))
    return f"{params.get('name')} of rate {params.get('rate')} before {part.get('name')}"


def describe(round_: Round) -> dict[str, Any]:
    """Return what the terms say, as a reader needs it."""
    made = round_.terms
    groups = {
        group.name: {
            "mechanism": _named(group.randomizer),
            "minimum": group.minimum,
            "epsilon": group.promise.epsilon,
            "delta": group.promise.delta,
            "corrupted": group.promise.corrupted,
            "exposed": group.promise.exposed,
            "upload_size": round_.upload_sizes[number],
            "entry_size": round_.entry_size(number),
        }
        for number, group in enumerate(made.groups)
    }
    times = {"opens": made.opens, "closes": made.closes, "expires": made.expires}
    head = {"round": made.round, "digest": round_.digest.hex(), "suite": made.suite}
    parties = (made.server, *made.shufflers, made.board)
    where = {party.name: party.url for party in parties}
    admission = [party.admission.__struct_config__.tag for party in made.shufflers]
    known = {"where": where, "admission": admission}
    return {**head, "task": made.task.name, **times, **known, "groups": groups}


def _time(text: str, begin: int) -> int:
    """Read `now`, a time from now such as +10m, or seconds since 1970."""
    if text == "now":
        return begin
    try:
        if text[0] in "+-":
            return begin + int(text[:-1]) * _UNITS[text[-1]]
        return int(text)
    except (ValueError, KeyError, IndexError):
        raise Misuse(f"{text!r} is not a time: write `now`, +10m, -1h or a Unix time") from None


@command()
def join(
    *,
    terms_file: Terms,
    asked: TakingPart,
    note: Annotated[bytes, HEX, "Bytes (hex) sent without noise, if the terms allow it."] = b"",
    ticket: Annotated[Path, "Where to keep your ticket (mode 0600)."],
    out: Annotated[Path, "The sealed report to hand to the shuffler."],
    as_json: Json = False,
) -> None:
    """Check the terms, randomize your value once, and seal the report.

    If the ticket exists already, the report stored in it is written again: the same bytes, no new
    noise, no second cost.
    """
    trusted = read_trust(asked.trust)
    signed, limit = read_terms_file(terms_file), Limit(asked.epsilon, asked.delta)
    invitation = client.examine(signed, group=asked.group, trusted=trusted, limit=limit, now=now())
    hint_caveat(invitation.guarantee)
    book, store = Ledger.open(asked.ledger), TicketFile(ticket)
    stored = ticket.exists()
    if stored:
        hint("this ticket holds your report already: the same bytes are written again")
    own = None if stored else value_of(invitation, asked.value)
    mine = invitation.join(own, ledger=book, store=store, note=note, clamp=asked.clamp)
    for hop, raw in enumerate(mine.registrations, start=2):
        write_file(Path(f"{out}.trap{hop}"), raw, replace=True)
        hint(f"hand {out}.trap{hop} to shuffler {hop} before the first one gets {out}")
    write_file(out, mine.upload, replace=True)
    promise = invitation.guarantee
    paid = {"epsilon": promise.epsilon, "delta": promise.delta, "crowd": promise.crowd}
    left = {"spent": book.spent, "left": book.left}
    show({"address": mine.keys.address.hex(), **paid, **left}, as_json=as_json)


def hint_caveat(guarantee: Guarantee) -> None:
    """Say what the promise does not cover, before anything is sent."""
    if guarantee.caveat:
        hint(guarantee.caveat[0].lower() + guarantee.caveat[1:].removesuffix("."))


def value_of(invitation: Invitation, text: str) -> Any:
    """Read a value of the group's domain; `-` reads it from standard input."""
    if text == "-":
        text = sys.stdin.read().strip()
    domain = invitation.randomizer.domain
    if isinstance(domain, Categories):
        return text
    try:
        if isinstance(domain, Product):
            return json.loads(text)
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        # The value is private: the message does not repeat it.
        raise Misuse(
            "--value is numbers such as 31.23,121.47, a label, or a JSON object with one value per"
            " field"
        ) from None


@command()
def collect(
    *,
    terms_file: Terms,
    ticket: Ticket,
    bulletin: Annotated[Path, "The round's bulletin."],
    receipt: Annotated[Path | None, "The shuffler's receipt, to store in your ticket."] = None,
    ledger: Annotated[Path | None, "Your ledger, to be told if the crowd was too small."] = None,
    as_json: Json = False,
) -> None:
    """Find your own answer on the bulletin and open it."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    mine = store.read()
    if receipt is not None:
        mine = client.keep_receipt(mine, read_file(receipt), round_)
        store.update(mine)
    book = None if ledger is None else Ledger.open(ledger)
    answer = client.collect(mine, verify_bulletin(read_file(bulletin), round_), ledger=book)
    found = told(answer, round_)
    show(found, as_json=as_json, text="\n".join(answer_text(found)))


def told(answer: Answer, round_: Round) -> dict[str, Any]:
    """Return an answer as its reader needs it, with each partner's value as the server read it."""
    told: dict[str, Any] = {}
    if answer.values or not answer.partners + answer.second:
        told["values"] = list(answer.values)
    if answer.shared:
        told["shared"] = list(answer.shared)
    for name, named in (("partners", answer.partners), ("second", answer.second)):
        if named:
            told[name] = [
                {
                    "group": round_.terms.groups[partner.group].name,
                    "address": client.address(partner, round_).hex(),
                    "estimate": _estimate(partner.group, partner.payload, round_),
                    "contact": partner.contact.hex(),
                }
                for partner in named
            ]
    return told


def _estimate(group: int, payload: bytes, round_: Round) -> Any:
    """Return a partner's value as the server reads it: numbers, a label, or both by field."""
    if not payload:
        return None
    import numpy as np  # noqa: PLC0415 - only for a partner's value

    of = round_.terms.groups[group]
    randomizer = from_params(of.randomizer)
    format_ = PayloadFormat.between(randomizer.low, randomizer.high)
    reports, _ = format_.decode(np.frombuffer(payload, dtype=np.uint8).reshape(1, -1))
    how: Any = of.decode
    found = randomizer.estimate(reports, how)
    if isinstance(found, dict):
        return {name: np.asarray(part)[0].tolist() for name, part in found.items()}
    return np.asarray(found)[0].tolist()


@command()
def write(
    *,
    terms_file: Terms,
    ticket: Ticket,
    to: To,
    message: Annotated[str, "The text; - reads stdin."],
    out: Annotated[Path, "The sealed letter to post on the board."],
) -> None:
    """Write a sealed letter to a partner."""
    round_ = _round(terms_file)
    if message == "-":
        message = sys.stdin.read()
    contact = Contact.decode(round_.suite, to)
    store = TicketFile(ticket)
    posting, after = client.write(store.read(), message.encode(), to=contact.raw, round_=round_)
    # The ticket is stored first: a counter must never be used twice.
    store.update(after)
    write_file(out, posting)


@command()
def read(
    postings: tuple[Path, ...], *, terms_file: Terms, ticket: Ticket, as_json: Json = False
) -> None:
    """Find and open the letters to you among POSTINGS; each is shown once."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    inbox = client.read(store.read(), [read_file(path) for path in postings], round_)
    store.update(inbox.ticket)
    show(letters_of(inbox), as_json=as_json)


def letters_of(inbox: Inbox) -> dict[str, Any]:
    """Return the letters that were read, and how many were refused."""
    letters = [
        {
            "from": letter.sender.address.hex(),
            "contact": letter.sender.raw.hex(),
            "counter": letter.counter,
            "text": letter.body.decode(errors="replace"),
        }
        for letter in inbox.letters
    ]
    return {"letters": letters, "refused": inbox.refused}


def _round(path: Path) -> AgreedTerms:
    """Read the terms of a ticket; it holds their digest, so no trusted key is needed."""
    try:
        return verify_signatures(read_terms_file(path))
    except Error as error:
        raise Refused(f"{path} is not the signed terms of a round: {error}") from None


# HOUSE-DOC cli.shuffle_and_answer: "`coatcheck shuffle` and `coatcheck answer`: a shuffler's and a server's step, over files.\n\nEach needs its own key file, the signed terms, and the file that the step before it wrote.\n"
@command()
def shuffle(
    uploads: tuple[Path, ...] = (),
    *,
    terms_file: Terms,
    key: Key,
    batch: Annotated[Path | None, "The batch of the shuffler before you."] = None,
    receipts: Annotated[Path | None, "A folder for the receipts of the uploads."] = None,
    out: Annotated[Path, "The batch to pass on."],
    as_json: Json = False,
) -> None:
    """Gather uploads, open your layer, and release the reports in a secret order.

    A later shuffler of a cascade gives its people's `.trap` files as UPLOADS, and the batch of the
    shuffler before it. Nothing is written unless every group has its minimum crowd.
    """
    round_ = verify_signatures(read_terms_file(terms_file))
    keys = read_keys(key).pairs
    shuffler = Shuffler(round_, keys=keys, state=fresh_state(system()))
    signed = {path.name: _receive(shuffler, path) for path in uploads}
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
    turned = sum(receipt is None for receipt in signed.values())
    show({"taken": len(signed) - turned, "turned_away": turned}, as_json=as_json)


def _receive(shuffler: Shuffler, path: Path) -> bytes | None:
    """Take one upload; a bad file is left out and the others go on."""
    try:
        return shuffler.receive(read_file(path), now=now())
    except Error as error:
        hint(f"an upload was turned away: {error}")
        return None


@command()
def answer(
    batch: Path,
    *,
    terms_file: Terms,
    key: Key,
    out: Annotated[Path, "The bulletin to publish."],
    as_json: Json = False,
) -> None:
    """Open a batch, run the task, and seal one answer to each address."""
    from coatcheck.protocol.server import Server  # noqa: PLC0415 - loads every mechanism and task

    round_ = verify_signatures(read_terms_file(terms_file))
    raw = Server(round_, keys=read_keys(key).pairs).answer(read_file(batch))
    write_file(out, raw)
    show(count(raw, round_), as_json=as_json)


def count(raw: bytes, round_: Round) -> dict[str, Any]:
    """Return a bulletin's counts by group and reason."""
    heading = Heading.decode(
        raw[: heading_size(len(round_.terms.groups), len(round_.terms.shufflers))]
    )
    groups = {}
    for group, tally in zip(round_.terms.groups, heading.tallies, strict=True):
        dropped = {why: n for why, n in zip(REASONS, tally.dropped, strict=True) if n}
        groups[group.name] = {"received": tally.received, "dropped": dropped, "kept": tally.kept}
    outcome = OUTCOMES[heading.outcome]
    return {"outcome": outcome, "why": outcome_text(heading, round_), "groups": groups}


# HOUSE-DOC cli.inspect: '`coatcheck inspect`: what a file is, and what everybody may know of it.'
@command()
def inspect(
    file: Path,
    *,
    terms_file: Annotated[Path | None, "--terms", "The terms, for files of a round."] = None,
    as_json: Json = False,
) -> None:
    """Say what a file is and what everybody may know of it; secrets are not shown."""
    raw = read_file(file)
    looks: dict[str, Callable[[bytes], dict[str, Any]]] = dict(_ALONE)
    if terms_file is not None:
        round_ = verify_signatures(read_terms_file(terms_file))
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


def _upload(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    upload = Upload.decode(raw, round_)
    return {"group": round_.terms.groups[upload.group].name, "id": upload.id.hex()}


def _batch(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    batch = Batch.decode(raw, round_)
    return {"hop": batch.manifest.hop, "reports": [len(group) for group in batch.items]}


def _bulletin(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    bulletin = verify_bulletin(raw, round_)
    return {**count(raw, round_), "root": bulletin.heading.root.hex()}


def _letter(raw: bytes, round_: AgreedTerms) -> dict[str, Any]:
    return {"to": Posting.decode(raw, round_).recipient.hex()}


_ALONE: dict[str, Callable[[bytes], dict[str, Any]]] = {
    "signed terms": lambda raw: describe(verify_signatures(read_signed(raw))),
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
