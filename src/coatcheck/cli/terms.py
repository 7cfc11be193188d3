"""`coatcheck keygen` and `coatcheck terms`: the keys of the roles, and terms that they sign."""

from pathlib import Path
from typing import Annotated, Any

import click
import msgspec

from coatcheck.cli import Commands
from coatcheck.cli.files import now, read, read_object, read_terms_file, read_trust, write
from coatcheck.cli.options import Json, Key, Trust, command, one_of
from coatcheck.cli.output import hint, show
from coatcheck.entropy import system
from coatcheck.errors import Misuse
from coatcheck.protocol.agreement import (
    accept,
    check_entry,
    countersign,
    propose,
    settle,
    write_signed,
)
from coatcheck.protocol.keyfiles import SecretKeys, read_keys, read_public
from coatcheck.protocol.records import document
from coatcheck.protocol.suites import SUITES, suite_named
from coatcheck.protocol.terms import Anybody, Round, Tokens, read_terms

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@command()
def keygen(
    name: str,
    *,
    out: Annotated[Path, "The key file, for you alone (mode 0600)."],
    url: Annotated[
        str, "Where people find you: https://HOST[:PORT]; a service's settings say it."
    ] = "",
    suite: Annotated[str, one_of(SUITES), " | ".join(SUITES)] = "x25519",
) -> None:
    """Make the keys of a server, shuffler or board; print the public ones.

    Publish what is printed in a place that people trust: they need it to recognise you.
    """
    try:
        keys = msgspec.convert(
            {"name": name, "suite": suite, "seed": system().token(32).hex()}
            | ({"url": url} if url else {}),
            type=SecretKeys,
        )
    except msgspec.ValidationError as error:
        raise Misuse(f"this name or address does not work: {error}") from None
    write(out, document(keys), secret=True)
    click.echo(document(keys.public).decode(), nl=False)
    hint(f"keep {out} secret; publish what was printed")


@click.group(cls=Commands)
def terms() -> None:
    """Write, sign and check the public terms of a round."""


@command(terms)
def propose_(
    draft: Path,
    *,
    key: Key,
    shuffler: Annotated[tuple[Path, ...], "A shuffler's public keys, once per shuffler in order."],
    board: Annotated[Path, "The board's public keys."],
    opens: Annotated[str, "`now`, +10m or a Unix time."] = "now",
    closes: Annotated[str, "When a full round is released."] = "+1h",
    expires: Annotated[str, "When it ends without a crowd."] = "+2h",
    open_: Annotated[bool, "--open", "Admit anybody, not only people with a token."] = False,
    out: Annotated[Path, "The signed terms."] = Path("-"),
) -> None:
    """Compute the sizes and promises of a DRAFT and sign it as the server."""
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - loads mechanisms and tasks

    keys = read_keys(key)
    begin = now()
    admission = Anybody() if open_ else Tokens()
    made = read_draft(read_object(draft)).terms(
        suite=suite_named(keys.suite),
        server=keys.public.party,
        shufflers=[read_public(path).shuffler(admission) for path in shuffler],
        board=read_public(board).notary,
        times=(_time(opens, begin), _time(closes, begin), _time(expires, begin)),
    )
    write(out, write_signed(propose(made, keys=keys.pairs)))
    hint("next, every shuffler signs these terms: coatcheck terms sign")


@command(terms)
def sign(
    file: Path,
    *,
    key: Key,
    pledges: Annotated[Path, "A file that remembers what you signed."],
    out: Annotated[Path, "The terms with your signature added."] = Path("-"),
) -> None:
    """Sign terms as a shuffler, once per round: the pledge file remembers which version."""
    known: dict[str, str] = msgspec.json.decode(read(pledges)) if pledges.exists() else {}
    pledged = {name: bytes.fromhex(digest) for name, digest in known.items()}
    offered, mine = read_terms_file(file), read_keys(key)
    signed = countersign(offered, keys=mine.pairs, pledged=pledged)
    for entry in read_terms(offered.document.encode()).terms.shufflers:
        if entry.verifying == mine.public.verifying:
            check_entry(entry, url=mine.public.party.url, admission=entry.admission)
            hint(f"you sign that you admit people by: {entry.admission.__struct_config__.tag}")
    # Stored before the signature leaves: after a crash no other version can be signed.
    write(pledges, document({n: d.hex() for n, d in pledged.items()}), secret=True, replace=True)
    write(out, write_signed(signed), replace=out == file)


@command(terms)
def check(file: Path, *, trust: Trust = (), as_json: Json = False) -> None:
    """Check every signature and print what the terms say."""
    signed = read_terms_file(file)
    round_ = accept(signed, trusted=read_trust(trust)) if trust else settle(signed)
    show(describe(round_), as_json=as_json)


def _named(params: dict[str, Any]) -> str:
    """Name a mechanism; of a coin also how often it speaks, and the mechanism behind it."""
    part = params.get("part")
    if not isinstance(part, dict):
        return str(params.get("name"))
    return f"{params.get('name')} of rate {params.get('rate')} before {part.get('name')}"


def describe(round_: Round) -> dict[str, Any]:
    """Return what the terms say, as a reader needs it."""
    made = round_.terms
    groups = {
        group.name: {
            "mechanism": _named(group.randomizer),
            "minimum": group.minimum,
            "epsilon": group.promise.epsilon,
            "delta": group.promise.delta,
            "corrupted": group.promise.corrupted,
            "exposed": group.promise.exposed,
            "upload_size": round_.upload_sizes[number],
            "entry_size": round_.entry_size(number),
        }
        for number, group in enumerate(made.groups)
    }
    times = {"opens": made.opens, "closes": made.closes, "expires": made.expires}
    head = {"round": made.round, "digest": round_.digest.hex(), "suite": made.suite}
    parties = (made.server, *made.shufflers, made.board)
    where = {party.name: party.url for party in parties}
    admission = [party.admission.__struct_config__.tag for party in made.shufflers]
    known = {"where": where, "admission": admission}
    return {**head, "task": made.task.name, **times, **known, "groups": groups}


def _time(text: str, begin: int) -> int:
    """Read `now`, a time from now such as +10m, or seconds since 1970."""
    if text == "now":
        return begin
    try:
        if text[0] in "+-":
            return begin + int(text[:-1]) * _UNITS[text[-1]]
        return int(text)
    except (ValueError, KeyError, IndexError):
        raise Misuse(f"{text!r} is not a time: write `now`, +10m, -1h or a Unix time") from None
