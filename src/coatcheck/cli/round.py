"""`coatcheck round`: open a round at a server, see its status, close or abandon it."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from coatcheck.cli import Commands
from coatcheck.cli.files import read_object
from coatcheck.cli.options import ADDRESS, Ca, Json, command
from coatcheck.cli.output import hint, show, table, told_time
from coatcheck.files import read_secret
from coatcheck.services.cluster import open_round
from coatcheck.services.http.client import ask

if TYPE_CHECKING:
    from rich.table import Table

_Token = Annotated[Path, "The file with the operator's token."]


@click.group(name="round", cls=Commands)
def round() -> None:  # noqa: A001 - the word people type
    """Run rounds at a server and its shufflers."""


@command(round)
def open_(
    draft: Path,
    *,
    server: Annotated[str, ADDRESS, "The server's address, http://HOST:PORT."],
    token: _Token,
    closes: Annotated[int, "Seconds until release."] = 3600,
    expires: Annotated[int, "Seconds until it ends unfilled."] = 7200,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Propose the round of a DRAFT, have it signed, and open it at every shuffler.

    Prints the address to give to people. If it fails midway, run it again: it goes on from there.
    """
    plan = read_object(draft)
    body = {"draft": plan, "closes": closes, "expires": expires}
    url = open_round(server.rstrip("/"), body, token=_secret(token), ca=ca)
    show({"round": plan.get("round"), "url": url}, as_json=as_json)


@command(round)
def status(
    url: Annotated[str, ADDRESS],
    *,
    token: Annotated[Path | None, "File with the operator's token, for exact counts."] = None,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Print the phase and the counts of the round at URL; without a token they are rounded."""
    found = ask("GET", url, ca=ca)
    told = found.get("status", found)
    if token is not None:
        told["groups"] = ask("GET", f"{url.rstrip('/')}/crowd", token=_secret(token), ca=ca)[
            "groups"
        ]
    show(told, as_json=as_json)


@command(round)
def list_(role: Annotated[str, ADDRESS], *, ca: Ca = "", as_json: Json = False) -> None:
    """List the rounds at the address of a server or shuffler, with their phases and times."""
    at = f"{role.rstrip('/')}/rounds"
    found = ask("GET", at, ca=ca)

    def lines() -> Iterable["Table"]:
        rows = [
            (one["round"], one["phase"], told_time(one["closes"]), _address(one, at))
            for one in found
        ]
        yield table(("round", "phase", "closes", "address"), rows, right=())

    show(found, as_json=as_json, text=lines if found else "no rounds yet")


@command(round)
def close(
    url: Annotated[str, ADDRESS],
    *,
    token: _Token,
    abandon: Annotated[bool, "End it without releasing anything."] = False,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Release the round at URL if its time is over and its crowd is there, or abandon it."""
    what, body = ("abandonment", {"sure": True}) if abandon else ("closing", {})
    found = ask("POST", f"{url.rstrip('/')}/{what}", body=body, token=_secret(token), ca=ca)
    show(found, as_json=as_json)
    if abandon:
        hint("people are told that the round was abandoned; their values never left them")


def _address(one: dict[str, Any], at: str) -> str:
    """Give the address for people, which a server knows, or the round's at this shuffler."""
    return str(one.get("url") or f"{at}/{one['digest']}")


def _secret(token: Path) -> str:
    return read_secret(token).decode().strip()
