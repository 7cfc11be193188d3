"""The learned decode: an estimator of the batch that never reads worse than the plain one."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from coatcheck.domains import Ball, Box, Categories, Domain, Product
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.server import numbers
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    Decode,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Prior,
    Randomizer,
    from_params,
)
from coatcheck.randomizers.density import (
    LEARNED,
    Cells,
    DenseChannel,
    batch_belief,
    binned,
    cells_for,
    channel_of,
    decode_batch,
    geometric_median,
)
from support.tiers import mostly_slow

Floats = NDArray[np.float64]

LINE = Box((0.0,), (10.0,))
SQUARE = Box((-1.0, -1.0), (1.0, 1.0))
CUBE = Box((-1.0,) * 3, (1.0,) * 3)
DISK = Ball(radius=2.0, p=2, dimension=2)
DIAMOND = Ball(radius=1.0, p=1, dimension=2)

MADE: dict[str, Randomizer] = {
    "line, bounded": BoundedResponse(domain=LINE, epsilon=1.0, radius=0.4),
    "line, minkowski": MinkowskiResponse(domain=LINE, epsilon=1.0, radius=0.4),
    "square, bounded": BoundedResponse(domain=SQUARE, epsilon=2.0, radius=0.4),
    "square, minkowski": MinkowskiResponse(domain=SQUARE, epsilon=2.0, radius=0.4),
    "square, grid": GridResponse(domain=SQUARE, epsilon=2.0, cells=(6, 6)),
    "cube, bounded": BoundedResponse(domain=CUBE, epsilon=3.0, radius=0.5),
    "disk, bounded": BoundedResponse(domain=DISK, epsilon=2.0, radius=0.5),
    "disk, minkowski": MinkowskiResponse(domain=DISK, epsilon=2.0, radius=0.5),
    "diamond, bounded": BoundedResponse(domain=DIAMOND, epsilon=2.0, radius=0.5),
}
QUICK = ("line, bounded", "square, minkowski", "square, grid", "diamond, bounded")
every = pytest.mark.parametrize(
    "made", mostly_slow(MADE.values(), quick=lambda made: made in map(MADE.get, QUICK)), ids=MADE
)


def clustered(domain: Box | Ball, size: int, seed: int = 1) -> Floats:
    """Most people near one place off the middle, a few near another."""
    draw = np.random.default_rng(seed)
    d = domain.dimension
    middles = np.where(draw.random((size, 1)) < 0.8, 0.3, -0.35)
    return np.asarray(domain.from_unit(middles + draw.uniform(-0.1, 0.1, (size, d))))


def even(domain: Box | Ball, size: int, seed: int = 2) -> Floats:
    """People anywhere."""
    draw = np.random.default_rng(seed)
    places = draw.uniform(-1, 1, (4 * size, domain.dimension))
    inside = np.linalg.norm(places, ord=domain.p, axis=1) <= 1
    return np.asarray(domain.from_unit(places[inside][:size] * (1 - 1e-9)))


def misses(estimates: Floats, values: Floats) -> Floats:
    """Distances, one per person."""
    return np.asarray(np.linalg.norm(estimates - values, axis=1))


def plain(made: Randomizer) -> Decode:
    """The plain decode that a learned one stands beside."""
    return made.plain_decode("learned")


@every
def test_clustered_people_are_read_better(made: Randomizer) -> None:
    """Where people crowd together, reading by the learned density is far better than plainly.

    The mean makes squared distances small, the median distances.
    """
    values = clustered(made.domain, 2_000)  # type: ignore[arg-type]
    reports = made.randomize(values, seeded(3))
    before = misses(made.estimate(reports, plain(made)), values)
    median, mean = (misses(made.estimate(reports, how), values) for how in LEARNED)
    assert median.mean() < 0.75 * before.mean()
    assert (mean**2).mean() < 0.75 * (before**2).mean()
    assert median.mean() <= 1.01 * mean.mean()
    assert (mean**2).mean() <= 1.1 * (median**2).mean()


@every
@pytest.mark.parametrize("size", [40, 3_000])
def test_never_worse_than_plain_on_even_people(made: Randomizer, size: int) -> None:
    """Where there is nothing to learn, reading is plain, or better by more than chance."""
    values = even(made.domain, size)  # type: ignore[arg-type]
    reports = made.randomize(values, seeded(4))
    ours = misses(made.estimate(reports, "learned"), values)
    theirs = misses(made.estimate(reports, plain(made)), values)
    worse = ours - theirs
    assert worse.mean() <= 0.01 * theirs.mean() + 3 * worse.std() / math.sqrt(size)


@every
@pytest.mark.parametrize("how", LEARNED)
def test_an_estimator_of_the_batch(made: Randomizer, how: Decode) -> None:
    """Permuted reports get the same estimates, permuted; a second run gets the same ones."""
    reports = made.randomize(clustered(made.domain, 500), seeded(5))  # type: ignore[arg-type]
    order = np.random.default_rng(6).permutation(len(reports))
    found = made.estimate(reports, how)
    assert (made.estimate(reports, how) == found).all()
    assert (made.estimate(reports[order], how) == found[order]).all()
    _, first, same = np.unique(reports, axis=0, return_index=True, return_inverse=True)
    assert (found == found[first][same.ravel()]).all()


@every
def test_too_few_reports_are_an_error(made: Randomizer) -> None:
    """A batch that is too small is an error; an empty one gives an empty answer."""
    values = even(made.domain, 20)  # type: ignore[arg-type]
    small = decode_batch(made, made.randomize(values, seeded(7)))
    assert not small.learned
    assert "too few reports" in small.words
    crowd = made.randomize(clustered(made.domain, 4_000), seeded(7))  # type: ignore[arg-type]
    large = decode_batch(made, crowd)
    assert large.learned
    assert "the reports themselves" in large.words
    assert large.density.sum() == pytest.approx(1)
    none = np.empty((0, made.width), dtype=np.int64)
    assert made.estimate(none, "learned").shape == (0, made.domain.dimension)


@every
def test_estimates_stay_in_the_domain(made: Randomizer) -> None:
    """A median or mean of places of the domain lies in it."""
    domain: Any = made.domain
    reports = made.randomize(clustered(domain, 1_000), seeded(8))
    for how in LEARNED:
        domain.snap(made.estimate(reports, how))


@pytest.mark.parametrize("name", ["square, bounded", "square, minkowski", "square, grid"])
def test_the_channel_is_the_law(name: str) -> None:
    """The matrices per axis are the probabilities that the mechanism's own density gives."""
    coarse = Box(SQUARE.lo, SQUARE.hi, steps=16)
    given = {"radius": 0.375} if "grid" not in name else {"cells": (6, 6)}
    made: Randomizer = type(MADE[name])(domain=coarse, epsilon=2.0, **given)  # type: ignore[call-arg]
    cells = Cells.of(coarse, most=10_000)  # one per lattice point
    assert cells.inside.shape == (17, 17)
    channel = channel_of(made, cells)
    assert channel is not None
    spans = [np.arange(a, b + 1) for a, b in zip(made.low, made.high, strict=True)]
    reports = np.stack(np.meshgrid(*spans, indexing="ij"), axis=-1).reshape(-1, 2)
    _, bins = binned(made, reports, cells)
    pairs = np.repeat(reports, len(cells.points), axis=0), np.tile(cells.points, (len(reports), 1))
    exact = made.density(*pairs).reshape(len(reports), -1)
    odds = np.zeros((int(bins.max()) + 1, exact.shape[1]))
    np.add.at(odds, bins, exact)
    assert channel.likely(np.arange(len(odds))) == pytest.approx(odds, abs=1e-12)
    assert odds.sum(axis=0) == pytest.approx(1)


