"""Mechanisms of other packages: found by their entry points, chosen, tested by their authors."""

import ast
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from coatcheck import randomizers, testing
from coatcheck.accounting.laws import grid
from coatcheck.domains import Box, Domain
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.randomizers import CodebookResponse, GridResponse, choose, from_params
from coatcheck.randomizers.contract import Goal

LINE = Box((0.0,), (5.0,))


@dataclass(frozen=True, kw_only=True)
class Halves(GridResponse):
    """Tell one's half of a line, or the other: a mechanism that a user may have written."""

    name = "halves"

    @classmethod
    def fitted(cls, *, domain: Domain, epsilon: float, goal: Goal) -> "Halves":
        """Serve lines, for every goal but unbiased estimates."""
        if not isinstance(domain, Box) or domain.dimension != 1 or goal == "unbiased":
            raise Misuse("halves are for lines")
        return cls(domain=domain, epsilon=epsilon, cells=(2,))


class Loud(Halves):
    """Like halves, but it reports the truth more often than it states."""

    name = "loud"

    def _respond(self, points: Any, entropy: Entropy) -> Any:
        return replace(Halves(**_given(self)), epsilon=2 * self.epsilon)._respond(points, entropy)


class Shy(Halves):
    """As halves, but its law hides what it costs."""

    name = "shy"

    @property
    def law(self) -> Any:
        """Claim to tell hardly anything."""
        return grid(0.01, cells=2)


def _given(made: GridResponse) -> dict[str, Any]:
    return {"domain": made.domain, "epsilon": made.epsilon, "cells": made.cells}


@pytest.fixture
def _halves(monkeypatch: pytest.MonkeyPatch) -> Any:
    here = EntryPoint("halves", f"{__name__}:Halves", randomizers.ENTRY_POINTS)
    monkeypatch.setattr(
        randomizers,
        "entry_points",
        lambda group: [here] if group == randomizers.ENTRY_POINTS else [],
    )
    randomizers.installed.cache_clear()
    yield
    randomizers.installed.cache_clear()


@pytest.mark.usefixtures("_halves")
def test_an_installed_mechanism_is_considered_and_may_be_named() -> None:
    """`choose` compares it with the others, and parameters that name it make it."""
    best = choose(epsilon=0.5, domain=LINE)
    names = {best.randomizer.name}
    made = Halves.fitted(domain=LINE, epsilon=0.5, goal="mean")
    assert best.error <= made.expected_error() * (1 + 1e-12)
    assert names <= {"halves", "grid"}
    assert from_params(made.params()) == made
    assert choose(epsilon=0.5, domain=LINE, goal="unbiased").randomizer.name != "halves"


def test_without_the_package_terms_that_name_it_are_refused() -> None:
    """A client that does not have the mechanism says which ones there are."""
    made = Halves.fitted(domain=LINE, epsilon=0.5, goal="mean")
    with pytest.raises(Misuse, match="a randomizer is one of"):
        from_params(made.params())


@pytest.mark.parametrize("value", ["no.such.module:Thing", "math:pi", "pathlib:Path"])
def test_a_broken_entry_point_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that declares nothing usable gets an error with its entry point."""
    entry = EntryPoint("broken", value, randomizers.ENTRY_POINTS)
    monkeypatch.setattr(randomizers, "entry_points", lambda group: [entry])  # noqa: ARG005 - as it is called
    randomizers.installed.cache_clear()
    with pytest.raises(Misuse, match=value):
        randomizers.installed()
    randomizers.installed.cache_clear()


def test_a_right_mechanism_passes_and_wrong_ones_fail() -> None:
    """Draws that reveal too much and a law that states too little each fail their test."""
    assert not [what for _, what in testing.checks(Halves) if what]
    made = Loud.fitted(domain=testing.SMALL[0], epsilon=1.5, goal="mean")
    assert "do not follow their masses" in testing.wrong(testing.draws, made)
    made = Shy.fitted(domain=testing.SMALL[0], epsilon=1.5, goal="mean")
    assert "promises more privacy than it has" in testing.wrong(testing.laws, made)


def test_our_own_codebook_passes() -> None:
    """The tests are those that our mechanisms pass, such as one with several close points."""
    line = Box((0.0,), (5.0,), steps=8)
    points = ((-4,), (-2,), (0,), (3,))
    randomizer = CodebookResponse(domain=line, epsilon=1.5, points=points, closest=2)
    for test in (*testing.COUNTED, testing.budgets, testing.reports, testing.estimates):
        assert testing.wrong(test, randomizer) == ""
    assert math.isclose(randomizer.epsilon, 1.5)


def test_the_command(tmp_path: Path) -> None:
    """A class is named by its module; a wrong name gets the usage."""
    text = Path(__file__).read_text()
    start, end = text.index("@dataclass"), text.index("class Loud")
    body = ast.parse(text).body
    heads = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    (tmp_path / "mine.py").write_text("\n".join([*heads, "", text[start:end]]))
    done = _run(tmp_path, "mine:Halves")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass  masses on Box" in done.stdout
    assert _run(tmp_path, "mine:Nothing").returncode == 2


def _run(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coatcheck.testing", name]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our own
