"""A person's profile: the options that they would otherwise give in every round.

It is in a folder of theirs, `COATCHECK_HOME` or the system's usual place, together with the
ledger, the public keys that the person trusts, and a ticket per round.
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
    """What a person has decided once for all rounds.

    Attributes:
        epsilon: the most that one round may cost.
        delta: the chance that it costs more.
        disclosures: the most candidates who may learn an answer by letter in one round.
        trust: public keys by role, as ROLE=FILE, with files in the folder.
        witnesses: how many of the trusted witnesses must have cosigned; 0 is all of them.
        relay: the address of the relay for every request; empty for none.
        ca: a PEM file of certificates to trust instead of the system's.
    """

    epsilon: Annotated[float, Meta(gt=0)]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    disclosures: Annotated[int, Meta(ge=1)] = 40
    trust: tuple[str, ...] = ()
    witnesses: Annotated[int, Meta(ge=0)] = 0
    relay: str = ""
    ca: str = ""


def folder() -> Path:
    """Return the person's folder, whether it exists or not."""
    return Path(os.environ.get("COATCHECK_HOME") or click.get_app_dir("coatcheck"))


def ledger() -> Path:
    """Return the path of the person's ledger."""
    return folder() / "ledger.json"


def boards(ledger_file: Path | None = None) -> Path | None:
    """Return the file of the boards' last checkpoints, beside the ledger, if there is a ledger."""
    path = ledger_file or ledger()
    return Path(f"{path}.boards") if path.exists() else None


def load() -> Profile | None:
    """Read the profile, if there is one."""
    path = folder() / "profile.json"
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(read_bytes(path), type=Profile)
    except msgspec.DecodeError as error:
        raise Misuse(
            f"{path} cannot be read ({error}); correct it, or delete it and begin a new profile"
        ) from None


def require() -> Profile:
    """Read the profile; without one, raise an error that says how to begin it."""
    profile = load()
    if profile is None:
        raise Misuse("you have no profile yet; begin one with `coatcheck me begin`")
    return profile


def store(profile: Profile) -> None:
    """Write the profile durably, readable by its owner only, after checking that it is valid."""
    raw = msgspec.json.format(msgspec.json.encode(profile))
    try:
        msgspec.json.decode(raw, type=Profile)
    except msgspec.ValidationError as error:
        raise Misuse(f"the profile would not be valid: {error}") from None
    folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    write_bytes(folder() / "profile.json", raw, secret=True, replace=True)


def defaults() -> dict[str, Any]:
    """Return click's defaults for the commands of people, from the profile."""
    profile = load()
    if profile is None:
        return {}
    shared = {
        "trust": [_in_folder(text) for text in profile.trust],
        "witnesses": profile.witnesses,
        "relay": profile.relay,
        "ca": profile.ca,
    }
    limits = {"epsilon": profile.epsilon, "delta": profile.delta, "ledger": str(ledger())}
    letters = {"disclosures": profile.disclosures}
    return {"take-part": shared | limits | letters, "letters": {"write": shared, "read": shared}}


def ticket_of(url: str, option: Path | None) -> Path:
    """Return the path of a round's ticket: the option's, or one in the person's folder."""
    if option is not None:
        return option
    require()
    tickets = folder() / "tickets"
    tickets.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tickets / f"{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:16]}.json"


# -- which round of a service that runs one round after another the person is in


def unfinished_round(service: str, ticket: Path | None) -> str:
    """Return the address of the service's round that the person began and has not ended, or ""."""
    if ticket is not None:
        offer = stored_offer(ticket)
        return read_terms(offer.signed.document.encode()).address if offer else ""
    path = _unfinished_file(service)
    url = path.read_text(encoding="ascii") if path.exists() else ""
    return url if url and ticket_of(url, None).exists() else ""


def remember(service: str, ticket: Path | None, url: str) -> None:
    """Store which round of a service a person is in, so that the same command continues it."""
    if ticket is None:
        write_bytes(_unfinished_file(service), url.encode(), secret=True, replace=True)


def forget(service: str, ticket: Path | None) -> None:
    """Make the next command join the current round of the service, if there is a service."""
    if service and ticket is None:
        _unfinished_file(service).unlink(missing_ok=True)


def _unfinished_file(service: str) -> Path:
    return ticket_of(service, None).with_suffix(".round")


def _in_folder(text: str) -> str:
    role, _, names = text.partition("=")
    return f"{role}={','.join(str(folder() / name) for name in names.split(','))}"
