"""Starts the services of tests from a process that has loaded the libraries of others.

To load them is most of what a start computes, and tests start hundreds of services. So one process
loads whatever the roles use that is not ours, and is forked for each service. A service is still a
process of its own, with a session, a pipe and a log of its own; it loads all of coatcheck itself,
and knows nothing of the test. It becomes a child of the test's process, which waits for it and
kills it as any other. Workers, demos and the commands of pages start in the plain way.
"""

import ctypes
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

ROLES: Final = ("shuffler", "server", "board", "relay", "witness")
Launch = Callable[[list[str], IO[bytes], Mapping[str, str]], subprocess.Popen[bytes]]
_OURS: Final = "coatcheck"
_ADOPT: Final = 36  # PR_SET_CHILD_SUBREAPER: orphans below this process become its children
_LARGEST: Final = 1 << 17


class Warm:
    """A process to fork services from, started on the first request.

    A service whose Python is to start with other settings is started in the plain way, and so are
    all where no process can be adopted.
    """

    def __init__(self, plain: Launch) -> None:
        self._plain = plain
        self._turn = threading.Lock()
        self._begun: tuple[socket.socket, subprocess.Popen[bytes]] | None = None
        self._known = _settings_of_python(os.environ) if _adopt(0) else None

    def launch(
        self, command: list[str], log: IO[bytes], env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """Start `python -m MODULE ...` as `Cluster.launch` does."""
        asked = {
            "module": command[2],
            "argv": command[3:],
            "env": dict(env),
            "cwd": str(Path.cwd()),
        }
        text = json.dumps(asked).encode()
        if _settings_of_python(env) != self._known or len(text) > _LARGEST:
            return self._plain(command, log, env)
        theirs, ours = os.pipe()
        with self._turn:
            line = self._line()
            try:
                _adopt(1)
                socket.send_fds(line, [text], [theirs, log.fileno(), log.fileno()])
                pid = int(line.recv(100))
            finally:
                _adopt(0)
                os.close(theirs)
        return _Adopted(pid, os.fdopen(ours, "wb", 0), command)

    def _line(self) -> socket.socket:
        if self._begun is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(  # noqa: S603 - this very file
                    [sys.executable, __file__], stdin=theirs.fileno(), start_new_session=True
                )
            self._begun = ours, process
        return self._begun[0]

    def end(self) -> None:
        """End the process; services forked from it go on."""
        if self._begun is not None:
            line, process = self._begun
            line.close()
            process.wait()


class _Adopted(subprocess.Popen[bytes]):
    """A process that another one started and that is now our child."""

    def __init__(self, pid: int, stdin: IO[bytes], args: list[str]) -> None:
        # Nothing is started here: these are what waiting, signals and leaving a context look at.
        self.args, self.pid, self.stdin, self.returncode = args, pid, stdin, None
        self.stdout = self.stderr = None
        self._child_created, self._waitpid_lock = True, threading.Lock()


def _settings_of_python(env: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that Python reads at its start and not again after a fork."""
    return {name: value for name, value in env.items() if name.startswith("PYTHON")}


def _adopt(wanted: int) -> bool:
    """Begin or stop adopting processes; return whether this system supports it."""
    return bool(ctypes.CDLL(None).prctl(_ADOPT, wanted, 0, 0, 0) == 0)


def _libraries() -> list[str]:
    """List the third-party libraries that the roles load, in a separate process."""
    mine, theirs = os.pipe()
    if not os.fork():
        table = importlib.import_module(f"{_OURS}.services.process").ROLES
        roles = (place.partition(":")[0] for place in table.values())
        for name in ("uvicorn", "uvloop", *roles):
            importlib.import_module(name)
        with os.fdopen(theirs, "w") as told:
            told.write(" ".join(name for name in sys.modules if name.split(".")[0] != _OURS))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(mine) as told:
        found = told.read().split()
    os.wait()
    return found


def _forked(line: socket.socket) -> dict[str, Any] | None:
    """Fork on every request; in the fork return what to run, and None at the end."""
    while True:
        text, files, _, _ = socket.recv_fds(line, _LARGEST, 3)
        if not text:
            return None
        mine, theirs = os.pipe()
        between = os.fork()
        if not between:
            if pid := os.fork():
                os.write(theirs, str(pid).encode())
                os._exit(0)  # and the fork is an orphan
            break
        os.waitpid(between, 0)
        line.send(os.read(mine, 100))
        for file in (mine, theirs, *files):
            os.close(file)
    line.detach()
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in (mine, theirs, *files):
        os.close(file)
    asked: dict[str, Any] = json.loads(text)
    return asked


if __name__ == "__main__":
    for library in _libraries():
        with suppress(ImportError):
            importlib.import_module(library)
    wanted = _forked(socket.socket(fileno=0))
    if wanted is not None:
        os.chdir(wanted["cwd"])
        os.environ.clear()
        os.environ.update(wanted["env"])
        sys.path[0], sys.argv = wanted["cwd"], ["", *wanted["argv"]]
        runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
