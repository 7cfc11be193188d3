"""The driver: a process of its own that talks to a Ray cluster.

Not the process of the job: Ray reads a token once, takes signals over, and ends a process that has
lost its cluster. A driver that failed is left, and the next one begins anew. It ends when the
process that started it does, and Ray then ends what it had under way.
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
from coatcheck.services.worker_pools import Done, Given, Stage, elsewhere, run_stage
from coatcheck.stores.blobs import SealedFiles

# HOUSE-DOC services.runners.knock: 'Whether a cluster can be joined at all: told at once, as Ray itself would wait for minutes.'
_SOON: Final = 5.0


def check(token: Path) -> None:
    """Refuse what no cluster could mend: no Ray here, or no token."""
    if importlib.util.find_spec("ray") is None:
        raise Misuse("runner = \"ray\" needs Ray: pip install 'coatcheck[ray]'")
    if not read_secret(token).strip():
        raise Misuse(f"{token} is empty: write the cluster's token into it")


def probe(cluster: RaySettings) -> None:
    """See whether anybody is at an address and, with TLS, whether both know each other."""
    host, _, port = cluster.address.rpartition(":")
    where = f"the Ray cluster at {cluster.address}"
    context = _context(cluster) if all(cluster.tls) else None
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SOON) as found:
            if context and not _accepts_certificate(context, found):
                raise Unavailable(
                    f"{where} refuses the certificate in {cluster.tls_certificate}: "
                    f"did the cluster's CA sign it?"
                )
    except ssl.SSLCertVerificationError as error:
        text = f"{where} has a certificate that {cluster.tls_ca} does not vouch for"
        raise Unavailable(f"{text}: {error.verify_message}") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise Unavailable(f"{where} does not speak TLS with us: {error}") from None
    except (OSError, OverflowError) as error:
        raise Unavailable(
            f"no Ray cluster is at {cluster.address}: {error}; is its head up?"
        ) from None


def _context(cluster: RaySettings) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=cluster.tls_ca)
        made.load_cert_chain(cluster.tls_certificate, cluster.tls_key)
    except OSError as error:
        raise Unavailable(f"cannot use the files {', '.join(cluster.tls)}: {error}") from None
    made.check_hostname = False  # Ray looks at names by itself
    made.set_alpn_protocols(["h2"])
    return made


def _accepts_certificate(context: ssl.SSLContext, found: socket.socket) -> bool:
    """Shake hands; who is not welcome is told nothing, and the connection is closed."""
    with context.wrap_socket(found) as shaken:
        try:
            return bool(shaken.recv(1))
        except (ConnectionError, ssl.SSLError):
            return False


READY: Final = -1
"""What stands for a part's number when the cluster's cores are asked for, or told."""
_AWAY: Final = "Unavailable"


def drive(pipe: Connection, cluster: RaySettings) -> None:
    """Join a cluster, and have parts done until the other end of the pipe is closed."""
    talk, aside = _Talk(pipe), _turned_aside()
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
        talk.tell(READY, _AWAY, _why(cluster, type(error).__name__, os.pread(aside, 1 << 20, 0)))
        return
    _turned_aside(os.open(os.devnull, os.O_WRONLY))
    task = ray.remote(num_cpus=1, max_retries=cluster.retries, scheduling_strategy="SPREAD")
    part = task(do_part)
    given: tuple[Any, ...] = (READY,)
    while given:
        number, *rest = given
        if rest:
            part.remote(__version__, *rest).future().add_done_callback(partial(talk.done, number))
        else:
            talk.tell(READY, "", b"%d" % ray.cluster_resources().get("CPU", 0))
        given = talk.next()
    ray.shutdown()


def environment(cluster: RaySettings) -> dict[str, str]:
    """Give what Ray reads from the environment: where its token and certificates are."""
    found = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": cluster.token,
    }
    if all(cluster.tls):
        names = ("RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
        found |= {"RAY_USE_TLS": "1", **dict(zip(names, cluster.tls, strict=True))}
    return found


def _turned_aside(to: int | None = None) -> int:
    """Have what Ray prints go elsewhere than into the role's log: into memory, say."""
    to = os.memfd_create("ray") if to is None else to
    for stream in (1, 2):
        os.dup2(to, stream)
    return to


def _why(cluster: RaySettings, kind: str, printed: bytes) -> bytes:
    """Say why a cluster cannot be joined; only what Ray prints tells a wrong token."""
    if b"InvalidAuthToken" in printed:
        return f"the Ray cluster at {cluster.address} refuses the token in {cluster.token}".encode()
    text = f"cannot join the Ray cluster at {cluster.address} ({kind}): is this machine one of its"
    return f"{text} nodes, with the same Ray, Python and TLS?".encode()


class _Talk:
    """What the two ends of the pipe say to each other; several threads tell results."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def next(self) -> tuple[Any, ...]:
        """Wait for the next part; nothing if the other end is closed."""
        try:
            found: tuple[Any, ...] = self._pipe.recv()
        except (EOFError, OSError):
            return ()
        return found

    def tell(self, number: int, kind: str, what: bytes) -> None:
        """Say what came of a part: a result, or an error's kind and text."""
        try:
            with self._lock:
                self._pipe.send((number, kind, what))
        except OSError:
            return  # nobody waits for it any more

    def done(self, number: int, future: Any) -> None:
        """Say what Ray says of a part."""
        try:
            self.tell(number, *future.result())
        except Exception as error:  # noqa: BLE001 - Ray raises whatever it likes
            # By its kind alone: what Ray writes of a lost node ends with lines of that node's log.
            text = f"the Ray cluster did not do a part ({type(error).__name__}): see its logs"
            self.tell(number, _AWAY, text.encode())