@pytest.mark.parametrize("name", ["square, bounded", "cube, bounded", "line, minkowski"])
def test_forward_and_backward_are_the_matrix(name: str) -> None:
    """The computation axis by axis equals that with the whole matrix."""
    made = MADE[name]
    channel = channel_of(made, cells_for(made))
    assert channel is not None
    size = math.prod(len(near) for near in channel.near)
    whole = DenseChannel(channel.likely(np.arange(size)), np.ones(size))
    draw = np.random.default_rng(1)
    weights, even = draw.random(size), draw.random(whole.rows.shape[1])
    density = np.asarray(even / np.sum(even), dtype=np.float64)
    assert channel.forward(density) == pytest.approx(whole.forward(density))
    assert channel.backward(weights) == pytest.approx(whole.backward(weights))


def test_labels() -> None:
    """On categories the likeliest label is read, so a rare one is believed seldom."""
    labels = Categories(("tea", "coffee", "water", "juice"))
    randomizer = GridResponse(domain=labels, epsilon=1.0)
    values = ["tea"] * 8_000 + ["coffee"] * 1_500 + ["water"] * 300 + ["juice"] * 200
    reports = randomizer.randomize(values, seeded(1))
    plainly, learned = (
        float((randomizer.estimate(reports, how) != np.array(values)).mean())
        for how in (plain(randomizer), "learned")
    )
    assert learned < 0.21
    assert plainly > 0.5
    assert (
        labels.values(numbers(randomizer, reports, "learned").astype(int)) == "tea"
    ).mean() > 0.9


