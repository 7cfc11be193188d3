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
from coatcheck.cli.documents import answer_document, letters_document
from coatcheck.cli.files import read_trust, read_value
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
from coatcheck.cli.output import answer_text, contact_of, hint, hint_caveat, show, store_contacts
from coatcheck.cli.profile import boards, forget, remember, ticket_of, unfinished_round
from coatcheck.durable_files import read_bytes
from coatcheck.errors import Error, Misuse, Unavailable
from coatcheck.protocol.client import Limit
from coatcheck.protocol.settling.candidates import Candidates, settle_terms
from coatcheck.services.person.board_view import MOST, RETRIEVALS
from coatcheck.services.person.letters import settle as settle_by_letter
from coatcheck.services.person.session import Session, current_round, headers_for, service_of

_RETRIEVAL = f"whole | entry (with a relay) | by-size: one entry if there are over {MOST:,}."
_Ticket = Annotated[Path | None, "--ticket", "Your ticket; by default in your profile's folder."]


@command(doing="waiting for the round; Ctrl-C is safe, and the same command continues")
def take_part(
    round_url: Annotated[str, ADDRESS],
    *,
    person: TakingPart,
    ticket: _Ticket = None,
    token: Annotated[str, "Admission token; several shufflers' tokens separated by commas."] = "",
    token_file: Annotated[Path | None, "File with the token."] = None,
    wait: Annotated[float, "Seconds to wait for the answer."] = 600.0,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    retrieval: Annotated[str, one_of(tuple(RETRIEVALS)), _RETRIEVAL] = "by-size",
    settle: Annotated[bool, "Settle by letter with the candidates in your answer."] = False,
    disclosures: Annotated[
        int, "The most candidates who may learn an answer about your place if you settle."
    ] = 40,
    words: Annotated[
        str, "Text for the partner you settle with, or for everybody near; by default nothing."
    ] = "",
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Join the round at ROUND_URL, wait for its answers, and show your own.

    For a service that runs one round after another, give the address of its first shuffler: you
    join the current round. With a profile (`coatcheck me begin`) you need to give only a value, and
    your group if the round has several. After a crash, run the same command again: it sends the
    report stored in the ticket, the same bytes, and likewise the letters of settling.
    """
    ledger, trusted = Ledger.open(person.ledger), read_trust(person.trust, witnesses=witnesses)
    if service := service_of(round_url):
        lists = boards(person.ledger)
        current = partial(current_round, trusted=trusted, relay=relay, boards=lists, ca=ca)
        round_url = _round_of(service, ticket, current)
    limit = _limit(person, disclosures=disclosures, settle=settle)
    path, checkpoints = ticket_of(round_url, ticket), boards(person.ledger)
    resumed = path.exists()
    admission = read_bytes(token_file).decode(errors="replace").strip() if token_file else token

    async def join_and_wait() -> dict[str, Any]:
        async with Session(
            round_url, path=path, boards=checkpoints, trusted=trusted, relay=relay, ca=ca
        ) as session:
            invitation = await session.invitation(group=person.group, limit=limit)
            promise = invitation.guarantee
            decoys = invitation.group_terms.decoys
            each = f" with {decoys} decoy{'s' * (decoys > 1)} each" if decoys else ""
            hint(
                f"terms checked: a crowd of at least {promise.crowd}{each}, ε ="
                f" {promise.epsilon:.3g}"
            )
            hint_caveat(promise)
            if settle:
                settle_terms(invitation.round)  # before anything is spent
            if not resumed:
                headers_for(invitation.round, admission)
            value: Any = None
            if settle or not resumed:
                value = read_value(person.value, invitation.randomizer.domain)
            session.prepare(invitation, value, ledger=ledger, clamp=person.clamp)
            joined = await session.upload(invitation.round, token=admission)
            hint(
                "the shuffler has signed for your report; waiting for the crowd"
                if joined.receipt
                else "the shuffler has closed, and it is not known whether it has your report;"
                " waiting for the crowd"
            )
            answer = await session.collect(
                ledger=ledger, patience=wait, retrieval=RETRIEVALS[retrieval]
            )
            document = answer_document(answer, invitation.round)
            if settle:
                hint("settling by letter; partners also get your words, if you gave some")
                settled = await settle_by_letter(session, value, words=words)
                document["settled"] = settling_document(settled)
            elif decoys and invitation.round.terms.settle:
                hint("your addresses write letters as nobody's, or their silence would show them")
                axes = invitation.randomizer.domain.dimension
                await settle_by_letter(session, None, axes=axes)
            return document

    try:
        document = asyncio.run(join_and_wait())
    except Unavailable:
        raise  # the same command continues this round
    except Error:
        forget(service, ticket)
        raise
    forget(service, ticket)
    store_contacts(path, document)
    show(document, as_json=as_json, text="\n".join(answer_text(document, round_url)))


def _limit(person: TakingPart, *, disclosures: int, settle: bool) -> Limit:
    """Return the most that the round may cost; who does not settle tells candidates nothing."""
    if disclosures < 1:
        raise Misuse("`--disclosures` must be at least 1; to tell nobody, leave `--settle` out")
    return Limit(person.epsilon, person.delta, disclosures=disclosures if settle else 0)


def _round_of(
    service: str, ticket: Path | None, ask: Callable[[str], Coroutine[Any, Any, str]]
) -> str:
    """Return the service's round that the person has not ended yet, or else its current one."""
    url = unfinished_round(service, ticket)
    if not url:
        url = asyncio.run(ask(service))
        remember(service, ticket, url)
        hint(f"the current round is {url}")
    return url


def settling_document(side: Candidates) -> dict[str, Any]:
    """Return how settling ended: the partner, or everybody near, with their words."""
    words = {contact: text.decode(errors="replace") for contact, text in side.words.items()}
    partners = [
        {"contact": contact.hex(), "words": words.get(contact, "")} for contact in side.partners
    ]
    return {"partners": partners, "dropped": side.machine.progress.dropped}


@click.group(cls=Commands)
def letters() -> None:
    """Write letters to your partners, and read theirs."""


def _existing_ticket(round_url: str, ticket: Path | None) -> Path:
    """Return the path of the ticket of a round that the person has joined."""
    path = ticket_of(round_url, ticket)
    if not path.exists():
        raise Misuse(
            f"you have no ticket of {round_url}; give the address that `take-part` printed"
        )
    return path


@command(letters, name="write")
def write_letter(
    round_url: Annotated[str, ADDRESS],
    *,
    trust: Trust,
    to: Annotated[str, "A partner: 1 for the first that `take-part` printed, or a contact in hex."],
    message: Annotated[str, "The text."],
    ticket: _Ticket = None,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    ca: Ca = "",
) -> None:
    """Write a sealed letter to a partner and post it on the board."""
    path = _existing_ticket(round_url, ticket)
    contact = contact_of(path, to)

    async def write() -> None:
        trusted = read_trust(trust, witnesses=witnesses)
        async with Session(
            round_url, path=path, boards=boards(), trusted=trusted, relay=relay, ca=ca
        ) as session:
            await session.write(message.encode(), to=contact)

    asyncio.run(write())
    hint("the letter is on the board; only your partner can open it")


@command(letters, name="read")
def read_letters(
    round_url: Annotated[str, ADDRESS],
    *,
    trust: Trust,
    ticket: _Ticket = None,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Read the new letters to you."""
    path = _existing_ticket(round_url, ticket)

    async def read() -> dict[str, Any]:
        trusted = read_trust(trust, witnesses=witnesses)
        async with Session(
            round_url, path=path, boards=boards(), trusted=trusted, relay=relay, ca=ca
        ) as session:
            return letters_document(await session.read())

    show(asyncio.run(read()), as_json=as_json)
