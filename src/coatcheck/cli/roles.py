"""The commands of those who run a round: `keygen`, `terms`, `shuffle`, `answer`.

Each is one step over files; a role's machine needs its own key file, the signed terms and what
the step before it wrote.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from coatcheck import tasks
from coatcheck.agreement import countersign, propose, settle, write_signed
from coatcheck.cli.files import (
    FILE,
    PublicKeys,
    SecretKeys,
    document,
    hint,
    now,
    read,
    read_keys,
    read_public,
    read_terms_file,
    show,
    write,
)
from coatcheck.domain import domain_from_params
from coatcheck.drafting import GroupDraft, draft_groups, draft_work
from coatcheck.entropy import system
from coatcheck.errors import Error, Misuse
from coatcheck.notices import ANSWERED, Heading, heading_size
from coatcheck.parcels import REASONS
from coatcheck.randomizers import REGISTRY, Randomizer
from coatcheck.server import Server
from coatcheck.shuffler import Shuffler, fresh_state
from coatcheck.suites import SUITES, suite_named
from coatcheck.terms import Notary, Party, Round, Terms

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_TERMS = click.option("--terms", "terms_file", type=FILE, required=True, help="Signed terms.")
_KEY = click.option("--key", type=FILE, required=True, help="Your own key file.")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.command()
@click.argument("name")
@click.option("--out", type=FILE, required=True, help="The key file, for you alone (mode 0600).")
@click.option("--suite", type=click.Choice(list(SUITES)), default="x25519", show_default=True)
def keygen(*, name: str, out: Path, suite: str) -> None:
    """Make the keys of a server, shuffler or board; print the public ones.

    Publish what is printed in a place that people trust: they need it to know you.
    """
    try:
        keys = msgspec.convert(
            {"name": name, "suite": suite, "seed": system().token(32).hex()}, type=SecretKeys
        )
    except msgspec.ValidationError as error:
        raise Misuse(f"choose a plain name: {error}") from None
    public = document(keys.public)
    write(out, document(keys), secret=True)
    click.echo(public.decode(), nl=False)
    hint(f"keep {out} to yourself, give away what was printed")


@click.group()
def terms() -> None:
    """Write, sign and check the public terms of a round."""


@terms.command(name="propose")
@click.argument("draft", type=FILE)
@_KEY
@click.option("--shuffler", "shufflers", type=FILE, multiple=True, required=True, help="In order.")
@click.option("--board", type=FILE, required=True, help="The board's public keys.")
@click.option("--opens", default="now", show_default=True, help="Seconds, `now` or like +10m.")
@click.option("--closes", default="+1h", show_default=True, help="When a full round is released.")
@click.option("--expires", default="+2h", show_default=True, help="When an unfilled one ends.")
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
    """Compute a draft's sizes and promises and sign it as the server."""
    keys = read_keys(key)
    plan = _draft(draft)
    task = tasks.from_params(plan["task"])
    suite = suite_named(keys.suite)
    begin = now()
    listed = [read_public(path) for path in shufflers]
    notary = read_public(board)
    made = Terms(
        round=plan["round"],
        suite=suite.name,  # type: ignore[arg-type] # read_terms checks it
        groups=draft_groups([_group(plain) for plain in plan["groups"]], task=task, suite=suite),
        task=draft_work(task),
        server=_party(keys.public),
        shufflers=tuple(_party(public) for public in listed),
        board=Notary(notary.name, notary.verifying),
        opens=_time(opens, begin),
        closes=_time(closes, begin),
        expires=_time(expires, begin),
        letter_size=plan.get("letter_size", 256),
    )
    write(out, write_signed(propose(made, signing=keys.pairs.signing)))
    hint("every shuffler has to sign these terms now: coatcheck terms sign")


@terms.command()
@click.argument("file", type=FILE)
@_KEY
@click.option("--pledges", type=FILE, required=True, help="Your memory of what you signed.")
@click.option("--out", type=FILE, default=Path("-"), help="The terms with your signature added.")
def sign(*, file: Path, key: Path, pledges: Path, out: Path) -> None:
    """Sign terms as a shuffler, one version a round: the pledge file remembers which."""
    known: dict[str, str] = msgspec.json.decode(read(pledges)) if pledges.exists() else {}
    pledged = {name: bytes.fromhex(digest) for name, digest in known.items()}
    signed = countersign(
        read_terms_file(file), signing=read_keys(key).pairs.signing, pledged=pledged
    )
    # Remembered before the signature leaves, so that a crash cannot make room for another one.
    write(pledges, document({n: d.hex() for n, d in pledged.items()}), secret=True, replace=True)
    write(out, write_signed(signed), replace=out == file)


@terms.command()
@click.argument("file", type=FILE)
@click.option("--trust", type=FILE, multiple=True, help="Public keys that you know.")
@_JSON
def check(*, file: Path, trust: tuple[Path, ...], as_json: bool) -> None:
    """Check every signature and print what the terms say."""
    trusted = {bytes.fromhex(read_public(path).verifying) for path in trust}
    round_ = settle(read_terms_file(file), trusted=trusted if trust else None)
    show(describe(round_), as_json=as_json)


