"""The contract of every mechanism: a new one is tested by being registered, or as a baseline."""

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from coatcheck.domains import Ball, Box, Categories, Domain, Floats, Product
from coatcheck.entropy import seeded, system
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    REGISTRY,
    BoundedResponse,
    CodebookResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    candidates,
    fieldwise,
    from_params,
    posterior_mean,
    tuned,
)
from coatcheck.randomizers.baselines import BASELINES
from coatcheck.randomizers.expected_error import unit_ball
from support.tiers import mostly_slow

SQUARE = Box((-1, -1), (1, 1))
ODD = Ball(radius=1.0, p=3, dimension=2)
CITY = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
ROUND = Ball(radius=2.0, p=2, dimension=3)
LABELS = Product({"kind": Categories(("a", "b")), "size": Categories(("s", "m", "l"))})
DOMAINS: list[Domain] = [
    Box((0,), (5,)),
    SQUARE,
    CITY,
    Box((-1.0,) * 4, (1.0,) * 4),
    ROUND,
    Ball(radius=0.1, p=1, dimension=6),
    ODD,
    Categories(("a", "b", "c")),
    Product({"place": Box((-1, -1), (1, 1)), "kind": Categories(("a", "b"))}),
]
# A coin stands before any of them: tests/randomizers/test_coin.py.
KINDS: dict[str, Any] = {**REGISTRY, **{kind.name: kind for kind in BASELINES}}
del KINDS["coin"]
SEARCHED = (MinkowskiResponse, BoundedResponse, GridResponse)
BUDGETS = (1.0, 5.0)


@cache
def made(name: str, domain: Domain, epsilon: float) -> Randomizer:
    """Return a mechanism on a domain, at its best where it has a radius or a grid."""
    kind = KINDS[name]
    if kind is FieldwiseResponse:
        assert isinstance(domain, Product)
        return fieldwise(epsilon=epsilon, domain=domain)
    if kind is CodebookResponse:
        assert isinstance(domain, Box | Ball)
        public = some_values(domain, 200, seed=8)
        return CodebookResponse.placed(domain=domain, epsilon=epsilon, points=public, size=9)
    found: Randomizer = (
        tuned(kind, domain=domain, epsilon=epsilon)
        if kind in SEARCHED
        else kind(domain=domain, epsilon=epsilon)
    )
    return found


def fits(name: str, domain: Domain) -> bool:
    """Return whether a mechanism works on a domain."""
    if name == "fieldwise":
        return isinstance(domain, Product)
    if name == "grid":
        return isinstance(domain, Box | Categories)
    if name == "sphere":
        return isinstance(domain, Ball) and domain.p == 2
    return isinstance(domain, Box | Ball)


def label(what: Any) -> str:
    """Name a mechanism or a domain."""
    if isinstance(what, str):
        return what
    unit = getattr(what, "unit", "")
    return f"{type(what).__name__}{what.dimension}{getattr(what, 'p', '')}{unit}"


PAIRS = [(name, domain) for name in KINDS for domain in DOMAINS if fits(name, domain)]
NUMERIC = [(name, domain) for name, domain in PAIRS if isinstance(domain, Box | Ball)]


def is_quick(case: tuple[str, Domain]) -> bool:
    """Return whether `make test` draws from it: a line, a city and a ball, or one for a baseline.

    What services accept is what people's privacy rests on; `make slow` has every domain. The
    sphere's crowd takes long to read, and has a file of its own.
    """
    name, domain = case
    if name == "sphere":
        return False
    quick = [DOMAINS[0], CITY, ROUND] if name in REGISTRY else [SQUARE]
    return domain in quick or not isinstance(domain, Box | Ball)


every_pair = pytest.mark.parametrize(("name", "domain"), PAIRS, ids=label)
quick_pair = pytest.mark.parametrize(
    ("name", "domain"), mostly_slow(PAIRS, quick=is_quick), ids=label
)
numeric_pair = pytest.mark.parametrize(
    ("name", "domain"), mostly_slow(NUMERIC, quick=is_quick), ids=label
)


def some_values(domain: Domain, size: int, seed: int = 1) -> Any:
    """Return values spread over a domain, in the user's units."""
    entropy = seeded(seed)
    if isinstance(domain, Categories):
        return [domain.labels[k] for k in entropy.below(len(domain.labels), size)]
    if isinstance(domain, Product):
        return {name: some_values(part, size) for name, part in domain.fields.items()}
    d = domain.dimension
    return domain.from_unit(unit_ball(domain.p, entropy.uniforms(size * (d + 1)).reshape(size, -1)))


