"""The commands of operators: `serve`, `round`, `check`, `operator` and `tokens`.

`serve` runs a role until it is stopped. `round` opens, lists, closes and abandons rounds at
running roles. `check` plays a person through them. `operator` and `tokens` make the secrets that a
role's settings name.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from coatcheck.cli import Commands
from coatcheck.cli.files import read_object, read_trust, read_value, write_file
from coatcheck.cli.options import (
    ADDRESS,
    WHOLE,
    Ca,
    Json,
    Relay,
    Trust,
    Witnesses,
    command,
    one_of,
)
from coatcheck.cli.output import hint, local_time, show, table
from coatcheck.durable_files import read_secret
from coatcheck.entropy import system
from coatcheck.errors import Misuse
from coatcheck.services.web.client import ask, open_round

if TYPE_CHECKING:
    from rich.table import Table

    from coatcheck.services.person.check import Step

_LEVELS = ("warning", "info", "debug")


@command()
def serve(
    role: Annotated[str, one_of(("shuffler", "server", "board", "relay", "witness"))],
    *,
    config: Annotated[Path, "TOML file with the settings."],
    listen: Annotated[
        str | None, "Address to listen on, HOST:PORT; overrides the file. Port 0 picks a free port."
    ] = None,
    port: Annotated[int | None, "Listen on loopback at this port."] = None,
    tls_certificate: Annotated[Path | None, "Serve TLS with this certificate (PEM)."] = None,
    tls_key: Annotated[Path | None, "The certificate's private key (PEM)."] = None,
    log_level: Annotated[str, one_of(_LEVELS), " | ".join(_LEVELS)] = "info",
) -> None:
    """Run ROLE with the settings in the table of that name in a TOML file.

    Prints the address when the role is ready. Logs and metrics hold counts, and nothing about a
    single report.
    """
    from coatcheck.services.process import serve as run  # noqa: PLC0415 - needs an extra

    if listen is not None and port is not None:
        raise Misuse("give `--listen` or `--port`, not both")
    if (tls_certificate is None) != (tls_key is None):
        raise Misuse("TLS needs both `--tls-certificate` and `--tls-key`")
    tls = (tls_certificate, tls_key) if tls_certificate and tls_key else None
    where = f"127.0.0.1:{port}" if port is not None else listen
    click.get_current_context().exit(run(role, config, listen=where, tls=tls, log_level=log_level))


_Token = Annotated[Path, "File with the operator's token."]


@click.group(name="round", cls=Commands)
def round() -> None:  # noqa: A001 - the command's name
    """Run rounds at a server and its shufflers."""


@command(round, name="open")
def open_a_round(
    draft: Path,
    *,
    server: Annotated[str, ADDRESS, "Address of the server, http://HOST:PORT."],
    token: _Token,
    closes: Annotated[int, "Seconds until the release."] = 3600,
    expires: Annotated[int, "Seconds until the round ends if its crowd is too small."] = 7200,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Have the server draft and sign the round of a DRAFT, and open it at every shuffler.

    Prints the address to give to people. If it fails midway, run it again: it continues.
    """
    fields = read_object(draft)
    body = {"draft": fields, "closes": closes, "expires": expires}
    url = open_round(server.rstrip("/"), body, token=_secret(token), ca=ca)
    show({"round": fields.get("round"), "url": url}, as_json=as_json)


