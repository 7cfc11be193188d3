"""Priors: where they come from, what they refuse, and what they are worth."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from coatcheck import Ball, Box, Categories, Group, GroupPlan, Misuse, choose, plan, simulate
from coatcheck.cli import main
from coatcheck.entropy import seeded
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    GridResponse,
    Prior,
    from_draft,
    from_params,
)
from coatcheck.randomizers.choice import enough_to_learn, errors_under, misses, report_free
from coatcheck.randomizers.density import Cells
from coatcheck.tasks.download import Download
from coatcheck.tasks.matching import LeastCostMatching
from support.tiers import some_slow

Floats = NDArray[np.float64]

CITY = Box.geographic(south=40.0, west=-74.0, north=40.4, east=-73.6)
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))


def town(size: int, seed: int = 1) -> Floats:
    """People around two centers of a city."""
    draw = np.random.default_rng(seed)
    centers = np.array([[40.1, -73.9], [40.3, -73.7]])[(draw.random(size) < 0.3).astype(int)]
    return np.asarray(np.clip(centers + draw.normal(0, 0.01, (size, 2)), CITY.lo, CITY.hi))


PUBLIC = Prior.from_points(town(3_000, seed=9))


# -- where priors come from


def test_points_and_weights() -> None:
    """The share of a cell is the weight of the places in it."""
    cells = Cells.of(SQUARE, most=100)
    prior = Prior.from_points([(-0.95, -0.95), (0.95, 0.95)], weights=[3, 1])
    found = prior.on(cells).reshape(10, 10)
    assert found.sum() == pytest.approx(1)
    assert found[:5, :5].sum() == pytest.approx(0.75, abs=0.02)
    assert found[5:, 5:].sum() == pytest.approx(0.25, abs=0.02)


def test_grids() -> None:
    """A raster's first index runs along the first axis, from lo to hi."""
    prior = Prior.from_grid([[0, 5], [1, 0]], domain=CITY)
    assert prior.points.tolist() == pytest.approx(np.array([[40.1, -73.7], [40.3, -73.9]]))
    assert prior.weights.tolist() == [5, 1]


def test_files(tmp_path: Path) -> None:
    """CSV and GeoJSON give the same prior."""
    (tmp_path / "venues.csv").write_text("lat,lon\n40.1,-73.9\n40.3,-73.7\n")
    feature = '{"type":"Feature","properties":{},"geometry":{"type":"Point","coordinates":[%s,%s]}}'
    points = ",".join(feature % pair for pair in ((-73.9, 40.1), (-73.7, 40.3)))
    (tmp_path / "venues.geojson").write_text(f'{{"features":[{points}]}}')
    one, other = (Prior.from_file(tmp_path / f"venues.{kind}") for kind in ("csv", "geojson"))
    assert (one.points == other.points).all()
    assert one.source == "venues.csv"


def test_learned_from_earlier_rounds() -> None:
    """Noisy reports of earlier rounds make a prior that later rounds gain by."""
    made = BoundedResponse(domain=CITY, epsilon=3.0, radius=0.35)
    earlier = [(made, made.randomize(town(3_000, seed=n), seeded(n))) for n in (2, 3)]
    prior = Prior.learned_from(earlier)
    assert prior.source == "6,000 earlier reports"
    values = town(60, seed=4)
    reports = made.randomize(values, seeded(4))
    with_it = misses(CITY, made.estimate(reports, "learned", prior=prior), values).mean()
    assert with_it < 0.8 * misses(CITY, made.estimate(reports, "median"), values).mean()
    with pytest.raises(Misuse, match="too few reports"):
        Prior.learned_from([(made, earlier[0][1][:5])])
    other = BoundedResponse(domain=SQUARE, epsilon=3.0, radius=0.35)
    with pytest.raises(Misuse, match="different domains"):
        Prior.learned_from([earlier[0], (other, other.randomize([(0.5, 0.5)] * 400, seeded(1)))])


def test_the_even_prior_changes_nothing() -> None:
    """An uninformed person chooses and decodes as without a prior."""
    even = Prior.even(SQUARE)
    assert choose(epsilon=3.0, domain=SQUARE, prior=even) == choose(epsilon=3.0, domain=SQUARE)
    cells = Cells.of(SQUARE, most=100)
    assert (even.on(cells) == cells.even).all()


