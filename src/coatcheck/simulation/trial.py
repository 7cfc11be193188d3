"""A trial: the quality of a round on given places, before anybody is asked to take part.

It plans a round for a promise, runs the real roles in memory, and measures how well people are
served, compared with the same task without noise and with partners drawn at random. It knows every
value, as a simulation does, so it must not serve people. Paper, sections on utility experiments.

    >>> import numpy as np
    >>> from coatcheck.simulation.trial import box_around, make_task, run_trial
    >>> places = np.random.default_rng(1).uniform(size=(2, 60, 2))
    >>> groups = {"riders": places[0], "drivers": places[1]}
    >>> box = box_around(groups, degrees=False)
    >>> task = make_task("least-cost-matching", names=tuple(groups), box=box)
    >>> trial = run_trial(groups, task=task, box=box, epsilon=2.0, delta=1e-4, entropy=1)
    >>> trial.service.private.served
    60
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.accounting.amplification import Guarantee
from coatcheck.domains import Ball, Box, Floats
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse, OutsideDomain
from coatcheck.planning import Group, GroupPlan, Recommendation, plan
from coatcheck.planning.budget_search import usual_delta
from coatcheck.planning.settled_rounds import has_letters
from coatcheck.protocol.server import numbers
from coatcheck.protocol.terms import SettleTerms
from coatcheck.randomizers import Decode, Goal, Prior
from coatcheck.randomizers.choice import misses
from coatcheck.randomizers.density import LEARNED, decode_batch
from coatcheck.simulation.quality import Service, measure, named_alone, names_many
from coatcheck.simulation.round import Outcome, simulate, view
from coatcheck.simulation.settling import find_near, settle_round
from coatcheck.tasks.contract import scale_of
from coatcheck.tasks.neighbours import WANTED

_LOCATION_TASKS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "least-cost-matching": (2, ("candidates",)),
    "maximum-matching": (2, ("radius", "candidates")),
    "neighbours": (1, ("radius", "limit")),
}
"""Tasks on places: how many groups they have, and which options."""
LISTED: Final = 40
"""How many candidates a person tests by letter, if nobody says."""
_MARGIN: Final = 0.02


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A simulated round, and how well it served people.

    Attributes:
        errors: for each group the distance between each estimate and the true place.
        unlearned: the groups with too few reports to learn a density for their decoder.
        settled: the pairs that settled by letter, by row; empty if people did not settle.
    """

    outcome: Outcome
    box: Box
    errors: tuple[Floats, ...]
    service: Service
    unlearned: tuple[str, ...] = ()
    settled: tuple[tuple[int, int], ...] = ()


def box_around(groups: Mapping[str, Floats], *, degrees: bool) -> Box:
    """Return the box of all places with a small margin.

    *Assumes:* a trial. A real round states its box before it sees a place, because the edges of
    this box are somebody's coordinates.
    """
    places = np.concatenate(list(groups.values()))
    low, high = places.min(axis=0), places.max(axis=0)
    room = _MARGIN * np.maximum(high - low, 1e-3 * np.maximum(1.0, np.abs(high)))
    low, high = low - room, high + room
    if degrees:
        low, high = np.maximum(low, (-90, -180)), np.minimum(high, (90, 180))
    return make_box(low.tolist(), high.tolist(), degrees=degrees)


def make_box(low: Sequence[float], high: Sequence[float], *, degrees: bool) -> Box:
    """Return the box between two corners of a map or of a plane."""
    if degrees:
        return Box.geographic(south=low[0], west=low[1], north=high[0], east=high[1])
    return Box(tuple(low), tuple(high))


def make_task(
    name: str,
    *,
    names: Sequence[str],
    box: Box,
    radius: float | None = None,
    limit: int | None = None,
    candidates: int | None = None,
) -> tasks.Task:
    """Build a task on places from the names of its groups and its options."""
    if name not in _LOCATION_TASKS:
        raise Misuse(f"the task must be {' | '.join(_LOCATION_TASKS)} for places, not {name!r}")
    needed, takes = _LOCATION_TASKS[name]
    if len(names) != needed:
        raise Misuse(
            f"{name} needs {needed} group{'s' * (needed > 1)} of people, but the input has"
            f" {len(names)} ({', '.join(names)}); give one file per group, or --group-by a column"
        )
    values = {"radius": radius, "limit": limit, "candidates": candidates}
    options = {option: value for option, value in values.items() if value is not None}
    for option in options:
        if option not in takes:
            raise Misuse(f"{name} has no {option}; leave --{option} out, or choose another task")
    if "radius" in takes and radius is None:
        unit = "metres" if box.degrees else "the unit of the columns"
        raise Misuse(f"{name} needs --radius, the distance that counts as near, in {unit}")
    return tasks.from_params(
        {"name": name, "groups": list(names), "scale": list(scale_of(box)), **options}
    )


def by_letter(task: tasks.Task, *, stated: bool) -> tuple[tasks.Task, tasks.Task]:
    """Return neighbours who find out by letter who is near, and the same task without letters.

    If the limit is not stated, as many are listed as most people need to find somebody, and the
    server alone names a few.
    """
    params = task.params()
    listed = params["limit"] if stated else LISTED
    with_letters = {**params, "limit": listed, "mutual": True, "by": "chance"}
    return tasks.from_params(with_letters), tasks.from_params({**params, "limit": WANTED})


