"""Options that several commands take, each written once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
KEY = click.option("--key", type=FILE, required=True, help="Your own key file.")
OUT = partial(click.option, "--out", type=FILE, required=True)
TERMS = click.option("--terms", "terms_file", type=FILE, required=True, help="The signed terms.")
TICKET = partial(click.option, "--ticket", type=FILE, required=True)
CA = click.option(
    "--ca", default="", help="A PEM file of certificates to trust instead of the system's."
)
TRUST = partial(
    click.option,
    "--trust",
    multiple=True,
    metavar="ROLE=FILE",
    help="Public keys that you know: server=FILE, shuffler=FILE or board=FILE.",
)
_TAKING_PART = (
    TRUST(required=True),
    click.option("--group", required=True, help="Your group in the terms."),
    click.option("--value", required=True, help="Your value, such as 31.23,121.47; - reads stdin."),
    click.option("--epsilon", type=float, required=True, help="The most that the round may cost."),
    click.option("--delta", type=float, required=True, help="The chance that it costs more."),
    click.option("--ledger", type=FILE, required=True, help="From `coatcheck ledger begin`."),
    click.option("--clamp", is_flag=True, help="Move a value outside the domain to its edge."),
)


def taking_part(command: Command) -> Command:
    """Add what a person states to take part: whom to trust, the value, and the most it may cost."""
    for option in reversed(_TAKING_PART):
        command = option(command)
    return command
