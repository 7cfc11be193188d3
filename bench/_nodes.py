"""Two nodes of Ray on this machine, each with one core: `with Nodes(folder) as nodes`.

They are children of a separate process and end with it. That process ends when its starter does, in
whatever way, because its standard input is closed then.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from coatcheck.entropy import system
from coatcheck.errors import Unavailable
from coatcheck.services.ray_runner import environment
from coatcheck.services.settings import RaySettings

HEAD: Final = "127.0.0.2"  # Ray rewrites 127.0.0.1
SECOND: Final = "127.0.0.3"
_TRIES: Final = 3
SOON: Final = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""A dead node is noticed within seconds, and a slow one is not taken for dead."""


class Nodes:
    """A cluster of two nodes, with a token, and with TLS if its files are given.

    Attributes:
        token: the file with its token.
        logs: the folder of its processes' logs.
        pid: the process that started its nodes.
        address: the address of its head.
    """

    def __init__(self, folder: Path, *, env: Mapping[str, str] | None = None, **tls: str) -> None:
        self.token = folder / "ray.token"
        self.token.write_text(system().token(32).hex())
        self.token.chmod(0o600)
        self._settings: dict[str, Any] = {"token": str(self.token), "node": HEAD, **tls}
        # It holds sockets, whose names must be short.
        self.logs = Path("/tmp") / f"coatcheck-ray-{os.getpid()}"  # noqa: S108 - of this process
        self._env = {
            **os.environ,
            **SOON,
            **environment(RaySettings(address="@head", **self._settings)),
            "RAY_worker_niceness": "0",  # by default Ray gives way to all other processes
            # Otherwise another Ray on this machine would join this cluster.
            "RAY_TMPDIR": str(self.logs),
            **(env or {}),
        }

    def __enter__(self) -> Self:
        for left in reversed(range(_TRIES)):
            try:
                self._start()
            except Unavailable:  # Ray gives up on a machine that is too busy
                self.__exit__()
                if not left:
                    raise
            else:
                break
        return self

    def _start(self) -> None:
        (self.logs / "ray").mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(  # noqa: S603 - this very file
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._asked: Any = self._process.stdin
        self._said: Any = self._process.stdout
        self.address = self._told()
        self.raylet = int(self._ask("add"))

    def _told(self) -> str:
        line: str = self._said.readline().strip()
        if not line:
            raise Unavailable("the nodes of Ray did not start: is 'coatcheck[ray]' installed?")
        return line

    def _ask(self, what: str) -> str:
        with suppress(BrokenPipeError):
            self._asked.write(f"{what}\n")
            self._asked.flush()
        return self._told()

    def kill(self) -> None:
        """End the second node as a power failure would."""
        os.kill(self.raylet, signal.SIGKILL)

    def mend(self) -> None:
        """Remove the second node for good, and start another one."""
        self._ask("remove")
        self.raylet = int(self._ask("add"))

    def settings(self) -> dict[str, Any]:
        """Return the settings of a role that uses the cluster."""
        return {"address": self.address, **self._settings}

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self._asked.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._said.close()
        shutil.rmtree(self.logs, ignore_errors=True)


def _main() -> None:
    """Start the head, then obey the commands on standard input."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - of this process only

    logging.disable()
    one = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_log_monitor": False}
    head = {"node_ip_address": HEAD, "include_dashboard": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args={**one, **head})
    print(cluster.address, flush=True)
    second: Any = None
    for line in sys.stdin:
        if line.strip() == "add":
            second = _added(cluster, node_ip_address=SECOND, **one)
            print(second.all_processes["raylet"][0].process.pid, flush=True)
        else:
            cluster.remove_node(second, allow_graceful=False)
            print("removed", flush=True)
    cluster.shutdown()


def _added(cluster: Any, **node: Any) -> Any:
    """Add a node; retry, because Ray gives up on a machine that is too busy."""
    for left in reversed(range(_TRIES)):
        try:
            return cluster.add_node(**node)
        except Exception:
            if not left:
                raise
    return None


if __name__ == "__main__":
    _main()
