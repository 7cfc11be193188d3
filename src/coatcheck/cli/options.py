"""Commands made from functions: each parameter is one option, with its type and help in one place.

A keyword-only parameter is an option, any other one is an argument; without a default it is
required. `Annotated` adds the help, other names (`"--json"`), a `Reader` for the text, and a dict
of click's own settings. A parameter whose type is a dataclass stands for one option per field.
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
    """How the text of an option is read, and what the option is, for whoever wrote it wrong."""

    def __init__(self, read: Callable[[str], Any], told: str, *, name: str = "text") -> None:
        self.name, self._read, self._told = name, read, told

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,  # noqa: ARG002 - click's signature
    ) -> Any:
        """Read a text; a default is a value already."""
        try:
            return self._read(value) if isinstance(value, str) else value
        except (ValueError, LookupError, OverflowError, msgspec.DecodeError):
            option = "" if param is None else param.opts[-1]
            option = option if option.startswith("-") else option.upper()
            raise Misuse(f"{option} {self._told}, got {value!r}") from None


def command(
    group: click.Group | None = None, *, doing: str = ""
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command from a function: one of its own, or one of a group.

    One that may take its time says what it is `doing`.
    """
    register = click.command if group is None else group.command

    def made(function: Callable[..., None]) -> click.Command:
        given = signature(function).parameters
        bundles: dict[str, Any] = {
            name: of.annotation for name, of in given.items() if is_dataclass(of.annotation)
        }

        @wraps(function)
        def run(**values: Any) -> None:
            for name, kind in bundles.items():
                values[name] = kind(**{of.name: values.pop(of.name) for of in fields(kind)})
            with at_work(doing) if doing else nullcontext():
                function(**values)

        params: list[click.Parameter] = []
        for name, of in given.items():
            parts = signature(bundles[name]).parameters if name in bundles else {name: of}
            params += map(_parameter, parts.values())
        return register(function.__name__.strip("_").replace("_", "-"), params=params)(run)

    return made


def _parameter(of: Parameter) -> click.Parameter:
    told = get_args(of.annotation) if get_origin(of.annotation) is Annotated else (of.annotation,)
    whole, *more = told
    kind, *_ = [t for t in get_args(whole) if t not in {NoneType, ...}] or [whole]
    many = get_origin(whole) is tuple
    texts = [text for text in more if isinstance(text, str)]
    names = [text for text in texts if text.startswith("-")] or [f"--{of.name.replace('_', '-')}"]
    settings: dict[str, Any] = {"type": FILE if kind is Path else kind}
    for one in more:
        settings |= {"type": one} if isinstance(one, Reader) else {}
        settings |= one if isinstance(one, dict) else {}
    settings["required"] = of.default is of.empty
    if of.kind is not of.KEYWORD_ONLY:
        settings |= {} if of.default is of.empty else {"default": of.default}
        return click.Argument([of.name], nargs=-1 if many else 1, **settings)
    if of.default is not of.empty:
        settings |= {"default": of.default, "show_default": bool(of.default)}
    settings |= {"multiple": many, "is_flag": kind is bool, "help": texts[-1] if texts else None}
    return click.Option([*names, of.name], **settings)


# -- how options are read


def whole(text: str) -> int:
    """Read a whole number, also written as 1e6."""
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
    """Read one of some names."""
    known = {name: name for name in names}
    return Reader(known.__getitem__, f"is one of {' | '.join(known)}")


def numbers(example: str, *, count: int = 0) -> Reader:
    """Read numbers separated by commas: so many, or at least one."""

    def read(text: str) -> list[float]:
        found = [float(part) for part in text.split(",")]
        if len(found) != (count or len(found)) or not all(map(math.isfinite, found)):
            raise ValueError
        return found

    many = f"{count} numbers" if count else "numbers"
    return Reader(read, f"takes {many} by comma, such as {example}", name="numbers")


def _address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError
    return text


FILE = click.Path(path_type=Path)
WHOLE = Reader(whole, "is a whole number, such as 10000 or 1e6", name="number")
POSITIVE = Reader(_positive, "is a number above 0, usually 0.1 to 3", name="number")
OBJECT = Reader(_object, 'is a JSON object such as {"limit": 9}', name="json")
_CONTACT = Reader(bytes.fromhex, "is a contact in hexadecimal", name="hex")
ADDRESS = Reader(_address, "is an address, http://HOST:PORT or https://HOST and more", name="text")
HEX = Reader(bytes.fromhex, "is hexadecimal, such as 00ff", name="hex")

# -- options that several commands take

Json = Annotated[bool, "--json", "Print one JSON document."]
Key = Annotated[Path, "Your own key file."]
Terms = Annotated[Path, "--terms", "The signed terms."]
Ticket = Annotated[Path, "Your ticket."]
To = Annotated[bytes, _CONTACT, "A partner's contact, as `collect` and `take-part` print it."]
Ca = Annotated[str, "A PEM file of certificates to trust instead of the system's."]
Witnesses = Annotated[int, "How many of your witnesses must have cosigned; all by default."]
Relay = Annotated[str, "A relay's address: everything goes through it, nothing directly."]
Trust = Annotated[
    tuple[str, ...],
    "Public keys that you know: server=FILE, shuffler=FILE, board=FILE or witness=FILE.",
    {"metavar": "ROLE=FILE"},
]


@dataclass(frozen=True, kw_only=True)
class TakingPart:
    """What a person states to take part: whom to trust, the value, and the most it may cost."""

    trust: Trust
    group: Annotated[str, "Your group in the terms, if they have several."] = ""
    value: Annotated[str, "Your value, such as 31.23,121.47; - reads stdin."]
    epsilon: Annotated[float, "The most that the round may cost."]
    delta: Annotated[float, "The chance that it costs more."]
    ledger: Annotated[Path, "From `coatcheck ledger begin`, or your profile's."]
    clamp: Annotated[bool, "Move a value outside the domain to its edge."] = False
