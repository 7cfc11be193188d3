"""The bit-exact attack: float noise reveals the value, and our lattice noise does not.

research: y = x + uniform(-a, a) in float64 is fl(x + fl(-a + fl(2a k 2^-53))). An observer of y can
count, for a candidate x, the k near the expected one that give y bit for bit; many candidates
give none, and are excluded with certainty. The twin below is what one would write at first.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.randomizers import MinkowskiResponse

Floats = NDArray[np.float64]

SQUARE = Box((-1, -1), (1, 1))
TRIALS = 20_000
NEAR_TWINS = ((0.1, 0.1), (0.1000001, 0.1))
FAR_APART = ((0.3, -0.2), (-0.4, 0.6))


def naive_report(values: Floats, radius: float, mixing: float, seed: int) -> Floats:
    """Minkowski response in floats, as a careful person would write it with numpy."""
    rng = np.random.default_rng(seed)
    near = values + rng.uniform(-radius, radius, values.shape)
    far = rng.uniform(-(1 + radius), 1 + radius, values.shape)
    return np.where(rng.random(len(values))[:, None] < mixing, near, far)


def ways(reports: Floats, center: Floats, half: float) -> NDArray[np.int64]:
    """Count the 53-bit draws within 24 of the expected one that give each report bit for bit."""
    expected = np.rint((reports - center + half) / (2 * half) * 2.0**53)
    total = np.zeros(reports.shape, dtype=np.int64)
    for shift in range(-24, 25):
        draw = np.clip(expected + shift, 0, 2.0**53 - 1)
        total += center + (-half + (2 * half) * (draw * 2.0**-53)) == reports
    return total


def likelihood(reports: Floats, value: Floats, radius: float, mixing: float) -> Floats:
    """Return how many draws of the naive sampler lead from a value to each report."""
    near = ways(reports, value, radius).prod(axis=1)
    far = ways(reports, np.zeros(2), 1 + radius).prod(axis=1)
    # Both count draws out of 2^53 an axis, so they are probabilities in one unit.
    return np.asarray(mixing * near + (1 - mixing) * far, dtype=np.float64)


def success(first: Floats, second: Floats, truth: NDArray[np.bool_]) -> float:
    """Return how often the likelier candidate is the true one; a tie is a coin toss."""
    return float(np.where(first == second, 0.5, (first > second) == truth).mean())


def optimum(randomizer: MinkowskiResponse, pair: tuple[Floats, Floats]) -> float:
    """Return the best success with real numbers: (1 + total variation)/2 for two square caps."""
    side = 2 * randomizer.radius
    overlap = np.maximum(side - np.abs(pair[0] - pair[1]), 0).prod() / side**2
    return float((1 + randomizer.mixing * (1 - overlap)) / 2)


@pytest.mark.parametrize(("epsilon", "radius"), [(1.0, 1.3), (3.0, 1.0), (5.0, 0.6)])
@pytest.mark.parametrize("pair", [NEAR_TWINS, FAR_APART], ids=["twins", "apart"])
def test_the_attack_wins_against_floats_and_not_against_the_lattice(
    epsilon: float, radius: float, pair: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """One report tells float inputs apart beyond ε; a lattice report does not.

    Against ours: at most the real-number optimum plus three standard errors, for the bit-exact
    attack on the decoded floats and for the likelihood of the exact masses. Seeds fixed; with
    fresh ones a sound mechanism would fail in 0.14 % of cases.
    """
    ours = MinkowskiResponse(domain=SQUARE, epsilon=epsilon, radius=radius, decode="raw")
    candidates = np.array(pair[0]), np.array(pair[1])
    truth = seeded(1).below(2, TRIALS) == 0
    values = np.where(truth[:, None], *candidates)
    best = optimum(ours, candidates)
    slack = 3 * math.sqrt(best * (1 - best) / TRIALS)

    naive = naive_report(values, ours.radius, ours.mixing, seed=2)
    scores = [likelihood(naive, x, ours.radius, ours.mixing) for x in candidates]
    assert success(scores[0], scores[1], truth) > best + 0.05

    reports = ours.randomize(values, seeded(3))
    decoded = ours.estimate(reports, "raw")
    scores = [likelihood(decoded, x, ours.radius, ours.mixing) for x in candidates]
    assert success(scores[0], scores[1], truth) <= best + slack

    points = [np.repeat(SQUARE.snap([x]), TRIALS, axis=0) for x in candidates]
    masses = [ours.density(reports, point) for point in points]
    assert success(masses[0], masses[1], truth) <= best + slack


def test_the_attack_excludes_inputs_with_certainty() -> None:
    """Many float reports are impossible from a neighbour 1e-7 away: they keep no ε at all."""
    ours = MinkowskiResponse(domain=SQUARE, epsilon=3.0, radius=0.6, decode="raw")
    here, there = (np.array(x) for x in NEAR_TWINS)
    naive = naive_report(np.tile(here, (TRIALS, 1)), ours.radius, ours.mixing, seed=4)
    impossible = likelihood(naive, there, ours.radius, ours.mixing) == 0
    possible = likelihood(naive, here, ours.radius, ours.mixing) > 0
    assert possible.all()
    assert impossible.mean() > 0.1
    lattice = [SQUARE.snap([x]) for x in NEAR_TWINS]
    assert (lattice[0] == lattice[1]).all()
