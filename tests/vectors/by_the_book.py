"""What SPEC asks of a client that examines a promise, written from its pages alone.

This is a second implementation of section 20, with that of section 13's coins in `book_laws`. It
uses the standard library and nothing of coatcheck: rules in, numbers out, with the rule beside each
step. It writes the vectors that both clients read, so a rule that is missing or wrong in SPEC shows
as a difference.
"""

import cmath
import itertools
import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from vectors.book_laws import (
    TOSSES,
    UNIT,
    Cap,
    Kinds,
    Law,
    Refused,
    cap_of,
    heads_of,
    law_of,
)

__all__ = ["Crowd", "exposed_by", "heads_of", "keeps", "law_of"]

WIDE = 0.08  # of S20.31
EMPTY = (1e-5, 0.003, 0.05)  # of S20.32

# -- section 20: what the crowd gives


def delta_of(law: Law, n: int, epsilon: float) -> float:
    """Bound D(ε) of S20.10 by the smaller one of the law and that of any mechanism."""
    if epsilon >= law.epsilon:
        return 0.0
    return min(_of_kinds(kinds, n, math.exp(epsilon)) for kinds in (law.kinds, law.coarse))


class Crowd(NamedTuple):
    """A group of the terms."""

    minimum: int
    corrupted: int
    exposed: int
    decoys: int

    @property
    def size(self) -> int:
        """Return n of S20.9 or S20.22."""
        exposed = -(-self.exposed // max(1, self.decoys))
        return max(1, self.minimum - self.corrupted - exposed)


def keeps(params: dict[str, Any], *, promise: float, crowd: Crowd, delta: float) -> bool:
    """Check a promise with the slack of S12.10."""
    most = promise * (1 + 1e-9)
    if crowd.decoys:
        return delta_with_decoys(params, crowd.size, crowd.decoys, most) <= delta
    if params["name"] in {"grid", "codebook"} and cap_of(params)[2:4] == (1, 2):
        return delta_of_two(cap_of(params).epsilon, crowd.size, most) <= delta
    return delta_of_params(params, crowd.size, most) <= delta


def delta_of_params(params: dict[str, Any], n: int, epsilon: float) -> float:
    """Bound D(ε) of a group without decoys as S20.13 says."""
    law = law_of(params)
    rough = delta_of(law, n, epsilon)
    if params["name"] not in {"minkowski", "bounded"} or epsilon >= law.epsilon:
        return rough
    domain, caps = params["domain"], cap_of(params)
    axes = len(domain["lo"]) if domain["kind"] == "box" else domain["dimension"]
    if not caps.exact or not caps.core or axes > 8 or law.kinds == law.coarse:
        return rough
    own = _of_kinds(law.kinds, n, math.exp(epsilon))
    return min(rough, delta_of_boxes(caps, axes, n, epsilon, own))


def delta_of_two(local: float, n: int, epsilon: float) -> float:
    """D of two reports, by the blocks of S20.28."""
    if epsilon >= local:
        return 0.0
    others = n - 1
    if others < 128:
        starts = list(range(others + 1))
    else:
        even = {i * (others + 1) // 49 for i in range(50)}
        far = {math.floor((others + 1) ** (i / 49)) for i in range(50)}
        starts = sorted(k for k in {0} | even | far if k <= others)
    ends = [*starts[1:], others + 1]
    blocks = {(k, end - k - 1) for k, end in zip(starts, ends, strict=True)}
    value = {(k, w): _of_split(local, others - w, k, epsilon) for k, w in blocks}
    while len(value) < 300:
        reached = max(delta for (_, w), delta in value.items() if w == 0)
        wide = [block for block in value if block[1] and value[block] > reached * (1 + 1e-6)]
        if not wide:
            break
        for k, w in wide:
            del value[k, w]
            h = (w + 1) // 2
            for block in ((k, h - 1), (k + h, w - h)):
                value[block] = _of_split(local, others - block[1], block[0], epsilon)
    return max(value.values())


def delta_of_boxes(caps: Cap, axes: int, n: int, epsilon: float, guess: float) -> float:
    """S20.30 to S20.33: a bound on D where the caps are boxes that overlap, below `guess`."""
    p, e = math.exp(caps.epsilon), math.exp(epsilon)
    alpha = float(Fraction(TOSSES - caps.heads, TOSSES) * caps.share)
    q = float(caps.core) ** (1 / axes)
    patterns = list(_patterns(p, alpha, q, axes))
    apart = alpha * (1 - q**axes)
    pooled = [p if kind == 0 else float(in0 == in1) for kind, (in0, in1, _) in enumerate(INSIDE)]
    hidden = min(sum(map(operator.mul, masses, pooled)) for masses in patterns)
    best = 1.0
    for part in EMPTY:
        s = math.log(max(2.0, apart * (p - e) / (part * guess))) / (n - 1) / hidden
        if s < 0.9:
            taken = [s * level for level in pooled]
            best = min(best, _with_pool(patterns, taken, (p, e, apart), n))
        if s < 0.18:
            break
    return best


# Which of the nine kinds of S20.30 are in the caps of x0, of x1 and of x.
INSIDE = [(1, 1, 1), (1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
INSIDE += [(0, 0, 0)]


def _patterns(p: float, alpha: float, q: float, axes: int) -> Iterator[list[float]]:
    """List the masses of the kinds, for each pattern."""
    for i, j, k in itertools.product(range(axes + 1), repeat=3):
        if i + j + k > axes:
            continue
        every, v = q**axes, q ** (i + j + k)
        v01, v0, v1 = q ** (i + j), q ** (i + k), q ** (j + k)
        volumes = [every, v - every, v01 - v, v0 - v, v1 - v]
        volumes += [1 - v01 - v0 + v, 1 - v01 - v1 + v, 1 - v0 - v1 + v]
        masses = [alpha * max(0.0, volume) for volume in volumes]
        yield [*masses, max(0.0, 1 - (p - 1) * alpha - math.fsum(masses))]


def _with_pool(
    patterns: list[list[float]], taken: list[float], given: tuple[float, float, float], n: int
) -> float:
    """S20.31 and S20.33."""
    p, e, apart = given
    levels = [(p if inx else 1.0) - less for (*_, inx), less in zip(INSIDE, taken, strict=True)]
    g = []
    for (in0, in1, _), level in zip(INSIDE, levels, strict=True):
        one, other = (p if in0 else 1.0), (p if in1 else 1.0)
        g.append((one - e * other + 16 * UNIT * (one + e * other)) / level)
    g = [max(value, -n * max(g)) for value in g]
    masses = [list(map(operator.mul, pattern, levels)) for pattern in patterns]
    pools = [sum(map(operator.mul, pattern, taken)) for pattern in patterns]
    most = max(pools) * (1 + 1e-9)

    def more(c: float) -> list[float]:
        grown = [math.expm1(c * value) for value in g]
        return [sum(map(operator.mul, m, grown)) for m in masses]

    def height(log: float) -> float:
        return n * math.log1p(max(more(math.exp(log)))) - 2 * log

    low, high = math.log(1e-9 / max(g)), math.log(600 / max(map(abs, g)))
    golden = (math.sqrt(5) - 1) / 2
    while high - low > 0.003:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if height(left) <= height(right) else (left, high)
    c = math.exp((low + high) / 2)
    excess = more(c)
    first = max(range(len(patterns)), key=excess.__getitem__)
    tilted = [
        m * math.exp(c * v) / (1 + excess[first]) for m, v in zip(masses[first], g, strict=True)
    ]
    mean = sum(map(operator.mul, tilted, g))
    variance = sum(t * v * v for t, v in zip(tilted, g, strict=True)) - mean**2
    w = WIDE / c
    step = 2 * math.pi / (13 * math.sqrt(n * variance + 16 / 12 * w * w) + 8 / c)
    past = (2 * math.cosh(c * w / 2) / 4) ** 16 / (17 * math.pi * (4 / w))
    waves = []
    for j in range(math.ceil(4 / (step * w)) + 1):
        z = complex(c, j * step)
        kernel = abs((cmath.sinh(z * w / 2) / (z * w / 2)) ** 16 / z**2)
        weight = (2 if j else 1) * step / (2 * math.pi) * kernel * (1 + 128 * UNIT)
        waves.append((weight, j * step, [cmath.exp(z * value) for value in g]))
    worst = 0.0
    for m, pool, rise in sorted(zip(masses, pools, excess, strict=True), key=lambda x: -x[2]):
        top = most * _mean_power(1 + rise, abs(1 + rise - 2 * pool) + most, n)
        if top * (sum(weight for weight, *_ in waves) + past) <= worst:
            continue
        doubt = 128 * UNIT * (1 + rise)
        speed = 128 * UNIT * sum(a * math.exp(c * v) * abs(v) for a, v in zip(m, g, strict=True))
        total = 0.0
        for weight, t, wave in waves:
            value = pool + sum(map(operator.mul, m, wave))
            sizes = abs(value) + doubt + speed * t, abs(value - most) + doubt + speed * t
            total += weight * most * _mean_power(*sizes, n)
        rounding = (
            n * 64 * UNIT * sum(a * abs(math.expm1(c * v)) for a, v in zip(m, g, strict=True))
        )
        worst = max(worst, (total + top * past) * (1 + rounding + 1e-9))
    empty: float = (1 - min(pools) * (1 - 1e-9)) ** (n - 1)
    return min(1.0, worst + empty * apart * max(0.0, p - e))


def _of_split(local: float, others: int, k: int, epsilon: float) -> float:
    """S20.29."""
    p = math.exp(local)
    q = p / (p + 1)
    a = math.exp(epsilon) * math.expm1(local - epsilon) / (p + 1) * (1 + 64 * UNIT)
    more = math.expm1(epsilon) * (1 - 64 * UNIT) / a  # ρ - 1
    rho = 1 + more
    chances = (1 - q) / (1 + q * more), q / (1 + (1 - q) * more)
    people = others - k, k
    mean = sum(count * one for count, one in zip(people, chances, strict=True))
    variance = sum(count * one * (1 - one) for count, one in zip(people, chances, strict=True))
    h = math.ceil(15 + math.sqrt(225 + 90 * variance)) + 4
    lost = 1 - 1 / rho
    power = people[0] * math.log1p(-(1 - q) * lost) + people[1] * math.log1p(-q * lost)
    rest = lost * math.exp(-h * math.log1p(more))
    best = 0.0
    for m in range(math.floor(mean), math.floor(mean) + 3):
        total = math.exp(-(h + 1) * math.log1p(more))  # j = 0
        for j in range(1, h + 1):
            t = 2 * math.pi * j / (2 * h + 1)
            if variance * (1 - math.cos(t)) > 45:
                break
            logs = sum(
                count * cmath.log(1 - one + one * cmath.exp(1j * t))
                for count, one in zip(people, chances, strict=True)
            )
            side = 1 - cmath.exp(1j * t) + rest * cmath.exp(1j * (h + 1) * t)
            below = rho - cmath.exp(1j * t)
            doubt = 64 * UNIT * (1 + (mean + m + h) * t - logs.real)
            doubt *= math.exp(logs.real) * (abs(1 - cmath.exp(1j * t)) + rest) / abs(below)
            total += 2 * ((cmath.exp(logs - 1j * m * t) * side / below).real + doubt)
        exponent = power + (m + 1) * math.log1p(more)
        rounding = 2e-11 + 64 * UNIT * (abs(exponent) + m * math.log1p(more))
        bound = total / (2 * h + 1) + 6 * math.exp(-45) / rho
        best = max(best, a * math.exp(exponent) * bound * (1 + rounding))
    return best


def _mean_power(x: float, y: float, n: int) -> float:
    """A of S20.31: the mean of x^(n - 1 - i) y^i over i = 0 to n - 1."""
    high, ratio = max(x, y), max(min(x, y), 1e-300) / max(x, y)
    share = -math.expm1(n * math.log(ratio)) / (n * (1 - ratio)) if ratio < 1 - 1e-12 else 1.0
    return min(1.0, share) * math.exp(min(700.0, (n - 1) * math.log(high))) * (1 + 1e-12)


def delta_with_decoys(params: dict[str, Any], n: int, each: int, epsilon: float) -> float:
    """Bound D(ε) of n people with decoys (S20.22 to S20.26)."""
    local, gamma, values, masses = _beside_decoys(params, epsilon)
    if epsilon >= local:
        return 0.0
    close = 2.0**-48
    raised = [v + close * (math.exp(local) + 1) * (math.exp(epsilon) + 1) for v in values]
    numbers = _uniform_reports(n - 1, gamma - close)
    draws = [(1 + number + each * (n - 1), share) for number, share in numbers]
    rounding = math.exp(close * draws[-1][0] / gamma) * (1 + 1e-9)
    return mean_excess(raised, masses, draws) * rounding + math.exp(-50)


def _beside_decoys(
    params: dict[str, Any], epsilon: float
) -> tuple[float, float, list[float], list[float]]:
    """Give the local ε, γ, and the values of H with their probabilities (S20.24)."""
    cap = cap_of(params)
    single = params["name"] == "grid" or params.get("closest") == 1
    if not (cap.exact if params["name"] in {"minkowski", "bounded"} else single):
        raise Refused("S20.23: the law is not exact")
    if not 0 < cap.epsilon <= 12:
        raise Refused("S20.23: the local ε")
    p, e = math.exp(cap.epsilon), math.exp(epsilon)
    gamma = 1 - cap.heads / TOSSES
    alpha = gamma * float(cap.share)
    apart = alpha * (1 - max(float(cap.core), cap.lens))
    values = [gamma * (p - e), gamma * (1 - p * e), gamma * p * (1 - e), gamma * (1 - e)]
    sides, both = apart / gamma, max(0.0, alpha - apart) / gamma
    return cap.epsilon, gamma, values, [sides, sides, both, max(0.0, 1 - 2 * sides - both)]


def delta_of_all_outcomes(params: dict[str, Any], *, n: int, each: int, epsilon: float) -> float:
    """Evaluate S20.24 by adding up all outcomes of a small crowd."""
    _, gamma, values, masses = _beside_decoys(params, epsilon)
    terms = []
    for number in range(n):
        k = 1 + number + each * (n - 1)
        chance = math.comb(n - 1, number) * gamma**number * (1 - gamma) ** (n - 1 - number)
        for counts in itertools.product(range(k + 1), repeat=3):
            rest = k - sum(counts)
            if rest < 0:
                continue
            total = sum(c * v for c, v in zip((*counts, rest), values, strict=True))
            if total > 0:
                ways, left = 1, k
                for count in counts:
                    ways *= math.comb(left, count)
                    left -= count
                powers = math.prod(m**c for m, c in zip(masses, (*counts, rest), strict=True))
                terms.append(chance * ways * powers * total / k)
    return math.fsum(terms)


def _uniform_reports(others: int, chance: float) -> list[tuple[int, float]]:
    """List the least number and the chance of each group of S20.25."""
    mean = others * chance
    reach = 50 / 3 + math.sqrt(50**2 / 9 + 2 * mean * (1 - chance) * 50)
    low, high = max(0, math.floor(mean - reach)), min(others, math.ceil(mean + reach))
    logs = [
        math.lgamma(others + 1)
        - math.lgamma(b + 1)
        - math.lgamma(others - b + 1)
        + b * math.log(chance)
        + (others - b) * math.log1p(-chance)
        for b in range(low, high + 1)
    ]
    masses = [math.exp(log - max(logs)) for log in logs]
    size = math.ceil(len(masses) / 64)
    whole = math.fsum(masses)
    return [
        (low + at, math.fsum(masses[at : at + size]) / whole) for at in range(0, len(masses), size)
    ]


def _of_kinds(kinds: Kinds, n: int, e: float) -> float:
    """Evaluate S20.14 for a law, with the rounding of S20.15 and the values of S20.16."""
    rounded = [(x * (1 + 8 * UNIT), y, m * (1 + 8 * UNIT)) for x, y, m in kinds]
    g = [x - e * y + 8 * UNIT * (x + e * y) for x, y, _ in rounded]
    m = [mass for *_, mass in rounded]
    if len(set(g)) > 130:
        g, m = _fewer(g, m, e)
    return mean_excess(g, m, [(n, 1.0)])


def mean_excess(g: list[float], m: list[float], draws: list[tuple[int, float]]) -> float:
    """Bound the mean over n of E[(G_1 + ... + G_n)_+]/n, each n with its share (S20.14, S20.15)."""
    top = max(g)
    if top <= 0:
        return 0.0
    most = draws[-1][0]
    g = [max(value, -most * top) for value in g]
    every = range(len(g))
    c = _middle(g, m, draws[len(draws) // 2][0])
    more = math.fsum(m[k] * math.expm1(c * g[k]) for k in every)  # M(c) - 1
    tilted = [m[k] * math.exp(c * g[k]) / (1 + more) for k in every]
    mean = math.fsum(tilted[k] * g[k] for k in every)
    variance = max(0.0, math.fsum(tilted[k] * g[k] ** 2 for k in every) - mean**2)
    w = 0.005 / c
    step = 2 * math.pi / (13 * math.sqrt(most * variance + 16 / 12 * w * w) + 8 / c)
    unit = (32 + 2 * len(g)) * UNIT
    off = unit * math.fsum(tilted[k] * abs(g[k]) for k in every)
    grown = math.fsum(m[k] * abs(math.expm1(c * g[k])) for k in every)
    wholes = [
        share
        / n
        * math.exp(min(700.0, n * math.log1p(more)))
        * (1 + 1e-12 + unit * n * grown / (1 + more))
        for n, share in draws
    ]
    total = 0.0
    for j in range(math.ceil(4 / (step * w)) + 1):
        t = j * step
        z = complex(c, t)
        less = sum(tilted[k] * _turned(t * g[k]) for k in every)  # M(z)/M(c) - 1
        square = 2 * less.real + less.real**2 + less.imag**2
        size = math.log1p(square) / 2 if square > -0.5 else math.log(abs(1 + less) or 1e-300)
        angle = math.atan2(less.imag, 1 + less.real)
        kernel = (cmath.sinh(z * w / 2) / (z * w / 2)) ** 16 / z**2
        r = off * abs(z)
        for (n, _), whole in zip(draws, wholes, strict=True):
            term = (cmath.rect(math.exp(n * size), n * angle) * kernel).real
            wrong = n * r * math.exp((n - 1) * math.log(math.exp(size) + r)) + 128 * UNIT
            total += (2 if j else 1) * whole * (term + wrong * abs(kernel))
    past = (2 * math.cosh(c * w / 2) / 4) ** 16 / (17 * math.pi * (4 / w))
    none = max(0.0, 1 - math.fsum(m) - unit)
    empty = math.fsum(share / n * none**n for n, share in draws) * w * 0.462116 * (1 - 1e-6)
    return max(0.0, step / (2 * math.pi) * total + past * math.fsum(wholes) - empty)


def _turned(x: float) -> complex:
    """Give e^(ix) - 1 without subtracting from 1 (S20.15)."""
    return complex(-2 * math.sin(x / 2) ** 2, math.sin(x))


def _middle(g: list[float], m: list[float], n: int) -> float:
    """Find the c of S20.14: n c M'(c) = 2 M(c), to a thousandth."""
    none = max(0.0, 1 - math.fsum(m))

    def low(c: float) -> bool:
        grown = [m[k] * math.exp(c * g[k]) for k in range(len(g))]
        pull = math.fsum(grown[k] * g[k] for k in range(len(g)))
        return n * c * pull <= 2 * (math.fsum(grown) + none)

    top = max(g)
    good, bad = 1e-290 / top, 1 / top
    while low(bad) and bad < 600 / top:
        bad *= 2
    while bad > 1.001 * good:
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if low(middle) else (good, middle)
    return good


def _fewer(g: list[float], m: list[float], e: float) -> tuple[list[float], list[float]]:
    """S20.16."""
    top = max(2.0, max(v + e for v in g) * (1 + 1e-12), max((1 - v) / e for v in g) * (1 + 1e-12))
    ratios = [top ** (j / 64) for j in range(65)]
    points = sorted({*(1 - e * ratio for ratio in ratios), *(ratio - e for ratio in ratios)})
    masses = [0.0] * len(points)
    for value, mass in zip(g, m, strict=True):
        right = next(k for k in range(1, len(points)) if points[k] >= value or k + 1 == len(points))
        left = right - 1
        up = min(1.0, max(0.0, (value - points[left]) / (points[right] - points[left])))
        masses[right] += up * mass
        masses[left] += (1 - up) * mass
    return [v + 16 * UNIT * (abs(v) + e) for v in points], masses


# -- section 20: whom answers expose


def named_by(task: str, params: dict[str, Any], sizes: list[int]) -> list[list[int]]:
    """X of S20.17."""
    if task in {"least-cost-matching", "maximum-matching"} and len(sizes) == 2:
        candidates = params.get("candidates", 1)
        most = params.get("capacity", [1, 1]) if candidates == 1 else [2 * candidates] * 2
        return [[0, min(most[0], sizes[1])], [min(most[1], sizes[0]), 0]]
    if len(sizes) != 1:
        raise Refused("the task is not for these groups")
    (n,) = sizes
    if task in {"learning", "standing"}:
        return [[0]]
    if task == "download":
        return [[n - 1]]
    if task == "groups":
        return [[min(params.get("size", 4), n) - 1]]
    if task in {"neighbours", "similar"}:
        return [[min(params.get("limit", 16 if task == "neighbours" else 5), n - 1)]]
    raise Refused("S20.20: the task is not known")


def exposed_by(task: str, params: dict[str, Any], crowd: dict[str, Any]) -> list[int]:
    """S20.18, for each group."""
    minimum, corrupted, decoys = crowd["minimum"], crowd["corrupted"], crowd["decoys"]
    groups = range(len(minimum))
    named = named_by(task, params, [minimum[h] * (1 + decoys[h]) for h in groups])
    answers = [(crowd["shufflers"] + decoys[g]) * corrupted[g] for g in groups]
    return [
        min(
            (minimum[h] - corrupted[h]) * (1 + decoys[h]),
            sum(answers[g] * named[g][h] for g in groups),
        )
        for h in groups
    ]
