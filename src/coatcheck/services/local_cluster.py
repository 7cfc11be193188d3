"""All services on one machine, as separate processes on loopback: for demo, tests and benchmarks.

`Cluster` writes keys, settings and an operator's token into a folder, starts the processes on free
ports, waits until they are ready, and stops them. They also stop when the process that started them
stops. The same settings would work on separate machines.
"""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Self

from coatcheck.durable_files import write_bytes
from coatcheck.entropy import system
from coatcheck.errors import Error, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import SecretKeys, read_public
from coatcheck.protocol.wire.encoding import document
from coatcheck.services.web.client import ask, open_round

PATIENCE: Final = 120.0
"""Seconds in which a service must be ready, also on a busy machine."""
_GRACE: Final = 10.0
_POLL: Final = 0.02
_LOG_LINES: Final = 5


def make_keys(path: Path, *, name: str, suite: str = "x25519") -> None:
    """Write a key file `NAME.key`, for its owner only, and `NAME.public`, for everybody."""
    keys = SecretKeys(name=name, suite=suite, seed=system().token(32).hex())
    stem = str(path).removesuffix(".key")
    write_bytes(Path(f"{stem}.key"), document(keys), secret=True)
    write_bytes(Path(f"{stem}.public"), document(keys.public))


_TOKENS: Final = 1_000
"""How many people can pass the later shufflers of a cascade."""