def test_products_learn_field_by_field() -> None:
    """Each field of a product is read by itself, as its own randomizer would read it."""
    drinks = Categories(("tea", "coffee"))
    parts = {"place": MADE["square, bounded"], "drink": GridResponse(domain=drinks, epsilon=2.0)}
    domain = Product({"place": SQUARE, "drink": drinks})
    randomizer = FieldwiseResponse(domain=domain, parts=parts)
    values = {"place": clustered(SQUARE, 3_000), "drink": ["tea"] * 2_900 + ["coffee"] * 100}
    reports = randomizer.randomize(values, seeded(2))
    found = randomizer.estimate(reports, "learned")
    alone = randomizer.parts["place"].estimate(randomizer.split_reports(reports)[0], "learned")
    assert (found["place"] == alone).all()
    plainly = randomizer.estimate(reports)
    errors = [misses(one["place"], values["place"]).mean() for one in (found, plainly)]  # type: ignore[arg-type]
    assert errors[0] < errors[1]
    rows = numbers(randomizer, reports, "learned")
    assert (rows[:, :2] == found["place"]).all()
    assert (np.array(["tea", "coffee"])[rows[:, 2].astype(int)] == found["drink"]).all()


@pytest.mark.parametrize(
    ("domain", "offered"),
    [(CUBE, True), (Box((0.0,) * 4, (1.0,) * 4), False), (Categories(("a", "b")), True)],
)
def test_offered_where_cells_are_fine_enough(domain: Domain, *, offered: bool) -> None:
    """Above three dimensions there is no learned decode, and asking for it is an error."""
    made: Randomizer
    if isinstance(domain, Categories):
        made = GridResponse(domain=domain, epsilon=1.0)
    else:
        made = BoundedResponse(domain=domain, epsilon=1.0, radius=0.5)  # type: ignore[arg-type]
    assert ("learned" in made.decodes) == offered
    assert "learned" not in made.plain_decodes
    if not offered:
        with pytest.raises(Misuse, match="are decoded by"):
            made.estimate(np.zeros((1, made.width), dtype=np.int64), "learned")


def test_impossible_reports_are_refused() -> None:
    """A report beyond the range of the mechanism is an error and never a wrong estimate."""
    made = MADE["square, bounded"]
    with pytest.raises(Misuse, match="some reports are impossible"):
        made.estimate(np.array([[2**40, 0], [0, 0]]), "learned")
    with pytest.raises(Misuse, match="use a prior"):
        made.estimate(np.zeros((1, 2), dtype=np.int64), "raw", prior=object())  # type: ignore[arg-type]


