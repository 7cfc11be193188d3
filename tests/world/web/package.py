"""The npm package as its users install it: packed, installed in an empty folder, and run."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import expect, sync_playwright

from support.service_rounds import PATIENCE
from world.web.browser import ROOT, needed, packages

SOURCES = ROOT / "web-client"


@cache
def _shared() -> Path:
    """Return a folder that all processes of this test run share."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return Path(tempfile.mkdtemp(prefix="coatcheck-pack-"))
    folder = Path(tempfile.gettempdir()) / f"coatcheck-pack-{run}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextmanager
def _turn() -> Iterator[None]:
    """Hold a lock that all processes of this test run share."""
    with (SOURCES / "pack.mjs").open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def packed() -> Path:
    """Pack the package, once for all tests; return the tarball."""
    npm, folder = needed("npm"), _shared()
    packages()
    with _turn():
        if not any(folder.glob("*.tgz")):
            subprocess.run(  # noqa: S603 - our own package
                [npm, "pack", "--pack-destination", str(folder)],
                cwd=SOURCES,
                check=True,
                capture_output=True,
                timeout=600,
            )
    (tarball,) = folder.glob("*.tgz")
    return tarball


def installed(folder: Path) -> Path:
    """Return a folder with the packed package installed: once by npm, then copied."""
    tarball, project = packed(), _shared() / "project"
    with _turn():
        if not project.exists():
            _install(tarball, project)
    shutil.copytree(project, folder, dirs_exist_ok=True)
    return folder


def _install(tarball: Path, project: Path) -> None:
    """Install the package without a request to the registry."""
    fresh = Path(tempfile.mkdtemp(dir=project.parent))
    (fresh / "package.json").write_text('{ "private": true, "type": "module" }')
    subprocess.run(  # noqa: S603 - our own package
        [needed("npm"), "install", "--offline", "--no-audit", "--no-fund", str(tarball)],
        cwd=fresh,
        check=True,
        capture_output=True,
        timeout=600,
    )
    fresh.rename(project)


def node(folder: Path, script: str, *words: str, timeout: float = 900.0) -> str:
    """Run a script in a folder with the package installed; return its output."""
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


def node_json(folder: Path, script: str, *words: str) -> Any:
    """Run a script that prints JSON; return the value."""
    return json.loads(node(folder, script, *words))


def compiled(folder: Path, **sources: str) -> dict[str, str]:
    """Check TypeScript files strictly against the package's types; return each file's errors.

    All in one run of the compiler: reading the types of the packages takes most of its time.
    """
    for name, source in sources.items():
        (folder / f"{name}.mts").write_text(source, encoding="utf-8")
    types = folder / "node_modules/@types"
    if not types.exists():
        shutil.copytree(packages() / "@types", types)
        shutil.copytree(packages() / "undici-types", folder / "node_modules/undici-types")
    tsc = packages() / "typescript/lib/tsc.js"
    options = ["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]
    files = [f"{name}.mts" for name in sources]
    done = subprocess.run(  # noqa: S603 - the compiler
        [needed("node"), str(tsc), *options, "--types", "node", *files],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    output = done.stdout.splitlines()
    errors = {
        name: [line for line in output if line.startswith(f"{name}.mts(")] for name in sources
    }
    assert sum(map(len, errors.values())) == sum("error TS" in line for line in output), done.stdout
    return {name: "\n".join(lines) for name, lines in errors.items()}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder to a browser."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def text_in_chromium(project: Path, *, relay: str) -> str:
    """Open a project's page; return its final text. It must connect to its site and relay only."""
    (project / "favicon.ico").write_bytes(b"")
    errors: list[str] = []
    origins: set[str] = set()
    with served(project) as site, sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=needed("chromium"), args=flags)
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: origins.add("/".join(request.url.split("/")[:3])))
        page.goto(f"{site}/index.html")
        waiting = "Waiting for the others."
        expect(page.locator("#said")).not_to_have_text(waiting, timeout=PATIENCE * 1000)
        text = page.locator("#said").inner_text()
        browser.close()
    assert errors == []
    assert origins == {site, relay}
    return text
