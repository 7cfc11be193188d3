"""`coatcheck round`: open a round at a server, see where it stands, close or abandon it."""

import json
from pathlib import Path

import click

from coatcheck.cli.files import CA, FILE, hint, read, show
from coatcheck.errors import Misuse
from coatcheck.protocol.keyfiles import read_secret
from coatcheck.services.cluster import open_round
from coatcheck.services.http.client import ask

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
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
@click.option("--closes", default=3600, show_default=True, help="Seconds until a full one goes.")
@click.option("--expires", default=7200, show_default=True, help="Seconds until it is given up.")
@CA
@_JSON
def open_(
    *, draft: Path, server: str, token: Path, closes: int, expires: int, ca: str, as_json: bool
) -> None:
    """Propose the round of a DRAFT, have it signed, and open it everywhere.

    Prints the address to give to people. Asking again goes on where it stopped.
    """
    raw = read(draft)
    try:
        plan = json.loads(raw)
    except ValueError as error:
        raise Misuse(f"{draft} is no JSON document: {error}") from None
    if not isinstance(plan, dict):
        raise Misuse(f"{draft} is no JSON object: it has the fields round, task and groups")
    body = {"draft": plan, "closes": closes, "expires": expires}
    secret = read_secret(token).decode().strip()
    url = open_round(server.rstrip("/"), body, token=secret, ca=ca)
    show({"round": plan.get("round"), "url": url}, as_json=as_json)


@round.command()
@click.argument("url")
@CA
@_JSON
def status(*, url: str, ca: str, as_json: bool) -> None:
    """Say where the round at URL stands: phase and counts."""
    found = ask("GET", url, ca=ca)
    show(found.get("status", found), as_json=as_json)


@round.command()
@click.argument("url")
@_TOKEN
@click.option("--abandon", is_flag=True, help="Give it up: nothing of it ever leaves.")
@CA
@_JSON
def close(*, url: str, token: Path, abandon: bool, ca: str, as_json: bool) -> None:
    """Close the round at URL now that its time is over and its crowd is there, or abandon it."""
    secret = read_secret(token).decode().strip()
    what, body = ("abandonment", {"sure": True}) if abandon else ("closing", {})
    found = ask("POST", f"{url.rstrip('/')}/{what}", body=body, token=secret, ca=ca)
    show(found, as_json=as_json)
    if abandon:
        hint("people are told that the round was abandoned; their values never left them")
