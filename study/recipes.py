"""Recipes of the study of learning: the settings of a row, and the mechanism of its promise."""

import math
from ast import literal_eval
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Final, Literal

from coatcheck import Ball, Group, plan
from coatcheck.accounting.composition import calibrate_rounds
from coatcheck.accounting.laws import AnyLdp, OwnCoin
from coatcheck.errors import Misuse
from coatcheck.randomizers import CoinResponse, Randomizer, SphereResponse
from coatcheck.randomizers.baselines import PrivUnit
from coatcheck.randomizers.composed import without_coin

Way = Literal["reports", "law", "central", "none", "alone"]
ROUNDS: Final = 80


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One row: the model, the crowd, the promise and how the model moves.

    Attributes:
        public: examples that the server may use: to start from.
        start: edges, whose first layer is set by hand; or drawn.
        length: whether gradients are clipped, or all scaled to one length.
        mover: momentum, plain (none), or adam.
        law: whether the mechanism's own law is accounted for, or that of any ε-LDP mechanism.
        sampling: participation coins, or a secret sample by a trusted party.
        mechanism: sphere response, or PrivUnit with the budget of any ε-LDP mechanism.
        project: whether each estimate is projected into the ball before the mean.
        turns: of the codebook; 0 for as many as the product uses, in reports of 32 bits.
        directions: report only along this number of main directions of public gradients; 0 for all.
    """

    model: Literal["network", "linear"]
    people: int = 50_000
    epsilon: float = 1.0
    rate: float = 0.2
    step: float = 6.0
    clip: float = 1.0
    way: Way = "reports"
    public: int = 0
    start: Literal["edges", "drawn"] = "edges"
    length: Literal["clipped", "unit"] = "clipped"
    mover: Literal["momentum", "plain", "adam"] = "momentum"
    law: Literal["own", "any"] = "own"
    sampling: Literal["coins", "secret"] = "coins"
    mechanism: Literal["sphere", "privunit"] = "sphere"
    project: bool = False
    turns: int = 0
    directions: int = 0
    rounds: int = ROUNDS

    def __str__(self) -> str:
        settings = {one.name: getattr(self, one.name) for one in fields(self)}
        usual = {one.name: one.default for one in fields(self)}
        return " ".join(
            f"{name}={settings[name]}" for name in settings if settings[name] != usual[name]
        )

    @classmethod
    def read(cls, text: str) -> "Recipe":
        """Return the recipe of a text that `str` gave."""
        pairs = (pair.split("=") for pair in text.split())
        return cls(**{name: _value(value) for name, value in pairs})


def _value(text: str) -> Any:
    return literal_eval(text) if text[0].isdigit() or text in {"True", "False"} else text


@cache
def mechanism(
    dimension: int,
    *,
    people: int,
    epsilon: float,
    rate: float,
    rounds: int = ROUNDS,
    sampling: Literal["coins", "secret"] = "coins",
) -> Randomizer:
    """Return the planned mechanism for gradients of length 1: a coin before sphere response.

    Its local ε does not depend on the dimension, so it is planned once, for a small dimension.
    """
    small = Ball(radius=1.0, p=2, dimension=64)
    best = plan(
        {"people": Group(small, crowd=people if sampling == "coins" else round(rate * people))},
        epsilon=epsilon,
        delta=0.01 / people,
        goal="unbiased",
        rounds=rounds,
        rate=rate,
        sampling=sampling,
    )["people"].randomizer
    part = without_coin(best)
    if not isinstance(part, SphereResponse):
        raise Misuse(f"the plan for whole gradients must use sphere response, got {part.name}")
    whole = replace(part, domain=Ball(radius=1.0, p=2, dimension=dimension))
    return CoinResponse(part=whole, rate=rate) if isinstance(best, CoinResponse) else whole


@cache
def any_epsilon(*, people: int, epsilon: float, rate: float, rounds: int) -> float:
    """Return the local ε that is left if the accountant knows only the mechanism's ε."""
    return calibrate_rounds(
        lambda local: OwnCoin(law=AnyLdp(epsilon=local), rate=rate),
        epsilon=epsilon,
        crowd=people,
        delta=0.01 / people,
        rounds=rounds,
    )


@cache
def gaussian(*, people: int, epsilon: float, rate: float, rounds: int = ROUNDS) -> float:
    """Return the noise of a trusted server's sum for a clip of 1, by Google's dp-accounting.

    Its neighbours differ by one person more or less, which needs half the noise that ours need.
    """
    from dp_accounting import dp_event, mechanism_calibration  # noqa: PLC0415 - an extra
    from dp_accounting.pld import pld_privacy_accountant  # noqa: PLC0415 - an extra

    def event(noise: float) -> dp_event.DpEvent:
        one: dp_event.DpEvent = dp_event.GaussianDpEvent(noise)
        if rate < 1:
            one = dp_event.PoissonSampledDpEvent(rate, one)
        return dp_event.SelfComposedDpEvent(one, rounds)

    noise: float = mechanism_calibration.calibrate_dp_mechanism(
        pld_privacy_accountant.PLDAccountant,
        event,
        epsilon,
        0.01 / people,
        bracket_interval=mechanism_calibration.ExplicitBracketInterval(0.2, 60.0),
        tol=0.01,
    )
    return noise


def planned(recipe: Recipe, dimension: int) -> Randomizer:
    """Return the mechanism of a row for vectors of length 1."""
    settings = {"people": recipe.people, "epsilon": recipe.epsilon, "rate": recipe.rate}
    ball = Ball(radius=1.0, p=2, dimension=dimension)
    if recipe.mechanism == "privunit":
        return PrivUnit(domain=ball, epsilon=any_epsilon(**settings, rounds=recipe.rounds))
    if recipe.law == "any":
        epsilon = any_epsilon(**settings, rounds=recipe.rounds)
        return SphereResponse(domain=ball, epsilon=epsilon, turns=recipe.turns)
    best = mechanism(dimension, **settings, rounds=recipe.rounds, sampling=recipe.sampling)
    part = without_coin(best)
    if not isinstance(part, SphereResponse):
        raise Misuse(f"the plan for whole gradients must use sphere response, got {part.name}")
    turned = replace(part, turns=recipe.turns)
    return CoinResponse(part=turned, rate=recipe.rate) if isinstance(best, CoinResponse) else turned


def local_epsilon(recipe: Recipe) -> float:
    """Return the local ε of a report; infinite where nobody reports to a stranger."""
    return math.inf if recipe.way in {"central", "none", "alone"} else planned(recipe, 64).epsilon
