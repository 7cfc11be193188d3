"""`coatcheck ledger`: what all your rounds together have cost, and what is left."""

from pathlib import Path

import click

from coatcheck.cli.files import hint, show
from coatcheck.cli.options import FILE, JSON
from coatcheck.errors import Misuse


@click.group()
def ledger() -> None:
    """Your own ledger of rounds: what you have spent, and what is left."""


@ledger.command()
@click.argument("file", type=FILE)
@click.option("--epsilon", type=float, required=True, help="The most that all rounds may cost.")
@click.option("--delta", type=float, required=True, help="The chance that they cost more.")
def begin(*, file: Path, epsilon: float, delta: float) -> None:
    """Begin a ledger with a limit for all rounds together."""
    from coatcheck.accounting.ledger import Ledger  # noqa: PLC0415 - loads the accountant

    if file.exists():
        raise Misuse(f"{file} exists already: a limit is set once, at the beginning")
    Ledger.open(file, epsilon=epsilon, delta=delta)
    hint(f"{file} refuses a round that would take you over this limit")


@ledger.command(name="show")
@click.argument("file", type=FILE)
@JSON
def show_(*, file: Path, as_json: bool) -> None:
    """Print the limit, what is spent and left, and the rounds."""
    from coatcheck.accounting.ledger import Ledger  # noqa: PLC0415 - loads the accountant

    book = Ledger.open(file)
    epsilon, delta = book.limit
    told = {"epsilon": epsilon, "delta": delta, "spent": book.spent, "left": book.left}
    show({**told, "rounds": list(book.rounds)}, as_json=as_json)
