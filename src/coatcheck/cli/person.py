"""The commands of a person: `join`, `collect`, `write`, `read`.

Everything private stays in the ticket, a file that only its owner can read.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from coatcheck.accounting.amplification import Guarantee
from coatcheck.accounting.ledger import Ledger
from coatcheck.cli.files import (
    FILE,
    TRUST,
    hint,
    now,
    read_terms_file,
    read_trust,
    show,
)
from coatcheck.cli.files import read as read_file
from coatcheck.cli.files import write as write_file
from coatcheck.domains import Categories, Product
from coatcheck.errors import Error, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SettledTerms, SignedTerms, settle
from coatcheck.protocol.client import Invitation, Limit
from coatcheck.protocol.keys import Contact
from coatcheck.protocol.messages import Answer, PayloadFormat
from coatcheck.protocol.terms import Round
from coatcheck.protocol.verification import verify_bulletin
from coatcheck.randomizers import from_params
from coatcheck.services.person.tickets import TicketFile

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_TERMS = click.option("--terms", "terms_file", type=FILE, required=True, help="Signed terms.")
_TICKET = click.option("--ticket", type=FILE, required=True, help="Your ticket.")
_BULLETIN = click.option("--bulletin", type=FILE, required=True, help="The round's bulletin.")


@click.command()
@_TERMS
@TRUST(required=True)
@click.option("--group", required=True, help="Which group of the terms you belong to.")
@click.option("--value", required=True, help="Your value, such as 31.23,121.47; - reads stdin.")
@click.option("--epsilon", type=float, required=True, help="The most that this round may cost.")
@click.option("--delta", type=float, required=True, help="With what chance it may cost more.")
@click.option("--ledger", type=FILE, required=True, help="Your ledger: coatcheck ledger begin.")
@click.option(
    "--note", default="", help="Bytes (hex) that travel unrandomized, if terms have them."
)
@click.option("--clamp", is_flag=True, help="Move a value outside the domain to its edge.")
@click.option("--ticket", type=FILE, required=True, help="Where to keep your ticket (mode 0600).")
@click.option("--out", type=FILE, required=True, help="The sealed report to hand to the shuffler.")
@_JSON
def join(
    *,
    terms_file: Path,
    trust: tuple[str, ...],
    group: str,
    value: str,
    epsilon: float,
    delta: float,
    ledger: Path,
    note: str,
    clamp: bool,
    ticket: Path,
    out: Path,
    as_json: bool,
) -> None:
    """Check the terms, randomize your value once, and seal the report.

    If the ticket is there already, its stored report is written again: the same bytes, no new
    noise, no second cost.
    """
    trusted = read_trust(trust)
    invitation = client.examine(
        read_terms_file(terms_file),
        group=group,
        trusted=trusted,
        limit=Limit(epsilon, delta),
        now=now(),
    )
    hint_caveat(invitation.guarantee)
    book, store = Ledger.open(ledger), TicketFile(ticket)
    stored = ticket.exists()
    if stored:
        hint("this ticket holds your report already: the same bytes are written again")
    try:
        raw = bytes.fromhex(note)
    except ValueError:
        raise Misuse("--note is hexadecimal, such as 00ff") from None
    own = None if stored else value_of(invitation, value)
    mine = invitation.join(own, ledger=book, store=store, note=raw, clamp=clamp)
    write_file(out, mine.upload, replace=True)
    show(
        {
            "address": mine.keys.address.hex(),
            "epsilon": invitation.guarantee.epsilon,
            "delta": invitation.guarantee.delta,
            "crowd": invitation.guarantee.crowd,
            "spent": book.spent,
            "left": book.left,
        },
        as_json=as_json,
    )


def hint_caveat(guarantee: Guarantee) -> None:
    """Tell a person, before anything is sent, what the promise does not cover."""
    if guarantee.caveat:
        hint(guarantee.caveat[0].lower() + guarantee.caveat[1:].removesuffix("."))


def value_of(invitation: Invitation, text: str) -> Any:
    """Read a value as the group's domain takes it; `-` reads it from standard input."""
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
            "--value is a list of numbers such as 31.23,121.47, a label, or for several fields a"
            " JSON object"
        ) from None


