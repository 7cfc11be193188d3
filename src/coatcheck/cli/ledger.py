"""`coatcheck ledger`: what all your rounds together have cost, and what is left."""

from pathlib import Path
from typing import Annotated

import click

from coatcheck.accounting.ledger import Ledger
from coatcheck.cli import Commands
from coatcheck.cli.options import Json, command
from coatcheck.cli.output import hint, show
from coatcheck.errors import Misuse


@click.group(cls=Commands)
def ledger() -> None:
    """Your own ledger of rounds: what you have spent, and what is left."""


@command(ledger)
def begin(
    file: Path,
    *,
    epsilon: Annotated[float, "The most that all rounds may cost."],
    delta: Annotated[float, "The chance that they cost more."],
) -> None:
    """Begin a ledger with a limit for all rounds together."""
    if file.exists():
        raise Misuse(f"{file} exists already: a limit is set once, at the beginning")
    Ledger.open(file, epsilon=epsilon, delta=delta)
    hint(f"{file} refuses a round that would take you over this limit")


@command(ledger)
def show_(file: Path, *, as_json: Json = False) -> None:
    """Print the limit, what is spent and left, and the rounds."""
    book = Ledger.open(file)
    epsilon, delta = book.limit
    told = {"epsilon": epsilon, "delta": delta, "spent": book.spent, "left": book.left}
    show({**told, "rounds": list(book.rounds)}, as_json=as_json)
