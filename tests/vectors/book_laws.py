"""The coins of section 13 and the laws of section 20, written from SPEC alone (`by_the_book`)."""

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
        return _product([cap_of(part) for part in params["parts"].values()])
    cap = cap_of(params)
    kinds, phi = _kinds(cap)
    coarse = any_kinds(cap.epsilon)
    return Law(cap.epsilon, kinds if phi >= 0 else coarse, coarse)


def any_kinds(epsilon: float) -> Kinds:
    """S20.2."""
    p = math.exp(epsilon)
    return [(p, 1.0, 1 / (p + 1)), (1.0, p, 1 / (p + 1))]


def cap_of(params: dict[str, Any]) -> Cap:
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
