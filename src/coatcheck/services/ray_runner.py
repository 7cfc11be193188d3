"""The Ray runner: parts of stages as tasks of a cluster, on machines that share the same files.

A node gets names, counts and paths, and returns hashes and counts. It reads keys and files by
itself. Ray does the parts of a lost node again on other nodes.

A separate process, the driver, talks to the cluster: Ray reads a token only once, takes over the
handling of signals, and ends a process that has lost its cluster. If a driver fails, the next run
starts another. A driver ends when the process that started it does; Ray then ends its parts.
"""

import importlib.util
import logging
import multiprocessing
import os
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from coatcheck import __version__, errors
from coatcheck.durable_files import read_secret
from coatcheck.errors import Error, Forgotten, Misuse, Unavailable
from coatcheck.services.settings import RaySettings, Settings
from coatcheck.services.telemetry import place_of
from coatcheck.services.worker_pools import PartArgs, Record, Stage, remote_settings, run_part
from coatcheck.stores.blobs import SealedFiles

_PROBE: Final = 5.0
"""Seconds to wait for a sign of the cluster; Ray itself would wait for minutes."""


def check(token: Path) -> None:
    """Check that Ray is installed and the token file is not empty."""
    if importlib.util.find_spec("ray") is None:
        raise Misuse("runner = \"ray\" needs Ray: pip install 'coatcheck[ray]'")
    if not read_secret(token).strip():
        raise Misuse(f"{token} is empty; write the cluster's token into it")


def probe(cluster: RaySettings) -> None:
    """Check that the cluster can be reached and, with TLS, that each side accepts the other."""
    host, _, port = cluster.address.rpartition(":")
    where = f"the Ray cluster at {cluster.address}"
    context = _context(cluster) if all(cluster.tls) else None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE) as connection:
            if context and not _accepts_certificate(context, connection):
                raise Unavailable(
                    f"{where} refuses the certificate in {cluster.tls_certificate}; use one that"
                    " the cluster's CA signed"
                )
    except ssl.SSLCertVerificationError as error:
        text = f"{where} has a certificate that the CA in {cluster.tls_ca} did not sign"
        raise Unavailable(f"{text}: {error.verify_message}") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise Unavailable(f"{where} does not accept TLS: {error}") from None
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"no Ray cluster is at {cluster.address}: {error}; check that its head runs"
        ) from None


def _context(cluster: RaySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=cluster.tls_ca)
        context.load_cert_chain(cluster.tls_certificate, cluster.tls_key)
    except OSError as error:
        raise Unavailable(f"cannot use the files {', '.join(cluster.tls)}: {error}") from None
    context.check_hostname = False  # Ray checks names by itself
    context.set_alpn_protocols(["h2"])
    return context


def _accepts_certificate(context: ssl.SSLContext, connection: socket.socket) -> bool:
    """Shake hands; a cluster that refuses the certificate closes the connection without a word."""
    with context.wrap_socket(connection) as wrapped:
        try:
            return bool(wrapped.recv(1))
        except (ConnectionError, ssl.SSLError):
            return False


READY: Final = -1
"""Stands in place of a part's number in a request for the number of cores, and in its answer."""
_UNAVAILABLE: Final = "Unavailable"


