"""`coatcheck join`, `collect`, `write` and `read`: a person's side of a round, over files.

Everything private stays in the ticket, a file that only its owner can read.
"""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from coatcheck.accounting.amplification import Guarantee
from coatcheck.accounting.ledger import Ledger
from coatcheck.cli.answers import answer_text
from coatcheck.cli.files import now, read_terms_file, read_trust
from coatcheck.cli.files import read as read_file
from coatcheck.cli.files import write as write_file
from coatcheck.cli.options import HEX, Json, TakingPart, Terms, Ticket, To, command
from coatcheck.cli.output import hint, show
from coatcheck.domains import Categories, Product
from coatcheck.errors import Error, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SettledTerms, settle
from coatcheck.protocol.client import Inbox, Invitation, Limit
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.messages import Answer, PayloadFormat
from coatcheck.protocol.terms import Round
from coatcheck.protocol.verification import verify_bulletin
from coatcheck.randomizers import from_params
from coatcheck.services.person.tickets import TicketFile


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


def _round(path: Path) -> SettledTerms:
    """Read the terms of a ticket; it holds their digest, so no trusted key is needed."""
    try:
        return settle(read_terms_file(path))
    except Error as error:
        raise Refused(f"{path} is not the signed terms of a round: {error}") from None
