"""What a round showed of where people are, and a later draft that is placed for it.

Only noisy reports of a shuffled batch are looked at, so this costs no privacy beyond the round's
own promise (docs/how-to/use-a-prior.md). A prior enters a round as the points of a codebook, in
its terms (docs/decisions/0012-what-the-terms-carry-of-a-prior.md). Runs in the server's worker.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coatcheck.domains import Ball, Box
from coatcheck.errors import Misuse
from coatcheck.protocol.terms import Round
from coatcheck.randomizers import CodebookResponse, Prior, Randomizer, choose, from_draft
from coatcheck.randomizers.coin import heard, speaker
from coatcheck.services.log import log, place_of


class Density(Struct, frozen=True):
    """Where the people of a group are, on a domain."""

    domain: dict[str, Any]
    points: list[list[float]]
    weights: list[float]


def shown_by(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Learn where people are; whatever goes wrong, the round is answered."""
    try:
        return learned(round_, randomizers, reports)
    except Exception as error:  # noqa: BLE001 - people wait for their answers
        log.error("nothing was learned of where people are: %s", place_of(error))
        return b""


def learned(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Write down what the reports of each group show; empty if none is enough to learn from."""
    found: dict[str, Density] = {}
    for group, made, own in zip(round_.terms.groups, randomizers, reports, strict=True):
        try:
            prior = Prior.learned_from([(speaker(made), heard(made, own)[1])])
        except Misuse:
            continue  # too few, or of a mechanism that tells no density
        if isinstance(made.domain, Box | Ball):
            points, weights = prior.points.tolist(), prior.weights.tolist()
            found[group.name] = Density(made.domain.params(), points, weights)
    return msgspec.json.encode(found) if found else b""


def placed(plan: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Give the draft with codebooks for the groups of which something is known."""
    known = msgspec.json.decode(raw, type=dict[str, Density])
    return {**plan, "groups": [_group(group, known.get(group["name"])) for group in plan["groups"]]}


def _group(plain: dict[str, Any], density: Density | None) -> dict[str, Any]:
    made = from_draft(plain["randomizer"])
    domain = made.domain
    if density is None or not isinstance(domain, Box | Ball) or domain.params() != density.domain:
        return plain
    prior = Prior.from_points(density.points, weights=density.weights)
    best = choose(epsilon=made.epsilon, domain=domain, prior=prior)
    if not isinstance(best.randomizer, CodebookResponse) or not best.worth_a_report:
        return plain
    return {**plain, "randomizer": best.randomizer.params(), "decode": best.decode}
