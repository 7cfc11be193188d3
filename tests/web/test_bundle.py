"""The committed bundle is what its sources build to, and is small."""

import subprocess
from pathlib import Path

from web.browser import ROOT, needed, packages

SOURCES = ROOT / "web-client"
BUNDLE = ROOT / "src/coatcheck/demo/page/static/client.js"


def test_the_bundle_is_what_the_sources_build_to(tmp_path: Path) -> None:
    """`npm ci` by the lock file and the build give the committed bytes."""
    node, made = needed("node"), tmp_path / "client.js"
    packages()
    subprocess.run(  # noqa: S603 - our own script
        [node, "build.mjs", str(made)], cwd=SOURCES, check=True, capture_output=True, timeout=600
    )
    assert made.read_bytes() == BUNDLE.read_bytes()


def test_the_bundle_is_small_and_asks_nobody() -> None:
    """Under 230 KB, and no address of anybody in it that it could fetch from."""
    text = BUNDLE.read_text()
    assert len(text) < 230_000
    assert "fetch(" not in text
    assert "eval(" not in text
