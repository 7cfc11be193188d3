"""The study of places: lists and candidates as shipped, expected costs, files that stay whole."""

import math
from pathlib import Path

import numpy as np
import pytest

from coatcheck import Neighbours, amplify
from coatcheck.tasks.solvers.close_pairs import agreement
from study import conventions, datasets, draws, lists, locations, matchings, sheets
from study.sheets import Cell, Row, Sheet


def test_lists_leave_out_whom_they_name() -> None:
    """Ours for lists keeps its promise among those who are left, and is never a grid."""
    task = Neighbours(radius=0.1)
    made = lists.shipped(task, epsilon=1.0, crowd=2_000)
    left = 2_000 - 1 - task.limit
    kept = amplify(made.randomizer.law, crowd=left, delta=conventions.delta(2_000))
    assert kept.epsilon <= 1.0 + 1e-9
    assert made.randomizer.name != "grid"


@pytest.mark.usefixtures("data_sets")
@pytest.mark.parametrize(("mechanism", "least", "most"), [("clear", 1, 1), ("blind", 0, 0.5)])
def test_lists_of_true_places_are_right(mechanism: str, least: float, most: float) -> None:
    """True places score 1; the middle of the square, read as a place, scores what chance does."""
    cell: Cell = {"dataset": "Gowalla", "size": 800, "radius": 0.1, "mechanism": mechanism}
    row = lists.measure({**cell, "model": "none", "epsilon": 0.0, "seeds": 1})
    assert least <= float(row["f1"]) <= most
    assert float(row["listed"]) <= Neighbours(radius=0.1).limit


@pytest.mark.usefixtures("data_sets")
def test_expected_costs_match_the_same_reports() -> None:
    """Beliefs are about the very reports that the estimates were read from."""
    groups = datasets.crowdsourcing("Gowalla")
    made = [
        conventions.design("best", model="pic", epsilon=2.0, crowd=n, anonymous=n - 1)
        for n in map(len, groups)
    ]
    plain, none = draws.draw_groups(groups, made, 4)
    places, beliefs = draws.draw_groups(groups, made, 4, aware=True)
    assert none is None
    assert beliefs is not None
    assert all(np.array_equal(a, b) for a, b in zip(plain, places, strict=True))
    for estimates, belief in zip(places, beliefs, strict=True):
        means = (belief.weights @ belief.places)[belief.kinds]
        assert np.linalg.norm(means - estimates, axis=1).mean() < 0.2


@pytest.mark.usefixtures("data_sets")
def test_the_plan_for_neighbours_is_judged_by_all_pairs() -> None:
    """A score of lists of 16 would be another goal than the figure's."""
    places = datasets.social("Gowalla", size=500)
    task = locations.Neighbourhoods(radius=0.2)
    middle = np.zeros_like(places)
    share = agreement(places, middle, radius=0.2)
    assert task.score([places], estimates=[middle]).value == pytest.approx(share.f1)
    assert share.noisy == 500 * 499


def test_every_cell_of_a_figure_has_an_error() -> None:
    """One seed tells nothing of its own error, so no cell of places has only one."""
    for sheet in (locations.SOCIAL, matchings.CROWDSOURCING, matchings.CLUSTERED, lists.SHEET):
        assert min(int(cell["seeds"]) for cell in sheets.cells(sheet, quick=False)) > 1


def test_rows_stay_when_columns_change_or_a_line_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New columns do not spoil old rows, and half a line does not spoil the next one."""
    monkeypatch.setattr(sheets, "HERE", tmp_path)
    monkeypatch.setattr(sheets, "digest", lambda _: "x1")
    extra: Row = {}

    def cells(_: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
        return [{"name": name} for name in ("a", "b", "c")]

    def measure(cell: Cell) -> Row:
        if cell["name"] == stop:
            raise KeyboardInterrupt
        return {"score": 1.5, **extra}

    sheet = Sheet("try", cells, measure)
    for cut in ("b", "c"):
        stop = cut
        with pytest.raises(KeyboardInterrupt):
            sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None)
        extra["more"] = 7
    path = tmp_path / "results" / "try.csv"
    path.write_text(path.read_text() + "c,1.")
    stop = ""
    sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None)
    found = sheets.rows(sheet, quick=False)
    assert [(row["name"], row["score"]) for row in found] == [("a", 1.5), ("b", 1.5), ("c", 1.5)]
    assert [row["more"] for row in found] == ["", 7, 7]
    assert not math.isnan(float(found[0]["seconds"]))
