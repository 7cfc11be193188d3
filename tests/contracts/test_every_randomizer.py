"""The contract of every randomizer: a new one is tested by being registered."""

import json
import math
from typing import Any

import numpy as np
import pytest

from coatcheck.domains import Ball, Box, Categories, Domain, Product
from coatcheck.entropy import seeded, system
from coatcheck.errors import Misuse
from coatcheck.randomizers import (
    REGISTRY,
    FieldwiseResponse,
    Randomizer,
    candidates,
    fieldwise,
    from_params,
    posterior_mean,
)

DOMAINS: list[Domain] = [
    Box((0,), (5,)),
    Box((-1, -1), (1, 1)),
    Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0),
    Box((-1.0,) * 4, (1.0,) * 4),
    Ball(radius=2.0, p=2, dimension=3),
    Ball(radius=0.1, p=1, dimension=6),
    Ball(radius=1.0, p=3, dimension=2),
    Categories(("a", "b", "c")),
    Product({"place": Box((-1, -1), (1, 1)), "kind": Categories(("a", "b"))}),
]


def made(name: str, domain: Domain, epsilon: float) -> Randomizer | None:
    """Make a registered mechanism on a domain, or None where it says that it does not fit."""
    kind = REGISTRY[name]
    if kind is FieldwiseResponse:
        return fieldwise(epsilon=epsilon, domain=domain) if isinstance(domain, Product) else None
    try:
        return kind(domain=domain, epsilon=epsilon)  # type: ignore[call-arg] # every mechanism's
    except Misuse:
        return None


CASES = [
    randomizer
    for name in REGISTRY
    for domain in DOMAINS
    for epsilon in (1.0, 5.0)
    if (randomizer := made(name, domain, epsilon)) is not None
]


def label(randomizer: Randomizer) -> str:
    """Name a case."""
    domain = randomizer.domain
    unit = getattr(domain, "unit", "")
    where = f"{type(domain).__name__}{domain.dimension}{getattr(domain, 'p', '')}{unit}"
    return f"{randomizer.name}-{where}-{randomizer.epsilon:g}"


every_case = pytest.mark.parametrize("randomizer", CASES, ids=label)
numeric_case = pytest.mark.parametrize(
    "randomizer", [case for case in CASES if isinstance(case.domain, Box | Ball)], ids=label
)


def some_values(domain: Domain, size: int, seed: int = 1) -> Any:
    """Values spread over a domain, in the user's units."""
    entropy = seeded(seed)
    if isinstance(domain, Categories):
        return [domain.labels[k] for k in entropy.below(len(domain.labels), size)]
    if isinstance(domain, Product):
        return {name: some_values(part, size) for name, part in domain.fields.items()}
    from coatcheck.randomizers.balls import unit_ball  # noqa: PLC0415 - a test's own sampler

    d = domain.dimension
    return domain.from_unit(unit_ball(domain.p, entropy.uniforms(size * (d + 1)).reshape(size, -1)))


def test_every_mechanism_fits_somewhere() -> None:
    """No registered mechanism is left untested for want of a domain."""
    assert {case.name for case in CASES} == set(REGISTRY)


@every_case
def test_parameters_survive_json_and_make_an_equal_object(randomizer: Randomizer) -> None:
    """Client and server rebuild the same mechanism from plain data."""
    plain = json.loads(json.dumps(randomizer.params()))
    again = from_params(plain)
    assert again == randomizer
    assert again.params() == randomizer.params()
    assert repr(again) == repr(randomizer)


@every_case
def test_reports_have_one_shape_and_stay_in_their_range(randomizer: Randomizer) -> None:
    """A report has a fixed width; an exact one consists of integers within stated bounds."""
    reports = randomizer.randomize(some_values(randomizer.domain, 300), seeded(2))
    assert reports.shape == (300, randomizer.width)
    assert np.isfinite(reports).all()
    if randomizer.exact:
        assert reports.dtype == np.int64
        assert (reports >= randomizer.low).all()
        assert (reports <= randomizer.high).all()
        assert randomizer.report_bits <= 64 * randomizer.width


