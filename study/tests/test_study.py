"""The study itself: it resumes, refuses other data, counts fairly, and its page is its results."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from coatcheck import Misuse
from coatcheck.planning.comparison import PAPER
from study import conventions, datasets, items, locations, report, sheets
from study.findings import YES, best_first, expected, published_first
from study.sheets import Cell, Row, Sheet


def test_report_page_is_written_from_the_results() -> None:
    """The committed page has no number that is not computed from the committed sheets."""
    page = (sheets.HERE / "README.md").read_text(encoding="utf-8")
    tree = json.loads((sheets.HERE / "results" / "tree.json").read_text(encoding="utf-8"))
    assert page == "\n".join(report.page(tree, quick=False)) + "\n"


def test_the_page_says_which_rows_other_code_measured() -> None:
    """After a change of the code, the page says which rows older code measured."""
    tree = {item.sheet.name: "x0" for item in items.ITEMS}
    page = report.page(tree, quick=False)
    (sentence,) = (line for line in page if "rows were measured by the code of the tree" in line)
    every = sum(len(sheets.cells(sheet, quick=False)) for sheet in {i.sheet for i in items.ITEMS})
    assert sentence.startswith(f"**0 of {every:,} rows")
    assert all(f"{name} (" in sentence for name in tree)


def test_every_item_has_the_papers_side() -> None:
    """Every table and figure names where it stands in the paper, and its tolerance."""
    for item in items.ITEMS:
        assert {"where", "tolerance"} <= set(expected(item.name))


def test_printed_errors_are_those_of_the_library() -> None:
    """The study and `coatcheck compare` hold themselves against the same printed figures."""
    printed = expected("errortime")["error"]
    assert {name: tuple(map(float, row)) for name, row in printed.items()} == PAPER


def test_a_stopped_sheet_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell with a row on file is not measured again, and rows end in the order of the cells."""
    monkeypatch.setattr(sheets, "HERE", tmp_path)
    measured: list[float] = []

    def measure(cell: Cell) -> Row:
        measured.append(float(cell["epsilon"]))
        if cell["epsilon"] == 0.5 and len(measured) < 3:
            raise KeyboardInterrupt
        return {"error": 2 * float(cell["epsilon"])}

    def cells(_: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
        return [{"name": "a", "epsilon": epsilon} for epsilon in (3.0, 0.5)]

    sheet = Sheet("try", cells, measure)
    with pytest.raises(KeyboardInterrupt):
        sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None)
    measured.append(math.nan)
    sheets.fill(sheet, quick=False, jobs=1, say=lambda _: None)
    assert [row["error"] for row in sheets.read("try", quick=False)] == [6, 1]
    assert measured.count(3.0) == 1
    assert not sheets.missing(sheet, quick=False)


def test_missing_data_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or altered file is an error that says where it comes from, never a substitute."""
    monkeypatch.setattr(datasets, "load", datasets.load.__wrapped__)  # no memory of other tests
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path))
    with pytest.raises(Misuse, match=r"gmission\.npz is missing; .* makes it from BUAA-BDA"):
        datasets.crowdsourcing("GMission")
    (tmp_path / "gmission.npz").write_bytes(b"something else")
    with pytest.raises(Misuse, match="does not hold the data of these figures"):
        datasets.crowdsourcing("GMission")
    monkeypatch.setenv(datasets.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(Misuse, match="set COATCHECK_DATA"):
        datasets.where()


@pytest.mark.parametrize("name", ["GMission", "EverySender", "Gowalla", "Foursquare"])
def test_data_are_on_the_square(name: str, data_sets: bool) -> None:  # noqa: FBT001 - a fixture
    """Places lie on [-1, 1]^2 and fill it; the real sets have the sizes of the paper."""
    groups = (
        datasets.crowdsourcing(name) if name in datasets.CROWDSOURCING else (datasets.social(name),)
    )
    for places in groups:
        assert 0.9 < abs(places).max() <= 1
    if data_sets:
        sizes = {"GMission": [713, 532], "EverySender": [4036, 817]}
        sizes |= {"Gowalla": [138_368], "Foursquare": [227_428]}
        assert [len(places) for places in groups] == sizes[name]


def test_rankings_count_ties_by_standard_error() -> None:
    """A gap within two standard errors is a tie, beyond it a win; all wins make it hold."""

    def row(mechanism: str, f1: float, epsilon: float) -> Row:
        return {"dataset": "D", "mechanism": mechanism, "epsilon": epsilon, "f1": f1, "f1_se": 0.01}

    rows = [row("minkowski-paper", 0.5, 1.0), row("laplace", 0.4, 1.0), row("best", 0.51, 1.0)]
    assert published_first(rows, "f1", higher=True).verdict == YES
    assert best_first(rows, "f1", higher=True).tied == 1
    assert best_first([*rows[:2], row("best", 0.9, 1.0)], "f1", higher=True).ahead == 1
    alone = {**row("best", 0.9, 1.0), "f1_se": math.nan}
    assert best_first([*rows[:2], alone], "f1", higher=True).tied == 1  # one seed proves nothing


def test_best_keeps_the_same_promise() -> None:
    """Ours at best is never paid for by privacy: its crowd keeps the same ε at the same δ."""
    from coatcheck import amplify  # noqa: PLC0415 - beside what it is for

    made = conventions.design("best", model="pic", epsilon=1.0, crowd=532, anonymous=531)
    kept = amplify(made.randomizer.law, crowd=531, delta=conventions.delta(532))
    assert kept.epsilon <= 1.0 + 1e-9


@pytest.mark.usefixtures("data_sets")
def test_the_longest_list_is_that_of_all_pairs() -> None:
    """Whom one person's list can name is counted as by looking at every pair."""
    places = datasets.social("Gowalla", size=900)
    apart = ((places[:, None] - places) ** 2).sum(axis=2)
    longest = int((apart <= 0.2**2).sum(axis=1).max()) - 1
    assert abs(locations.longest_list(places, radius=0.2) - longest) <= 2  # single precision


@pytest.mark.parametrize("mechanism", ["best", "task"])
@pytest.mark.usefixtures("data_sets")
def test_honest_exposure_covers_the_lists_that_people_get(mechanism: str) -> None:
    """Nobody's list by report names more people than were left out of the crowd."""
    cell: Cell = {"dataset": "Gowalla", "size": 800, "radius": 0.1, "mechanism": mechanism}
    row = locations.measure_social({**cell, "model": "honest", "epsilon": 0.5, "seeds": 1})
    assert float(row["longest_list"]) <= float(row["crowd"]) - 1 - float(row["anonymous"])
    told = locations.measure_social({**cell, "model": "pic", "epsilon": 0.5, "seeds": 1})
    assert float(row["local_epsilon"]) < float(told["local_epsilon"])


@pytest.mark.usefixtures("data_sets")
def test_f1_from_true_places_is_that_of_all_pairs() -> None:
    """The count by taking pairs away is the count by looking at every pair."""
    places = datasets.social("Foursquare", size=700)
    reports = places + 0.2 * (np.random.default_rng(3).random(places.shape) - 0.5)
    true = ((places[:, None] - places) ** 2).sum(axis=2) <= 0.2**2
    seen = ((places[:, None] - reports) ** 2).sum(axis=2) <= 0.2**2
    others = ~np.eye(len(places), dtype=np.bool_)
    f1 = 2 * (true & seen & others).sum() / ((true & others).sum() + (seen & others).sum())
    assert locations.f1_from_truth(places, reports, radius=0.2) == pytest.approx(f1, rel=1e-12)