def describe(round_: Round) -> dict[str, Any]:
    """Return the terms in the words of a reader."""
    made = round_.terms
    groups = {}
    for number, group in enumerate(made.groups):
        promise = group.promise
        groups[group.name] = {
            "mechanism": group.randomizer.get("name"),
            "minimum": group.minimum,
            "epsilon": promise.epsilon,
            "delta": promise.delta,
            "corrupted": promise.corrupted,
            "exposed": promise.exposed,
            "upload_size": round_.upload_size(number),
            "entry_size": round_.entry_size(number),
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


@click.command()
@click.argument("uploads", type=FILE, nargs=-1)
@_TERMS
@_KEY
@click.option("--batch", type=FILE, help="The batch of the shuffler before you.")
@click.option("--receipts", type=FILE, help="A folder for the receipts of the uploads.")
@click.option("--out", type=FILE, required=True, help="The batch to pass on.")
@_JSON
def shuffle(
    *,
    uploads: tuple[Path, ...],
    terms_file: Path,
    key: Path,
    batch: Path | None,
    receipts: Path | None,
    out: Path,
    as_json: bool,
) -> None:
    """Gather uploads (or a batch), peel your layer, and release them in a secret order.

    Nothing is written unless every group has its minimum crowd.
    """
    round_ = settle(read_terms_file(terms_file))
    keys = read_keys(key).pairs
    shuffler = Shuffler(round_, keys=keys, state=fresh_state(round_, system()))
    if batch is not None:
        shuffler.accept(read(batch))
    signed = {path.name: _receive(shuffler, path) for path in uploads}
    raw = shuffler.release(now=now())
    if receipts is not None:
        receipts.mkdir(parents=True, exist_ok=True)
    for name, receipt in signed.items():
        if receipts is not None and receipt is not None:
            write(receipts / f"{name}.receipt", receipt, replace=True)
    write(out, raw)
    turned = sum(receipt is None for receipt in signed.values())
    show({"taken": len(signed) - turned, "turned_away": turned}, as_json=as_json)


def _receive(shuffler: Shuffler, path: Path) -> bytes | None:
    """Take one upload; a bad file costs itself only."""
    try:
        return shuffler.receive(read(path), now=now())
    except Error as error:
        hint(f"an upload was turned away: {error}")
        return None


@click.command()
@click.argument("batch", type=FILE)
@_TERMS
@_KEY
@click.option("--out", type=FILE, required=True, help="The bulletin to publish.")
@_JSON
def answer(*, batch: Path, terms_file: Path, key: Path, out: Path, as_json: bool) -> None:
    """Open a batch, run the task, and seal one answer to each address."""
    round_ = settle(read_terms_file(terms_file))
    server = Server(round_, keys=read_keys(key).pairs)
    raw = server.answer(read(batch))
    write(out, raw)
    show(count(raw, round_), as_json=as_json)


def count(raw: bytes, round_: Round) -> dict[str, Any]:
    """Return a bulletin's counts by group and reason."""
    heading = Heading.decode(raw[: heading_size(len(round_.terms.groups))])
    groups = {}
    for group, tally in zip(round_.terms.groups, heading.tallies, strict=True):
        dropped = {why: n for why, n in zip(REASONS, tally.dropped, strict=True) if n}
        groups[group.name] = {"received": tally.received, "dropped": dropped, "kept": tally.kept}
    outcome = "answered" if heading.outcome == ANSWERED else "refused"
    return {"outcome": outcome, "groups": groups}


def _party(public: PublicKeys) -> Party:
    return Party(public.name, public.verifying, public.sealing)


def _draft(path: Path) -> dict[str, Any]:
    try:
        plan = msgspec.json.decode(read(path))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no JSON document: {error}") from None
    missing = {"round", "task", "groups"} - set(plan if isinstance(plan, dict) else ())
    extra = set(plan if isinstance(plan, dict) else ()) - {"round", "task", "groups", "letter_size"}
    if missing or extra:
        raise Misuse(
            "a draft has the fields round, task, groups and letter_size;"
            f" missing {sorted(missing)}, unknown {sorted(extra)}"
        )
    return dict(plan)


def _group(plain: dict[str, Any]) -> GroupDraft:
    try:
        return GroupDraft(**{**plain, "randomizer": _mechanism(dict(plain["randomizer"]))})
    except (TypeError, KeyError) as error:
        raise Misuse(f"a group of the draft does not fit: {error}") from None


def _mechanism(plain: dict[str, Any]) -> Randomizer:
    """Make a mechanism of a draft; what the draft leaves open (a radius) is searched."""
    name = plain.pop("name")
    if name not in REGISTRY:
        raise Misuse(f"a randomizer is one of {', '.join(sorted(REGISTRY))}, not {name!r}")
    make: Callable[..., Randomizer] = REGISTRY[name]
    return make(domain=domain_from_params(plain.pop("domain")), **plain)


def _time(text: str, begin: int) -> int:
    """Read seconds since 1970, `now`, or a distance from now such as +10m."""
    if text == "now":
        return begin
    try:
        if text[0] in "+-":
            return begin + int(text[:-1]) * _UNITS[text[-1]]
        return int(text)
    except (ValueError, KeyError, IndexError):
        raise Misuse(f"{text!r} is no time: give seconds, `now`, or like +10m, -1h") from None