class Cluster:
    """Shufflers, server and board in one folder; as a context manager, they run inside the block.

    The names of services are `shuffler-1` and so on, `server`, `board`, and if there are any,
    `relay` and `witness-1` and so on.

    Attributes:
        stores: the address of a service's store, by its name; SQLite in the folder by default.
        extra: settings that override the defaults, for every role.
        role_extra: the same for one role, by the role's name.
    """

    module: ClassVar[str] = "coatcheck.services.process"
    """The module that each process runs."""

    def __init__(
        self,
        folder: Path,
        *,
        shufflers: int = 1,
        relay: bool = False,
        witnesses: int = 0,
        suite: str = "x25519",
        stores: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        role_extra: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder = folder
        self.shufflers = tuple(f"shuffler-{n}" for n in range(1, shufflers + 1))
        self.names = (*self.shufflers, "server", "board")
        self.witnesses = tuple(f"witness-{n}" for n in range(1, witnesses + 1))
        self.names += (*self.witnesses, *(("relay",) if relay else ()))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stores = dict(stores or {})
        self._addresses: dict[str, str] = {}
        self._stopped = threading.Event()
        self._people = itertools.count()
        self._extra = {"tick": 0.1, "lease": 2.0, **(extra or {})}
        self._role_extra = dict(role_extra or {})
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "server.key").exists():
            for name in self._signers:
                make_keys(folder / name, name=name, suite=suite)
            for name in self.shufflers[1:]:
                self._make_tokens(name)
            write_bytes(folder / "admin.token", system().token(16).hex().encode(), secret=True)
        for name in self.names:
            write_bytes(folder / f"{name}.toml", self._settings(name).encode(), replace=True)

    # -- settings

    @property
    def _signers(self) -> tuple[str, ...]:
        """The services with keys: all but the relay."""
        return tuple(name for name in self.names if name != "relay")

    def role(self, name: str) -> str:
        """Return the role of a service."""
        return name.partition("-")[0]

    def _keys(self, name: str) -> list[str]:
        """Return the names of a service's keys, the newest first: `NAME.1` is newer than `NAME`."""
        later = sorted((path.stem for path in self.folder.glob(f"{name}.*.key")), reverse=True)
        return [*later, name]

    def _settings(self, name: str) -> str:
        if name == "relay":
            gateways = [f"@{role}.address" for role in (*self.shufflers, "board")]
            return self._table(name, {"gateways": gateways, "key_lists": f"{name}.lists"})
        if name in self.witnesses:
            boards, key = [f"{key}.public" for key in self._keys("board")], f"{name}.key"
            return self._table(name, {"key": key, "boards": boards, "checkpoints": name})
        roles = [role for role in self._signers if role not in self.witnesses]
        others = [key for other in roles if other != name for key in self._keys(other)]
        values: dict[str, Any] = {
            "store": self._stores.get(name, f"sqlite:{name}.db"),
            "keys": [f"{key}.key" for key in self._keys(name)],
            "trusted": [f"{key}.public" for key in others],
        }
        if name == self.shufflers[0]:
            # Everybody on this machine may take part.
            values |= {"admission": "open"}
        elif name in self.shufflers:
            values |= {"admission": "tokens", "tokens": f"{name}.hashes"}
        if name == "server":
            shufflers = [f"@{shuffler}.address" for shuffler in self.shufflers]
            values |= {"shufflers": shufflers, "board": "@board.address"}
        if name == "board":
            values |= {"witnesses": [f"@{witness}.address" for witness in self.witnesses]}
        return self._table(name, {**values, **self._extra})

    def _table(self, name: str, values: dict[str, Any]) -> str:
        shared = {key: value for key, value in self._extra.items() if key == "ca"}
        own: dict[str, Any] = {
            "name": name,
            "listen": "127.0.0.1:0",
            "address_file": f"{name}.address",
            "admin_token": "admin.token",
            # All people share one source address here.
            "connections_each": 2000,
            "requests_each": 100_000,
        }
        values = {**own, **shared, **values, **self._role_extra.get(self.role(name), {})}
        role, inner = self.role(name), {k: v for k, v in values.items() if isinstance(v, dict)}
        tables = {role: {k: v for k, v in values.items() if k not in inner}}
        tables |= {f"{role}.{key}": table for key, table in inner.items()}
        return "\n".join(_toml(*table) for table in tables.items())

    @property
    def trusted(self) -> Trust:
        """The keys to trust; a person would get them from elsewhere."""
        return Trust.of((self.role(name), self._verifying_keys(name)) for name in self._signers)

    def _verifying_keys(self, name: str) -> list[bytes]:
        listed = [read_public(self.folder / f"{key}.public") for key in self._keys(name)]
        return [bytes.fromhex(public.verifying) for public in listed]

    def _make_tokens(self, name: str) -> None:
        tokens = [system().token(16).hex() for _ in range(_TOKENS)]
        hashes = [hashlib.sha256(token.encode()).hexdigest() for token in tokens]
        write_bytes(self.folder / f"{name}.tokens", "\n".join(tokens).encode(), secret=True)
        write_bytes(self.folder / f"{name}.hashes", "\n".join(sorted(hashes)).encode())

    def take_tokens(self) -> str:
        """Return the tokens of one more person, for all shufflers but the first, which is open."""
        number = next(self._people)
        listed = [(self.folder / f"{name}.tokens").read_text() for name in self.shufflers[1:]]
        return ",".join(["", *(tokens.split()[number] for tokens in listed)])

    @property
    def token(self) -> str:
        """The operator's token."""
        return (self.folder / "admin.token").read_text(encoding="ascii").strip()

    # -- processes

    def __enter__(self) -> Self:
        try:
            self.start_all()
            for name in self.names:
                self.wait_until_leads(name)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start_all(self) -> None:
        """Start every service, without waiting."""
        for name in self.names:
            self.start(name, wait=False)

    def start(self, name: str, *, wait: bool = True) -> None:
        """Start a service; one that ran before gets its old address.

        With `wait`, wait until it answers; use `leads` to see whether it leads its store.
        """
        if name in self.processes:
            self._reap(name)
        self._stopped.clear()
        with suppress(Unavailable):
            self._addresses[name] = self.url(name).rpartition("//")[2]
        (self.folder / f"{name}.address").unlink(missing_ok=True)
        command = [sys.executable, "-m", self.module, self.role(name)]
        command += [str(self.folder / f"{name}.toml"), self._addresses.get(name, "")]
        faults = self.folder / "faults"
        fault_env = {"COATCHECK_FAULT": str(faults)} if faults.exists() else {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = self.launch(command, log, {**os.environ, **fault_env})
        if wait:
            self._wait(name, (self.folder / f"{name}.address").exists)

    @staticmethod
    def launch(
        command: list[str], log: IO[bytes], env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start a process that ends when its standard input is closed."""
        return subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=env,
            # A separate process group: it and its workers end together, and not by Ctrl-C.
            start_new_session=True,
        )

    def wait_until_leads(self, name: str) -> None:
        """Wait until a service is ready for requests."""
        self._wait(name, lambda: self.leads(name))

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            self.check(name)
            if time.monotonic() > end:
                raise Unavailable(f"{name} was not ready within {PATIENCE:g} s; read {name}.log")
            time.sleep(_POLL)

    def leads(self, name: str) -> bool:
        """Return whether a service and its store answer, and this process leads the store."""
        ca = self._extra.get("ca", "")
        try:
            health = ask("GET", f"{self.url(name)}/healthz", ca=ca and str(self.folder / ca))
        except Error:
            return False
        return bool(health["leads"])

    def running(self, name: str) -> bool:
        """Return whether a service's process is still running."""
        process = self.processes[name]
        # Not poll(), which would free the process id: `kill` ends the workers by that id.
        return process.returncode is None and _ended(process) is None

    def check(self, *names: str) -> None:
        """Raise an error if one of these services has ended; of all, if none is named."""
        for name in names or self.processes:
            if not self.running(name):
                ended = _ended(self.processes[name])
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
                last = [line.strip() for line in log.splitlines() if line.strip()][-_LOG_LINES:]
                code = self.processes[name].returncode if ended is None else ended.si_status
                output = " | ".join(last) or "its log is empty"
                raise Refused(f"the {name} ended with code {code}: {output}")

    def url(self, name: str) -> str:
        """Return the address of a service that answers."""
        try:
            return (self.folder / f"{name}.address").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            raise Unavailable(f"the {name} does not answer yet; try again") from None

    def kill(self, name: str) -> None:
        """Kill a service, as a power failure would."""
        self._reap(name, now=True)

    def _reap(self, name: str, *, now: bool = False, until: float = float("inf")) -> None:
        """Wait until a service ends by itself, or until a time; then kill what is left of it."""
        process = self.processes[name]
        if process.returncode is not None:
            return
        while not now and self.running(name) and time.monotonic() < until:
            time.sleep(_POLL)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def end(self) -> None:
        """Stop all processes; kill those that take too long."""
        self._stopped.set()
        running = [name for name in self.processes if self.running(name)]
        for name in running:
            self.processes[name].send_signal(signal.SIGTERM)
        until = time.monotonic() + _GRACE
        for name in self.processes:
            self._reap(name, until=until)

    # -- the operator

    def open_round(
        self, draft: Mapping[str, Any], *, closes: int, expires: int, patience: float = 60.0
    ) -> str:
        """Propose a round and return its address at the first shuffler.

        Times are seconds from now, or seconds since 1970. The wait ends when the cluster does.
        """
        body = {"draft": dict(draft), "closes": closes, "expires": expires}
        deadline, address = time.monotonic() + patience, self.folder / "server.address"
        while not address.exists() and time.monotonic() < deadline:  # the server is starting
            time.sleep(_POLL)
        server = self.url("server")
        return open_round(server, body, token=self.token, patience=patience, stopped=self._stopped)


def _toml(name: str, table: Mapping[str, Any]) -> str:
    """Write a table; texts, numbers and lists have the same syntax in JSON and TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _ended(process: "subprocess.Popen[bytes]") -> os.waitid_result | None:
    """Return how a process ended, and leave it as a zombie; None while it runs, or after `wait`."""
    with suppress(ChildProcessError):
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None
