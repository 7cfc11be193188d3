"""`coatcheck round`: open a round at a server, see its status, close or abandon it."""

from pathlib import Path

import click

from coatcheck.cli.files import hint, read_object, show
from coatcheck.cli.options import CA, FILE, JSON
from coatcheck.protocol.keyfiles import read_secret
from coatcheck.services.cluster import open_round
from coatcheck.services.http.client import ask

_TOKEN = click.option(
    "--token", type=FILE, required=True, help="The file with the operator's token."
)


@click.group(name="round")
def round() -> None:  # noqa: A001 - the word people type
    """Run rounds at a server and its shufflers."""


@round.command(name="open")
@click.argument("draft", type=FILE)
@click.option("--server", required=True, help="The server's address, http://HOST:PORT.")
@_TOKEN
@click.option("--closes", default=3600, show_default=True, help="Seconds until release.")
@click.option(
    "--expires",
    default=7200,
    show_default=True,
    help="Seconds until it ends unfilled.",
)
@CA
@JSON
def open_(
    *, draft: Path, server: str, token: Path, closes: int, expires: int, ca: str, as_json: bool
) -> None:
    """Propose the round of a DRAFT, have it signed, and open it at every shuffler.

    Prints the address to give to people. If it fails midway, run it again: it goes on from there.
    """
    plan = read_object(draft)
    body = {"draft": plan, "closes": closes, "expires": expires}
    url = open_round(server.rstrip("/"), body, token=_secret(token), ca=ca)
    show({"round": plan.get("round"), "url": url}, as_json=as_json)


@round.command()
@click.argument("url")
@CA
@JSON
def status(*, url: str, ca: str, as_json: bool) -> None:
    """Print the phase and the counts of the round at URL."""
    found = ask("GET", url, ca=ca)
    show(found.get("status", found), as_json=as_json)


@round.command()
@click.argument("url")
@_TOKEN
@click.option("--abandon", is_flag=True, help="End it without releasing anything.")
@CA
@JSON
def close(*, url: str, token: Path, abandon: bool, ca: str, as_json: bool) -> None:
    """Release the round at URL if its time is over and its crowd is there, or abandon it."""
    what, body = ("abandonment", {"sure": True}) if abandon else ("closing", {})
    found = ask("POST", f"{url.rstrip('/')}/{what}", body=body, token=_secret(token), ca=ca)
    show(found, as_json=as_json)
    if abandon:
        hint("people are told that the round was abandoned; their values never left them")


def _secret(token: Path) -> str:
    return read_secret(token).decode().strip()