def drive(pipe: Connection, cluster: RaySettings) -> None:
    """Join a cluster, and have it do parts until the other end of the pipe is closed."""
    channel, printed = _Channel(pipe), _redirect_output()
    os.environ.update(environment(cluster))
    os.environ.pop("RAY_AUTH_TOKEN", None)  # it would overrule the file
    import ray  # noqa: PLC0415 - not before its settings are in the environment

    try:
        ray.init(
            address=cluster.address,
            namespace="coatcheck",
            log_to_driver=False,
            logging_level=logging.ERROR,
            **({"_node_ip_address": cluster.node} if cluster.node else {}),
        )
    except Exception as error:  # noqa: BLE001 - Ray raises whatever it likes
        text = _why(cluster, type(error).__name__, os.pread(printed, 1 << 20, 0))
        channel.send(READY, _UNAVAILABLE, text)
        return
    _redirect_output(os.open(os.devnull, os.O_WRONLY))
    task = ray.remote(num_cpus=1, max_retries=cluster.retries, scheduling_strategy="SPREAD")
    remote = task(do_part)
    request: tuple[Any, ...] = (READY,)
    while request:
        number, *args = request
        if args:
            future = remote.remote(__version__, *args).future()
            future.add_done_callback(partial(channel.send_result, number))
        else:
            channel.send(READY, "", b"%d" % ray.cluster_resources().get("CPU", 0))
        request = channel.receive()
    ray.shutdown()


def environment(cluster: RaySettings) -> dict[str, str]:
    """Return the environment from which Ray reads where its token and certificates are."""
    variables = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": cluster.token,
    }
    if all(cluster.tls):
        names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
        variables |= {"RAY_USE_TLS": "1", **dict(zip(names, cluster.tls, strict=True))}
    return variables


def _redirect_output(to: int | None = None) -> int:
    """Redirect what Ray prints, which is not for the role's log; by default into memory."""
    to = os.memfd_create("ray") if to is None else to
    for stream in (1, 2):
        os.dup2(to, stream)
    return to


def _why(cluster: RaySettings, kind: str, printed: bytes) -> bytes:
    """Say why a cluster cannot be joined; only Ray's output shows that a token is wrong."""
    if b"InvalidAuthToken" in printed:
        return f"the Ray cluster at {cluster.address} refuses the token in {cluster.token}".encode()
    text = f"cannot join the Ray cluster at {cluster.address} ({kind}); this machine must be one of"
    return f"{text} its nodes, with the same Ray, Python and TLS".encode()


class _Channel:
    """The driver's end of the pipe; several threads send results."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def receive(self) -> tuple[Any, ...]:
        """Wait for the next part; return nothing if the other end is closed."""
        try:
            request: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError):
            return ()
        return request

    def send(self, number: int, kind: str, body: bytes) -> None:
        """Send the result of a part, or an error's kind and text."""
        try:
            with self._lock:
                self._pipe.send((number, kind, body))
        except OSError:
            return  # the other end is closed

    def send_result(self, number: int, future: Any) -> None:
        """Send the result that Ray has of a part."""
        try:
            self.send(number, *future.result())
        except Exception as error:  # noqa: BLE001 - Ray raises whatever it likes
            # Its kind alone: Ray's text on a lost node ends with lines of that node's log.
            text = f"the Ray cluster did not do a part ({type(error).__name__}); see its logs"
            self.send(number, _UNAVAILABLE, text.encode())


def do_part(
    version: str, stage: Stage, settings: Settings, digest: bytes, part: PartArgs
) -> tuple[str, bytes]:
    """Do a part on a node of the cluster; return an error's kind or nothing, and result or text.

    An exception would go through Ray's store and logs, so none is raised.
    """
    try:
        if flaw := _flaw(version):
            return _UNAVAILABLE, _on_node(flaw)
        return "", run_part(stage, settings, digest, part)
    except Forgotten:
        # Only the role can tell whether the key is lost: here the folder may be missing.
        text = "the key of this round is not here; share the folder of round keys with this node"
        return _UNAVAILABLE, _on_node(text)
    except Error as error:
        return type(error).__name__, _on_node(str(error))
    except Exception as error:  # noqa: BLE001 - its text may quote what a person sent
        return _UNAVAILABLE, _on_node(f"{stage.__name__} failed: {place_of(error)}")


