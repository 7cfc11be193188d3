"""`coatcheck take-part` and `coatcheck letters`: a person's side of a round, over the network."""

import asyncio
from pathlib import Path
from typing import Any

import click

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli.files import hint, read_hex, read_trust, show
from coatcheck.cli.options import CA, JSON, TICKET, TRUST, taking_part
from coatcheck.cli.person import hint_caveat, letters_of, told, value_of
from coatcheck.protocol.client import Limit
from coatcheck.services.person.visit import Visit

_ROUND = click.option("--round", "url", required=True, help="The round's address.")
_TICKET = TICKET(help="Your ticket.")
_TRUST = TRUST(required=True)


@click.command("take-part")
@_ROUND
@taking_part
@TICKET(help="Where to keep your ticket; if it exists already, it is used again.")
@click.option("--token", default="", help="An enrolment token, if the shuffler asks for one.")
@click.option("--wait", default=600.0, show_default=True, help="Seconds to wait for the answer.")
@CA
@JSON
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

    After a crash, run the same command again: it sends the report stored in the ticket, the same
    bytes.
    """
    book = Ledger.open(ledger)
    stored = ticket.exists()

    async def whole() -> dict[str, Any]:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            limit = Limit(epsilon, delta)
            invitation = await visit.invitation(group=group, limit=limit)
            promise = invitation.guarantee
            hint(f"terms checked: a crowd of at least {promise.crowd}, ε = {promise.epsilon:.3g}")
            hint_caveat(promise)
            found = None if stored else value_of(invitation, value)
            visit.prepare(invitation, found, ledger=book, clamp=clamp)
            kept = await visit.hand_in(invitation.round, token=token)
            signed = "has signed for" if kept.receipt else "has closed, and may or may not have"
            hint(f"the shuffler {signed} your report; waiting for the crowd")
            answer = await visit.collect(ledger=book, patience=wait)
            return told(answer, invitation.round)

    show(asyncio.run(whole()), as_json=as_json)


@click.group()
def letters() -> None:
    """Write to your partners, and read what they wrote."""


@letters.command()
@_ROUND
@_TRUST
@_TICKET
@click.option("--to", required=True, help="A partner's contact, as `take-part` prints it.")
@click.option("--message", required=True, help="The text.")
@CA
def write(
    *, url: str, trust: tuple[str, ...], ticket: Path, to: str, message: str, ca: str
) -> None:
    """Write a sealed letter to a partner and post it on the board."""
    contact = read_hex(to, "--to is a contact in hexadecimal, as `take-part` prints it")

    async def whole() -> None:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            await visit.write(message.encode(), to=contact)

    asyncio.run(whole())
    hint("the letter is on the board: only your partner can open it")


@letters.command()
@_ROUND
@_TRUST
@_TICKET
@CA
@JSON
def read(*, url: str, trust: tuple[str, ...], ticket: Path, ca: str, as_json: bool) -> None:
    """Read the new letters to you."""

    async def whole() -> dict[str, Any]:
        async with Visit(url, path=ticket, trusted=read_trust(trust), ca=ca) as visit:
            return letters_of(await visit.read())

    show(asyncio.run(whole()), as_json=as_json)