@click.command()
@_TERMS
@_TICKET
@_BULLETIN
@click.option("--receipt", type=FILE, help="The shuffler's receipt, kept in your ticket.")
@_JSON
def collect(
    *, terms_file: Path, ticket: Path, bulletin: Path, receipt: Path | None, as_json: bool
) -> None:
    """Find your own answer on the bulletin and open it."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    mine = store.read()
    if receipt is not None:
        mine = client.keep_receipt(mine, read_file(receipt), round_)
        store.update(mine)
    answer = client.collect(mine, verify_bulletin(read_file(bulletin), round_))
    show(told(answer, round_), as_json=as_json)


def told(answer: Answer, round_: Round) -> dict[str, Any]:
    """Return an answer in the words of its reader, partners' places estimated."""
    told: dict[str, Any] = {}
    if answer.values or not answer.partners:
        told["values"] = list(answer.values)
    if answer.shared:
        told["shared"] = list(answer.shared)
    if answer.partners:
        told["partners"] = [
            {
                "group": round_.terms.groups[partner.group].name,
                "address": client.address(partner, round_).hex(),
                "estimate": _estimate(partner.group, partner.payload, round_),
                "contact": partner.contact.hex(),
            }
            for partner in answer.partners
        ]
    return told


def _estimate(group: int, payload: bytes, round_: Round) -> Any:
    """Return a partner's place as the server reads it: numbers, a label, or both by field."""
    if not payload:
        return None
    import numpy as np  # noqa: PLC0415 - only for a partner's place

    of = round_.terms.groups[group]
    randomizer = from_params(of.randomizer)
    format_ = PayloadFormat.between(randomizer.low, randomizer.high)
    reports, _ = format_.decode(np.frombuffer(payload, dtype=np.uint8).reshape(1, -1))
    how: Any = of.decode
    found = randomizer.estimate(reports, how)
    if isinstance(found, dict):
        return {name: np.asarray(part)[0].tolist() for name, part in found.items()}
    return np.asarray(found)[0].tolist()


@click.command()
@_TERMS
@_TICKET
@click.option("--to", required=True, help="A partner's contact, as `collect` prints it.")
@click.option("--message", required=True, help="The text; - reads stdin.")
@click.option("--out", type=FILE, required=True, help="The sealed letter to post on the board.")
def write(*, terms_file: Path, ticket: Path, to: str, message: str, out: Path) -> None:
    """Write a sealed letter to a partner."""
    round_ = _round(terms_file)
    if message == "-":
        message = sys.stdin.read()
    try:
        contact = Contact.decode(round_.suite, bytes.fromhex(to))
    except ValueError:
        raise Misuse("--to is a contact in hexadecimal, as `collect` prints it") from None
    store = TicketFile(ticket)
    posting, after = client.write(store.read(), message.encode(), to=contact.raw, round_=round_)
    # The ticket first: a counter that was used must never be used again.
    store.update(after)
    write_file(out, posting)


@click.command()
@click.argument("postings", type=FILE, nargs=-1, required=True)
@_TERMS
@_TICKET
@_JSON
def read(*, postings: tuple[Path, ...], terms_file: Path, ticket: Path, as_json: bool) -> None:
    """Read the letters to you among all that are posted; each is read once."""
    round_ = _round(terms_file)
    store = TicketFile(ticket)
    inbox = client.read(store.read(), [read_file(path) for path in postings], round_)
    store.update(inbox.ticket)
    letters = [
        {
            "from": letter.sender.address.hex(),
            "contact": letter.sender.raw.hex(),
            "counter": letter.counter,
            "text": letter.body.decode(errors="replace"),
        }
        for letter in inbox.letters
    ]
    show({"letters": letters, "refused": inbox.refused}, as_json=as_json)


def _round(path: Path) -> SettledTerms:
    """Read the terms one joined with; the ticket knows their digest, so no trust is needed."""
    signed: SignedTerms = read_terms_file(path)
    try:
        return settle(signed)
    except Error as error:
        raise Refused(f"{path} are not the signed terms of a round: {error}") from None