def distances(domain: Box | Ball, estimates: Floats, values: Floats) -> Floats:
    """Return distances in the unit of the domain: metres where values are degrees."""
    ones = np.ones((1, domain.dimension))
    length = domain.scale / (domain.from_unit(ones) - domain.from_unit(0 * ones))
    found: Floats = np.linalg.norm((estimates - values) * length, axis=1)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_a_mechanism_is_refused_where_it_does_not_fit(name: str) -> None:
    """On every domain of another kind its constructor gives an error."""
    for domain in DOMAINS:
        if not fits(name, domain):
            given: dict[str, Any] = {"parts": {}} if name == "fieldwise" else {"epsilon": 1.0}
            more: dict[str, Any] = {"radius": 0.5} if name in {"minkowski", "bounded"} else {}
            more = {"points": ()} if name == "codebook" else more
            with pytest.raises(Misuse, match="works on"):
                KINDS[name](domain=domain, **given, **more)


@every_pair
def test_parameters_and_promise(name: str, domain: Domain) -> None:
    """Plain data makes an equal mechanism; it spends at most the requested budget.

    Reports drawn from one value are at most e^ε likelier from it than from another.
    """
    for epsilon in BUDGETS:
        randomizer = made(name, domain, epsilon)
        plain = json.loads(json.dumps(randomizer.params()))
        if name in REGISTRY:
            again = from_params(plain)
            assert (again, again.params(), repr(again)) == (
                randomizer,
                randomizer.params(),
                repr(randomizer),
            )
        else:
            with pytest.raises(Misuse, match="a randomizer is one of"):
                from_params(plain)
        assert randomizer.epsilon == pytest.approx(epsilon, rel=1e-12)
        assert randomizer.epsilon_spent <= randomizer.epsilon
        assert randomizer.law.epsilon <= randomizer.epsilon * (1 + 1e-15)
        assert 0 <= randomizer.total_variation <= math.tanh(epsilon / 2) + 1e-9
        points = domain.snap(some_values(domain, 400))
        reports = randomizer.respond(points, seeded(3))
        here = randomizer.density(reports, points)
        there = randomizer.density(reports, np.roll(points, 1, axis=0))
        assert (here > 0).all()
        assert (there > 0).all()
        assert np.abs(np.log(here) - np.log(there)).max() <= epsilon * (1 + 1e-6) + 1e-9


@quick_pair
def test_reports(name: str, domain: Domain) -> None:
    """One width, stated bounds, equal for equal seeds; one value, none, and invalid ones."""
    for epsilon in BUDGETS:
        randomizer = made(name, domain, epsilon)
        values = some_values(domain, 300)
        reports = randomizer.randomize(values, seeded(2))
        assert reports.shape == (300, randomizer.width)
        assert np.isfinite(reports).all()
        if randomizer.exact:
            assert reports.dtype == np.int64
            assert (reports >= randomizer.low).all()
            assert (reports <= randomizer.high).all()
            assert randomizer.report_bits <= 64 * randomizer.width
        assert (reports == randomizer.randomize(values, seeded(2))).all()
        assert (reports != randomizer.randomize(values, system())).any()
        with pytest.raises(Misuse, match=r"seeded\(n\)"):
            randomizer.randomize(values, np.random.default_rng(2))  # type: ignore[arg-type]
        one = {k: v[0] for k, v in values.items()} if isinstance(values, dict) else values[0]
        report = np.array([randomizer.randomize_one(one, seeded(5))])
        assert report.shape == (1, randomizer.width)
        randomizer.estimate(report)
        points = domain.snap(values)[:2]
        assert randomizer.respond(points[:0], seeded(0)).shape == (0, randomizer.width)
        far = np.full_like(points, 2**40)
        wide = points[:, :-1] if points.shape[1] > 1 else points[:, [0, 0]]
        for wrong in (points.astype(float), wide, far):
            with pytest.raises(Misuse, match="points"):
                randomizer.respond(wrong, seeded(0))
        if randomizer.exact:
            with pytest.raises(Misuse):
                randomizer.respond_one(tuple(far[0].tolist()), seeded(0))


