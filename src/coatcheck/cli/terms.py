"""`coatcheck keygen` and `coatcheck terms`: the keys of the roles, and terms that they sign."""

from pathlib import Path
from typing import Any

import click
import msgspec

from coatcheck.cli.files import (
    hint,
    now,
    read,
    read_object,
    read_terms_file,
    read_trust,
    show,
    write,
)
from coatcheck.cli.options import FILE, JSON, KEY, TRUST
from coatcheck.entropy import system
from coatcheck.errors import Misuse
from coatcheck.protocol.agreement import accept, countersign, propose, settle, write_signed
from coatcheck.protocol.keyfiles import SecretKeys, document, read_keys, read_public
from coatcheck.protocol.suites import SUITES, suite_named
from coatcheck.protocol.terms import Round

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command()
@click.argument("name")
@click.option("--out", type=FILE, required=True, help="The key file, for you alone (mode 0600).")
@click.option("--suite", type=click.Choice(list(SUITES)), default="x25519", show_default=True)
def keygen(*, name: str, out: Path, suite: str) -> None:
    """Make the keys of a server, shuffler or board; print the public ones.

    Publish what is printed in a place that people trust: they need it to recognise you.
    """
    try:
        keys = msgspec.convert(
            {"name": name, "suite": suite, "seed": system().token(32).hex()}, type=SecretKeys
        )
    except msgspec.ValidationError as error:
        raise Misuse(f"this name does not work: {error}") from None
    write(out, document(keys), secret=True)
    click.echo(document(keys.public).decode(), nl=False)
    hint(f"keep {out} secret; publish what was printed")


@click.group()
def terms() -> None:
    """Write, sign and check the public terms of a round."""


@terms.command(name="propose")
@click.argument("draft", type=FILE)
@KEY
@click.option(
    "--shuffler",
    "shufflers",
    type=FILE,
    multiple=True,
    required=True,
    help="A shuffler's public keys; give one option per shuffler, in order.",
)
@click.option("--board", type=FILE, required=True, help="The board's public keys.")
@click.option("--opens", default="now", show_default=True, help="`now`, +10m or a Unix time.")
@click.option("--closes", default="+1h", show_default=True, help="When a full round is released.")
@click.option("--expires", default="+2h", show_default=True, help="When it ends without a crowd.")
@click.option("--out", type=FILE, default=Path("-"), help="The signed terms.")
def propose_(
    *,
    draft: Path,
    key: Path,
    shufflers: tuple[Path, ...],
    board: Path,
    opens: str,
    closes: str,
    expires: str,
    out: Path,
) -> None:
    """Compute the sizes and promises of a DRAFT and sign it as the server."""
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - loads mechanisms and tasks

    keys = read_keys(key)
    begin = now()
    made = read_draft(read_object(draft)).terms(
        suite=suite_named(keys.suite),
        server=keys.public.party,
        shufflers=[read_public(path).party for path in shufflers],
        board=read_public(board).notary,
        times=(_time(opens, begin), _time(closes, begin), _time(expires, begin)),
    )
    write(out, write_signed(propose(made, keys=keys.pairs)))
    hint("next, every shuffler signs these terms: coatcheck terms sign")


@terms.command()
@click.argument("file", type=FILE)
@KEY
@click.option("--pledges", type=FILE, required=True, help="A file that remembers what you signed.")
@click.option("--out", type=FILE, default=Path("-"), help="The terms with your signature added.")
def sign(*, file: Path, key: Path, pledges: Path, out: Path) -> None:
    """Sign terms as a shuffler, once per round: the pledge file remembers which version."""
    known: dict[str, str] = msgspec.json.decode(read(pledges)) if pledges.exists() else {}
    pledged = {name: bytes.fromhex(digest) for name, digest in known.items()}
    signed = countersign(read_terms_file(file), keys=read_keys(key).pairs, pledged=pledged)
    # Stored before the signature leaves: after a crash no other version can be signed.
    write(pledges, document({n: d.hex() for n, d in pledged.items()}), secret=True, replace=True)
    write(out, write_signed(signed), replace=out == file)


@terms.command()
@click.argument("file", type=FILE)
@TRUST()
@JSON
def check(*, file: Path, trust: tuple[str, ...], as_json: bool) -> None:
    """Check every signature and print what the terms say."""
    signed = read_terms_file(file)
    round_ = accept(signed, trusted=read_trust(trust)) if trust else settle(signed)
    show(describe(round_), as_json=as_json)


def describe(round_: Round) -> dict[str, Any]:
    """Return what the terms say, as a reader needs it."""
    made = round_.terms
    groups = {
        group.name: {
            "mechanism": group.randomizer.get("name"),
            "minimum": group.minimum,
            "epsilon": group.promise.epsilon,
            "delta": group.promise.delta,
            "corrupted": group.promise.corrupted,
            "exposed": group.promise.exposed,
            "upload_size": round_.upload_size(number),
            "entry_size": round_.entry_size(number),
        }
        for number, group in enumerate(made.groups)
    }
    return {
        "round": made.round,
        "digest": round_.digest.hex(),
        "suite": made.suite,
        "task": made.task.name,
        "opens": made.opens,
        "closes": made.closes,
        "expires": made.expires,
        "groups": groups,
    }


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
