"""Commands made from function signatures: one parameter is one option, with its type and help.

A keyword-only parameter is an option, any other parameter is an argument; without a default it is
required. `Annotated` adds the help, other names (`"--json"`), a `Reader` that parses the text, and
a dict of click's own settings. A parameter of a dataclass type is one option per field.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin
from urllib.parse import urlsplit

import click
import msgspec

from coatcheck.cli.output import at_work
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:  # older versions of click do not take the argument
    _Type = click.ParamType


class Reader(_Type):
    """A parser for the text of an option, with the phrase that an error says about it."""

    def __init__(self, read: Callable[[str], Any], allowed: str, *, name: str = "text") -> None:
        self.name, self._read, self._allowed = name, read, allowed

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> Any:
        """Parse a text; return a default, which is a value already, as it is."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except (ValueError, LookupError, OverflowError, msgspec.DecodeError):
            option = "" if param is None else param.opts[-1]
            option = f"`{option}`" if option.startswith("-") else option.upper()
            raise Misuse(f"{option} {self._allowed}, got {value!r}") from None


def command(
    group: click.Group | None = None, *, name: str = "", doing: str = ""
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command from a function, in a group if one is given.

    Args:
        group: the group that the command belongs to.
        name: the command's name; by default the function's, with hyphens.
        doing: for a command that may take long, what it does meanwhile; printed from time to time.
    """
    register = click.command if group is None else group.command

    def decorate(function: Callable[..., None]) -> click.Command:
        parameters = signature(function).parameters
        bundles: dict[str, Any] = {
            name: of.annotation for name, of in parameters.items() if is_dataclass(of.annotation)
        }

        @wraps(function)
        def run(**values: Any) -> None:
            for bundle, kind in bundles.items():
                values[bundle] = kind(**{of.name: values.pop(of.name) for of in fields(kind)})
            with at_work(doing) if doing else nullcontext():
                function(**values)

        params: list[click.Parameter] = []
        for parameter, of in parameters.items():
            bundle = bundles.get(parameter)
            parts = signature(bundle).parameters if bundle else {parameter: of}
            params += map(_parameter, parts.values())
        return register(name or function.__name__.replace("_", "-"), params=params)(run)

    return decorate


def _parameter(of: Parameter) -> click.Parameter:
    """Return click's parameter for a parameter of a function."""
    annotated = get_origin(of.annotation) is Annotated
    hint, *extras = get_args(of.annotation) if annotated else (of.annotation,)
    kind, *_ = [t for t in get_args(hint) if t not in {NoneType, ...}] or [hint]
    many = get_origin(hint) is tuple
    texts = [extra for extra in extras if isinstance(extra, str)]
    names = [text for text in texts if text.startswith("-")] or [f"--{of.name.replace('_', '-')}"]
    settings: dict[str, Any] = {"type": FILE if kind is Path else kind}
    for extra in extras:
        settings |= {"type": extra} if isinstance(extra, Reader) else {}
        settings |= extra if isinstance(extra, dict) else {}
    settings["required"] = of.default is of.empty
    if of.kind is not of.KEYWORD_ONLY:
        settings |= {} if of.default is of.empty else {"default": of.default}
        return click.Argument([of.name], nargs=-1 if many else 1, **settings)
    if of.default is not of.empty:
        settings |= {"default": of.default, "show_default": bool(of.default)}
    settings |= {"multiple": many, "is_flag": kind is bool, "help": texts[-1] if texts else None}
    return click.Option([*names, of.name], **settings)


# -- parsers of options


def whole(text: str) -> int:
    """Parse a whole number, also one written as 1e6."""
    if not float(text).is_integer():
        raise ValueError
    return int(float(text))


def _positive(text: str) -> float:
    if not 0 < float(text) < math.inf:
        raise ValueError
    return float(text)


def _object(text: str) -> dict[str, Any]:
    return msgspec.json.decode(text, type=dict[str, Any])


def one_of(names: Iterable[str]) -> Reader:
    """Return a parser that accepts only these names."""
    choices = {name: name for name in names}
    return Reader(choices.__getitem__, f"must be one of {' | '.join(choices)}")


def numbers(example: str, *, count: int = 0) -> Reader:
    """Return a parser of numbers separated by commas: `count` of them, or any positive number."""

    def read(text: str) -> list[float]:
        values = [float(part) for part in text.split(",")]
        if len(values) != (count or len(values)) or not all(map(math.isfinite, values)):
            raise ValueError
        return values

    many = f"{count} numbers" if count else "numbers"
    return Reader(read, f"takes {many} separated by commas, such as {example}", name="numbers")


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError
    return text


FILE = click.Path(path_type=Path)
WHOLE = Reader(whole, "must be a whole number, such as 10000 or 1e6", name="number")
POSITIVE = Reader(_positive, "must be a number above 0, usually 0.1 to 3", name="number")
OBJECT = Reader(_object, 'must be a JSON object such as {"limit": 9}', name="json")
_CONTACT = Reader(bytes.fromhex, "must be a contact in hexadecimal", name="hex")
ADDRESS = Reader(_address, "must begin with http://HOST:PORT or https://HOST", name="text")
HEX = Reader(bytes.fromhex, "must be hexadecimal, such as 00ff", name="hex")

# -- options of several commands

Json = Annotated[bool, "--json", "Print one JSON document."]
Key = Annotated[Path, "Your key file."]
Terms = Annotated[Path, "--terms", "The signed terms."]
Ticket = Annotated[Path, "Your ticket."]
To = Annotated[bytes, _CONTACT, "A partner's contact, as `collect` and `take-part` print it."]
Ca = Annotated[str, "PEM file of certificates to trust instead of the system's."]
Witnesses = Annotated[int, "How many of your trusted witnesses must have cosigned; all by default."]
Relay = Annotated[str, "Address of a relay; every request goes through it, none directly."]
Trust = Annotated[
    tuple[str, ...],
    "Public keys that you trust: server=FILE, shuffler=FILE, board=FILE or witness=FILE; or"
    " policy=FILE, a policy file of witnesses.",
    {"metavar": "ROLE=FILE"},
]


@dataclass(frozen=True, kw_only=True)
class TakingPart:
    """What a person states to take part: trusted keys, the value, and the most it may cost."""

    trust: Trust
    group: Annotated[str, "Your group, if the terms have several."] = ""
    value: Annotated[str, "Your value, such as 31.23,121.47; - reads standard input."]
    epsilon: Annotated[float, "The most ε that the round may cost."]
    delta: Annotated[float, "The chance that it costs more."]
    ledger: Annotated[Path, "Your ledger, from `coatcheck ledger begin` or `me begin`."]
    clamp: Annotated[bool, "Move a value outside the domain to its edge."] = False
