"""The committed bundle equals a fresh build of its sources, and is small."""

import subprocess
from pathlib import Path

from world.web.browser import ROOT, needed, packages

SOURCES = ROOT / "web-client"
BUNDLE = ROOT / "src/coatcheck/demo/page/static/client.js"


def test_the_bundle_is_what_the_sources_build_to(tmp_path: Path) -> None:
    """`npm ci` by the lock file and the build give the committed bytes."""
    node, rebuilt = needed("node"), tmp_path / "client.js"
    packages()
    subprocess.run(  # noqa: S603 - our own script
        [node, "build.mjs", str(rebuilt)], cwd=SOURCES, check=True, capture_output=True, timeout=600
    )
    assert rebuilt.read_bytes() == BUNDLE.read_bytes()


def test_the_bundle_is_small_and_sends_no_request() -> None:
    """Under 255 KB, without a call of `fetch` or `eval`."""
    text = BUNDLE.read_text()
    assert len(text) < 255_000
    assert "fetch(" not in text
    assert "eval(" not in text