def plan_groups(
    sizes: Sequence[int],
    *,
    task: tasks.Task,
    domain: Box | Ball,
    epsilon: float,
    delta: float | None = None,
    corrupted: Sequence[int] = (),
    goal: Goal = "mean",
    prior: Prior | None = None,
    decoys: int | None = None,
) -> tuple[Recommendation, ...]:
    """Choose each group's mechanism so that its crowd keeps (ε, δ), by default with the usual δ.

    If people settle by letter, trial rounds choose it and the number of decoys, unless `decoys` is
    given: 0 chooses by the mean error.

    *Guarantee:* every group keeps (ε, δ) if all its people come, except for the corrupted and the
    people whom answers to the corrupted expose.
    """
    helpers = tuple(corrupted) or (0,) * len(sizes)
    groups = {
        name: Group(domain, crowd=size, corrupted=count)
        for name, size, count in zip(task.groups, sizes, helpers, strict=True)
    }
    if delta is None:
        delta = usual_delta(sizes)
    if has_letters(task) and decoys != 0:
        return plan(
            groups, epsilon=epsilon, delta=delta, goal="task", task=task, prior=prior, decoys=decoys
        ).groups
    planned = plan(groups, epsilon=epsilon, delta=delta, goal=goal, task=task, prior=prior)
    if task.name == "neighbours":
        # Everybody with a report in one cell would get the same few neighbours, and on a map it
        # would hide that each report is one person's: neighbours need places that differ.
        return tuple(group.without("grid") for group in planned.groups)
    return planned.groups


def describe_group(group: GroupPlan, promise: Guarantee) -> dict[str, Any]:
    """Return the mechanism and the promise of a group, as plain data."""
    return {
        "name": group.name,
        "people": group.minimum,
        "randomizer": group.randomizer.name,
        "decode": group.decode,
        "local_epsilon": group.randomizer.epsilon,
        "decoys": group.decoys,
        "epsilon": promise.epsilon,
        "delta": promise.delta,
        "anonymous": promise.anonymous,
        "guarantee": str(promise),
    }


def run_trial(
    groups: Mapping[str, Floats],
    *,
    task: tasks.Task,
    box: Box,
    epsilon: float,
    delta: float | None = None,
    corrupted: Sequence[int] = (),
    entropy: Entropy | int = 0,
    clamp: bool = False,
    prior: Prior | None = None,
    settle: SettleTerms | None = None,
    alone: tasks.Task | None = None,
    decoys: int | None = None,
) -> Trial:
    """Run a round of everybody in memory, and measure how well they are served.

    `entropy` is a source, or a seed. With `settle` people settle by letter, by these terms; `alone`
    is the task that would serve them without letters. `decoys` are as for `plan_groups`.
    """
    values = [np.asarray(groups[name], dtype=np.float64) for name in task.groups]
    for name, rows in zip(task.groups, values, strict=True):
        if len(rows) < 2:
            raise Misuse(f"group {name!r} needs at least 2 people to hide among, not {len(rows)}")
        _check_inside(rows, name, box=box, clamp=clamp)
    if clamp:
        values = [np.clip(rows, box.lo, box.hi) for rows in values]
    if prior is not None:
        for rows in (*values, np.concatenate(values)):
            prior.check_not(rows)
    plans = plan_groups(
        [len(rows) for rows in values],
        task=task,
        domain=box,
        epsilon=epsilon,
        delta=delta,
        corrupted=corrupted,
        prior=prior,
        decoys=decoys,
    )
    draws = source(entropy)
    outcome = simulate(plans, values, task=task, entropy=draws, name="trial", prior=prior)
    settled = None if settle is None else _settled(outcome, values, task=task, terms=settle)
    server_view, terms = view(outcome, "server"), outcome.round.terms.groups
    nobody = (-1, -1)
    owners = [
        [outcome.whose.get(address, nobody)[1] for address in group]
        for group in server_view.addresses
    ]
    estimates, unlearned = [], []
    for group, of, reports in zip(outcome.groups, terms, server_view.reports, strict=True):
        how = cast("Decode", of.decode)
        estimates.append(numbers(group.randomizer, reports, how, prior=prior, decoys=group.decoys))
        if how in LEARNED and not _learned(group, reports, prior):
            unlearned.append(of.name)
    decoded = zip(estimates, values, owners, strict=True)
    named = [(row, other) for row, others in enumerate(outcome.partners(0)) for _, other in others]
    if names_many(task) or alone is not None:
        pairs = named_alone(alone or task, estimates, owners)
        named = [pair for pair in pairs if min(pair) >= 0]
    return Trial(
        outcome=outcome,
        box=box,
        errors=tuple(_errors(box, *group) for group in decoded),
        service=measure(named, values, task=alone or task, box=box, entropy=draws, settled=settled),
        unlearned=tuple(unlearned),
        settled=tuple(settled or ()),
    )


def _learned(group: GroupPlan, reports: NDArray[np.int64], prior: Prior | None) -> bool:
    """Return whether a batch was large enough to learn from."""
    return decode_batch(group.randomizer, reports, prior=prior, decoys=group.decoys).learned


def _errors(box: Box, estimates: Floats, values: Floats, owners: Sequence[int]) -> Floats:
    """Return how far the estimates of reports are from the values; decoys have no value."""
    own = np.array(owners, dtype=np.int64)
    return misses(box, estimates[own >= 0], values[own[own >= 0]])


def _settled(
    outcome: Outcome, values: Sequence[Floats], *, task: tasks.Task, terms: SettleTerms
) -> list[tuple[int, int]]:
    """Let people settle: with one of their candidates, or with everybody near on their list."""
    if names_many(task):
        return settle_round(outcome, values, terms=terms)
    return find_near(outcome, values[0], terms=terms)


def _check_inside(rows: Floats, name: str, *, box: Box, clamp: bool) -> None:
    try:
        box.snap(rows, clamp=clamp)
    except OutsideDomain as error:
        raise OutsideDomain(f"group {name!r}, {error}") from None
