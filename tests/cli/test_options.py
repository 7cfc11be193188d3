"""Commands made from functions: each parameter becomes an argument or an option."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
import pytest
from click.testing import CliRunner

from coatcheck.cli.options import (
    HEX,
    OBJECT,
    POSITIVE,
    WHOLE,
    Json,
    Reader,
    command,
    numbers,
    one_of,
)
from coatcheck.errors import Misuse


@dataclass(frozen=True, kw_only=True)
class Place:
    """Two options that belong together."""

    north: Annotated[float, "How far up."]
    east: Annotated[float, "How far right."] = 0.0


@click.group()
def both() -> None:
    """Contain the command below."""


@command(both)
def take_in(
    files: tuple[Path, ...],
    *,
    place: Place,
    crowd: Annotated[int | None, WHOLE, "People."] = None,
    name: Annotated[tuple[str, ...], "--called", "Names."] = (),
    as_json: Json = False,
) -> None:
    """Print the arguments."""
    click.echo(f"{[path.name for path in files]} {place} {crowd} {name} {as_json}")


def test_a_function_becomes_a_command_of_its_group() -> None:
    """Positional parameters are arguments, keywords options, a dataclass one option per field."""
    given = [
        "take-in",
        "a",
        "b",
        "--north",
        "2",
        "--crowd",
        "1e3",
        "--called",
        "x",
        "--called",
        "y",
    ]
    done = CliRunner().invoke(both, [*given, "--json"])
    expected = "['a', 'b'] Place(north=2.0, east=0.0) 1000 ('x', 'y') True\n"
    assert (done.exit_code, done.stdout) == (0, expected)


def test_what_has_no_default_is_required_and_help_is_where_the_type_is() -> None:
    """Click's own error names the option; `--help` shows every help text."""
    assert "Missing option '--north'" in CliRunner().invoke(both, ["take-in", "a"]).stderr
    assert "Missing argument 'FILES...'" in CliRunner().invoke(both, ["take-in"]).stderr
    told = CliRunner().invoke(both, ["take-in", "--help"]).stdout
    for words in ("Print the arguments.", "--called TEXT", "How far up.  [required]", "--json"):
        assert words in told


@pytest.mark.parametrize(
    ("reader", "text", "value", "wrong"),
    [
        (WHOLE, "1e6", 1_000_000, ["1.5", "inf", "nan", "x", ""]),
        (POSITIVE, "0.5", 0.5, ["0", "-1", "nan", "inf", "x"]),
        (HEX, "00ff", b"\x00\xff", ["0", "zz"]),
        (OBJECT, '{"limit": 9}', {"limit": 9}, ["{", "[]", "9", ""]),
        (one_of(("cat", "dog")), "dog", "dog", ["cow", "", "cat | dog"]),
        (numbers("1,2"), "3", [3.0], ["", ",", "1,x", "1,nan", "inf"]),
        (numbers("1,2", count=2), "3,4", [3.0, 4.0], ["3", "3,4,5"]),
    ],
)
def test_an_unreadable_value_is_refused_by_the_options_name(
    reader: Reader, text: str, value: object, wrong: list[str]
) -> None:
    """The error names the option and repeats the text."""
    option = click.Option(["--it"], type=reader)
    assert reader.convert(text, option, None) == value
    assert reader.convert(value, option, None) == value
    for bad in wrong:
        with pytest.raises(Misuse, match=r"^`--it` .*, got ") as caught:
            reader.convert(bad, option, None)
        assert repr(bad) in str(caught.value)
