"""What terms from a stranger cost a client until it has joined or refused: CPU time of its thread.

The largest mechanisms that SPEC section 13 allows, at budgets from tiny to useless and in crowds
up to the largest, signed and examined as in a round. Every examination has new terms, so
that no cache helps; the quickest of a few counts.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from bench import Figure, show
from coatcheck.domains import Ball, Box, Categories, Product
from coatcheck.entropy import seeded
from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    FieldwiseResponse,
    GridResponse,
    MinkowskiResponse,
    Randomizer,
    SphereResponse,
)
from coatcheck.simulation.round import OPENS, RoleKeys
from coatcheck.tasks.download import Download

TARGET: Final = 50.0  # milliseconds
EPSILONS: Final = (0.01, 1.0, 8.0, 63.9)
CROWDS: Final = ((1_000, 1e-6), (1_000_000, 1e-9), (1_000_000_000, 1e-12))
_PLAIN: Final = GridResponse(domain=Categories(("yes", "no")), epsilon=1.0)
_STEPS: Final = 1 << 24
_FIELDS: Final = (2, 10, 150)  # more do not fit into terms


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    return show(
        [
            Figure(
                what=f"{name}: ε {where[0]:g}, crowd {where[1]:,}",
                value=ms,
                unit="ms",
                target=TARGET,
            )
            for name, (ms, where) in slowest(EPSILONS, CROWDS).items()
        ]
    )


def slowest(
    epsilons: Sequence[float], crowds: Sequence[tuple[int, float]], *, looks: int = 5
) -> dict[str, tuple[float, tuple[float, int]]]:
    """Return, for each mechanism, the longest examination in milliseconds, with its ε and crowd."""
    cast = RoleKeys.draw(suite=CLASSICAL, shufflers=1, entropy=seeded(1))
    slowest_looks = {}
    for name, make in strangers():
        times = {
            (epsilon, crowd): min(
                _look(cast, make(epsilon * (1 - turn / 10_000)), crowd, delta)
                for turn in range(looks)
            )
            for epsilon in epsilons
            for crowd, delta in crowds
        }
        where = max(times, key=lambda place: times[place])
        slowest_looks[name] = 1e3 * times[where], where
    return slowest_looks


def _look(cast: RoleKeys, randomizer: Randomizer, crowd: int, delta: float) -> float:
    """Return the seconds until a client has examined terms with this mechanism."""
    signed = _signed(cast, randomizer, crowd, delta)
    start = time.thread_time()
    try:
        limit = Limit(epsilon=64.0, delta=1e-3)
        examine(signed, group="people", trusted=cast.trusted, limit=limit, now=OPENS)
    except Refused:
        pass
    return time.thread_time() - start


def _signed(cast: RoleKeys, randomizer: Randomizer, crowd: int, delta: float) -> SignedTerms:
    """Return terms signed by parties that computed nothing, so that no cache is warm."""
    plan = GroupPlan(name="people", randomizer=_PLAIN, minimum=2, delta=delta)
    task = Download(groups=("people",))
    terms = json.loads(cast.agree([plan], task=task, name="terms", suite=CLASSICAL).document)
    size = PayloadFormat.between(randomizer.low, randomizer.high).size
    mechanism = {
        "randomizer": randomizer.params(),
        "decode": randomizer.decodes[0],
        "payload_size": size,
    }
    promise = {**terms["groups"][0]["promise"], "epsilon": 64.0}
    terms["groups"][0] |= {**mechanism, "minimum": crowd, "promise": promise}
    document = json.dumps(terms, separators=(",", ":"))
    own, other = (
        keys.signing.sign(f"coatcheck/v1/terms/{role}\0{document}".encode()).hex()
        for role, keys in (("server", cast.server), ("shuffler", cast.shufflers[0]))
    )
    return SignedTerms(document, own, (other,))


def strangers() -> Iterator[tuple[str, Callable[[float], Randomizer]]]:
    """Yield the largest mechanisms that terms may name, at every ε."""
    line = Box((0.0,), (1.0,))
    row = tuple((i,) for i in range(-2048, 2048))
    deep = tuple((i, *(0,) * 15) for i in range(1_200))
    labels = Categories(tuple(map(str, range(8_000))))
    wide, round_ = Box((0.0,) * 1024, (1.0,) * 1024, steps=_STEPS), _ball(2, 8)

    yield "codebook of 4,096", _at(CodebookResponse, domain=line, points=row)
    yield "codebook, half is close", _at(CodebookResponse, domain=line, points=row, closest=2048)
    yield (
        "codebook in 16 dimensions",
        _at(CodebookResponse, domain=Box((0.0,) * 16, (1.0,) * 16), points=deep),
    )
    yield "sphere, d = 5,000", _at(SphereResponse, domain=_ball(2, 5000, steps=1 << 16))
    yield (
        "sphere of 2^16",
        _at(SphereResponse, domain=_ball(2, 127), size=1 << 16, closest=1 << 15, turns=1 << 16),
    )
    yield "grid of 2^32", _at(GridResponse, domain=Box((0, 0), (1, 1)), cells=(1 << 16, 1 << 16))
    yield "8,000 labels", _at(GridResponse, domain=labels)
    yield "box of 1,024 numbers", _at(MinkowskiResponse, domain=wide, radius=50.0)
    yield "l1 ball of 1,024 numbers", _at(MinkowskiResponse, domain=_ball(1, 1024), radius=50.0)
    yield "l2 ball, d = 8", _at(MinkowskiResponse, domain=round_, radius=1.0)
    yield "bounded, l2, d = 8", _at(BoundedResponse, domain=round_, radius=0.5)
    yield "bounded, l1, d = 64", _at(BoundedResponse, domain=_ball(1, 64), radius=0.9)
    for size in _FIELDS:
        yield f"{size} fields", lambda epsilon, size=size: _fields(line, epsilon, size)  # type: ignore[misc] # a plain lambda


def _ball(p: float, dimension: int, *, steps: int = _STEPS) -> Ball:
    return Ball(radius=1.0, p=p, dimension=dimension, steps=steps)


def _at(kind: Any, **options: Any) -> Callable[[float], Randomizer]:
    return lambda epsilon: kind(epsilon=epsilon, **options)


def _fields(line: Box, epsilon: float, size: int) -> FieldwiseResponse:
    """Return a mechanism with a number of different fields."""
    parts = {
        f"f{i}": MinkowskiResponse(domain=line, epsilon=epsilon / size, radius=0.1 + 0.01 * i)
        for i in range(size)
    }
    return FieldwiseResponse(domain=Product(dict.fromkeys(parts, line)), parts=parts)
