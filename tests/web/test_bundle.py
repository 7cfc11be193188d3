"""The committed bundle is what its sources build to, and is small."""

import os
import subprocess
from pathlib import Path

from web.browser import ROOT, needed

SOURCES = ROOT / "web-client"
BUNDLE = ROOT / "src/coatcheck/demo/page/static/client.js"


def test_the_bundle_is_what_the_sources_build_to(tmp_path: Path) -> None:
    """`npm ci` by the lock file and the build give the committed bytes."""
    npm, node = needed("npm"), needed("node")
    made = tmp_path / "client.js"
    if not (SOURCES / "node_modules/esbuild").exists() or os.environ.get("CI"):
        _run([npm, "ci", "--no-audit", "--no-fund"])
    _run([node, "build.mjs", str(made)])
    assert made.read_bytes() == BUNDLE.read_bytes()


def test_the_bundle_is_small_and_asks_nobody() -> None:
    """Under 200 KB, and no address of anybody in it that it could fetch from."""
    text = BUNDLE.read_text()
    assert len(text) < 200_000
    assert "fetch(" not in text
    assert "eval(" not in text


def _run(command: list[str]) -> None:
    subprocess.run(command, cwd=SOURCES, check=True, capture_output=True, timeout=600)  # noqa: S603 - by the lock file, and our own script