def test_labels() -> None:
    """A prior of labels moves what a report is read as, and refuses places."""
    drinks = Categories(("tea", "coffee"))
    prior = Prior.from_points(["tea", "tea", "tea", "coffee"])
    assert prior.on(Cells.of(drinks, most=9)).tolist() == [0.75, 0.25]
    made = GridResponse(domain=drinks, epsilon=0.5)
    assert made.estimate(np.array([[1]]), "learned", prior=prior).tolist() == ["tea"]
    assert report_free(drinks, prior=prior) == pytest.approx(0.25)
    with pytest.raises(Misuse, match="does not fit"):
        PUBLIC.on(Cells.of(drinks, most=9))


# -- what is refused


@pytest.mark.parametrize(
    ("points", "told"),
    [
        ([(0.1, 0.2)], "at least two different places"),
        ([(0.1, 0.2)] * 5, "at least two different places"),
        ([(0.1, 0.2), (0.1, float("nan"))], "place 1 of the prior, axis 1"),
        ([], "at least two different places"),
        ([True, False], "a prior must be places"),
        ([[[0.1, 0.2]], [[0.3, 0.4]]], "a prior must be places"),
        ([[0.1, 0.2], [0.3]], "a prior must be places"),
    ],
)
def test_bad_points(points: Any, told: str) -> None:
    """Too few places, no numbers and no finite numbers are errors."""
    with pytest.raises(Misuse, match=told):
        Prior.from_points(points)


@pytest.mark.parametrize(
    "weights", [[1, -1], [0, 0], [1, float("nan")], [1, 2, 3], ["a", "b"], [[1], [1, 2]]]
)
def test_bad_weights(weights: Any) -> None:
    """Weights are finite numbers of at least 0, one per place, not all 0."""
    with pytest.raises(Misuse, match="weight"):
        Prior.from_points([(0.1, 0.2), (0.3, 0.4)], weights=weights)


