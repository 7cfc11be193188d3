"""Digests of the study: a row is stale when the code that measured it changes, and only then."""

from pathlib import Path

import pytest

from study import digests, sheets
from study.items import ITEMS
from study.sheets import Cell, Row, Sheet


def test_a_sheet_depends_on_what_it_measures_with() -> None:
    """Places depend on mechanisms, accounts, tasks and their kernels, not on services or wire."""
    found = digests.modules("study.matchings")
    assert {
        "study.conventions",
        "coatcheck.randomizers.grid",
        "coatcheck.accounting.laws",
        "coatcheck.tasks.matching",
        "coatcheck.tasks.solvers.assignment_kernels",  # imported inside a function
        "coatcheck.planning.tuning",  # through a name of the package's own table
    } <= {*found}
    foreign = ("coatcheck.services", "coatcheck.protocol", "coatcheck.stores", "coatcheck.cli")
    assert not [name for name in found if name.startswith(foreign)]
    assert "study.figures" not in found


def test_times_of_a_round_depend_on_the_wire() -> None:
    """The sheets that run the protocol or settle by its rings are measured by it, and no others."""
    assert "coatcheck.protocol.envelope" in digests.modules("study.rounds")
    assert "coatcheck.protocol.settling.rings" in digests.modules("study.steps")
    for name in ("timing", "lists", "locations", "learning"):
        found = digests.modules(f"study.{name}")
        assert not [one for one in found if one.startswith("coatcheck.protocol")]


@pytest.mark.parametrize("sheet", dict.fromkeys(item.sheet for item in ITEMS), ids=lambda s: s.name)
def test_every_sheet_has_a_digest_of_its_own_module(sheet: Sheet) -> None:
    """The module that measures is the first that counts."""
    assert sheet.measure.__module__ in digests.modules(sheet.measure.__module__)


def test_a_digest_follows_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of an imported file changes it; one of another file, or of types only, does not."""
    monkeypatch.setattr(digests, "_ROOTS", {"pack": tmp_path})
    (tmp_path / "one.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from pack import types\n"
        "def f():\n    from pack.two import g\n"
    )
    (tmp_path / "two.py").write_text("import pack.three\n")
    for name in ("three", "types", "other"):
        (tmp_path / f"{name}.py").write_text("")

    def now() -> str:
        digests.digest.cache_clear()
        return digests.digest("pack.one")

    before = now()
    (tmp_path / "other.py").write_text("x = 1\n")
    (tmp_path / "types.py").write_text("x = 1\n")
    assert now() == before
    (tmp_path / "three.py").write_text("x = 1\n")
    assert now() != before
    digests.digest.cache_clear()


def test_rows_of_other_code_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then they are shown; after it there is one row per cell, the new one."""
    monkeypatch.setattr(sheets, "HERE", tmp_path)

    def cells(_: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
        return [{"name": name} for name in ("a", "b")]

    def measure(_: Cell) -> Row:
        return {"score": score}

    sheet, score = Sheet("try", cells, measure), 1
    monkeypatch.setattr(sheets, "digest", lambda _: "x1")
    sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None)
    assert not sheets.missing(sheet, quick=False)
    monkeypatch.setattr(sheets, "digest", lambda _: "x2")
    assert len(sheets.missing(sheet, quick=False)) == 2
    score = 2
    chosen = {"only": lambda cell: cell["name"] == "b"}
    sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None, **chosen)
    assert [row["score"] for row in sheets.rows(sheet, quick=False)] == [1, 2]
    assert [row["code"] for row in sheets.rows(sheet, quick=False)] == ["x1", "x2"]
    assert [cell["name"] for cell in sheets.missing(sheet, quick=False)] == ["a"]