@command(round, name="status")
def show_status(
    url: Annotated[str, ADDRESS],
    *,
    token: Annotated[Path | None, "File with the operator's token, for exact counts."] = None,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Print the phase and the counts of the round at URL; counts are rounded without a token."""
    document = ask("GET", url, ca=ca)
    status = document.get("status", document)
    if token is not None:
        crowd = ask("GET", f"{url.rstrip('/')}/crowd", token=_secret(token), ca=ca)
        status["groups"] = crowd["groups"]
    show(status, as_json=as_json)


@command(round, name="list")
def list_rounds(role: Annotated[str, ADDRESS], *, ca: Ca = "", as_json: Json = False) -> None:
    """List the rounds at the address of a server, shuffler or board, with phases and times."""
    url = f"{role.rstrip('/')}/rounds"
    rounds = ask("GET", url, ca=ca)

    def lines() -> Iterable["Table"]:
        rows = [(*_standing(entry), _address(entry, url)) for entry in rounds]
        last = "closes" if rounds and "closes" in rounds[0] else "letters"
        yield table(("round", "phase", last, "address"), rows, right=())

    show(rounds, as_json=as_json, text=lines if rounds else "no rounds yet")


def _standing(entry: dict[str, Any]) -> tuple[str, str, str]:
    """Return a round's name, its phase, and when it closes or how many letters a board has."""
    if "closes" in entry:
        return entry["round"], entry["phase"], local_time(entry["closes"])
    shown = "outcome shown" if entry["shown"] else "no outcome yet"
    return entry["round"], shown, f"{entry['letters']:,}"


def _address(entry: dict[str, Any], url: str) -> str:
    """Return the round's address for people, if the role knows it; else its address at the role."""
    return str(entry.get("url") or f"{url}/{entry['digest']}")


@command(round, name="close")
def close_round(
    url: Annotated[str, ADDRESS],
    *,
    token: _Token,
    abandon: Annotated[bool, "End the round without releasing anything."] = False,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Close the round at URL, after `closes` and with its minimum crowds, or abandon it."""
    action, body = ("abandonment", {"sure": True}) if abandon else ("closing", {})
    status = ask("POST", f"{url.rstrip('/')}/{action}", body=body, token=_secret(token), ca=ca)
    show(status, as_json=as_json)
    if abandon:
        hint("the roles tell people that the round was abandoned; no report was released")


def _secret(token: Path) -> str:
    return read_secret(token).decode().strip()


@command(doing="waiting for the round; Ctrl-C ends the check")
def check(
    address: Annotated[str, ADDRESS],
    *,
    trust: Trust,
    witnesses: Witnesses = 0,
    relay: Relay = "",
    token: Annotated[str, "Admission token; several shufflers' tokens separated by commas."] = "",
    group: Annotated[str, "The group to take part in, if the terms have several."] = "",
    value: Annotated[str, "Also take part with this value, as one more person."] = "",
    wait: Annotated[float, "Seconds to wait for the answer."] = 600.0,
    ca: Ca = "",
    as_json: Json = False,
) -> None:
    """Check a deployed service as a person meets it, and name the role that fails.

    ADDRESS is that of a round, or of the first shuffler. Every role is asked directly, and through
    the relay if one is named. With `--value` the check takes part to the end: its report counts
    as one more person's. Exits with 1 if a step fails.
    """
    from coatcheck.services.person.check import Check, Step  # noqa: PLC0415 - needs an extra

    plan = Check(
        address=address,
        trusted=read_trust(trust, witnesses=witnesses),
        relay=relay,
        token=token,
        group=group,
        value=(lambda domain: read_value(value, domain)) if value else None,
        wait=wait,
        ca=ca,
    )

    async def run() -> list[Step]:
        steps = []
        async for step in plan.steps():
            steps.append(step)
            if not as_json:
                click.echo(_step_line(step))
        return steps

    steps = asyncio.run(run())
    failed = [step for step in steps if not step.passed]
    if as_json:
        show({"passed": not failed, "steps": steps}, as_json=True)
    elif not failed:
        hint("everything that a person needs works" + ("" if value else "; nothing was handed in"))
    if failed:
        click.get_current_context().exit(1)


def _step_line(step: "Step") -> str:
    """Return the line of a step of the check."""
    if step.skipped:
        return f"not tried  {step.role}: {step.what}"
    if step.failure:
        return f"FAILED     {step.role}: {step.what}\n           {step.failure}"
    return f"works      {step.role}: {step.what}"


@command()
def operator(
    name: str, *, out: Annotated[Path, "File for the token, readable by you only (mode 0600)."]
) -> None:
    """Make a token for the operator NAME.

    The file in a role's setting `admin_token` holds one such line per operator. The role's log
    names the operator that opens or ends a round.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,31}", name):
        raise Misuse(
            "NAME must be 1 to 32 lower-case letters, digits and hyphens, beginning with a letter,"
            f" got {name!r}"
        )
    write_file(out, f"{name}.{system().token(24).hex()}\n".encode(), secret=True)
    hint("add this line to the file in the setting `admin_token`, and restart the role")


_MAX_TOKENS = 10_000_000


@command()
def tokens(
    count: Annotated[int, WHOLE],
    *,
    out: Annotated[Path, "File for the tokens, one per line, each for one person (mode 0600)."],
    hashes: Annotated[Path, "File for their hashes; name it in the shuffler's setting `tokens`."],
) -> None:
    """Make COUNT one-use tokens; each admits one upload per round."""
    if not 1 <= count <= _MAX_TOKENS:
        raise Misuse(f"COUNT must be from 1 to {_MAX_TOKENS:,}, got {count:,}")
    source = system()
    one_use = [source.token(16).hex() for _ in range(count)]
    # Sorted, so that the line of a hash does not reveal the line of its token.
    digests = sorted(hashlib.sha256(token.encode()).hexdigest() for token in one_use)
    write_file(out, "".join(f"{token}\n" for token in one_use).encode(), secret=True)
    write_file(hashes, "".join(f"{digest}\n" for digest in digests).encode())
    hint(
        "keep no record of who gets which token: with the shuffler's help it would link people to"
        " uploads"
    )
