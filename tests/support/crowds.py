"""Laws and small crowds for the tests of the accountant, enumerated in full."""

import itertools
import math
from collections.abc import Iterator, Sequence
from decimal import Decimal, localcontext

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from coatcheck.accounting.laws import (
    AnyLdp,
    Channel,
    Clones,
    Fieldwise,
    Law,
    OwnCoin,
    Pair,
    Ratios,
    TwoLevel,
    WithDecoys,
    bounded,
    grid,
    minkowski,
)
from coatcheck.accounting.noise_laws import laplace, planar_laplace

Array = NDArray[np.float64]
NORMS = st.sampled_from([1.0, 2.0, 3.0, math.inf])


def two_level(caps: Sequence[frozenset[int]], reports: int, epsilon: float) -> Array:
    """Return the channel of a mechanism with these caps: a row per input, a column per report."""
    p = math.exp(epsilon)
    rows = np.ones((len(caps), reports))
    for row, cap in zip(rows, caps, strict=True):
        row[list(cap)] = p
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def law_of(caps: Sequence[frozenset[int]], reports: int, epsilon: float) -> TwoLevel:
    """Return the law that such a mechanism states to the accountant."""
    size = len(caps[0])
    total = size * math.exp(epsilon) + reports - size
    apart = max(len(a - b) for a in caps for b in caps)
    kernel = len(frozenset.intersection(*caps))
    return TwoLevel(
        epsilon=epsilon,
        cap=size / total,
        apart=apart / total,
        kernel=kernel / total,
        reached=True,
    )


def minkowski_caps(steps: int, radius: int, dimension: int) -> tuple[list[frozenset[int]], int]:
    """Lay out Minkowski response on the lattice points of a cube, and count its reports."""
    side = 2 * (steps + radius) + 1
    return _boxes(range(-steps, steps + 1), radius, dimension, side), side**dimension


def bounded_caps(steps: int, radius: int, dimension: int) -> tuple[list[frozenset[int]], int]:
    """Lay out bounded response: caps pushed inside the lattice points of a cube."""
    side = 2 * steps + 1
    centres = range(-(steps - radius), steps - radius + 1)
    return _boxes(centres, radius, dimension, side), side**dimension


def grid_caps(cells: int) -> tuple[list[frozenset[int]], int]:
    """Lay out k-ary response."""
    return [frozenset([cell]) for cell in range(cells)], cells


def _boxes(centres: range, radius: int, dimension: int, side: int) -> list[frozenset[int]]:
    half = side // 2
    found = []
    for centre in itertools.product(centres, repeat=dimension):
        spans = [range(c - radius + half, c + radius + half + 1) for c in centre]
        points = itertools.product(*spans)
        found.append(frozenset(sum(x * side**i for i, x in enumerate(q)) for q in points))
    return found


def worst_delta(channel: Array, crowd: int, epsilon: float, *, decoys: int = 0) -> float:
    """Return the largest δ over all pairs of inputs and all data sets of the others, exactly.

    So many decoys, uniform reports, are among the reports; they belong to no person.
    """
    e = math.exp(epsilon)
    inputs = range(len(channel))
    uniform = np.full(channel.shape[1], 1 / channel.shape[1])
    worst = 0.0
    for reports in _others(channel, crowd - 1, room=decoys):
        law = reports
        for _ in range(decoys):
            law = _add(law, uniform)
        seen = [_add(law, row) for row in channel]
        for one, two in itertools.permutations(inputs, 2):
            worst = max(worst, float(np.maximum(seen[one] - e * seen[two], 0).sum()))
    return worst


def _others(channel: Array, people: int, *, room: int = 0) -> Iterator[Array]:
    """Yield the law of the histogram of reports for each data set of the others."""
    for data in itertools.combinations_with_replacement(range(len(channel)), people):
        yield histogram(channel, data, room=room)


def histogram(channel: Array, data: Sequence[int], *, room: int = 0) -> Array:
    """Return the law of the histogram of the reports of people with these values.

    It has room for one more report, and for as many besides.
    """
    law = np.zeros((len(data) + 2 + room,) * channel.shape[1])
    law[(0,) * channel.shape[1]] = 1.0
    for value in data:
        law = _add(law, channel[value])
    return law


def _add(law: Array, row: Array) -> Array:
    """Add the report of one more person; no count may exceed the end of its axis."""
    return np.asarray(sum(chance * np.roll(law, 1, axis=axis) for axis, chance in enumerate(row)))


@st.composite
def any_law(draw: st.DrawFn) -> Law:
    """Draw any law that a randomizer of the library can state."""
    epsilon = draw(st.floats(0.01, 12))
    dimension = draw(st.integers(1, 8))
    known: list[AnyLdp | TwoLevel | Clones] = [
        AnyLdp(epsilon=epsilon),
        Clones(epsilon=epsilon),
        minkowski(
            epsilon,
            radius=draw(st.floats(0.02, 6)),
            dimension=dimension,
            norm=draw(NORMS),
        ),
        bounded(epsilon, radius=draw(st.floats(0.02, 1)), dimension=dimension, norm=draw(NORMS)),
        grid(epsilon, cells=draw(st.integers(2, 10_000))),
    ]
    law = draw(st.sampled_from(known))
    if draw(st.booleans()):
        return OwnCoin(law=law, rate=draw(st.floats(0.01, 1)))
    return law


