"""What SPEC asks of a client that examines a promise, written from its pages alone.

This is a second implementation of sections 13 (coins) and 20. It uses the standard library and
nothing of coatcheck: rules in, numbers out, with the rule beside each step. It writes the vectors
that both clients read, so a rule that is missing or wrong in SPEC shows as a difference.
"""

import cmath
import itertools
import math
from fractions import Fraction
from typing import Any, NamedTuple

Kinds = list[tuple[float, float, float]]
TOSSES = 1 << 64
FINE = 1 << 20
UNIT = 2.0**-53


class Refused(Exception):
    """The terms are refused."""


class Law(NamedTuple):
    """The local ε, the kinds of reports as (x, y, m) (S20.1), and those of any mechanism."""

    epsilon: float
    kinds: Kinds
    coarse: Kinds


class Cap(NamedTuple):
    """The coin and the reports of a mechanism that reports from a cap or else from everywhere.

    `share`, `core` and `lens` are those of S20.6, for caps whose overlap is bounded.
    """

    epsilon: float
    heads: int
    cap: int
    whole: int
    share: Fraction
    core: Fraction
    lens: float
    exact: bool = True


# -- section 13: the coin


def exp_below(epsilon: float) -> Fraction:
    """E of S13.12."""
    exact = Fraction(epsilon)
    term = total = 1 << 160
    order = 1
    while term:
        term = term * exact.numerator // (exact.denominator * order)
        total += term
        order += 1
    return Fraction(total, 1 << 160)


def heads_of(epsilon: float, cap: int, whole: int) -> int:
    """S13.11."""
    gain = (exp_below(epsilon) - 1) * cap
    return math.floor(TOSSES * gain / (gain + whole))


def points_within(p: float, d: int, reach: int) -> int | None:
    """Count the points of a lattice ball as S13.11 does; None where that bounds them by cubes."""
    if p == math.inf or d == 1:
        return int((2 * reach + 1) ** d)
    if p == 1:
        return sum(math.comb(d, k) * (math.comb(reach, k) << k) for k in range(d + 1))
    return _l2_points(d, reach) if d * reach**3 <= 1 << 18 else None


def _l2_points(d: int, reach: int) -> int:
    """Count |i|_2 <= reach axis by axis, by the sum of the squares so far."""
    ways: dict[int, int] = {0: 1}
    for _ in range(d):
        wider: dict[int, int] = {}
        for square, count in ways.items():
            for i in range(-math.isqrt(reach * reach - square), 0):
                wider[square + i * i] = wider.get(square + i * i, 0) + 2 * count
            wider[square] = wider.get(square, 0) + count
        ways = wider
    return sum(ways.values())


