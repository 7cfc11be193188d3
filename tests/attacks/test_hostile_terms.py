"""Terms with a wrong mechanism or task: refused with a clear error, without accidents."""

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bench.examination import slowest
from coatcheck.domains import Box
from coatcheck.errors import Refused
from coatcheck.protocol import client
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.randomizers import CodebookResponse
from support.rounds import OPENS, SQUARE, SmallRound, signed_blindly

SMALL = SmallRound()


def look(change: Callable[[dict[str, Any]], object]) -> Invitation:
    """Examine terms that all parties signed with a change."""
    plain = json.loads(SMALL.round.document)
    change(plain)
    document, roles = json.dumps(plain).encode(), SMALL.roles
    signed = signed_blindly(document, server=roles.server, shufflers=roles.shufflers)
    limit = Limit(epsilon=2.5, delta=1e-3)
    return examine(signed, group="riders", trusted=roles.trusted, limit=limit, now=OPENS)


JUNK: list[Any] = [None, True, -1, 0, 2.5, 1e308, 10**18, "x", [], [1], [[]], {}, {"a": 1}]


def places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path of every value inside a JSON value."""
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain)
    found = []
    for step, value in inner:
        found.append((*path, step))
        if isinstance(value, dict | list):
            found += places(value, (*path, step))
    return found


def put(plain: Any, path: tuple[Any, ...], value: object) -> None:
    """Set the value at a path."""
    for step in path[:-1]:
        plain = plain[step]
    plain[path[-1]] = value


def put_in_mechanism(terms: dict[str, Any], path: tuple[Any, ...], value: object) -> None:
    """Change a parameter of the riders' mechanism."""
    put(terms["groups"][0]["randomizer"], path, value)


@pytest.mark.parametrize("path", places(SQUARE.params()), ids=str)
def test_malformed_mechanisms_are_refused_with_an_error(path: tuple[Any, ...]) -> None:
    """With any values in a mechanism's parameters, the client accepts or refuses."""
    for junk in JUNK:
        with contextlib.suppress(Refused):
            made = look(partial(put_in_mechanism, path=path, value=junk))
            assert made.randomizer.params() == made.group_terms.randomizer


@pytest.mark.parametrize("name", ["least-cost-matching", "neighbours", "learning", "echo"])
def test_malformed_tasks_are_refused_with_an_error(name: str) -> None:
    """Terms with corrupted people need a task that states its exposure."""
    needed: dict[str, dict[str, Any]] = {
        "neighbours": {"radius": 1.0},
        "learning": {"dimension": 2},
    }

    def change(plain: dict[str, Any], params: dict[str, Any]) -> None:
        plain["task"] = {"name": name, "params": {**needed.get(name, {}), **params}}
        for group in plain["groups"]:
            group.update(minimum=9)
            group["promise"].update(corrupted=1)

    fields = ("groups", "capacity", "scale", "gap")
    for params in ({"surprise": 1}, *({field: junk} for junk in JUNK for field in fields)):
        with pytest.raises(Refused, match=r"expose|gives only"):
            look(partial(change, params=params))


def test_incomplete_parameters_are_refused() -> None:
    """A mechanism or domain that leaves a parameter to a default is refused."""
    for path in places(SQUARE.params()):
        if isinstance(path[-1], str):
            with pytest.raises(Refused, match="cannot use a mechanism"):
                look(partial(drop, path=path))


def drop(terms: dict[str, Any], path: tuple[Any, ...]) -> None:
    """Remove a parameter of the riders' mechanism."""
    plain = terms["groups"][0]["randomizer"]
    for step in path[:-1]:
        plain = plain[step]
    del plain[path[-1]]


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([[0, 0], [1, 1], [0, 0]], "has a point twice"),
        ([[0, 0], [9, 0]], "points of the lattice"),
        ([[i, 0] for i in range(4097)], "1 to 4096 points"),
    ],
    ids=("repeated", "outside", "too many"),
)
def test_bad_codebooks_are_refused_before_any_work(
    points: list[list[int]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points that repeat, leave the lattice or are too many cost no randomness and no law."""
    domain = Box((0.0, 0.0), (1.0, 1.0), steps=8)
    good = CodebookResponse(domain=domain, epsilon=1.0, points=((0, 0), (1, 1))).params()
    monkeypatch.setattr(CodebookResponse, "heads", property(lambda _: pytest.fail("computed")))
    monkeypatch.setattr(client, "_examined", lambda *_, **__: pytest.fail("computed"))
    with pytest.raises(Refused, match=words):
        look(lambda plain: plain["groups"][0].update(randomizer={**good, "points": points}))


def test_examining_costs_little_whatever_terms_say() -> None:
    """The largest mechanisms of SPEC section 13: `python -m bench examination` has the figures.

    It aims at 50 ms; a loaded machine gets ten times that.
    """
    found = slowest((63.9,), ((1_000, 1e-6), (1_000_000_000, 1e-12)), looks=2)
    assert len(found) > 10
    assert {name: cost for name, cost in found.items() if cost[0] > 500} == {}