@numeric_pair
def test_readings(name: str, domain: Box | Ball) -> None:
    """Each decoder gives places in the user's units; the unbiased one is right on average.

    Five standard errors per axis: false alarm below 1e-6 per axis, seeds fixed. Where values come
    from a prior, no reading has a smaller squared error than the posterior (1 % of room).
    """
    for epsilon in BUDGETS:
        randomizer = made(name, domain, epsilon)
        places = np.asarray(some_values(domain, 30))
        truth = places[seeded(5).below(len(places), 4_000)]
        reports = randomizer.randomize(truth, seeded(6), clamp=True)
        read = posterior_mean(randomizer, reports, prior=places)
        error = np.square(read - truth).sum(axis=1).mean()
        for how in randomizer.plain_decodes:
            estimates = randomizer.estimate(reports, how)
            assert estimates.shape == truth.shape
            assert np.isfinite(estimates).all()
            if how in {"project", "median"}:
                domain.snap(estimates * (1 - 1e-12) if isinstance(domain, Ball) else estimates)
            assert error <= 1.01 * np.square(estimates - truth).sum(axis=1).mean()
        with pytest.raises(Misuse, match="are decoded by"):
            randomizer.estimate(reports, "guess")  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="shape"):
            randomizer.estimate(reports[:, :-1])
        if "unbiased" in randomizer.decodes:
            point = domain.snap(some_values(domain, 3)[-1:])
            drawn = randomizer.respond(np.repeat(point, 40_000, axis=0), seeded(6))
            estimates = randomizer.estimate(drawn, "unbiased")
            slack = 5 * estimates.std(axis=0) / math.sqrt(len(estimates))
            assert (np.abs(estimates.mean(axis=0) - domain.values(point)[0]) < slack).all()


@numeric_pair
def test_predictions(name: str, domain: Box | Ball) -> None:
    """Predicted errors agree with the drawn ones within 1.5 % and five standard errors.

    The worst error is not below what is drawn at the middle, on any axis or at a corner.
    """
    values = some_values(domain, 40_000, seed=9)
    d = domain.dimension
    corner = np.full((1, d), d ** (-1 / domain.p))
    extremes = domain.from_unit(np.concatenate([np.zeros((1, d)), np.eye(d), corner]))
    places = np.repeat(extremes, 4_000, axis=0)
    for epsilon in BUDGETS:
        randomizer = made(name, domain, epsilon)
        reports = randomizer.randomize(values, seeded(10))
        at_places = randomizer.randomize(places, seeded(11), clamp=True)
        for how in randomizer.plain_decodes:
            misses = distances(domain, randomizer.estimate(reports, how), values)
            for power in (1, 2):
                drawn = misses**power
                slack = 5 * drawn.std() / math.sqrt(len(drawn)) + 0.015 * drawn.mean()
                assert abs(randomizer.expected_error(how, power=power) - drawn.mean()) < slack
            worst = randomizer.worst_error(how)
            assert worst >= randomizer.expected_error(how) * 0.99
            there = distances(domain, randomizer.estimate(at_places, how), places)
            for drawn in there.reshape(len(extremes), -1):
                room = 5 * drawn.std() / math.sqrt(len(drawn)) + 0.015 * drawn.mean()
                assert worst >= drawn.mean() - room


@pytest.mark.parametrize("name", KINDS)
def test_budgets(name: str) -> None:
    """Python and numpy numbers are budgets; meaningless values are refused."""

    def make(epsilon: Any) -> Randomizer:
        if name == "fieldwise":
            return fieldwise(epsilon=epsilon, domain=LABELS)
        cap: dict[str, Any] = {"radius": 0.5}
        given = {"minkowski": cap, "bounded": cap, "grid": {"cells": (2, 2)}}
        given["codebook"] = {"points": ((0, 0), (1, 1))}
        domain = ROUND if name == "sphere" else SQUARE
        found: Randomizer = KINDS[name](domain=domain, epsilon=epsilon, **given.get(name, {}))
        return found

    for wrong in (0, -1, math.nan, math.inf, 100, 64.1, "1", None, True, np.True_, np.float32(-1)):
        with pytest.raises(Misuse, match="epsilon"):
            make(wrong)
    for right in (1, 1.0, np.float32(1), np.float64(1), np.int64(1)):
        assert make(right) == make(1.0)
        assert type(make(right).epsilon) is float
    assert make(64).epsilon == 64


@pytest.mark.parametrize(
    "change", [{"name": "magic"}, {"domain": None}, {"color": 1}, {"epsilon": -1}, {"radius": None}]
)
def test_parameters_that_make_no_mechanism_are_refused(change: dict[str, Any]) -> None:
    """Unknown names, missing domains or radii and unknown keys are errors."""
    changed = {**made("minkowski", SQUARE, 1.0).params(), **change}
    with pytest.raises(Misuse):
        from_params({name: value for name, value in changed.items() if value is not None})


def test_candidates_are_sorted_and_can_be_kept_exact() -> None:
    """The best comes first, and `exact=True` leaves only mechanisms that services accept."""
    found = candidates(epsilon=2.0, domain=SQUARE)
    assert [c.error for c in found] == sorted(c.error for c in found)
    assert all(c.randomizer.exact for c in candidates(epsilon=2.0, domain=SQUARE, exact=True))
    with pytest.raises(Misuse, match="no exact mechanism"):
        candidates(epsilon=2.0, domain=ODD, goal="worst", exact=True)