def do_part(
    version: str, stage: Stage, settings: Settings, digest: bytes, part: Given
) -> tuple[str, bytes]:
    """Do a part, on a node of the cluster: an error's kind or nothing, and the result or its text.

    An exception would go through Ray's store and logs, so none is raised.
    """
    try:
        if wrong := _wrong(version):
            return _AWAY, _here(wrong)
        return "", run_stage(stage, settings, digest, part)
    except Forgotten:
        # Whether a round has lost its key is for the role to say: here its folder may be missing.
        text = "no key of this round is here: have the folder of round keys shared with this node"
        return _AWAY, _here(text)
    except Error as error:
        return type(error).__name__, _here(str(error))
    except Exception as error:  # noqa: BLE001 - its text may quote what a person sent
        return _AWAY, _here(f"{stage.__name__} failed: {place_of(error)}")


def _wrong(version: str) -> str:
    """Tell what is wrong with this node; no key is read before nothing is."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return "anybody may run anything here: start Ray with RAY_AUTH_MODE=token"
    if version != __version__:
        return f"coatcheck is {__version__} here, and {version} at the role: install the same"
    return ""


def _here(text: str) -> bytes:
    return f"{text} (on node {socket.gethostname()})".encode()


# HOUSE-DOC services.runners.ray: 'Hands of a cluster: parts of stages as tasks of Ray, on machines that share the same files.\n\nA node gets names, counts and paths, and gives hashes and counts. It reads keys and the depot by\nitself. Ray does the parts of a lost node again, on the others.\n'
_JOINS: Final = 180.0
"""Seconds that a driver has to join a cluster: Ray itself would wait for ever."""
_LOST: Final = "was lost: what was under way is done again"
_QUIET: Final = 30.0
"""Seconds without a result after which the cluster is asked whether it has cores at all."""


class Ray:
    """Hands parts to a cluster."""

    def __init__(self, settings: Settings, crate: SealedFiles) -> None:
        self._cluster = settings.cluster
        self._given = (elsewhere(settings), crate.digest)

    def run(self, stage: Stage, parts: Iterable[Given], done: Done) -> None:
        """Do a stage for each part; twice as many as there are cores are under way."""
        driver = _driver(self._cluster)
        waiting: dict[int, Given] = {}
        try:
            for number, part in enumerate(parts):
                driver.send(number, stage, *self._given, part)
                waiting[number] = part
                if len(waiting) >= 2 * driver.cores:
                    _take(driver, waiting, done)
            while waiting:
                _take(driver, waiting, done)
        except BaseException:
            driver.drain()
            raise


def _take(driver: "Driver", waiting: dict[int, Given], done: Done) -> None:
    """Wait for the next part that is done, and tell it."""
    number, result = driver.take()
    done(waiting.pop(number), result)


class Driver:
    """A driver's process, as the process that started it holds it.

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

    def send(self, *given: Any) -> None:
        """Hand a part over, by its number; the number alone asks for the cluster's cores."""
        try:
            self._pipe.send(given)
        except OSError:
            raise self._left(_LOST) from None
        self._under_way += len(given) > 1

    def take(self) -> tuple[int, bytes]:
        """Wait for a result: the part's number, and what came of it."""
        found = (READY, b"")
        while found[0] == READY:
            limit = None
            if not self._pipe.poll(_QUIET):
                self.send(READY)
                limit = _JOINS
            found = self._next(within=limit)
        return found

    def drain(self) -> None:
        """Wait for what is under way, so that nothing is done after a step has failed."""
        while self._under_way:
            with suppress(Error):
                self.take()

    def _next(self, *, within: float | None = None) -> tuple[int, bytes]:
        if not self._pipe.poll(within):
            raise self._left("does not answer: is it well?")
        try:
            number, kind, told = self._pipe.recv()
        except (EOFError, OSError):
            raise self._left(_LOST) from None
        self._under_way -= number != READY
        if kind:
            raise getattr(errors, kind, Unavailable)(told.decode())
        if number == READY:
            self.cores = int(told)
            if not self.cores:
                raise self._left("has no core to give: are its nodes up?")
        return number, told

    def _left(self, why: str) -> Unavailable:
        """Leave a cluster that does nothing more; what was under way there is not waited for."""
        self._under_way = 0
        self.end()
        return Unavailable(f"{self._where} {why}")

    def end(self) -> None:
        """End the process, and with it whatever it has under way."""
        self._pipe.close()
        self._process.join(_SOON)
        self._process.kill()
        self._process.join()


def _driver(cluster: RaySettings) -> Driver:
    """Give the driver of this process; a new one if the last one ended."""
    if not _joined(cluster).is_alive:
        _joined.cache_clear()
    return _joined(cluster)


@cache
def _joined(cluster: RaySettings) -> Driver:
    return Driver(cluster)
