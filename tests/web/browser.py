"""Runs the committed browser client in Node, and says why when it cannot."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def needed(program: str) -> str:
    """Return where a program is; without it skip, unless CI says that it must be there."""
    found = shutil.which(program)
    if found:
        return found
    message = f"{program} is not installed; this test drives the browser client with it"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def packages() -> Path:
    """Return the packages that the lock file names; the first test that asks installs them."""
    npm = needed("npm")
    with (ROOT / "web-client/package-lock.json").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests run in several processes
        made = ROOT / "web-client/node_modules"
        written = made / ".package-lock.json"
        if not written.exists() or written.stat().st_mtime < os.fstat(lock.fileno()).st_mtime:
            subprocess.run(  # noqa: S603 - by the lock file
                [npm, "ci", "--no-audit", "--no-fund"],
                cwd=ROOT / "web-client",
                check=True,
                capture_output=True,
                timeout=600,
            )
    return made


class Refusal(Exception):
    """The client refused, with this sentence."""


def ask(verb: str, *, script: str = "drive.mjs", **request: Any) -> Any:
    """Send one request to the client and return its answer."""
    done = subprocess.run(  # noqa: S603 - our own script
        [needed("node"), "--no-warnings", str(HERE / script)],
        input=json.dumps({"verb": verb, **request}),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    reply = json.loads(done.stdout)
    if "error" in reply:
        assert reply["kind"] != "TypeError", reply["stack"]
        raise Refusal(reply["error"])
    return reply["answer"]
