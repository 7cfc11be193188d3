"""`coatcheck me` and `coatcheck ledger`: a person's profile, and what all their rounds have cost.

With a profile, taking part is one short command.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import click
from msgspec.structs import replace

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands, profile
from coatcheck.cli.files import read_policy_file
from coatcheck.cli.options import POSITIVE, Json, command
from coatcheck.cli.output import hint, show
from coatcheck.durable_files import read_bytes, write_bytes
from coatcheck.errors import Misuse
from coatcheck.protocol.agreement import POLICY, ROLES
from coatcheck.protocol.keys import PublicKeys, read_public
from coatcheck.services.web.client import origin_of


@click.group(cls=Commands)
def me() -> None:
    """Your profile: your limits, the keys you trust, your relay, your ledger."""


@command(me, name="begin")
def begin_profile(
    *,
    epsilon: Annotated[float, POSITIVE, "The most ε that all your rounds together may cost."],
    delta: Annotated[float, "The chance that they cost more."] = 1e-6,
    per_round: Annotated[float | None, POSITIVE, "The most ε that one round may cost."] = None,
) -> None:
    """Begin a profile and its ledger, with a limit that is set once."""
    if profile.ledger().exists():
        raise Misuse(
            f"{profile.ledger()} exists already, and its limit is set once;"
            " `coatcheck me show` prints it"
        )
    _check_per_round(per_round, limit=epsilon)
    profile.folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    Ledger.open(profile.ledger(), epsilon=epsilon, delta=delta)
    profile.store(profile.Profile(epsilon=per_round or epsilon, delta=delta))
    hint(
        "next, trust the roles of a round: `coatcheck me trust server=FILE shuffler=FILE"
        " board=FILE`"
    )


def _check_per_round(per_round: float | None, *, limit: float) -> None:
    if per_round is not None and per_round > limit:
        raise Misuse(
            f"`--per-round` must be at most {limit:g}, the limit of all rounds together,"
            f" got {per_round:g}"
        )


@command(me)
def trust(keys: tuple[str, ...]) -> None:
    """Trust public keys: server=FILE, shuffler=FILE, board=FILE or witness=FILE.

    The files are copied into your folder. Several files separated by commas are the old and new
    keys of one party. Instead of single witnesses you may give policy=FILE, a policy file of
    witnesses (C2SP tlog-policy); a new one replaces the old one.
    """
    stored = profile.require()
    entries = dict.fromkeys(stored.trust)
    for text in keys or ("",):
        role, _, names = text.partition("=")
        if role == POLICY and names:
            read_policy_file(Path(names))
            copy = profile.folder() / "witnesses.policy"
            write_bytes(copy, read_bytes(Path(names)), replace=True)
            entries[f"{POLICY}={copy.name}"] = None
            continue
        if role not in ROLES or not names:
            allowed = ", ".join((*ROLES, POLICY))
            raise Misuse(f"give ROLE=FILE, with a ROLE of {allowed}; got {text!r}")
        copies = []
        for name in names.split(","):
            public = read_public(Path(name))
            _check_role(public, role, entries)
            copies.append(f"{role}-{public.verifying[:16]}.pub")
            write_bytes(profile.folder() / copies[-1], read_bytes(Path(name)), replace=True)
        entries[f"{role}={','.join(copies)}"] = None
    profile.store(replace(stored, trust=tuple(entries)))


def _check_role(public: PublicKeys, role: str, entries: Iterable[str]) -> None:
    """Reject a key of another role: by its name, or because it is trusted in that role."""
    owner = public.name if public.name in ROLES else role
    for text in entries:
        trusted_role, _, files = text.partition("=")
        copy = f"{trusted_role}-{public.verifying[:16]}.pub"
        if trusted_role != role and copy in files.split(","):
            owner = trusted_role
    if owner != role:
        raise Misuse(
            f"this is the key of a {owner}, and no party has two roles; give the key of the {role}"
        )


@command(me, name="set")
def set_profile(
    *,
    per_round: Annotated[float | None, POSITIVE, "The most ε that one round may cost."] = None,
    disclosures: Annotated[
        int | None, "The most candidates who may learn an answer by letter in one round."
    ] = None,
    relay: Annotated[str | None, "Address of your relay; empty for none."] = None,
    witnesses: Annotated[
        int | None, "How many of your trusted witnesses must have cosigned; 0 is all of them."
    ] = None,
    ca: Annotated[str | None, "PEM file of certificates to trust; empty for the system's."] = None,
) -> None:
    """Change your profile; the limit of all rounds together stays."""
    if relay:
        origin_of(relay)
    if per_round is not None:
        _check_per_round(per_round, limit=Ledger.open(profile.ledger()).limit[0])
    options = {
        "epsilon": per_round,
        "disclosures": disclosures,
        "relay": relay,
        "witnesses": witnesses,
        "ca": ca,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise Misuse(
            "nothing to change: give `--per-round`, `--disclosures`, `--relay`, `--witnesses` or"
            " `--ca`"
        )
    profile.store(replace(profile.require(), **changes))


@command(me, name="show")
def show_profile(*, as_json: Json = False) -> None:
    """Print your profile, and what your rounds have cost."""
    stored, ledger_file = profile.require(), Ledger.open(profile.ledger())
    epsilon, delta = ledger_file.limit
    spent, worst, left = ledger_file.spent, ledger_file.worst, ledger_file.left
    rounds, overdue = list(ledger_file.rounds), list(ledger_file.overdue)
    document = {
        "folder": str(profile.folder()),
        "limit": {"epsilon": epsilon, "delta": delta},
        "spent": spent,
        "worst": worst,
        "left": left,
        "rounds": rounds,
        "overdue": overdue,
        "disclosures": ledger_file.disclosures,
        "per_round": {
            "epsilon": stored.epsilon,
            "delta": stored.delta,
            "disclosures": stored.disclosures,
        },
        "trust": list(stored.trust),
        "witnesses": stored.witnesses,
        "relay": stored.relay,
    }
    way = f"through {stored.relay}" if stored.relay else "directly, without a relay"
    lines = [
        f"All rounds together may cost ε = {epsilon:g} at δ = {delta:g}, one {stored.epsilon:g}.",
        f"Your {len(rounds)} rounds so far cost ε = {spent:.3g}; one more may cost {left:.3g}.",
        *([_overdue_text(overdue, worst)] if overdue else []),
        f"By letters at most {ledger_file.disclosures} candidates learned an answer about you.",
        f"One round may tell at most {stored.disclosures} candidates.",
        f"You trust: {', '.join(stored.trust) or 'nobody yet'}.",
        f"Your requests go {way}.",
        f"Your folder is {profile.folder()}",
    ]
    show(document, as_json=as_json, text="\n".join(lines))


def _overdue_text(rounds: Iterable[str], worst: float) -> str:
    """Say what overdue outcomes may still cost, and what to do."""
    return (
        f"Overdue: {', '.join(rounds)}; `coatcheck collect` records the outcome. If all of them"
        f" ended badly, your rounds cost ε = {worst:.3g}; so much is set aside."
    )


@click.group(cls=Commands)
def ledger() -> None:
    """Your ledger of rounds: what you have spent, and what is left."""


@command(ledger, name="begin")
def begin_ledger(
    file: Path,
    *,
    epsilon: Annotated[float, "The most ε that all rounds together may cost."],
    delta: Annotated[float, "The chance that they cost more."],
) -> None:
    """Begin a ledger with a limit for all rounds together."""
    if file.exists():
        raise Misuse(f"{file} exists already, and its limit is set once")
    Ledger.open(file, epsilon=epsilon, delta=delta)
    hint(f"{file} will refuse a round that would exceed this limit")


@command(ledger, name="show")
def show_ledger(file: Path, *, as_json: Json = False) -> None:
    """Print the limit, what is spent and left, the rounds, and those whose outcome is overdue."""
    ledger_file = Ledger.open(file)
    epsilon, delta = ledger_file.limit
    document = {
        "epsilon": epsilon,
        "delta": delta,
        "spent": ledger_file.spent,
        "worst": ledger_file.worst,
        "left": ledger_file.left,
        "rounds": list(ledger_file.rounds),
        "overdue": list(ledger_file.overdue),
        "disclosures": ledger_file.disclosures,
    }
    show(document, as_json=as_json)
