"""Amplification: what shuffling a crowd's reports guarantees, and which local ε keeps a promise.

`amplify` goes from a local ε to the crowd's guarantee, `calibrate` goes back, and `delta_curve`
gives δ at every ε. All three bound the loss from above, rounding errors included (`hockey_stick`),
and their searches end on the private side (`numerics.root`). The method `closed-form` is the
paper's own equation. Lower bounds, at the end of the file, show how tight the upper ones are.
Proofs: docs/explanation/amplification.md.

    >>> from coatcheck.accounting.laws import AnyLdp
    >>> print(f"{amplify(AnyLdp(epsilon=4.0), crowd=10_000, delta=1e-6).epsilon:.4f}")
    0.4108
"""

import math
from collections.abc import Callable, Iterable
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from coatcheck.accounting import box_caps, hockey_stick
from coatcheck.accounting.guarantee import (
    METHODS,
    Certificate,
    Guarantee,
    anonymous,
    exposed_by_lists,
    exposed_by_matching,
)
from coatcheck.accounting.laws import (
    MOST_LOCAL,
    AnyLdp,
    AnyPair,
    Boxed,
    Clones,
    Law,
    OwnCoin,
    TwoLevel,
    WithDecoys,
    grid,
    pair,
)
from coatcheck.accounting.numerics import (
    CLOSE,
    EPSILON,
    Array,
    Excess,
    bisect,
    check_delta,
    check_epsilon,
    root,
)
from coatcheck.errors import Misuse

__all__ = [
    "METHODS",
    "Guarantee",
    "amplify",
    "anonymous",
    "any_ldp",
    "calibrate",
    "delta_curve",
    "exposed_by_lists",
    "exposed_by_matching",
]

# In crowds up to this size a coarser law may give the smaller bound.
_FEW: Final = 1000
# A little of δ is reserved, so that a promise can be replayed in interval arithmetic; `calibrate`
# reserves more, so that `amplify` confirms its result.
_SPARED: Final = math.exp(-1e-4)
# The largest local ε beside decoys, unless somebody asks for more.
USUAL_LOCAL: Final = 6.0
_MARGIN: Final = _SPARED * math.exp(-2 * CLOSE)


def any_ldp(epsilon: float) -> AnyLdp:
    """Return the law of a randomizer of which only ε is known; the default of `calibrate`."""
    return AnyLdp(epsilon=epsilon)


def amplify(
    law: Law,
    *,
    crowd: int,
    delta: float,
    method: str = "mechanism",
    corrupted: int = 0,
    exposed: int = 0,
    lost: int = 0,
    decoys: int = 0,
    lower: bool = False,
    certify: bool = False,
) -> Guarantee:
    """Bound the ε that a crowd guarantees to each of its members at this δ.

    *Guarantee:* replacing one person's value is (ε, δ)-indistinguishable to everybody but that
    person, the shuffler and the corrupted people, if the returned assumptions hold. One of them
    fails where the reports decide whom the answers give away: see `Guarantee.caveat`.

    Args:
        law: the privacy law of one report, from `laws` or from a randomizer's `law`.
        crowd: the people in the person's group, the person included.
        delta: the chance with which the promise may fail; fix it before the round.
        method: closed-form, clones-2021, generic or mechanism.
        corrupted: people of the same group who tell the server which report is theirs.
        exposed: people whose report the answers give away (see `exposed_by_matching` and
            `exposed_by_lists`); with decoys, messages. *Assumes:* the choice of these people does
            not depend on the reports; otherwise only the local ε is proven.
        lost: people whose report, or one of whose decoys, does not arrive.
        decoys: uniform reports that each person sends besides; `law` must then be exact.
        lower: also find an ε that some data set reaches, if one is known for this law.
        certify: also replay the promise in interval arithmetic, which takes up to a few seconds
            and needs the extra `certify`; see `Guarantee.certificate`.
    """
    law = _with_decoys(law, decoys, method)
    decoys = law.each if isinstance(law, WithDecoys) else 0
    size = anonymous(crowd=crowd, corrupted=corrupted, exposed=exposed, lost=lost, decoys=decoys)
    _check(delta=delta, method=method)
    local = pair(law).epsilon
    if method == "closed-form":
        epsilon = _closed_form(local, size, delta)
    else:
        epsilon = central(law, size=size, delta=delta, method=method)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        crowd=crowd,
        corrupted=corrupted,
        exposed=exposed,
        lost=lost,
        method=method,
        law=law,
        least=_least(law, size, delta) if lower and reaches_a_delta(law) else None,
        certificate=_certified(law, size, epsilon, delta, method) if certify else None,
        amplified=epsilon < local,
    )


