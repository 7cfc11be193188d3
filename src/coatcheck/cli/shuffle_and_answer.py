"""`coatcheck shuffle` and `coatcheck answer`: a shuffler's and a server's step, over files.

Each needs its own key file, the signed terms, and the file that the step before it wrote.
"""

from pathlib import Path
from typing import Annotated, Any

from coatcheck.cli.files import now, read, read_terms_file, write
from coatcheck.cli.options import Json, Key, Terms, command
from coatcheck.cli.output import hint, show
from coatcheck.entropy import system
from coatcheck.errors import Error
from coatcheck.protocol.agreement import settle
from coatcheck.protocol.ends import OUTCOMES, words
from coatcheck.protocol.keyfiles import read_keys
from coatcheck.protocol.notices import Heading, heading_size
from coatcheck.protocol.parcels import REASONS
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import Round


@command()
def shuffle(
    uploads: tuple[Path, ...] = (),
    *,
    terms_file: Terms,
    key: Key,
    batch: Annotated[Path | None, "The batch of the shuffler before you."] = None,
    receipts: Annotated[Path | None, "A folder for the receipts of the uploads."] = None,
    out: Annotated[Path, "The batch to pass on."],
    as_json: Json = False,
) -> None:
    """Gather uploads, open your layer, and release the reports in a secret order.

    A later shuffler of a cascade gives its people's `.trap` files as UPLOADS, and the batch of the
    shuffler before it. Nothing is written unless every group has its minimum crowd.
    """
    round_ = settle(read_terms_file(terms_file))
    keys = read_keys(key).pairs
    shuffler = Shuffler(round_, keys=keys, state=fresh_state(system()))
    signed = {path.name: _receive(shuffler, path) for path in uploads}
    if batch is None:
        shuffler.close(now=now())
    else:
        shuffler.accept(read(batch))
    raw = shuffler.release()
    if receipts is not None:
        receipts.mkdir(parents=True, exist_ok=True)
        for name, receipt in signed.items():
            if receipt is not None:
                write(receipts / f"{name}.receipt", receipt, replace=True)
    write(out, raw)
    turned = sum(receipt is None for receipt in signed.values())
    show({"taken": len(signed) - turned, "turned_away": turned}, as_json=as_json)


def _receive(shuffler: Shuffler, path: Path) -> bytes | None:
    """Take one upload; a bad file is left out and the others go on."""
    try:
        return shuffler.receive(read(path), now=now())
    except Error as error:
        hint(f"an upload was turned away: {error}")
        return None


@command()
def answer(
    batch: Path,
    *,
    terms_file: Terms,
    key: Key,
    out: Annotated[Path, "The bulletin to publish."],
    as_json: Json = False,
) -> None:
    """Open a batch, run the task, and seal one answer to each address."""
    from coatcheck.protocol.server import Server  # noqa: PLC0415 - loads every mechanism and task

    round_ = settle(read_terms_file(terms_file))
    raw = Server(round_, keys=read_keys(key).pairs).answer(read(batch))
    write(out, raw)
    show(count(raw, round_), as_json=as_json)


def count(raw: bytes, round_: Round) -> dict[str, Any]:
    """Return a bulletin's counts by group and reason."""
    heading = Heading.decode(
        raw[: heading_size(len(round_.terms.groups), len(round_.terms.shufflers))]
    )
    groups = {}
    for group, tally in zip(round_.terms.groups, heading.tallies, strict=True):
        dropped = {why: n for why, n in zip(REASONS, tally.dropped, strict=True) if n}
        groups[group.name] = {"received": tally.received, "dropped": dropped, "kept": tally.kept}
    outcome = OUTCOMES[heading.outcome]
    return {"outcome": outcome, "why": words(heading, round_), "groups": groups}
