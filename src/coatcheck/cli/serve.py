"""`coatcheck serve`: run one of the services until it is told to stop."""

from pathlib import Path
from typing import Annotated

import click

from coatcheck.cli.options import command, one_of
from coatcheck.errors import Misuse

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
    from coatcheck.services.run import serve as run  # noqa: PLC0415 - needs an extra

    if listen is not None and port is not None:
        raise Misuse("give --listen or --port, not both")
    if (tls_certificate is None) != (tls_key is None):
        raise Misuse("TLS needs both --tls-certificate and --tls-key")
    tls = (tls_certificate, tls_key) if tls_certificate and tls_key else None
    where = f"127.0.0.1:{port}" if port is not None else listen
    click.get_current_context().exit(run(role, config, listen=where, tls=tls, log_level=log_level))