def calibrate(
    make: Callable[[float], Law] = any_ldp,
    *,
    epsilon: float,
    crowd: int,
    delta: float,
    method: str = "mechanism",
    corrupted: int = 0,
    exposed: int = 0,
    lost: int = 0,
    decoys: int = 0,
    most_local: float = USUAL_LOCAL,
) -> Guarantee:
    """Find the largest local ε at which a crowd still keeps a promise of (ε, δ).

    Args:
        make: the law at a local ε, such as `lambda x: replace(randomizer, epsilon=x).law`.
            *Assumes:* a smaller ε is never less private, as is true of any fixed cap or grid.
        epsilon: the promised ε.
        crowd: as for `amplify`.
        delta: as for `amplify`.
        method: as for `amplify`.
        corrupted: as for `amplify`.
        exposed: as for `amplify`.
        lost: as for `amplify`.
        decoys: as for `amplify`.
        most_local: the largest local ε beside decoys, which is all that holds if the shufflers tell
            who sent what; at most 12, as good as no noise.
    """
    size = anonymous(crowd=crowd, corrupted=corrupted, exposed=exposed, lost=lost, decoys=decoys)
    _check(delta=delta, method=method)
    check_epsilon(epsilon, "a promised epsilon", positive=True)
    if method == "closed-form":
        local = _closed_form_inverse(epsilon, size, delta)
    elif size == 1 or epsilon == EPSILON:
        local = epsilon
    elif decoys:
        local = _local_with_decoys(
            make, epsilon, size, delta * _MARGIN, decoys=decoys, most=most_local
        )
    else:
        local = _local(make, method, epsilon, size, delta * _MARGIN)
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        crowd=crowd,
        corrupted=corrupted,
        exposed=exposed,
        lost=lost,
        method=method,
        law=_with_decoys(make(local), decoys, method),
        amplified=epsilon < local,
    )


def delta_curve(
    law: Law, *, epsilons: Iterable[float], crowd: int, lower: bool = False
) -> NDArray[np.float64]:
    """Bound δ from above at each ε, for a crowd of honest, anonymous people.

    *Guarantee:* at the ε that `amplify` returns for a δ, the curve is at most this δ: both evaluate
    the same bounds, and `amplify` promises what one of them gives.

    With `lower`, return a δ that some data set reaches instead.
    """
    size = anonymous(crowd=crowd)
    bounds = dict.fromkeys(map(pair, bounding_laws(law)))
    epsilons = list(epsilons)
    for x in epsilons:
        check_epsilon(x, "an epsilon of the curve")
    if lower:
        return np.array([attainable_delta(law, size=size, epsilon=x) for x in epsilons])
    return np.array(
        [min(hockey_stick.upper(bound, size=size, epsilon=x) for bound in bounds) for x in epsilons]
    )


def _with_decoys(law: Law, decoys: int, method: str = "mechanism") -> Law:
    if method != "mechanism" and (decoys or isinstance(law, WithDecoys)):
        raise Misuse(f"decoys are counted by method 'mechanism' alone, not by {method!r}")
    if not decoys:
        return law
    if isinstance(law, WithDecoys):
        raise Misuse("`decoys` are given twice: in the law, and beside it")
    return WithDecoys(law=cast("TwoLevel", law), each=decoys)


def _check(*, delta: float, method: str) -> None:
    check_delta(delta)
    if method not in METHODS:
        raise Misuse(f"`method` must be one of {', '.join(METHODS)}, not {method!r}")


def _certified(law: Law, size: int, epsilon: float, delta: float, method: str) -> Certificate:
    if method == "closed-form":
        raise Misuse("method 'closed-form' has no sum to replay; choose another method to certify")
    from coatcheck.accounting import certificate  # noqa: PLC0415 - needs an extra

    laws = bounding_laws(law, method)
    return certificate.certify(*laws, size=size, epsilon=epsilon, delta=delta)


def _coarser(law: Law, instead: AnyLdp | Clones) -> Law:
    """Return a coarser law, behind the participation coin of `law` if it has one."""
    return OwnCoin(law=instead, rate=law.rate) if isinstance(law, OwnCoin) else instead


