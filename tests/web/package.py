"""The npm package as its users get it: packed, installed in an empty folder, and run."""

import fcntl
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from web.browser import ROOT, needed, packages

SOURCES = ROOT / "web-client"


@cache
def packed() -> Path:
    """Pack the package, once per process; return the tarball."""
    npm, folder = needed("npm"), Path(tempfile.mkdtemp(prefix="coatcheck-pack-"))
    packages()
    with (SOURCES / "pack.mjs").open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # the tests run in several processes
        subprocess.run(  # noqa: S603 - our own package
            [npm, "pack", "--pack-destination", str(folder)],
            cwd=SOURCES,
            check=True,
            capture_output=True,
            timeout=600,
        )
    (found,) = folder.glob("*.tgz")
    return found


def installed(folder: Path) -> Path:
    """Install the packed package in a folder, without asking anybody."""
    (folder / "package.json").write_text('{ "private": true, "type": "module" }')
    subprocess.run(  # noqa: S603 - our own package
        [needed("npm"), "install", "--offline", "--no-audit", "--no-fund", str(packed())],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=600,
    )
    return folder


def node(folder: Path, script: str, *words: str, timeout: float = 900.0) -> str:
    """Run a script in a folder in which the package is installed; return what it printed."""
    (folder / "script.mjs").write_text(script, encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - our own script
        [needed("node"), "--no-warnings", "script.mjs", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


def told(folder: Path, script: str, *words: str) -> Any:
    """Run a script that prints JSON."""
    return json.loads(node(folder, script, *words))


def compiled(folder: Path, source: str) -> str:
    """Check a TypeScript file strictly against the package's types; return the complaints."""
    (folder / "consumer.mts").write_text(source, encoding="utf-8")
    types = folder / "node_modules/@types"
    if not types.exists():
        shutil.copytree(packages() / "@types", types)
        shutil.copytree(packages() / "undici-types", folder / "node_modules/undici-types")
    tsc = packages() / "typescript/lib/tsc.js"
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    done = subprocess.run(  # noqa: S603 - the compiler
        [needed("node"), str(tsc), *options, "--types", "node", "consumer.mts"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.stdout
