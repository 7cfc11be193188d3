"""All the services on one machine, as separate processes on loopback: for demos and tests.

Writes keys, settings and the operator's token into a folder, starts the processes on free ports,
and ends them. The same settings would run on separate machines.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from coatcheck.entropy import system
from coatcheck.errors import Unavailable
from coatcheck.protocol.keyfiles import SecretKeys, document, read_public, write_bytes
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import ask

_PATIENCE: Final = 60.0
OCTETS: Final = {"content-type": "application/octet-stream"}


def make_keys(path: Path, *, name: str, suite: str = "x25519") -> None:
    """Make a key file `NAME.key` for its owner alone and `NAME.public` for everybody."""
    keys = SecretKeys(name=name, suite=suite, seed=system().token(32).hex())
    stem = str(path).removesuffix(".key")
    write_bytes(Path(f"{stem}.key"), document(keys), secret=True)
    write_bytes(Path(f"{stem}.public"), document(keys.public))


class Local:
    """Shufflers, server and board in one folder.

    Attributes:
        stores: the address of each role's store by its name; SQLite in the folder by default.
        extra: settings that overrule the usual ones, for every role.
    """

    def __init__(
        self,
        folder: Path,
        *,
        shufflers: int = 1,
        suite: str = "x25519",
        stores: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        shuffler_extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.shufflers = tuple(f"shuffler-{n}" for n in range(1, shufflers + 1))
        self.names = (*self.shufflers, "server", "board")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stores = dict(stores or {})
        self._fresh: dict[str, list[str]] = {}
        self._places: dict[str, str] = {}
        self._extra = {"tick": 0.1, "lease": 2.0, **(extra or {})}
        self._shuffler_extra = dict(shuffler_extra or {})
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "server.key").exists():
            for name in self.names:
                make_keys(folder / name, name=name, suite=suite)
            write_bytes(folder / "admin.token", system().token(16).hex().encode(), secret=True)
        for name in self.names:
            write_bytes(folder / f"{name}.toml", self._settings(name).encode(), replace=True)

    # -- settings

    def role(self, name: str) -> str:
        """Give the role that goes by a name."""
        return "shuffler" if name in self.shufflers else name

    def _keys(self, name: str) -> list[str]:
        return [*self._fresh.get(name, []), name]

    def _settings(self, name: str) -> str:
        others = [key for other in self.names if other != name for key in self._keys(other)]
        values: dict[str, Any] = {
            "name": name,
            "store": self._stores.get(name, f"sqlite:{name}.db"),
            "keys": [f"{key}.key" for key in self._keys(name)],
            "trusted": [f"{key}.public" for key in others],
            "admin_token": "admin.token",
            "address_file": f"{name}.address",
        }
        if name in self.shufflers:
            after = [*self.shufflers, "server"][self.shufflers.index(name) + 1]
            values |= {"next": f"@{after}.address", "board": "@board.address"}
            values |= self._shuffler_extra
        if name == "server":
            shufflers = [f"@{one}.address" for one in self.shufflers]
            values |= {"shufflers": shufflers, "board": "@board.address"}
        values |= self._extra
        # JSON's texts, numbers and lists are TOML's as well.
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return "\n".join([f"[{self.role(name)}]", *lines, ""])

    @property
    def trusted(self) -> Trust:
        """The verifying keys that a person would know from elsewhere."""
        return Trust.of((self.role(name), self._known(name)) for name in self.names)

    def _known(self, name: str) -> list[bytes]:
        listed = [read_public(self.folder / f"{key}.public") for key in self._keys(name)]
        return [bytes.fromhex(public.verifying) for public in listed]

    @property
    def token(self) -> str:
        """The operator's token."""
        return (self.folder / "admin.token").read_text(encoding="ascii").strip()

    # -- processes

    def __enter__(self) -> Self:
        for name in self.names:
            self.start(name, wait=False)
        try:
            for name in self.names:
                self.wait(name)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def start(self, name: str, *, wait: bool = True, listen: str = "") -> None:
        """Start a service; one that ran before comes back at its old address."""
        if name in self.processes:
            self.processes[name].wait()
        address = self.folder / f"{name}.address"
        if address.exists():
            self._places[name] = self.url(name).rpartition("//")[2]
        listen = listen or self._places.get(name, "")
        address.unlink(missing_ok=True)
        command = [sys.executable, "-m", "coatcheck.cli", "serve", self.role(name)]
        command += ["--config", str(self.folder / f"{name}.toml")]
        command += ["--listen", listen] if listen else []
        faults = self.folder / "faults"
        marked = {"COATCHECK_FAULT": str(faults)} if faults.exists() else {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=log, stderr=log, env={**os.environ, **marked}
            )
        if wait:
            self.wait(name)

    def wait(self, name: str) -> str:
        """Wait until a service answers, and give its address."""
        path = self.folder / f"{name}.address"
        end = time.monotonic() + _PATIENCE
        while not path.exists():
            code = self.processes[name].poll()
            if code is not None or time.monotonic() > end:
                log = (self.folder / f"{name}.log").read_text(encoding="utf-8")[-2000:]
                raise Unavailable(f"{name} did not start (exit code {code}):\n{log}")
            time.sleep(0.02)
        return self.url(name)

    def url(self, name: str) -> str:
        """Give the address of a running service."""
        return (self.folder / f"{name}.address").read_text(encoding="ascii").strip()

    def kill(self, name: str) -> None:
        """End a process as a power failure would."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def rotate(self, name: str) -> None:
        """Put a fresh key in front of a role's keys, tell the others, and restart them all."""
        made = sorted(self.folder.glob(f"{name}.*.key"))
        fresh = f"{name}.{len(made) + 1}"
        make_keys(self.folder / f"{fresh}.key", name=name)
        self._fresh[name] = [fresh, *self._fresh.get(name, [])]
        for other in self.names:
            text = self._settings(other).encode()
            write_bytes(self.folder / f"{other}.toml", text, replace=True)
        self.end()
        for other in self.names:
            self.start(other, wait=False)
        for other in self.names:
            self.wait(other)

    def end(self) -> None:
        """End all processes, in order."""
        running = [one for one in self.processes.values() if one.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- the operator

    def open_round(self, draft: Mapping[str, Any], *, closes: int, expires: int) -> str:
        """Propose a round and return its address at the first shuffler.

        Times are seconds from now, or seconds since 1970.
        """
        body = {"draft": dict(draft), "closes": closes, "expires": expires}
        return open_round(self.url("server"), body, token=self.token)


def open_round(
    server: str, body: dict[str, Any], *, token: str, patience: float = 60.0, ca: str = ""
) -> str:
    """Ask a server to open a round, until it is open everywhere; its address for people."""
    end = time.monotonic() + patience
    while True:
        status = ask("POST", f"{server}/rounds", body=body, token=token, ca=ca)
        if status["opened"]:
            return f"{status['first_shuffler']}/rounds/{status['digest']}"
        if time.monotonic() > end:
            raise Unavailable(f"round {status['round']} is still {status['phase']}: ask again")
        time.sleep(0.3)