def bounding_laws(law: Law, method: str = "mechanism") -> list[Law]:
    """List the laws that bound this one, the closest first. Each one is sufficient.

    The clones of 2021 are never closer than any mechanism of their ε, so they are listed alone.
    """
    if method == "clones-2021":
        return [_coarser(law, Clones(epsilon=law.epsilon))]
    if isinstance(law, WithDecoys):
        return [law]  # a crowd with decoys is counted for this bound alone (Statement 33)
    laws = [law, _coarser(law, AnyLdp(epsilon=law.epsilon))]
    return laws if method == "mechanism" else laws[1:]


def _log_excess(
    worst: AnyPair, size: int, delta: float, *, epsilon: float, fine: bool = True
) -> float:
    """Bound ln(δ(ε)/δ); finite, so that a secant can be drawn through it.

    The fine bound is the one of `delta_curve`; the cheap one cuts off little even of a small δ.
    """
    if fine:
        bound = hockey_stick.upper(worst, size=size, epsilon=epsilon)
    else:
        tail = 25 - math.log(delta)
        bound = hockey_stick.upper(worst, size=size, epsilon=epsilon, tail=tail, fine=False)
    return max(-700.0, math.log(max(bound, 1e-320)) - math.log(delta))


def central(law: Law, *, size: int, delta: float, method: str = "mechanism") -> float:
    """Bound the ε of `size` honest, anonymous people at any δ, however small."""
    best = law.epsilon
    if best <= 0 or size == 1:
        return best
    first, *others = dict.fromkeys(map(pair, bounding_laws(law, method)))
    for worst in (first, *others):

        def excess(x: float, *, fine: bool, worst: AnyPair = worst) -> float:
            return _log_excess(worst, size, _SPARED * delta, epsilon=x, fine=fine)

        rival = size <= _FEW or best > 0.99 * law.epsilon or _alike(first, worst)
        if worst is first or (best > 0 and rival and _wins(excess, best)):
            start = _guess(worst, size, delta)
            best = min(best, root(excess, good=law.epsilon, bad=0.0, start=start))
    return best


def _local(
    make: Callable[[float], Law], method: str, epsilon: float, size: int, delta: float
) -> float:
    """Find the largest local ε at which some bound on the law keeps δ."""
    best = epsilon
    most = min(EPSILON, epsilon + math.log(size) + 4)
    start = epsilon + math.log1p(size * epsilon**2 / (5 * math.log(1 / delta)))
    for place in range(len(bounding_laws(make(epsilon), method))):

        def excess(x: float, *, fine: bool, place: int = place) -> float:
            worst = pair(bounding_laws(make(x), method)[place])
            return _log_excess(worst, size, delta, epsilon=epsilon, fine=fine)

        bounds = [pair(bound) for bound in bounding_laws(make(best), method)]
        rival = size <= _FEW or best < 1.01 * epsilon or _alike(bounds[0], bounds[place])
        if place == 0 or (rival and bounds[place] != bounds[0] and _wins(excess, best)):
            best = max(best, root(excess, good=epsilon, bad=most, start=min(start, most - 1)))
    return best


def _local_with_decoys(
    make: Callable[[float], Law],
    epsilon: float,
    size: int,
    delta: float,
    *,
    decoys: int,
    most: float,
) -> float:
    """Find the largest local ε, up to `most`, at which the law with decoys keeps δ."""
    if not 0 < most <= MOST_LOCAL:
        raise Misuse(f"`most_local` must be above 0 and at most {MOST_LOCAL:g}, not {most!r}")

    def excess(x: float, *, fine: bool) -> float:
        worst = pair(_with_decoys(make(x), decoys))
        return _log_excess(worst, size, delta, epsilon=epsilon, fine=fine)

    if most <= epsilon or excess(most, fine=True) <= 0:
        return most
    return root(excess, good=epsilon, bad=most, start=(epsilon + most) / 2)


def _alike(close: AnyPair, coarse: AnyPair) -> bool:
    """Return whether two laws are so close that the coarser one may give the smaller bound."""
    return coarse.noise < 1.1 * close.noise


def _wins(excess: Excess, best: float) -> bool:
    """Return whether a coarser law gives a smaller bound; cheap check first, as it rarely does."""
    return excess(best, fine=False) < 0.2 and excess(best, fine=True) < -CLOSE


def _guess(worst: AnyPair, size: int, delta: float) -> float:
    """Guess ε from the normal approximation of the clones."""
    return math.log1p(math.sqrt(worst.noise / size * 2 * math.log(1 / delta)))