@every_case
def test_a_seed_repeats_and_the_system_does_not(randomizer: Randomizer) -> None:
    """Equal seeds give equal reports; the system's randomness gives others."""
    values = some_values(randomizer.domain, 200)
    first = randomizer.randomize(values, seeded(7))
    assert (first == randomizer.randomize(values, seeded(7))).all()
    assert (first != randomizer.randomize(values, system())).any()


@every_case
def test_the_promise_is_stated_and_consistent(randomizer: Randomizer) -> None:
    """What is spent is at most what was asked, and bounds the total variation."""
    assert randomizer.epsilon_spent <= randomizer.epsilon
    assert randomizer.law.epsilon <= randomizer.epsilon * (1 + 1e-15)
    generic = math.tanh(randomizer.epsilon / 2)
    assert 0 <= randomizer.total_variation <= generic + 1e-9


@every_case
def test_densities_of_two_inputs_differ_by_at_most_e_to_epsilon(randomizer: Randomizer) -> None:
    """Reports drawn from one value are at most e^ε likelier from it than from another."""
    values = some_values(randomizer.domain, 400)
    domain = randomizer.domain
    points = domain.snap(values)
    reports = randomizer.respond(points, seeded(3))
    here = randomizer.density(reports, points)
    there = randomizer.density(reports, np.roll(points, 1, axis=0))
    assert (here > 0).all()
    assert (there > 0).all()
    ratio = np.abs(np.log(here) - np.log(there)).max()
    assert ratio <= randomizer.epsilon * (1 + 1e-6) + 1e-9


@every_case
def test_one_value_is_treated_like_many(randomizer: Randomizer) -> None:
    """The light path gives reports of the same shape and range as the bulk path."""
    values = some_values(randomizer.domain, 1)
    one = {k: v[0] for k, v in values.items()} if isinstance(values, dict) else values[0]
    report = np.array([randomizer.randomize_one(one, seeded(5))])
    assert report.shape == (1, randomizer.width)
    randomizer.estimate(report)


@numeric_case
def test_every_decode_returns_places_in_the_users_units(randomizer: Randomizer) -> None:
    """Each way to read a report works, `project` stays inside, and unknown ways are refused."""
    domain = randomizer.domain
    assert isinstance(domain, Box | Ball)
    reports = randomizer.randomize(some_values(domain, 200), seeded(4))
    for how in randomizer.decodes:
        estimates = randomizer.estimate(reports, how)
        assert estimates.shape == (200, domain.dimension)
        assert np.isfinite(estimates).all()
        if how in {"project", "median"}:
            domain.snap(estimates * (1 - 1e-12) if isinstance(domain, Ball) else estimates)
    with pytest.raises(Misuse, match="is read by"):
        randomizer.estimate(reports, "guess")  # type: ignore[arg-type]


@numeric_case
def test_the_unbiased_estimate_is_right_on_average(randomizer: Randomizer) -> None:
    """The mean of many estimates of one value is that value.

    Five standard errors an axis; false alarm below 1e-6 an axis, seed fixed.
    """
    if "unbiased" not in randomizer.decodes:
        return
    domain = randomizer.domain
    assert isinstance(domain, Box | Ball)
    value = some_values(domain, 3)[-1:]
    point = domain.snap(value)
    reports = randomizer.respond(np.repeat(point, 40_000, axis=0), seeded(6))
    estimates = randomizer.estimate(reports, "unbiased")
    error = estimates.std(axis=0) / math.sqrt(len(estimates))
    assert (np.abs(estimates.mean(axis=0) - domain.values(point)[0]) < 5 * error).all()


