"""Gradients at the client: a wrong one is refused, and nothing is paid or sent."""

import math
from pathlib import Path

import numpy as np
import pytest

from coatcheck.accounting.ledger import Ledger
from coatcheck.domains import Ball
from coatcheck.entropy import seeded
from coatcheck.errors import Error, Misuse, OutsideDomain, Refused
from coatcheck.planning import Group, Plan, plan
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.protocol.terms import suite_named
from coatcheck.simulation.round import OPENS, RoleKeys, simulate
from coatcheck.tasks.learning import Descent, Learning

CLIP, PARAMETERS, PEOPLE = 0.5, 12, 30
TASK = Learning(dimension=PARAMETERS, share_mean=True, rewards=False)


@pytest.fixture(scope="module")
def planned() -> Plan:
    """Plan two rounds, once for all tests."""
    group = {"people": Group(Ball(radius=CLIP, p=2, dimension=PARAMETERS), PEOPLE)}
    return plan(group, epsilon=6.0, delta=1e-3, goal="unbiased", rounds=2, rate=0.8)


def invited(planned: Plan) -> Invitation:
    """Examine the terms of a round of gradients."""
    suite = suite_named("x25519")
    roles = RoleKeys.draw(suite=suite, shufflers=1, entropy=seeded(1))
    signed = roles.agree([*planned], task=TASK, name="gradients", suite=suite)
    limit = Limit(epsilon=20.0, delta=1e-3)
    kept = {"trusted": roles.trusted, "limit": limit, "now": OPENS, "simulated": True}
    return examine(signed, group="people", **kept)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize(
    ("gradient", "kind", "sentence"),
    [
        ([math.nan] + [0.0] * (PARAMETERS - 1), Misuse, "nan is not a finite number"),
        ([0.0] * (PARAMETERS - 1) + [-math.inf], Misuse, "-inf is not a finite number"),
        ([0.01] * (PARAMETERS + 1), Misuse, "shape"),
        (
            [1.01 * CLIP] + [0.0] * (PARAMETERS - 1),
            OutsideDomain,
            "above the radius 0.5; shorten it",
        ),
        ([0.2] * PARAMETERS, OutsideDomain, "above the radius 0.5; shorten it"),
    ],
)
def test_a_wrong_gradient_is_refused_before_anything_is_paid(
    planned: Plan, gradient: list[float], kind: type[Error], sentence: str, tmp_path: Path
) -> None:
    """NaN and another size are refused always; one that is too long is clipped on request."""
    ledger = Ledger.open(tmp_path / "ledger", epsilon=20.0, delta=0.01)
    with pytest.raises(kind, match=sentence):
        invited(planned).join(gradient, ledger=ledger, entropy=seeded(2))
    assert ledger.spent == 0
    if kind is OutsideDomain:
        assert invited(planned).join(gradient, ledger=ledger, entropy=seeded(2), clamp=True).upload
        return
    with pytest.raises(kind, match=sentence):
        invited(planned).join(gradient, ledger=ledger, entropy=seeded(2), clamp=True)
    assert ledger.spent == 0


def test_a_round_below_its_minimum_leaves_the_model_as_it_was(planned: Plan) -> None:
    """There is no mean to follow; the same round with enough people moves it."""
    model = Descent(step=1.0, rounds=2).start(np.zeros(PARAMETERS))
    few = np.full((PEOPLE // 2, PARAMETERS), 0.1)
    with pytest.raises(Refused, match="15 of the 30 people it needs"):
        model = model.after(simulate(planned, [few], task=TASK).answers[0][0].shared)
    assert (model.parameters == 0).all()
    assert model.done == 0
    everybody = np.full((PEOPLE, PARAMETERS), 0.1)
    model = model.after(simulate(planned, [everybody], task=TASK).answers[0][0].shared)
    assert model.done == 1
    assert np.linalg.norm(model.parameters) > 0
