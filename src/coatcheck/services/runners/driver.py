"""The driver: a process of its own that talks to a Ray cluster.

Not the process of the job: Ray reads a token once, takes signals over, and ends a process that has
lost its cluster. A driver that failed is left, and the next one begins anew. It ends when the
process that started it does, and Ray then ends what it had under way.
"""

import logging
import os
import socket
import threading
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final

from coatcheck import __version__
from coatcheck.errors import Error, Forgotten
from coatcheck.services.log import place_of
from coatcheck.services.runners.contract import Given, Stage, run_stage
from coatcheck.services.settings import RaySettings, Settings

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
