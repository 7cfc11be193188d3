"""The shape of the package: imports, the source of randomness, and file sizes."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "coatcheck"
FILES = sorted(PACKAGE.rglob("*.py"))
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))[
    "tool"
]["importlinter"]["contracts"]
TOP = {
    path.stem
    for path in PACKAGE.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").exists()
}
TOP -= {"__init__", "__main__"}

BORDERS = {
    # contract -> the only packages and modules that it may leave out
    "Cryptography stays in a few modules": {
        "entropy",
        "protocol.settling.exchange",
        "protocol.settling.blinded_sets",
        "protocol.oblivious_http",
        "protocol.privacy_pass",
        "protocol.keys",
        "protocol.envelope",
    },
    "Web frameworks stay at the border": {"services", "demo", "cli"},
    "Drivers of databases stay in the stores": {"stores"},
}


def _name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _contract(name: str) -> dict[str, Any]:
    return next(contract for contract in CONTRACTS if contract["name"] == name)


@pytest.mark.parametrize("name", BORDERS)
def test_every_package_is_in_the_contract(name: str) -> None:
    """A new package or protocol module is in each contract unless its border is listed above."""
    listed = {one.removeprefix("coatcheck.") for one in _contract(name)["source_modules"]}
    folder = PACKAGE / "protocol"
    protocol = {_name(path).removeprefix("coatcheck.") for path in folder.rglob("[!_]*.py")}
    every = TOP if "protocol" in listed else (TOP - {"protocol"}) | protocol
    assert listed == every - BORDERS[name]


def test_trust_boundaries_are_checked(tmp_path: Path) -> None:
    """Each boundary's contract breaks when a forbidden import is planted behind it."""
    planted = {
        "The story runs one way": ("accounting/laws.py", "coatcheck.tasks"),
        "Cryptography stays in a few modules": (
            "tasks/matching.py",
            "secrets",
        ),
        "A task never sees a key": ("tasks/neighbours.py", "coatcheck.protocol.keys"),
        "The shuffler cannot read a report": (
            "protocol/shuffler.py",
            "coatcheck.protocol.wire.messages",
        ),
        "The board cannot open anything": ("protocol/board.py", "coatcheck.protocol.envelope"),
        "No role knows another": ("protocol/server.py", "coatcheck.protocol.client"),
        "Web frameworks stay at the border": ("planning/plans.py", "uvicorn"),
        "The core knows neither the demo nor Flower's side": (
            "services/relay.py",
            "coatcheck.demo.events",
        ),
        "Drivers of databases stay in the stores": ("services/clock.py", "sqlite3"),
        "A shuffler's process cannot read a report": (
            "services/shuffler/routes.py",
            "coatcheck.randomizers",
        ),
        "A board's process knows no other role": (
            "services/board/routes.py",
            "coatcheck.protocol.server",
        ),
        "A server's process knows no other role": (
            "services/server/routes.py",
            "coatcheck.protocol.client",
        ),
    }
    copy = tmp_path / "src" / "coatcheck"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "static"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for path, module in planted.values():
        source = (copy / path).read_text("utf-8")
        (copy / path).write_text(f"{source}\nimport {module}\n", "utf-8")
    code = (
        "import sys; sys.path.insert(0, 'src')\n"
        "from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter and code
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    broken = {
        line.partition(" BROKEN")[0] for line in done.stdout.splitlines() if " BROKEN" in line
    }
    assert set(planted) <= broken, done.stdout[-2000:] + done.stderr[-2000:]


def test_randomness_has_one_source() -> None:
    """No file but entropy.py names a source of randomness."""
    sources = re.compile(
        r"\b(secrets|urandom|getrandom|SystemRandom|default_rng|RandomState|uuid[14]"
        r"|(np|numpy)\.random|(import|from) random)\b"
    )
    found = {
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in FILES
        if path.name != "entropy.py"
        for line in _code(path)
        if sources.search(line)
    }
    assert not found


@cache
def _code(path: Path) -> list[str]:
    """Return the lines of a file without comments and docstrings."""
    return ast.unparse(_without_docstrings(ast.parse(path.read_text("utf-8")))).splitlines()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def test_no_file_is_too_long() -> None:
    """No source file has more than 700 lines."""
    assert {path.name for path in FILES if len(path.read_text("utf-8").splitlines()) > 700} == set()


@pytest.fixture(scope="module")
def shared() -> Path:
    """A fixture that the tests of this file share."""
    return ROOT


def test_tests_that_share_a_fixture_stay_together(
    shared: Path, request: pytest.FixtureRequest
) -> None:
    """Several workers know a file's tests with one fixture as a group, so it is made once."""
    assert shared.is_dir()
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@project/test_contracts.py")
