"""Runs the committed browser client in Node; skips, with the reason, if a program is missing."""

import atexit
import fcntl
import json
import os
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def needed(program: str) -> str:
    """Return the path of a program; if it is missing, skip the test, or fail in CI."""
    path = shutil.which(program)
    if path:
        return path
    message = f"{program} is not installed; this test drives the browser client with it"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def packages() -> Path:
    """Return the folder of the locked packages; the first test that needs them installs them."""
    npm = needed("npm")
    with (ROOT / "web-client/package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests run in several processes
        modules = ROOT / "web-client/node_modules"
        written = modules / ".package-lock.json"
        if not written.exists() or written.stat().st_mtime < os.fstat(lock.fileno()).st_mtime:
            subprocess.run(  # noqa: S603 - by the lock file
                [npm, "ci", "--no-audit", "--no-fund"],
                cwd=ROOT / "web-client",
                check=True,
                capture_output=True,
                timeout=600,
            )
    return modules


class Refusal(Exception):
    """An error that the client threw; its message is the client's sentence."""


@cache
def _client(script: str) -> "subprocess.Popen[str]":
    """Start the client in Node, once for all tests of this process."""
    started = subprocess.Popen(  # noqa: S603 - our own script
        [needed("node"), "--no-warnings", str(HERE / script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    atexit.register(_end, started)
    return started


def _end(started: "subprocess.Popen[str]") -> None:
    with started:
        started.kill()


def ask(verb: str, *, script: str = "drive.mjs", **request: Any) -> Any:
    """Send one request to the client and return its answer."""
    client = _client(script)
    assert client.stdin is not None
    assert client.stdout is not None
    late = threading.Timer(600, client.kill)
    late.start()
    try:
        client.stdin.write(json.dumps({"verb": verb, **request}) + "\n")
        client.stdin.flush()
        line = client.stdout.readline()
    finally:
        late.cancel()
    if not line:
        _client.cache_clear()
        raise AssertionError(f"the client in Node ended during the request {verb!r}")
    reply = json.loads(line)
    if "error" in reply:
        assert reply["kind"] != "TypeError", reply["stack"]
        raise Refusal(reply["error"])
    return reply["answer"]
