"""`pip install coatcheck` without any extra: a wheel in a fresh environment, with what it requires.

The environment holds the wheel and the packages that its metadata names, and nothing else of this
one: they are linked, because tests ask no index.
"""

import json
import subprocess
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def needed(names: list[str]) -> set[str]:
    """List the packages that these need, with all that those need."""
    found: set[str] = set()
    while names:
        wanted = Requirement(names.pop())
        if wanted.name in found or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        found.add(wanted.name)
        names += distribution(wanted.name).requires or []
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the wheel."""
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as zipped:
        zipped.extractall(packages)
        (metadata,) = (name for name in zipped.namelist() if name.endswith("METADATA"))
        lines = zipped.read(metadata).decode().splitlines()
    head = "Requires-Dist: "
    asked = [line.removeprefix(head) for line in lines if line.startswith(head)]
    for name in needed(asked):
        one = distribution(name)
        for top in {file.parts[0] for file in one.files or () if file.parts[0] != ".."}:
            link = packages / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(Path(str(one.locate_file(top))))
    return folder / "venv" / "bin" / "python"


def run(python: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command in the fresh environment, away from the sources."""
    return subprocess.run(  # noqa: S603 - the wheel's own command
        [python, "-I", "-m", "coatcheck", *words],
        cwd=python.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_environment_has_no_extras(python: Path) -> None:
    """Otherwise the tests below would show nothing."""
    code = (
        "import importlib.util as u; "
        "print([n for n in ('httpx2', 'uvicorn', 'numba') if u.find_spec(n)])"
    )
    done = subprocess.run(  # noqa: S603 - our own code
        [python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_demo_runs_in_memory_and_says_so(python: Path) -> None:
    """One command, no name and no extra to know: an answer, and what to install for more."""
    done = run(python, "demo", "--people", "120", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["simulation"] is True
    assert told["service"]["settled"]["within"] > 0.9 > told["service"]["private"]["within"]
    attack = told["trilateration"]
    assert attack["app"]["error_m"] < 10 < attack["coatcheck"]["error_m"]
    assert told["warnings"] == []
    assert "runs in memory" in done.stderr
    assert "pip install 'coatcheck[serve]'" in done.stderr
    assert "SIMULATION" in run(python, "demo", "--people", "60").stdout


@pytest.mark.parametrize(
    "words",
    [
        ("demo", "--page"),
        ("demo", "learning", "--people", "60"),
        ("take-part", "http://127.0.0.1:9", "--group", "all", "--value", "1"),
        ("serve", "board", "--config", "x.toml"),
        ("round", "list", "http://127.0.0.1:9"),
    ],
)
def test_what_needs_services_says_what_to_install(python: Path, words: tuple[str, ...]) -> None:
    """One sentence with the command that cures it, and code 2."""
    done = run(python, *words)
    assert done.returncode == 2
    assert "pip install 'coatcheck[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_planning_need_no_extra(python: Path) -> None:
    """What a newcomer types first."""
    assert "Try it" in run(python, "--help").stdout
    done = run(python, "amplify", "--local-epsilon", "2", "--crowd", "1000", "--delta", "1e-6")
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_without_an_extra(python: Path) -> None:
    """`from coatcheck import *` works; what needs an extra names it when it is used."""
    code = """
import asyncio
from pathlib import Path
from coatcheck import *

async def open_session():
    url = "https://a.example/rounds/" + "0" * 64
    async with Session(url, path=Path("t"), trusted=Trust.of([])):
        pass

try:
    asyncio.run(open_session())
except Misuse as error:
    print(error)
"""
    done = subprocess.run(  # noqa: S603 - our own code
        [python, "-I", "-c", code], cwd=python.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'coatcheck[serve]'" in done.stdout
