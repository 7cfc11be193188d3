"""Connections on the newest uvicorn that pyproject.toml allows, which the image ships.

Other requirements of the test environment hold an older one back, so the suite runs on that.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shipped() -> str:
    """Return the version in the image's lock file."""
    lock = (ROOT / "requirements" / "image.lock").read_text(encoding="utf-8")
    match = re.search(r"^uvicorn==([0-9.]+)", lock, re.MULTILINE)
    assert match is not None
    return match[1]


def test_the_image_ships_the_newest_minor_version_that_is_allowed() -> None:
    """The upper bound is the next minor version: a newer one comes in with these tests only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (needed,) = [
        line for line in project["optional-dependencies"]["serve"] if line.startswith("uvicorn")
    ]
    major, minor, *_ = map(int, shipped().split("."))
    assert needed.endswith(f",<{major}.{minor + 1}")


def test_connections_hold_on_the_newest_uvicorn(tmp_path: Path) -> None:
    """Deadlines, caps, answers and internals are tested again, on the version of the image."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*pip, str(tmp_path), f"uvicorn=={shipped()}"], check=True)  # noqa: S603
    names = ("test_connections.py", "test_long_answers.py")
    tests = [str(ROOT / "tests" / "services" / "web" / name) for name in names]
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT / "tests")])

    def run(*words: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own tests
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        return done.stdout

    assert run("-c", "import uvicorn; print(uvicorn.__version__)").strip() == shipped()
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
