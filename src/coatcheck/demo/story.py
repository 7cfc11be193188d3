"""The opening story: one attacker looks for Ada, in an app that rounds distances and in coatcheck.

Everything that the command and the page show of it, as one plain document; places are latitudes and
longitudes. Holds Ada's place, as only a demo may.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from coatcheck.accounting.amplification import amplify
from coatcheck.accounting.ledger import Ledger
from coatcheck.demo import city
from coatcheck.demo.rounding_app import RoundingApp, trilaterate
from coatcheck.demo.trilaterator import WITHIN, Rounds, Trilaterator
from coatcheck.domains import Floats
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse, Refused
from coatcheck.tasks.distances import Scale, measured

if TYPE_CHECKING:
    from coatcheck.accounting.guarantee import Guarantee
    from coatcheck.demo.scenarios import Scenario

STEP: Final = 500.0
"""To how many metres the app rounds."""
_ADA: Final = 0
_HABITS: Final = 3_000  # made-up people from whom the attacker knows where people are
_SEED: Final = 77


def trilateration(scenario: "Scenario") -> dict[str, Any]:
    """Attack Ada by both ways; what was asked and told, what was found, and what bounds it."""
    if scenario.trilaterator is None:
        raise Misuse("the trilaterator is in the nearby demo only")
    others = Rounds(scenario, people=scenario.trilaterator[1])
    scale = cast("Scale", scenario.task.params()["scale"])
    claimed = measured(scenario.values[0][-1:], scale)[0]
    ledger = _ledger(scenario)
    count = len(ledger["spent"])
    habits = (
        city.places(_HABITS, entropy=_SEED) if scenario.box == city.CITY else scenario.values[0]
    )
    attacker = Trilaterator(others, measured(habits, scale))
    guess, seen = attacker.without_names(count=count, entropy=seeded(_SEED))
    rounds = [
        {"claimed": _degrees(place, scale), "candidates": one.candidates, "near": one.near}
        for place, one in seen
    ]
    return {
        "app": _app(others.places, claimed, scale),
        "coatcheck": {
            "rounds": rounds,
            "guess": _degrees(guess, scale),
            "error_m": float(np.hypot(*(guess - others.places[_ADA]))),
            "within_m": WITHIN,
            "found": float((np.hypot(*(others.places - guess).T) <= WITHIN).mean()),
            "bound": others.share,
            "bound_if_named": min(1.0, 2.0**count * others.share),
        },
        "ledger": ledger,
    }


def _degrees(place: Floats, scale: Sequence[float]) -> list[float]:
    found: list[float] = np.round(place / np.array(scale), 6).tolist()
    return found


def _app(places: Floats, claimed: Floats, scale: Scale) -> dict[str, Any]:
    """Find Ada by an app's rounded distances."""
    app = RoundingApp(places, STEP)
    found = trilaterate(lambda place: app.distance(place, who=_ADA), start=claimed, step=STEP)
    return {
        "step_m": STEP,
        "asked": [
            {"claimed": _degrees(place, scale), "told_m": told} for place, told in found.asked
        ],
        "circles": [
            {"center": _degrees(center, scale), "radius_m": radius}
            for center, radius in found.circles
        ],
        "guess": _degrees(found.guess, scale),
        "error_m": float(np.hypot(*(found.guess - places[_ADA]))),
    }


def _ledger(scenario: "Scenario") -> dict[str, Any]:
    """Let Ada join until her ledger says no; it allows twice what one round may cost."""
    draft = scenario.drafts[0]
    promise = amplify(draft.randomizer.law, crowd=draft.minimum, delta=draft.delta)
    limit, delta = 2 * scenario.epsilon, 10 * draft.delta
    with TemporaryDirectory(prefix="coatcheck-ledger-") as folder:
        ledger = Ledger.open(Path(folder) / "ada.ledger", epsilon=limit, delta=delta)
        spent, refused = _until_refused(ledger, promise)
    return {"limit": limit, "delta": delta, "spent": spent, "refused": refused}


def _until_refused(ledger: Ledger, promise: "Guarantee", most: int = 16) -> tuple[list[float], str]:
    spent: list[float] = []
    for number in range(1, most + 1):
        try:
            spent.append(ledger.spend(promise, round_id=f"nearby-{number}"))
        except Refused as refusal:
            return spent, str(refusal)
    return spent, ""
