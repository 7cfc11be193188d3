"""`coatcheck round`: open a round at a server, see its status, close or abandon it."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from coatcheck.cli import Commands
from coatcheck.cli.files import read_object, write_file
from coatcheck.cli.options import ADDRESS, WHOLE, Ca, Json, command, one_of
from coatcheck.cli.output import hint, show, table, told_time
from coatcheck.durable_files import read_secret
from coatcheck.entropy import system
from coatcheck.errors import Misuse
from coatcheck.services.web.client import ask, open_round

if TYPE_CHECKING:
    from rich.table import Table

# HOUSE-DOC cli.serve: '`coatcheck serve`: run one of the services until it is told to stop.'
_LEVELS = ("warning", "info", "debug")


@command()
def serve(
    role: Annotated[str, one_of(("shuffler", "server", "board", "relay", "witness"))],
    *,
    config: Annotated[Path, "A TOML file."],
    listen: Annotated[str | None, "HOST:PORT, not the file's; port 0 takes a free one."] = None,
    port: Annotated[int | None, "Listen on loopback at this port."] = None,
    tls_certificate: Annotated[Path | None, "Speak TLS with this certificate (PEM)."] = None,
    tls_key: Annotated[Path | None, "The certificate's private key (PEM)."] = None,
    log_level: Annotated[str, one_of(_LEVELS), " | ".join(_LEVELS)] = "info",
) -> None:
    """Run ROLE with the settings in the table of that name in a TOML file.

    Prints its address once it answers. Logs and metrics hold counts, never anything about one
    report.
    """
    from coatcheck.services.process import serve as run  # noqa: PLC0415 - needs an extra

    if listen is not None and port is not None:
        raise Misuse("give --listen or --port, not both")
    if (tls_certificate is None) != (tls_key is None):
        raise Misuse("TLS needs both --tls-certificate and --tls-key")
    tls = (tls_certificate, tls_key) if tls_certificate and tls_key else None
    where = f"127.0.0.1:{port}" if port is not None else listen
    click.get_current_context().exit(run(role, config, listen=where, tls=tls, log_level=log_level))


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
    """List the rounds at the address of a server, shuffler or board, with phases and times."""
    address = f"{role.rstrip('/')}/rounds"
    rounds = ask("GET", address, ca=ca)

    def lines() -> Iterable["Table"]:
        rows = [(*_standing(status), _address(status, address)) for status in rounds]
        last = "closes" if rounds and "closes" in rounds[0] else "letters"
        yield table(("round", "phase", last, "address"), rows, right=())

    show(rounds, as_json=as_json, text=lines if rounds else "no rounds yet")


def _standing(status: dict[str, Any]) -> tuple[str, str, str]:
    """Return a round's name, its phase, and when it closes or how many letters a board has."""
    if "closes" in status:
        return status["round"], status["phase"], told_time(status["closes"])
    shown = "outcome shown" if status["shown"] else "no outcome yet"
    return status["round"], shown, f"{status['letters']:,}"


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


# HOUSE-DOC cli.operator: '`coatcheck operator`: a token for somebody who operates a service.'
@command()
def operator(name: str, *, out: Annotated[Path, "The token, for you alone (mode 0600)."]) -> None:
    """Make a token for the operator NAME; the log of a service names who opened or ended a round.

    The file that a service's setting `admin_token` names has the lines of all its operators.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        raise Misuse(f"an operator's name is lower-case letters, digits and -, not {name!r}")
    write_file(out, f"{name}.{system().token(24).hex()}\n".encode(), secret=True)
    hint("add this line to the file that `admin_token` names, and restart the service")


# HOUSE-DOC cli.tokens: '`coatcheck tokens`: one-use tokens for people, and their hashes for the shuffler.'
_MOST = 10_000_000


@command()
def tokens(
    count: Annotated[int, WHOLE],
    *,
    out: Annotated[Path, "The tokens, one per line; each is for one person (mode 0600)."],
    hashes: Annotated[Path, "Their hashes, which the shuffler's setting `tokens` names."],
) -> None:
    """Make COUNT one-use tokens; each admits one upload per round."""
    if not 1 <= count <= _MOST:
        raise Misuse(f"make 1 to {_MOST:,} tokens at once")
    source = system()
    made = [source.token(16).hex() for _ in range(count)]
    # In an order of their own: a place in this file says nothing about a place in the other.
    known = sorted(hashlib.sha256(token.encode()).hexdigest() for token in made)
    write_file(out, "".join(f"{token}\n" for token in made).encode(), secret=True)
    write_file(hashes, "".join(f"{one}\n" for one in known).encode())
    hint("whoever gives a token to a person can tell which upload is theirs: keep no list of whom")