def _least(law: Law, size: int, delta: float) -> float:
    """Find an ε at which some data set has a larger δ than the given one."""

    def shortfall(x: float, /, *, fine: bool) -> float:  # noqa: ARG001 - as `root` calls it
        reached = attainable_delta(law, size=size, epsilon=x)
        return min(700.0, math.log(delta) - math.log(max(reached, 1e-320)))

    return root(shortfall, good=0.0, bad=law.epsilon, start=law.epsilon / 2)


def _closed_form(local: float, size: int, delta: float) -> float:
    """Evaluate the paper's equation (Theorem 1; Feldman, McMillan, Talwar 2021, Theorem 3.1)."""
    if math.log(size) < math.log(16 * math.log(2 / delta)) + local:
        return local
    p = math.exp(local)
    clones = math.sqrt(64 * p * math.log(4 / delta) / size) + 8 * p / size
    return min(local, math.log1p(math.tanh(local / 2) * clones) * (1 + 1e-14))


def _closed_form_inverse(epsilon: float, size: int, delta: float) -> float:
    valid = math.log(size) - math.log(16 * math.log(2 / delta))
    if valid <= epsilon:
        return epsilon
    last = math.nextafter(valid, 0.0)

    def holds(local: float) -> bool:
        return _closed_form(local, size, delta) <= epsilon

    return last if holds(last) else bisect(holds, good=epsilon, bad=last)


# -- lower bounds: how much privacy a crowd loses on some data set. They show how loose an upper
# bound is; no promise depends on them. Everybody else holds one and the same value, which makes the
# blanket identity an equality (Statement 2). Noise of width h makes it U(h), and the sum is at
# least 2 U(h) - U(2h) (Statement 29).

_WIDTH: Final = 0.01
# Minus the log of the images that the sums add, more than what the sums exceed their integrals by,
# as a share of them, and the largest local ε at which their rounding is less than that.
_FAR: Final = 45.0
_EXCEEDED: Final = 1e-5
_ROUNDED: Final = 12.0


def reaches_a_delta(law: Law) -> bool:
    """Return whether `attainable_delta` knows a δ that this law reaches."""
    law = law.law if isinstance(law, OwnCoin) else law
    return isinstance(law, AnyLdp | Clones) or (isinstance(law, TwoLevel) and law.reached)


def attainable_delta(law: Law, *, size: int, epsilon: float) -> float:
    """Return a δ(ε_c) that a crowd of `size` people reaches on some data set; 0 if none is known.

    A randomizer of which only ε is known may be binary response, so it is treated as that.
    """
    rate = 1.0
    if isinstance(law, OwnCoin):
        rate, law = law.rate, law.law
    if epsilon >= law.epsilon:
        return 0.0
    if isinstance(law, AnyLdp | Clones):
        law = grid(law.epsilon, cells=2)
    # For other laws no such δ is known; without `apart` all values have one cap.
    if not isinstance(law, TwoLevel) or not law.reached or law.apart <= 0:
        return 0.0
    # If all others hold x1: a report where x0's cap lies apart is theirs at most this often.
    p, e = math.exp(law.epsilon), math.exp(epsilon)
    reached = max(0.0, rate * law.apart * (p - e * size) * (1 - 1e-12))
    if law.epsilon > _ROUNDED:
        return reached
    level, evidence = box_caps.kinds(law.epsilon, epsilon)
    values = np.append(evidence / level, -math.expm1(epsilon))
    for volumes in _thirds(law):
        mass = np.append(rate * volumes * level, 1 - rate)
        used = mass > 0
        single, double = (
            hockey_stick.mean_excess(values[used], mass[used], size=size, width=width, images=_FAR)
            for width in (_WIDTH, 2 * _WIDTH)
        )
        reached = max(reached, 2 * single - double - _EXCEEDED * double)
    return reached


def _thirds(law: TwoLevel) -> Array:
    """Return the masses of the nine kinds of reports of `box_caps`, for values of all others.

    They hold x0, or x1, or a value whose cap is disjoint from both; boxes know more of them.
    """
    worst = pair(law)
    if isinstance(worst, Boxed):
        return worst.caps.volumes
    a, both = law.apart, max(0.0, law.cap - law.apart)
    rest = max(0.0, 1 - math.expm1(law.epsilon) * law.cap - 2 * a - both)
    rows = [[0, both, 0, a, 0, 0, a, 0, rest], [0, both, 0, 0, a, a, 0, 0, rest]]
    if law.third and both <= 1e-12 * a:
        rows.append([0, 0, 0, 0, 0, a, a, law.cap, max(0.0, rest - law.cap)])
    return np.array(rows)