def sixty_digits(one: Pair, size: int, epsilon: float) -> float:
    """Return (1/n) E[(G_1 + ... + G_n)_+], summed over every outcome with 60 digits."""
    with localcontext() as digits:
        digits.prec = 60
        p, e = Decimal(one.epsilon).exp(), Decimal(epsilon).exp()
        scale, side, flat, deep = map(Decimal, (one.scale, one.side, one.flat, one.deep))
        none = max(Decimal(0), 1 - 2 * side - flat - deep)
        values = [scale * (p - e), scale * (1 - p * e), 1 - e, p * (1 - e)]
        found = Decimal(0)
        for counts in itertools.product(range(size + 1), repeat=4):
            rest = size - sum(counts)
            total = sum(n * value for n, value in zip(counts, values, strict=True))
            if rest < 0 or total <= 0:
                continue
            ways = math.factorial(size) // math.prod(map(math.factorial, (*counts, rest)))
            chances = zip((*counts, rest), (side, side, flat, deep, none), strict=True)
            found += ways * total * math.prod((x**n for n, x in chances if n), start=Decimal(1))
        return float(found / size)


def any_promise(seed: int) -> tuple[Law, int, float]:
    """Draw a law, a crowd and a δ from the whole range that the accountant accepts."""
    rng = np.random.default_rng(seed)
    epsilon = float(math.exp(rng.uniform(math.log(0.01), math.log(64))))
    crowd = int(math.exp(rng.uniform(math.log(2), math.log(1e9))))
    norm, dimension = float(rng.choice([2, math.inf])), int(rng.integers(1, 7))
    fields = int(rng.integers(2, 4))
    cells = [int(k) for k in rng.integers(2, 50, fields)]
    table = rng.dirichlet(np.ones(3), size=int(rng.integers(2, 4))) + 1e-3
    axes = int(rng.integers(1, 4))
    known: list[AnyLdp | TwoLevel | Fieldwise | Ratios | Channel] = [
        AnyLdp(epsilon=epsilon),
        grid(epsilon, cells=int(math.exp(rng.uniform(math.log(2), math.log(1e5))))),
        minkowski(epsilon, radius=math.exp(rng.uniform(-3, 1.5)), dimension=dimension, norm=norm),
        bounded(epsilon, radius=float(rng.uniform(0.02, 1)), dimension=dimension, norm=norm),
        Fieldwise(laws=tuple(grid(epsilon / fields, cells=k) for k in cells)),
        Channel((table / table.sum(axis=1, keepdims=True)).tolist()),
    ]
    if rng.uniform() < 0.1:  # they have many ratios, and take longer
        known = [laplace(epsilon, dimension=axes), planar_laplace(epsilon, dimension=axes)]
    law = known[int(rng.integers(len(known)))]
    delta = float(10 ** -rng.uniform(1, 15))
    if rng.uniform() < 0.2:
        return OwnCoin(law=law, rate=float(rng.uniform(0.01, 1))), crowd, delta
    return law, crowd, delta


def any_decoys(seed: int) -> tuple[Array, WithDecoys, dict[str, int], float]:
    """Draw a small two-level mechanism with decoys: its channel, its law, a crowd and an ε_c.

    The crowd has a few corrupted and lost people, and messages that the answers give away.
    """
    rng = np.random.default_rng(seed)
    reports = int(rng.integers(2, 5))
    size = int(rng.integers(1, reports)) if rng.random() < 0.4 else 1
    caps = [frozenset(rng.permutation(reports)[:size].tolist()) for _ in range(3)]
    if size == 1 or len(set(caps)) == 1:
        caps, reports = grid_caps(reports)
    local = float(rng.choice([rng.uniform(0.05, 3), rng.uniform(0.5, 12)]))
    each = int(rng.integers(1, 3 if reports < 4 else 2))
    most = {2: 6, 3: 4, 4: 3}[reports]
    honest = int(rng.integers(2, most + 1)) if each == 1 else int(rng.integers(2, most))
    people = {
        "corrupted": int(rng.integers(0, 3)),
        "lost": int(rng.integers(0, 2)),
        "exposed": int(rng.integers(0, each * honest)) if rng.random() < 0.3 else 0,
    }
    people["crowd"] = honest + people["corrupted"] + people["lost"]
    law = WithDecoys(law=law_of(caps, reports, local), each=each)
    return two_level(caps, reports, local), law, people, float(rng.uniform(0.02, 0.98)) * local


def worst_with_decoys(
    channel: Array, law: WithDecoys, people: dict[str, int], epsilon: float
) -> float:
    """Return the largest δ of such a crowd, whichever messages the answers give away."""
    honest = people["crowd"] - people["corrupted"] - people["lost"]
    return max(
        worst_delta(
            channel,
            max(1, honest - reports),
            epsilon,
            decoys=max(0, law.each * honest - (people["exposed"] - reports)),
        )
        for reports in range(min(people["exposed"], honest - 1) + 1)
    )
