"""`coatcheck take-part` and `coatcheck letters`: a person's side over the network."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli.files import CA, FILE, TRUST, hint, read_trust, show
from coatcheck.cli.person import hint_caveat, told, value_of
from coatcheck.errors import Misuse
from coatcheck.protocol.client import Limit
from coatcheck.services.person.visit import Visit

_R = TypeVar("_R")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_ROUND = click.option("--round", "url", required=True, help="The round's address.")
_TICKET = click.option(
    "--ticket", type=FILE, required=True, help="Your ticket; if it is there, it is used again."
)
_TRUST = TRUST(required=True)


@click.command("take-part")
@_ROUND
@_TRUST
@click.option("--group", required=True, help="Which group of the terms you belong to.")
@click.option("--value", required=True, help="Your value, such as 31.23,121.47; - reads stdin.")
@click.option("--epsilon", type=float, required=True, help="The most that this round may cost.")
@click.option("--delta", type=float, required=True, help="With what chance it may cost more.")
@click.option("--ledger", type=FILE, required=True, help="Your ledger: coatcheck ledger begin.")
@_TICKET
@click.option("--clamp", is_flag=True, help="Move a value outside the domain to its edge.")
@click.option("--token", default="", help="An enrolment token, if the shuffler asks for one.")
@click.option("--wait", default=600.0, show_default=True, help="Seconds to wait for the answer.")
@CA
@_JSON
def take_part(
    *,
    url: str,
    trust: tuple[str, ...],
    group: str,
    value: str,
    epsilon: float,
    delta: float,
    ledger: Path,
    ticket: Path,
    clamp: bool,
    token: str,
    wait: float,
    ca: str,
    as_json: bool,
) -> None:
    """Join a round, wait for its answers, and show your own.

    After a crash run the same command again: the ticket holds the sealed report, and the same
    bytes are sent.
    """
    book = Ledger.open(ledger)
    stored = ticket.exists()

    async def whole() -> dict[str, Any]:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            limit = Limit(epsilon, delta)
            invitation = await visit.invitation(group=group, limit=limit)
            hint(invitation_sentence(invitation.guarantee.epsilon, invitation.guarantee.crowd))
            hint_caveat(invitation.guarantee)
            found = None if stored else value_of(invitation, value)
            visit.prepare(invitation, found, ledger=book, clamp=clamp)
            kept = await visit.hand_in(invitation.round, token=token)
            signed = "has signed" if kept.receipt else "closed, and may or may not have signed"
            hint(f"the shuffler {signed} for your report; waiting for the crowd")
            answer = await visit.collect(patience=wait)
            return told(answer, invitation.round)

    show(_run(whole()), as_json=as_json)


def invitation_sentence(epsilon: float, crowd: int) -> str:
    """Say what the round promises."""
    return f"the terms hold: you hide among {crowd} people or more, at ε = {epsilon:.3g}"


@click.group()
def letters() -> None:
    """Write to your match, and read what it wrote."""


@letters.command()
@_ROUND
@_TRUST
@_TICKET
@click.option("--to", required=True, help="A partner's contact, as `take-part` prints it.")
@click.option("--message", required=True, help="The text; it is sealed to the partner.")
@CA
def write(
    *, url: str, trust: tuple[str, ...], ticket: Path, to: str, message: str, ca: str
) -> None:
    """Write a sealed letter and post it."""
    try:
        contact = bytes.fromhex(to)
    except ValueError:
        raise Misuse("--to is a contact in hexadecimal, as `take-part` prints it") from None

    async def whole() -> None:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            await visit.write(message.encode(), to=contact)

    _run(whole())
    hint("the letter is on the board: only your partner can open it")


@letters.command()
@_ROUND
@_TRUST
@_TICKET
@CA
@_JSON
def read(*, url: str, trust: tuple[str, ...], ticket: Path, ca: str, as_json: bool) -> None:
    """Read the new letters to you."""

    async def whole() -> dict[str, Any]:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            inbox = await visit.read()
            listed = [
                {
                    "contact": letter.sender.raw.hex(),
                    "text": letter.body.decode(errors="replace"),
                }
                for letter in inbox.letters
            ]
            return {"letters": listed, "refused": inbox.refused}

    show(_run(whole()), as_json=as_json)


def _run(work: Coroutine[Any, Any, _R]) -> _R:
    return asyncio.run(work)
