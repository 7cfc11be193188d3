"""`coatcheck me`: a person's profile, so that taking part is one short command."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import click
from msgspec.structs import replace

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands, profile
from coatcheck.cli.options import POSITIVE, Json, command
from coatcheck.cli.output import hint, show
from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.agreement import ROLES
from coatcheck.protocol.keys import PublicKeys, read_public
from coatcheck.services.web.client import origin_of


@click.group(cls=Commands)
def me() -> None:
    """Your profile: your limits, whom you trust, your relay, your ledger."""


@command(me)
def begin(
    *,
    epsilon: Annotated[float, POSITIVE, "The most that all your rounds together may cost."],
    delta: Annotated[float, "The chance that they cost more."] = 1e-6,
    per_round: Annotated[float | None, POSITIVE, "The most that one round may cost."] = None,
) -> None:
    """Begin a profile and its ledger, with a limit that is set once."""
    if profile.ledger().exists():
        raise Misuse(f"{profile.ledger()} exists: a limit is set once; coatcheck me show prints it")
    _check_one(per_round, of=epsilon)
    one = profile.Profile(epsilon=per_round or epsilon, delta=delta)
    profile.folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    Ledger.open(profile.ledger(), epsilon=epsilon, delta=delta)
    profile.store(one)
    hint("next: coatcheck me trust server=FILE, and likewise the shuffler and the board")


@command(me)
def trust(keys: tuple[str, ...]) -> None:
    """Trust public keys: server=FILE, shuffler=FILE, board=FILE or witness=FILE.

    A copy is kept in your folder. Several files by comma are one party's old and new keys.
    """
    mine = profile.loaded()
    known = dict.fromkeys(mine.trust)
    for text in keys or ("",):
        role, _, names = text.partition("=")
        if role not in ROLES or not names:
            raise Misuse(f"give ROLE=FILE with a role of {', '.join(ROLES)}, got {text!r}")
        copies = []
        for name in names.split(","):
            public = read_public(Path(name))
            _check_role(public, role, known)
            copies.append(f"{role}-{public.verifying[:16]}.pub")
            write_bytes(profile.folder() / copies[-1], read_bytes(Path(name)), replace=True)
        known[f"{role}={','.join(copies)}"] = None
    profile.store(replace(mine, trust=tuple(known)))


def _check_one(per_round: float | None, *, of: float) -> None:
    if per_round is not None and per_round > of:
        raise Misuse(f"one round cannot cost more than all together: choose at most {of:g}")


def _check_role(public: PublicKeys, role: str, known: Iterable[str]) -> None:
    """Refuse a key that is somebody else's, by its name or by what is trusted already."""
    other = public.name if public.name in ROLES else role
    for text in known:
        before, _, files = text.partition("=")
        if f"{before}-{public.verifying[:16]}.pub" in files.split(","):
            other = before if before != role else other
    if other != role:
        raise Misuse(f"this is the key of a {other}: no party has two roles, so find the {role}'s")


@command(me)
def set_(
    *,
    per_round: Annotated[float | None, POSITIVE, "The most that one round may cost."] = None,
    relay: Annotated[str | None, "A relay's address; empty for none."] = None,
    witnesses: Annotated[int | None, "How many of your witnesses must have cosigned."] = None,
    ca: Annotated[str | None, "A PEM file of certificates; empty for the system's."] = None,
) -> None:
    """Change what is said here; the limit of all rounds stays."""
    if relay:
        origin_of(relay)
    if per_round is not None:
        _check_one(per_round, of=Ledger.open(profile.ledger()).limit[0])
    given = {"epsilon": per_round, "relay": relay, "witnesses": witnesses, "ca": ca}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise Misuse("say what to change: --per-round, --relay, --witnesses or --ca")
    profile.store(replace(profile.loaded(), **changes))


@command(me)
def show_(*, as_json: Json = False) -> None:
    """Print your profile, and what your rounds have cost."""
    mine, book = profile.loaded(), Ledger.open(profile.ledger())
    epsilon, delta = book.limit
    document = {
        "folder": str(profile.folder()),
        "limit": {"epsilon": epsilon, "delta": delta},
        "spent": book.spent,
        "left": book.left,
        "rounds": list(book.rounds),
        "per_round": {"epsilon": mine.epsilon, "delta": mine.delta},
        "trust": list(mine.trust),
        "witnesses": mine.witnesses,
        "relay": mine.relay,
    }
    way = f"through {mine.relay}" if mine.relay else "directly, without a relay"
    lines = [
        f"All rounds together may cost ε = {epsilon:g} at δ = {delta:g}, one {mine.epsilon:g}.",
        f"{len(book.rounds)} rounds cost ε = {book.spent:.3g}; one more may cost {book.left:.3g}.",
        f"You trust: {', '.join(mine.trust) or 'nobody yet'}.",
        f"Your requests go {way}.",
        f"Kept in {profile.folder()}",
    ]
    show(document, as_json=as_json, text="\n".join(lines))
