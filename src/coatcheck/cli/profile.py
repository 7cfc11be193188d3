"""A person's profile: what they would otherwise state at every round, in a folder of their own.

The folder is `COATCHECK_HOME`, or the usual place of the system. It holds the profile, the ledger,
the public keys that the person trusts, and a ticket per round.
"""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
from msgspec import Meta

from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.terms import read_terms
from coatcheck.services.person.session import stored_offer


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided once for all rounds.

    Attributes:
        epsilon: the most that one round may cost.
        delta: the chance that it costs more.
        trust: public keys by role, as ROLE=FILE; the files are in the folder.
        witnesses: how many of the trusted witnesses must have cosigned; 0 is all of them.
        relay: the relay's address that everything goes through, or nothing.
        ca: a PEM file of certificates to trust instead of the system's.
    """

    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    trust: tuple[str, ...] = ()
    witnesses: Annotated[int, Meta(ge=0)] = 0
    relay: str = ""
    ca: str = ""


def folder() -> Path:
    """Return the person's folder, whether it exists or not."""
    return Path(os.environ.get("COATCHECK_HOME") or click.get_app_dir("coatcheck"))


def ledger() -> Path:
    """Return where the person's ledger is."""
    return folder() / "ledger.json"


def boards(book: Path | None = None) -> Path | None:
    """Return where the last checkpoints of boards are: beside the ledger, for all rounds."""
    book = book or ledger()
    return Path(f"{book}.boards") if book.exists() else None


def load() -> Profile | None:
    """Read the profile, if there is one."""
    path = folder() / "profile.json"
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_bytes(path), type=Profile)
    except msgspec.DecodeError as error:
        raise Misuse(f"{path} cannot be read: {error}; correct it, or begin anew") from None


def loaded() -> Profile:
    """Read the profile, or say how to begin one."""
    found = load()
    if found is None:
        raise Misuse("you have no profile yet: begin one with coatcheck me begin")
    return found


def store(profile: Profile) -> None:
    """Write the profile, durably and for its owner alone, if it is one that can be read."""
    raw = msgspec.json.format(msgspec.json.encode(profile))
    try:
        msgspec.json.decode(raw, type=Profile)
    except msgspec.ValidationError as error:
        raise Misuse(f"this cannot be in a profile: {error}") from None
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(folder() / "profile.json", raw, secret=True, replace=True)


def defaults() -> dict[str, Any]:
    """Return what the profile gives the commands of people, as click's defaults."""
    profile = load()
    if profile is None:
        return {}
    shared = {
        "trust": [_in_folder(text) for text in profile.trust],
        "witnesses": profile.witnesses,
        "relay": profile.relay,
        "ca": profile.ca,
    }
    part = {"epsilon": profile.epsilon, "delta": profile.delta, "ledger": str(ledger())}
    return {"take-part": shared | part, "letters": {"write": shared, "read": shared}}


def ticket_of(url: str, given: Path | None) -> Path:
    """Return where the ticket of a round is: where it was said, or in the person's folder."""
    if given is not None:
        return given
    loaded()
    tickets = folder() / "tickets"
    tickets.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tickets / f"{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}.json"


def begun(service: str, ticket: Path | None) -> str:
    """Give the address of the round of a service that was begun and not ended, or nothing."""
    if ticket is not None:
        offer = stored_offer(ticket)
        return read_terms(offer.signed.document.encode()).address if offer else ""
    path = _begun(service)
    url = path.read_text(encoding="ascii") if path.exists() else ""
    return url if url and ticket_of(url, None).exists() else ""


def remember(service: str, ticket: Path | None, url: str) -> None:
    """Keep which round of a service a person is in, so that the same command goes on with it."""
    if ticket is None:
        write_bytes(_begun(service), url.encode(), secret=True, replace=True)


def forget(service: str, ticket: Path | None) -> None:
    """Let the next command take the service's current round, if this was one of a service."""
    if service and ticket is None:
        _begun(service).unlink(missing_ok=True)


def _begun(service: str) -> Path:
    return ticket_of(service, None).with_suffix(".round")


def _in_folder(text: str) -> str:
    role, _, names = text.partition("=")
    return f"{role}={','.join(str(folder() / name) for name in names.split(','))}"