def corner(d: int) -> int:
    """C of S13.11."""
    root = math.isqrt(d * FINE * FINE // 4)
    return root + (4 * root * root < d * FINE * FINE) + 1


def counts(p: float, d: int, reach: int, whole: int) -> tuple[int, int]:
    """Cap and whole of S13.11."""
    most = points_within(p, d, whole)
    if most is not None:
        least = points_within(p, d, reach)
        assert least is not None
        return least, most
    c = corner(d)
    return max(0, FINE * reach - c) ** d, (FINE * whole + c) ** d


# -- section 20: laws


def law_of(params: dict[str, Any]) -> Law:
    """Give the law of a randomizer of the terms."""
    if params["name"] == "coin":
        epsilon, *both = law_of(params["part"])  # S20.8
        rate = params["rate"]
        silenced = [
            [*((x, y, rate * m) for x, y, m in kinds), (1.0, 1.0, 1 - rate)] for kinds in both
        ]
        return Law(epsilon, *map(merged, silenced))
    if params["name"] == "fieldwise":
        return _product([_cap_of(part) for part in params["parts"].values()])
    cap = _cap_of(params)
    kinds, phi = _kinds(cap)
    coarse = any_kinds(cap.epsilon)
    return Law(cap.epsilon, kinds if phi >= 0 else coarse, coarse)


def any_kinds(epsilon: float) -> Kinds:
    """S20.2."""
    p = math.exp(epsilon)
    return [(p, 1.0, 1 / (p + 1)), (1.0, p, 1 / (p + 1))]


def _cap_of(params: dict[str, Any]) -> Cap:
    """Read the parameters of section 13."""
    name, domain = params["name"], params["domain"]
    if name in {"minkowski", "bounded"}:
        return _ball_of(params)
    if name == "grid":
        cap, whole = 1, math.prod(params["cells"])
    elif name == "codebook":
        cap, whole = params["closest"], len(params["points"])
    elif name == "sphere":
        cap, whole = params["closest"], params["size"]
    else:
        raise Refused(f"the mechanism {name} on {domain['kind']} is not of section 13")
    heads = heads_of(params["epsilon"], cap, whole)
    overlap = Fraction(max(0, 2 * cap - whole), cap)  # S20.5: a = min(B, V - B) u, κ = 0
    epsilon = _spent(params["epsilon"], heads, cap, whole)
    return Cap(epsilon, heads, cap, whole, Fraction(cap, whole), Fraction(0), float(overlap))


def _ball_of(params: dict[str, Any]) -> Cap:
    """S13.15, S13.16 and S20.6."""
    domain = params["domain"]
    box = domain["kind"] == "box"
    p = math.inf if box or domain["p"] == "inf" else domain["p"]
    d = len(domain["lo"]) if box else domain["dimension"]
    half = domain["steps"] // 2
    moved = params["name"] == "bounded"
    reach = max(1, min(round(params["radius"] * half), half if moved else 2**30 - half))
    if reach / half != params["radius"]:
        raise Refused("S13.5: the radius is not exactly reach / N")
    whole = half if moved else half + reach
    t = half - reach if moved else half
    cap, every = counts(p, d, reach, whole)
    c = corner(d)
    if points_within(p, d, whole) is not None:
        share = Fraction(cap, every)
    else:
        share = min(Fraction(1), Fraction(FINE * reach + c, max(1, FINE * whole - c)) ** d)
    core = Fraction(*counts(p, d, reach - t, reach)) if reach >= t else Fraction(0)
    lens = 0.0
    r = reach - c / FINE
    if p == 2 and d > 1 and r > t:
        counted = points_within(p, d, reach)
        unit = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
        inside = unit * r**d / counted if counted else (r / (reach + c / FINE)) ** d
        lens = _incomplete_beta(d, (r - t) * (r + t) / r**2) * inside
    heads = heads_of(params["epsilon"], cap, every)
    epsilon = _spent(params["epsilon"], heads, cap, every)
    return Cap(epsilon, heads, cap, every, share, core, lens, exact=d == 1 or p == math.inf)


def _incomplete_beta(d: int, x: float) -> float:
    """I_x((d + 1) / 2, 1 / 2) of S20.6."""
    s = math.sqrt(1 - x)
    if d % 2:
        b, beta, share = 1.0, 2.0, 1 - s
    else:
        b, beta, share = 0.5, math.pi, 2 / math.pi * math.asin(math.sqrt(x))
    while b < (d + 1) / 2:
        share -= x**b * s / (b * beta)
        beta *= b / (b + 0.5)
        b += 1
    return share


def _spent(stated: float, heads: int, cap: int, whole: int) -> float:
    """S20.4."""
    if heads == 0 or cap == whole:
        return 0.0
    return min(stated, math.log1p(Fraction(heads * whole, (TOSSES - heads) * cap)))


def _kinds(cap: Cap) -> tuple[Kinds, float]:
    """S20.3, and φ, which is below 0 where the masses do not fit."""
    if cap.epsilon == 0:
        return [(1.0, 1.0, 1.0)], 1.0
    p = math.exp(cap.epsilon)
    mass = float(Fraction(TOSSES - cap.heads, TOSSES) * cap.share)
    apart = mass * (1 - max(float(cap.core), cap.lens))
    kernel = mass * float(cap.core)
    omega = mass - apart - kernel
    if omega <= 1e-9 * mass:
        omega = 0.0
    phi = 1 - (p - 1) * mass - 2 * apart - omega - kernel + p * kernel
    if -1e-13 <= phi < 0:
        phi = 0.0
    kinds = [(p, 1.0, apart), (1.0, p, apart), (p, p, omega), (1.0, 1.0, phi)]
    return [kind for kind in kinds if kind[2] > 0], phi


def merged(kinds: Kinds) -> Kinds:
    """Make one of kinds with the same x and the same y."""
    masses: dict[tuple[float, float], float] = {}
    for x, y, m in kinds:
        masses[x, y] = masses.get((x, y), 0.0) + m
    return sorted((x, y, m) for (x, y), m in masses.items())


def _product(caps: list[Cap]) -> Law:
    """S20.7."""
    epsilon = math.fsum(cap.epsilon for cap in caps)
    coarse = any_kinds(epsilon)
    whole: Kinds = [(1.0, 1.0, 1.0)]
    for cap in caps:
        kinds, phi = _kinds(cap)
        if phi < 0:
            return Law(epsilon, coarse, coarse)
        whole = merged([(x * u, y * v, m * w) for x, y, m in whole for u, v, w in kinds])
        if len(whole) > 1500:
            return Law(epsilon, coarse, coarse)
    return Law(epsilon, whole, coarse)


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
    if params["name"] in {"grid", "codebook"} and _cap_of(params)[2:4] == (1, 2):
        return delta_of_two(_cap_of(params).epsilon, crowd.size, most) <= delta
    return delta_of(law_of(params), crowd.size, most) <= delta


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
    cap = _cap_of(params)
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