def test_a_mechanism_may_have_it_as_its_own_decode() -> None:
    """`decode="learned"` survives the parameters and is what `estimate` then does."""
    randomizer = BoundedResponse(domain=SQUARE, epsilon=2.0, radius=0.4, decode="learned")
    assert from_params(randomizer.params()) == randomizer
    reports = randomizer.randomize(clustered(SQUARE, 2_000), seeded(1))
    assert (randomizer.estimate(reports) == randomizer.estimate(reports, "learned")).all()
    assert randomizer.expected_error() == randomizer.expected_error("median")


def test_the_geometric_median() -> None:
    """Weiszfeld's iteration finds the place with the least mean distance."""
    draw = np.random.default_rng(3)
    places = np.stack(np.meshgrid(np.arange(12.0), np.arange(9.0)), axis=-1).reshape(-1, 2)
    weights = draw.random((5, len(places))) ** 6
    weights /= weights.sum(axis=1, keepdims=True)
    found = geometric_median(weights, places)
    tries = np.stack(np.meshgrid(np.linspace(0, 11, 67), np.linspace(0, 8, 49)), -1).reshape(-1, 2)
    table = np.linalg.norm(tries[:, None] - places, axis=-1) @ weights.T
    ours = (np.linalg.norm(found[:, None] - places, axis=-1) * weights).sum(axis=1)
    assert (ours <= 1.005 * table.min(axis=0)).all()


def test_a_grid_of_a_few_large_cells_is_read_plainly() -> None:
    """Its reports tell too little of where people are, whatever the crowd; a prior still helps."""
    randomizer = GridResponse(domain=SQUARE, epsilon=3.0, cells=(2, 2))
    values = clustered(SQUARE, 4_000)
    reports = randomizer.randomize(values, seeded(8))
    assert "cells" in decode_batch(randomizer, reports).words
    assert (randomizer.estimate(reports, "learned") == randomizer.estimate(reports, "median")).all()
    assert decode_batch(randomizer, reports, prior=Prior.from_points(values)).places is not None


@pytest.mark.parametrize("decoys", [1, 3])
@pytest.mark.parametrize("kind", ["grid", "codebook"])
def test_decoys_are_read_as_what_they_are(kind: str, decoys: int) -> None:
    """The density is that of people, and the chance of a report is what Bayes says."""
    rng, square = np.random.default_rng(3), Box((-1.0, -1.0), (1.0, 1.0))
    middles = (np.arange(5) + 0.5) / 5 * 2 - 1
    points = np.stack(np.meshgrid(middles, middles, indexing="ij"), axis=-1).reshape(-1, 2)
    made: GridResponse | CodebookResponse = GridResponse(domain=square, epsilon=4.0, cells=(5, 5))
    if kind == "codebook":
        snapped = tuple(map(tuple, square.snap(points).tolist()))
        made = CodebookResponse(domain=square, epsilon=4.0, points=snapped)
    people = np.clip(rng.normal([0.5, -0.5], 0.25, size=(6_000, 2)), -1, 1)
    own = made.randomize(people, seeded(1))
    names = rng.integers(0, 5, size=(len(own) * decoys, own.shape[1]))
    if kind == "codebook":
        names = rng.integers(0, 25, size=(len(own) * decoys, 1))
    messages = np.concatenate([own, names])
    with_decoys = decode_batch(made, messages, decoys=decoys)
    without = decode_batch(made, own)
    assert with_decoys.learned
    ends = with_decoys.cells.places
    for axis in range(2):
        means = [float(batch.density @ ends[:, axis]) for batch in (with_decoys, without)]
        assert means[0] == pytest.approx(means[1], abs=0.06)
    of = batch_belief(made, messages, decoys=decoys)
    is_own = np.arange(len(messages)) < len(own)
    for kind_of in np.unique(of.kinds):
        mine = of.kinds == kind_of
        share, spread = is_own[mine].mean(), 4 * 0.5 / math.sqrt(mine.sum())
        assert abs(of.real[kind_of] - share) < spread + 0.03
    assert (of.real[of.kinds]).mean() == pytest.approx(1 / (decoys + 1), abs=0.02)