def _flaw(version: str) -> str:
    """Return what is wrong with this node, before any key is read."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return "Ray runs here without authentication; start it with RAY_AUTH_MODE=token"
    if version != __version__:
        return (
            f"coatcheck is {__version__} here and {version} at the role; install the same version"
        )
    return ""


def _on_node(text: str) -> bytes:
    return f"{text} (on node {socket.gethostname()})".encode()


_JOINS: Final = 180.0
"""Seconds that a driver has to join a cluster; Ray itself would wait for ever."""
_LOST: Final = "was lost; what was under way is done again"
_QUIET: Final = 30.0
"""Seconds without a result after which the driver asks whether the cluster has any core."""


class RayRunner:
    """Gives parts to a cluster."""

    def __init__(self, settings: Settings, files: SealedFiles) -> None:
        self._cluster = settings.cluster
        self._args = (remote_settings(settings), files.digest)

    def run(self, stage: Stage, parts: Iterable[PartArgs], record: Record) -> None:
        """Do a stage for each part; up to twice as many as there are cores are under way."""
        driver = _driver(self._cluster)
        under_way: dict[int, PartArgs] = {}
        try:
            for number, part in enumerate(parts):
                driver.send(number, stage, *self._args, part)
                under_way[number] = part
                if len(under_way) >= 2 * driver.cores:
                    _record_next(driver, under_way, record)
            while under_way:
                _record_next(driver, under_way, record)
        except BaseException:
            driver.drain()
            raise


def _record_next(driver: "Driver", under_way: dict[int, PartArgs], record: Record) -> None:
    """Wait until a part is done, and record it."""
    number, result = driver.take()
    record(under_way.pop(number), result)


class Driver:
    """A driver's process, as seen by the process that started it.

    Attributes:
        cores: how many cores the cluster has; at least one.
    """

    def __init__(self, cluster: RaySettings) -> None:
        self._where = f"the Ray cluster at {cluster.address}"
        self._under_way = 0
        check(Path(cluster.token))
        probe(cluster)
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=drive, args=(other, cluster), daemon=True)
        self._process.start()
        other.close()
        try:
            self._next(within=_JOINS)
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def send(self, number: int, *args: Any) -> None:
        """Send a part under a number; a number alone asks for the cluster's cores."""
        try:
            self._pipe.send((number, *args))
        except OSError:
            raise self._failed(_LOST) from None
        self._under_way += bool(args)

    def take(self) -> tuple[int, bytes]:
        """Wait for a result; return the part's number, and the result."""
        answer = (READY, b"")
        while answer[0] == READY:
            limit = None
            if not self._pipe.poll(_QUIET):
                self.send(READY)
                limit = _JOINS
            answer = self._next(within=limit)
        return answer

    def drain(self) -> None:
        """Wait for what is under way, so that nothing runs after a step has failed."""
        while self._under_way:
            with suppress(Error):
                self.take()

    def _next(self, *, within: float | None = None) -> tuple[int, bytes]:
        if not self._pipe.poll(within):
            raise self._failed("does not answer; check its nodes")
        try:
            number, kind, body = self._pipe.recv()
        except (EOFError, OSError):
            raise self._failed(_LOST) from None
        self._under_way -= number != READY
        if kind:
            raise getattr(errors, kind, Unavailable)(body.decode())
        if number == READY:
            self.cores = int(body)
            if not self.cores:
                raise self._failed("has no core; check that its nodes run")
        return number, body

    def _failed(self, why: str) -> Unavailable:
        """Leave a cluster that does nothing more, without waiting for what is under way."""
        self._under_way = 0
        self.end()
        return Unavailable(f"{self._where} {why}")

    def end(self) -> None:
        """End the process, and with it what it has under way."""
        self._pipe.close()
        self._process.join(_PROBE)
        self._process.kill()
        self._process.join()


def _driver(cluster: RaySettings) -> Driver:
    """Return the driver of this process; a new one if the last one ended."""
    if not _joined(cluster).is_alive:
        _joined.cache_clear()
    return _joined(cluster)


@cache
def _joined(cluster: RaySettings) -> Driver:
    return Driver(cluster)
