"""`coatcheck serve`: run a shuffler, a server or a board until it is told to stop."""

from pathlib import Path

import click

from coatcheck.cli.options import FILE
from coatcheck.errors import Misuse


@click.command()
@click.argument("role", type=click.Choice(["shuffler", "server", "board"]))
@click.option("--config", type=FILE, required=True, help="A TOML file.")
@click.option("--listen", help="HOST:PORT, instead of the file's; port 0 takes a free one.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen on loopback at this port.")
@click.option("--tls-certificate", type=FILE, help="Speak TLS with this certificate (PEM).")
@click.option("--tls-key", type=FILE, help="The certificate's private key (PEM).")
@click.option(
    "--log-level",
    type=click.Choice(["warning", "info", "debug"]),
    default="info",
    show_default=True,
)
def serve(
    *,
    role: str,
    config: Path,
    listen: str | None,
    port: int | None,
    log_level: str,
    tls_certificate: Path | None,
    tls_key: Path | None,
) -> None:
    """Run ROLE with the settings in the table of that name in a TOML file.

    Prints its address once it answers. Logs and metrics hold counts, never anything about one
    report.
    """
    try:
        from coatcheck.services.run import serve as run  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise Misuse(f"services need {error.name}: pip install 'coatcheck[serve]'") from None
    if listen is not None and port is not None:
        raise Misuse("give --listen or --port, not both")
    if (tls_certificate is None) != (tls_key is None):
        raise Misuse("TLS needs both --tls-certificate and --tls-key")
    tls = (tls_certificate, tls_key) if tls_certificate and tls_key else None
    where = f"127.0.0.1:{port}" if port is not None else listen
    click.get_current_context().exit(run(role, config, listen=where, tls=tls, log_level=log_level))