@numeric_case
def test_predicted_errors_match_what_is_drawn(randomizer: Randomizer) -> None:
    """Expected error, first and second power, of every decode: within 1.5 % and noise."""
    domain = randomizer.domain
    assert isinstance(domain, Box | Ball)
    values = some_values(domain, 40_000, seed=9)
    reports = randomizer.randomize(values, seeded(10))
    for how in randomizer.decodes:
        gaps = randomizer.estimate(reports, how) - values
        if isinstance(domain, Box) and domain.unit == "m":
            gaps = gaps * (domain.scale / ((np.array(domain.hi) - np.array(domain.lo)) / 2))
        misses = np.linalg.norm(gaps, axis=1)
        for power in (1, 2):
            drawn = misses**power
            slack = 5 * drawn.std() / math.sqrt(len(drawn)) + 0.015 * drawn.mean()
            assert abs(randomizer.expected_error(how, power=power) - drawn.mean()) < slack


@numeric_case
def test_the_worst_error_is_not_below_the_expected_one(randomizer: Randomizer) -> None:
    """No decode promises less at the worst value than it does on average."""
    for how in randomizer.decodes:
        mean = randomizer.expected_error(how)
        assert randomizer.worst_error(how) >= mean * 0.99


@every_case
def test_points_off_the_lattice_are_refused(randomizer: Randomizer) -> None:
    """A point that no value snaps to could break the promise, so it gets no report."""
    good = randomizer.domain.snap(some_values(randomizer.domain, 2))
    with pytest.raises(Misuse):
        randomizer.respond(np.array(good, dtype=float), seeded(0))
    with pytest.raises(Misuse):
        randomizer.respond(good[:, :-1] if good.shape[1] > 1 else good[:, [0, 0]], seeded(0))
    far = np.full_like(good, 2**40)
    with pytest.raises(Misuse):
        randomizer.respond(far, seeded(0))
    if randomizer.exact:
        with pytest.raises(Misuse):
            randomizer.respond_one(tuple(far[0].tolist()), seeded(0))


@pytest.mark.parametrize("name", sorted(REGISTRY))
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, 100, "1"])
def test_budgets_without_meaning_are_refused(name: str, epsilon: Any) -> None:
    """No mechanism is made for a budget that means nothing."""
    if name == "fieldwise":
        with pytest.raises(Misuse):
            fieldwise(epsilon=epsilon, domain=DOMAINS[-1])  # type: ignore[arg-type]
        return
    with pytest.raises(Misuse, match="epsilon"):
        REGISTRY[name](domain=DOMAINS[1], epsilon=epsilon)  # type: ignore[call-arg]


@pytest.mark.parametrize("randomizer", CASES[:1], ids=label)
@pytest.mark.parametrize(
    "change", [{"name": "magic"}, {"domain": None}, {"color": 1}, {"epsilon": -1}]
)
def test_parameters_that_make_no_mechanism_are_refused(
    randomizer: Randomizer, change: dict[str, Any]
) -> None:
    """Unknown names, missing domains and unknown keys are errors."""
    plain = {**randomizer.params(), **change}
    if change.get("domain", 1) is None:
        del plain["domain"]
    with pytest.raises(Misuse):
        from_params(plain)


def test_candidates_are_sorted_and_can_be_kept_exact() -> None:
    """The best comes first, and `exact=True` leaves only what services accept."""
    found = candidates(epsilon=2.0, domain=DOMAINS[1])
    assert [c.error for c in found] == sorted(c.error for c in found)
    assert all(c.randomizer.exact for c in candidates(epsilon=2.0, domain=DOMAINS[1], exact=True))
    with pytest.raises(Misuse, match="no exact mechanism"):
        candidates(epsilon=2.0, domain=DOMAINS[6], exact=True)


@numeric_case
def test_no_reading_beats_the_posterior_under_its_prior(randomizer: Randomizer) -> None:
    """Where values come from the prior, the squared error is below that of every other reading.

    Truly so in expectation; 4,000 draws with a fixed seed, 1 % of room.
    """
    places = np.asarray(some_values(randomizer.domain, 30))
    truth = places[seeded(5).below(len(places), 4_000)]
    reports = randomizer.randomize(truth, seeded(6), clamp=True)
    read = posterior_mean(randomizer, reports, prior=places)
    error = np.square(read - truth).sum(axis=1).mean()
    for how in randomizer.decodes:
        other = np.square(randomizer.estimate(reports, how) - truth).sum(axis=1).mean()
        assert error <= 1.01 * other
