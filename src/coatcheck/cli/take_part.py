"""`coatcheck take-part` and `coatcheck letters`: a person's side of a round, over the network."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import httpx2  # noqa: F401 - without the extra `serve`, say so before any option is read

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands
from coatcheck.cli.files import read_trust
from coatcheck.cli.options import (
    ADDRESS,
    Ca,
    Json,
    Relay,
    TakingPart,
    Trust,
    Witnesses,
    command,
    one_of,
)
from coatcheck.cli.output import answer_text, contact_of, hint, keep_contacts, show
from coatcheck.cli.profile import begun, boards, forget, remember, ticket_of
from coatcheck.cli.protocol_steps import hint_caveat, letters_of, told, value_of
from coatcheck.durable_files import read_bytes
from coatcheck.errors import Error, Misuse, Unavailable
from coatcheck.protocol.client import Limit
from coatcheck.protocol.settling.candidates import Candidates, settle_terms
from coatcheck.services.person.board_view import MOST, RETRIEVALS
from coatcheck.services.person.letters import settle as settle_by_letter
from coatcheck.services.person.session import Session, current_round, headers_for, service_of

_RETRIEVAL = f"whole | entry (with a relay) | by-size: one entry above {MOST:,} of them."
_Ticket = Annotated[Path | None, "--ticket", "Where your ticket is; else in your profile's folder."]


@command(doing="waiting for the round; Ctrl-C is safe, the same command goes on from there")
def take_part(
    round_url: Annotated[str, ADDRESS],
    *,
    asked: TakingPart,
    place: _Ticket = None,
    token: Annotated[str, "A token, if shufflers ask for one: one each, by commas."] = "",
    token_file: Annotated[Path | None, "A file with the token."] = None,
    wait: Annotated[float, "Seconds to wait for the answer."] = 600.0,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    retrieval: Annotated[str, one_of(tuple(RETRIEVALS)), _RETRIEVAL] = "by-size",
    settle: Annotated[bool, "Settle by letter with the candidates you get."] = False,
    words: Annotated[str, "For the partner you settle with; else the exact value."] = "",
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Join the round at ROUND_URL, wait for its answers, and show your own.

    Of a service that runs rounds again and again, the first shuffler's address is enough: you
    take part in its current round. With a profile (`coatcheck me begin`), a value is all there is
    to say, and your group if there are several. After a crash, run the same command again: it
    sends the report stored in the ticket, the same bytes, and the letters of settling likewise.
    """
    book, trusted = Ledger.open(asked.ledger), read_trust(asked.trust, witnesses=witnesses)
    if service := service_of(round_url):
        way = partial(current_round, trusted=trusted, relay=relay, ca=ca)
        round_url = _round_of(service, place, way)
    ticket, kept_boards = ticket_of(round_url, place), boards(asked.ledger)
    stored = ticket.exists()
    shown = read_bytes(token_file).decode(errors="replace").strip() if token_file else token

    async def whole() -> dict[str, Any]:
        async with Session(
            round_url, path=ticket, boards=kept_boards, trusted=trusted, relay=relay, ca=ca
        ) as visit:
            limit = Limit(asked.epsilon, asked.delta)
            invitation = await visit.invitation(group=asked.group, limit=limit)
            promise = invitation.guarantee
            hint(f"terms checked: a crowd of at least {promise.crowd}, ε = {promise.epsilon:.3g}")
            hint_caveat(promise)
            if settle:
                settle_terms(invitation.round)  # before anything is spent
            if not stored:
                headers_for(invitation.round, shown)
            found: Any = value_of(invitation, asked.value) if settle or not stored else None
            visit.prepare(invitation, found, ledger=book, clamp=asked.clamp)
            kept = await visit.hand_in(invitation.round, token=shown)
            signed = "has signed for" if kept.receipt else "has closed, and may or may not have"
            hint(f"the shuffler {signed} your report; waiting for the crowd")
            way = RETRIEVALS[retrieval]
            answer = await visit.collect(ledger=book, patience=wait, retrieval=way)
            document = told(answer, invitation.round)
            if settle:
                hint("candidates settle by letter; nobody but your partner learns the exact place")
                text = words or ", ".join(str(number) for number in found)
                document["settled"] = outcome(await settle_by_letter(visit, found, words=text))
            return document

    try:
        found = asyncio.run(whole())
    except Unavailable:
        raise  # the same command goes on with this round
    except Error:
        forget(service, place)
        raise
    forget(service, place)
    keep_contacts(ticket, found)
    show(found, as_json=as_json, text="\n".join(answer_text(found, round_url)))


def _round_of(
    service: str, place: Path | None, ask: Callable[[str], Coroutine[Any, Any, str]]
) -> str:
    """Give the round of a service that was begun here, or else its current one."""
    url = begun(service, place)
    if not url:
        url = asyncio.run(ask(service))
        remember(service, place, url)
        hint(f"the current round is {url}")
    return url


def outcome(side: Candidates) -> dict[str, Any]:
    """Return how settling ended: the partner, or all who are near, with their words."""
    words = {who: text.decode(errors="replace") for who, text in side.words.items()}
    return {
        "partners": [{"contact": who.hex(), "words": words.get(who, "")} for who in side.partners],
        "dropped": side.machine.progress.dropped,
    }


def _ticket(round_url: str, place: Path | None) -> Path:
    """Find the ticket of somebody who has taken part."""
    found = ticket_of(round_url, place)
    if not found.exists():
        raise Misuse(f"you have no ticket of {round_url}: give the address that take-part printed")
    return found


@click.group(cls=Commands)
def letters() -> None:
    """Write to your partners, and read what they wrote."""


@command(letters)
def write(
    round_url: Annotated[str, ADDRESS],
    *,
    trust: Trust,
    to: Annotated[str, "A partner: 1 for the first that `take-part` named, or a contact in hex."],
    message: Annotated[str, "The text."],
    place: _Ticket = None,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    ca: Ca = "",
) -> None:
    """Write a sealed letter to a partner and post it on the board."""
    ticket, kept = _ticket(round_url, place), boards()
    contact = contact_of(ticket, to)

    async def whole() -> None:
        trusted = read_trust(trust, witnesses=witnesses)
        async with Session(
            round_url, path=ticket, boards=kept, trusted=trusted, relay=relay, ca=ca
        ) as visit:
            await visit.write(message.encode(), to=contact)

    asyncio.run(whole())
    hint("the letter is on the board: only your partner can open it")


@command(letters)
def read(
    round_url: Annotated[str, ADDRESS],
    *,
    trust: Trust,
    place: _Ticket = None,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Read the new letters to you."""
    ticket, kept = _ticket(round_url, place), boards()

    async def whole() -> dict[str, Any]:
        trusted = read_trust(trust, witnesses=witnesses)
        async with Session(
            round_url, path=ticket, boards=kept, trusted=trusted, relay=relay, ca=ca
        ) as visit:
            return letters_of(await visit.read())

    show(asyncio.run(whole()), as_json=as_json)
