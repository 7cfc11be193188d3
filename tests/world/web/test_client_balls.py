"""The browser's noise on balls and spheres: Python's integers, and the exact distribution."""

import json
import random
from typing import Any

import numpy as np
import pytest

from coatcheck.domains import Ball
from coatcheck.randomizers import (
    BoundedResponse,
    CodebookResponse,
    MinkowskiResponse,
    SphereResponse,
)
from vectors.kinds import outcome
from vectors.noises import near_reports
from world.web.browser import ROOT, Refusal, ask
from world.web.test_client_noise import check_distribution, plain

NORMS = (1.0, 2.0, float("inf"))
DISK = Ball(radius=3.0, p=2, dimension=2, steps=6)


def _values(ball: Ball, *, seed: int, count: int) -> list[list[float]]:
    """Return values all over a ball, some of them on its border or a rounding beyond."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, ball.dimension))
    rows /= np.linalg.norm(rows, ord=ball.p, axis=1, keepdims=True)
    rows[count // 2 :] *= draw.uniform(size=(count - count // 2, 1))
    corner = np.eye(1, ball.dimension) * -1.0
    values: list[list[float]] = (np.concatenate([rows, corner]) * ball.radius).tolist()
    return values


def _balls() -> list[Ball]:
    return [
        Ball(radius=0.7, p=p, dimension=d, steps=steps)
        for p in NORMS
        for d in (1, 2, 3, 8)
        for steps in (6, 20, 2**20, 2**24)
    ] + [Ball(radius=5.0, p=p, dimension=40, steps=2**20) for p in (1.0, float("inf"))]


def test_caps_and_codebooks_on_balls_are_the_same_integers() -> None:
    """Heads, bounds, lattice points and centers agree in every bit, laws to rounding."""
    draw = random.Random(5)  # noqa: S311 - parameters, not noise
    for ball in _balls():
        values = _values(ball, seed=6, count=12)
        points = ball.snap(values)
        mechanisms: list[Any] = []
        for radius in (1e-6, draw.uniform(0.3, 1.0), draw.uniform(0.9, 1.5)):
            epsilon = draw.uniform(0.1, 9)
            mechanisms.append(MinkowskiResponse(domain=ball, epsilon=epsilon, radius=radius))
            mechanisms.append(
                BoundedResponse(domain=ball, epsilon=epsilon, radius=min(radius, 1.0))
            )
        if ball.dimension <= 16:
            places = tuple(tuple(row) for row in np.unique(points, axis=0).tolist())
            mechanisms.append(
                CodebookResponse(domain=ball, epsilon=2.0, points=places, closest=len(places) // 2)
            )
        answers = ask(
            "mechanism", params=[mechanism.params() for mechanism in mechanisms], values=values
        )
        for mechanism, here in zip(mechanisms, answers, strict=True):
            assert here["points"] == points.tolist(), ball
            assert int(here["heads"]) == mechanism.heads, mechanism
            assert (here["low"], here["high"]) == (mechanism.low.tolist(), mechanism.high.tolist())
            assert here["centers"] == near_reports(mechanism, points).tolist()
            law = plain(mechanism.law)
            law_values = [here["law"][name] for name in law]
            assert law_values == pytest.approx(list(law.values()), rel=1e-6, abs=1e-12), mechanism


@pytest.mark.parametrize(
    ("dimension", "size", "steps", "turns"),
    [(1, 16, 6, 4096), (3, 64, 64, 8), (40, 1024, 2**24, 64), (900, 2048, 2**20, 2**21)],
)
def test_near_codewords_of_spheres_are_the_same(
    dimension: int, size: int, steps: int, turns: int
) -> None:
    """In every turn the browser finds the codewords that Python finds."""
    ball = Ball(radius=2.0, p=2, dimension=dimension, steps=steps)
    mechanism = SphereResponse(
        domain=ball, epsilon=4.0, size=size, closest=7, turns=turns, seed=2**53 - 1
    )
    points = ball.snap(_values(ball, seed=8, count=5)).tolist()
    listed = {"params": mechanism.params(), "points": points, "turns": [0, 3, turns - 1]}
    case: dict[str, Any] = {"kind": "directions", "input": listed}
    folder = ROOT / "tests/vectors"
    signed, upload = (
        json.loads((folder / name).read_text())["cases"][0]["input"]
        for name in ("terms.json", "uploads.json")
    )
    (here,) = ask("vectors", cases=[case], signed=signed, upload=upload)
    assert here.get("fields") == outcome(case)[1], here
    (described,) = ask("mechanism", params=[mechanism.params()], values=[])
    assert [described["law"][name] for name in plain(mechanism.law)] == pytest.approx(
        list(plain(mechanism.law).values()), rel=1e-6
    )


@pytest.mark.parametrize(
    "mechanism",
    [
        MinkowskiResponse(domain=DISK, epsilon=1.0, radius=0.7),
        BoundedResponse(domain=DISK, epsilon=2.0, radius=0.4),
        MinkowskiResponse(
            domain=Ball(radius=1.0, p=1, dimension=2, steps=6), epsilon=1.0, radius=0.7
        ),
        BoundedResponse(
            domain=Ball(radius=1.0, p=1, dimension=2, steps=6), epsilon=1.0, radius=0.7
        ),
        CodebookResponse(domain=DISK, epsilon=1.0, points=((3, 0), (-2, 2), (0, 0)), closest=2),
        SphereResponse(domain=DISK, epsilon=2.0, size=16, closest=3, turns=4, seed=1),
    ],
    ids=["minkowski-l2", "bounded-l2", "minkowski-l1", "bounded-l1", "codebook", "sphere"],
)
def test_reports_follow_the_exact_distribution(mechanism: Any) -> None:
    """20,000 fresh draws pass a chi-square test: each fails by chance once in a million runs."""
    check_distribution(mechanism, (2, -1))


_L2 = Ball(radius=1.0, p=2, dimension=3, steps=64)
_SPHERE = SphereResponse(domain=_L2, epsilon=3.0, size=64, closest=5, turns=8).params()
_WIDE = Ball(radius=1.0, p=2, dimension=9)
_CUBIC = Ball(radius=1.0, p=3, dimension=2)
_CROSS = Ball(radius=1.0, p=1, dimension=1025)


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        (MinkowskiResponse(domain=_WIDE, epsilon=1.0, radius=0.5).params(), "up to dimension 8"),
        (BoundedResponse(domain=_CUBIC, epsilon=1.0, radius=0.5).params(), "1, 2 and inf only"),
        (
            MinkowskiResponse(domain=_CROSS, epsilon=1.0, radius=0.5).params(),
            "at most 1024 numbers",
        ),
        (
            {"name": "grid", "domain": _L2.params(), "epsilon": 1.0, "cells": [2], "decode": "raw"},
            "grid response needs a box",
        ),
        (_SPHERE | {"size": 0}, "sphere response needs a ball"),
        (_SPHERE | {"size": 1 << 17}, "sphere response needs a ball"),
        (_SPHERE | {"turns": 1 << 27}, "sphere response needs a ball"),
        (_SPHERE | {"seed": 1 << 53}, "sphere response needs a ball"),
        (_SPHERE | {"domain": {**_L2.params(), "p": 1.0}}, "sphere response needs a ball"),
        (_SPHERE | {"domain": {**_L2.params(), "dimension": 5001}}, "sphere response needs a ball"),
        (_SPHERE | {"domain": {**_L2.params(), "dimension": 2**40}}, "a ball needs"),
        (_SPHERE | {"decode": "median"}, "has no decode median"),
    ],
)
def test_what_is_not_drawn_in_whole_numbers_is_refused(
    params: dict[str, Any], sentence: str
) -> None:
    """Norms and sizes beyond the page's are refused with a sentence, at once."""
    with pytest.raises(Refusal, match=sentence):
        ask("refusal", params=params)