def test_bad_grids() -> None:
    """A raster has as many axes as the box and some mass."""
    grids: list[Any] = [np.zeros((3, 3)), np.array([[1.0, np.nan], [0, 0]]), [[1, 2], [1]]]
    for grid in grids:
        with pytest.raises(Misuse, match="weights"):
            Prior.from_grid(grid, domain=SQUARE)
    with pytest.raises(Misuse, match="one index per axis"):
        Prior.from_grid([1, 2, 3], domain=SQUARE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lat,lon\n40.1,-73.9\n40.2,x\n", "prior.csv line 3, column lon: 'x' is not a number"),
        ("lat,lon\n40.1,-73.9\n40.2\n", "line 3"),
        ("lat,lon\n40.1,nan\n", "line 2, column lon"),
        ("lat,lon\n40.1,-73.9\n", "at least two different places"),
        ("lat,lon\n", "holds no places"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, told: str) -> None:
    """The error names line and column, and nothing of the file is used."""
    path = tmp_path / "prior.csv"
    path.write_text(text)
    with pytest.raises(Misuse, match=told):
        Prior.from_file(path)


def test_a_prior_of_another_city() -> None:
    """Without mass inside the domain, or with other coordinates, a prior is refused when used."""
    far = Prior.from_points([(10.0, 10.0), (11.0, 11.0)])
    with pytest.raises(Misuse, match="none of the prior's places"):
        choose(epsilon=1.0, domain=CITY, prior=far)
    with pytest.raises(Misuse, match="coordinates"):
        choose(epsilon=1.0, domain=Box((0.0,), (1.0,)), prior=far)
    made = BoundedResponse(domain=CITY, epsilon=3.0, radius=0.35)
    with pytest.raises(Misuse, match="none of the prior's places"):
        made.estimate(np.zeros((9, 2), dtype=np.int64), "learned", prior=far)
    with pytest.raises(Misuse, match="none of the prior's places"):
        CodebookResponse.placed(domain=CITY, epsilon=1.0, points=far)


def test_one_place_inside_the_domain_is_too_few() -> None:
    """A prior with a single place inside the domain gives no codebook."""
    prior = Prior.from_points([(0.5, 0.5), (10.0, 10.0)])
    with pytest.raises(Misuse, match="at least two different public places"):
        choose(epsilon=1.0, domain=SQUARE, prior=prior)


def test_a_command_uses_nothing_of_a_bad_file(tmp_path: Path) -> None:
    """The last of many rows is bad: the command says where, and prints no plan."""
    path = tmp_path / "prior.csv"
    path.write_text("lat,lon\n" + "40.1,-73.9\n40.2,-73.8\n" * 50 + "40.3,nan\n")
    asked = ["plan", "--epsilon", "1", "--delta", "1e-6", "--crowd", "5000"]
    asked += ["--geographic", "40,-74,40.4,-73.6", "--prior", str(path)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code != 0
    told = " ".join((done.output + str(done.exception)).split())
    assert "line 102, column lon: 'nan' is not a number" in told
    assert "mean error" not in told


def test_the_values_themselves_are_no_prior() -> None:
    """A simulation refuses a prior that holds the values, in whatever order."""
    values = town(40)
    made = BoundedResponse(domain=CITY, epsilon=3.0, radius=0.35, decode="learned")
    group = GroupPlan(name="people", randomizer=made, minimum=40, delta=1e-3, decode="learned")
    task = Download(groups=("people",))
    with pytest.raises(Misuse, match="the very values"):
        simulate([group], [values], task=task, prior=Prior.from_points(values[::-1]))
    assert simulate([group], [values], task=task, prior=PUBLIC).answers


# -- what a prior is worth


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_choosing_for_a_prior(epsilon: float) -> None:
    """The predicted error holds for fresh people of the same town, and beats no report at all."""
    best = choose(epsilon=epsilon, domain=CITY, prior=PUBLIC)
    assert best.randomizer.name == "codebook"
    assert best.errors is not None
    assert best.report_free is not None
    values = town(8_000, seed=5)
    reports = best.randomizer.randomize(values, seeded(6))
    found = misses(CITY, best.randomizer.estimate(reports, best.decode), values)
    assert found.mean() == pytest.approx(best.error, rel=0.06)
    assert np.quantile(found, 0.9) == pytest.approx(best.errors.percentile_90, rel=0.15)
    assert best.error <= best.report_free
    plain = choose(epsilon=epsilon, domain=CITY)
    assert best.error < errors_under(plain.randomizer, plain.decode, PUBLIC).mean
    assert "people spread as in the prior" in best.words


@pytest.mark.parametrize(
    "domain",
    [SQUARE, Box((0.0,), (4.0,)), Ball(radius=1.0, p=2, dimension=2), Categories(("a", "b", "c"))],
)
@pytest.mark.parametrize("goal", some_slow(["mean", "squared", "median", "worst"], every=3))
def test_the_report_free_answer_is_shown(domain: Any, goal: Any) -> None:
    """Every choice states the error without reports, and says when a report is not worth it."""
    best = choose(epsilon=1.0, domain=domain, goal=goal)
    assert best.report_free == pytest.approx(report_free(domain, goal=goal))
    assert ("do not ask" in best.words) == (not best.worth_a_report)
    assert best.error <= best.report_free  # type: ignore[operator]


def test_report_free_figures() -> None:
    """The middle of a line, a square and a disk, and the median of a prior."""
    assert report_free(Box((0.0,), (4.0,))) == pytest.approx(1.0, rel=1e-3)
    assert report_free(SQUARE) == pytest.approx(0.7652, rel=1e-3)
    assert report_free(Ball(radius=3.0, p=2, dimension=2)) == pytest.approx(2.0, rel=2e-3)
    assert report_free(SQUARE, goal="worst") == pytest.approx(2**0.5)
    assert report_free(SQUARE, goal="unbiased") is None
    everybody = town(5_000, seed=7)
    middle = np.median(everybody, axis=0)[None]
    by_hand = misses(CITY, np.repeat(middle, len(everybody), axis=0), everybody).mean()
    assert report_free(CITY, prior=PUBLIC) == pytest.approx(by_hand, rel=0.1)


def test_plans_take_priors() -> None:
    """A plan says under which assumption its error holds, and the error is less with a prior."""
    groups = {"all": Group(CITY, crowd=5_000)}
    even = plan(groups, epsilon=1.0, delta=1e-6)
    known = plan(groups, epsilon=1.0, delta=1e-6, prior={"all": PUBLIC})
    assert known["all"].best.error < 0.8 * even["all"].best.error
    assert "people spread as in the prior (3,000 places)" in str(known)
    assert [one.worth_a_report for one in known["all"].designs] == [True, False]
    assert known["all"].best.guarantee.epsilon <= 1.0
    with pytest.raises(Misuse, match="`prior` must name groups"):
        plan(groups, epsilon=1.0, delta=1e-6, prior={"nobody": PUBLIC})
    with pytest.raises(Misuse, match="`prior` must be a Prior"):
        plan(groups, epsilon=1.0, delta=1e-6, prior=[town(5)])


@pytest.mark.world
def test_plans_for_a_task_draw_people_from_the_prior() -> None:
    """The goal task tries its rounds on people of the prior."""
    task = LeastCostMatching(groups=("riders", "drivers"))
    groups = {name: Group(CITY, crowd=60) for name in task.groups}
    found = plan(groups, epsilon=4.0, delta=1e-3, goal="task", task=task, prior=PUBLIC)
    assert found["riders"].best.error > 0


@pytest.mark.world
def test_plans_learn_where_the_crowd_is_large_enough() -> None:
    """The learned decode is recommended for the mean and a large crowd, and says what it states."""
    groups = {"all": Group(SQUARE, crowd=20_000)}
    large = plan(groups, epsilon=1.0, delta=1e-6)
    assert large["all"].decode == "learned"
    assert "For people spread evenly over the domain: 90 % are decoded within" in str(large)
    small = plan({"all": Group(SQUARE, crowd=50)}, epsilon=1.0, delta=1e-3)
    assert small["all"].decode != "learned"
    worst = plan(groups, epsilon=1.0, delta=1e-6, goal="worst")
    assert worst["all"].decode != "learned"


def test_enough_people() -> None:
    """Information shrinks with the square of ε; a few large cells tell too little."""
    loud, quiet = (BoundedResponse(domain=SQUARE, epsilon=e, radius=0.4) for e in (3.0, 1.0))
    assert enough_to_learn(loud, 200)
    assert not enough_to_learn(quiet, 200)
    assert enough_to_learn(quiet, 2_000)
    assert not enough_to_learn(GridResponse(domain=SQUARE, epsilon=3.0, cells=(2, 2)), 10**6)


@pytest.mark.world
def test_commands_take_priors(tmp_path: Path) -> None:
    """`coatcheck plan` and `simulate` read a prior from a file."""
    venues, riders, drivers = (tmp_path / f"{name}.csv" for name in ("venues", "riders", "drivers"))
    for path, seed, size in ((venues, 9, 500), (riders, 1, 60), (drivers, 2, 60)):
        rows = "\n".join(f"{lat},{lon}" for lat, lon in town(size, seed=seed))
        path.write_text(f"lat,lon\n{rows}\n")
    asked = ["plan", "--epsilon", "1", "--delta", "1e-6", "--crowd", "5000"]
    asked += ["--geographic", "40,-74,40.4,-73.6", "--prior", str(venues)]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert "as in the prior (venues.csv)" in " ".join(done.output.split())
    asked = ["simulate", str(riders), str(drivers), "--box", "40,-74,40.4,-73.6", "--epsilon", "3"]
    done = CliRunner().invoke(main, [*asked, "--prior", str(venues)])
    assert done.exit_code == 0, done.output
    refused = CliRunner().invoke(main, [*asked, "--prior", str(riders)])
    assert refused.exit_code != 0
    assert "the very values" in " ".join((refused.output + str(refused.exception)).split())


def test_a_draft_of_a_round_takes_public_places() -> None:
    """The organizer gives places; the terms then have points, which need no file to be read."""
    draft = {"name": "codebook", "domain": CITY.params(), "epsilon": 3.0, "size": 4}
    made = from_draft({**draft, "places": town(500, seed=9).tolist()})
    assert isinstance(made, CodebookResponse)
    assert made.size <= 4
    assert from_params(made.params()) == made
    with pytest.raises(Misuse, match="at least two different places"):
        from_draft({**draft, "places": [[40.1, -73.9]]})
