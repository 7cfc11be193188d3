"""Start a service: read its settings, bind its socket, say where it is, and run until told to end.

The command line calls `serve`. `cluster` starts this module as a process of its own, which also
ends when its starter does: the starter holds the other end of standard input, and however it ends,
even by `kill -9`, this end closes, and the service and its workers end too.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coatcheck.durable_files import write_bytes
from coatcheck.errors import Error, Misuse
from coatcheck.services.settings import ProcessSettings, read_settings

if TYPE_CHECKING:
    from coatcheck.services.web.app import App

ROLES: Final = {
    "shuffler": "coatcheck.services.shuffler.routes:ShufflerService",
    "server": "coatcheck.services.server.routes:ServerService",
    "board": "coatcheck.services.board.routes:BoardService",
    "relay": "coatcheck.services.relay:RelayService",
    "witness": "coatcheck.services.witness:WitnessService",
}
"""The class of each role's service, by module and name."""


def build(role: str, config: Path) -> "App[Any]":
    """Make the service of a role from its settings."""
    if role not in ROLES:
        raise Misuse(f"a service is one of {', '.join(ROLES)}, not {role!r}")
    # Each role is loaded alone: a shuffler's process never imports what decodes a report.
    module, _, name = ROLES[role].partition(":")
    kind = getattr(import_module(module), name)
    service: App[Any] = kind(read_settings(config, role=role, kind=kind.settings_type))
    return service


def serve(
    role: str,
    config: Path,
    *,
    listen: str | None = None,
    tls: tuple[Path, Path] | None = None,
    log_level: str = "info",
) -> int:
    """Run a service until it is told to end; the exit code.

    `listen` and `tls` (certificate and key) overrule the settings; port 0 takes a free one, told
    by the printed line and the settings' `address_file`.
    """
    # Here, as a worker loads this module too, and serves nothing.
    import uvicorn  # noqa: PLC0415 - slow to load

    from coatcheck.services.web.connections import protocol  # noqa: PLC0415 - as above

    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    # These would write a line per request, with addresses in it.
    for name in ("httpx2", "httpcore2", "httpx", "httpcore", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    app = build(role, config)
    settings = app.settings
    bound = bind(listen or settings.listen)
    host, port = bound.getsockname()[:2]
    if tls is None and settings.tls_certificate:
        tls = (settings.path(settings.tls_certificate), settings.path(settings.tls_key))
    shown = f"[{host}]" if ":" in host else host
    url = settings.url or f"{'https' if tls else 'http'}://{shown}:{port}"
    app.take_url(url)
    made = uvicorn.Config(
        app,
        http=protocol(deadline=settings.deadline, limits=app.source_limits),
        loop="uvloop",
        ws="none",
        lifespan="on",
        access_log=False,
        proxy_headers=False,  # who asks is never looked at
        log_config=None,
        log_level="warning",
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    app.started = lambda: _announce(settings, url)
    server = uvicorn.Server(made)
    app.stop = lambda: setattr(server, "should_exit", True)
    collect_seldom()
    try:
        server.run(sockets=[bound])
    finally:
        bound.close()
    if app.failure:
        raise Misuse(app.failure)
    return 0 if server.started else 1


def collect_seldom() -> None:
    """Keep the collector of garbage from looking, while people wait, at what is none.

    What is loaded by now stays. And uploads that wait for one commit are some thousand objects: by
    default the collector would look through them several times, and find nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10 * gc.get_threshold()[0])


def _announce(settings: ProcessSettings, url: str) -> None:
    """Say where the service is; whoever comes at once waits in the socket's queue."""
    if settings.address_file:
        path = settings.path(settings.address_file)
        write_bytes(path, url.encode() + b"\n", replace=True)
    print(f"coatcheck: {settings.name} at {url}", flush=True)  # noqa: T201 - the result


def bind(listen: str) -> socket.socket:
    """Listen on HOST:PORT; whoever comes before the service answers waits in the queue."""
    host, _, port = listen.rpartition(":")
    try:
        number = int(port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host.strip("[]"), number))
        bound.listen(2048)
    except (OSError, ValueError, OverflowError) as error:
        raise Misuse(f"cannot listen on {listen!r}: {error}; give HOST:PORT") from None
    return bound


def _end_with_the_starter() -> None:
    # Not through sys.stdin: its lock would be held when the interpreter ends by itself.
    while os.read(0, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    try:
        sys.exit(serve(sys.argv[1], Path(sys.argv[2]), listen=sys.argv[3] or None))
    except Error as error:
        sys.exit(f"coatcheck: {error}")
