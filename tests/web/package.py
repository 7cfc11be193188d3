"""The npm package as its users get it: packed, installed in an empty folder, and run."""

import fcntl
import json
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

from service_rounds import PATIENCE
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


def said_in_chromium(project: Path, *, relay: str) -> str:
    """Open a project's page; return what it says at last. It asks its site and the relay only."""
    (project / "favicon.ico").write_bytes(b"")
    complaints: list[str] = []
    asked: set[str] = set()
    with served(project) as site, sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=needed("chromium"), args=flags)
        page = browser.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
        page.goto(f"{site}/index.html")
        waiting = "Waiting for the others."
        expect(page.locator("#said")).not_to_have_text(waiting, timeout=PATIENCE * 1000)
        said = page.locator("#said").inner_text()
        browser.close()
    assert complaints == []
    assert asked == {site, relay}
    return said
