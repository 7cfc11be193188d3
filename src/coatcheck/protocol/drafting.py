"""Drafts of terms: sizes, exposure and promises, computed from mechanisms and a task.

An organizer's software writes terms with this file. It computes the numbers in the same way as the
people's clients, so that these can confirm them. It sees public keys only, and no values. SPEC
section 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck import tasks
from coatcheck.accounting.reference_bound import promised
from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.protocol.settling.rings import Rings
from coatcheck.protocol.settling.rules import least_letter
from coatcheck.protocol.terms import (
    MOST_DECOYS,
    GroupTerms,
    Notary,
    Party,
    Promise,
    SettleTerms,
    ShufflerParty,
    Suite,
    Terms,
    Work,
    delta_less,
)
from coatcheck.protocol.wire.messages import least_sizes
from coatcheck.randomizers import CoinResponse, Randomizer, from_draft
from coatcheck.tasks.contract import scale_of

_OPTIONAL = {"letter_size", "grace", "settle", "trap_delta", "window"}
_FIELDS = {"round", "task", "groups", *_OPTIONAL}
USUAL_ANSWER = 128
"""Bytes of an answer unless the task needs more, so that most rounds look alike."""
TRAP_SHARE = 1e-3
"""The share of δ for traps unless a draft states it: a smaller share costs a few more people."""


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """What an organizer decides for a group; the numbers of its terms are computed from it.

    Attributes:
        randomizer: how members randomize.
        minimum: the crowd without which nothing is released.
        delta: the chance that the promise may fail.
        decode: the server's decoder; by default the randomizer's first.
        corrupted: how many members may help the server without breaking the promise.
        note_size: bytes of the note that travels beside a report, unrandomized.
        decoys: how many uniform reports each member hands in beside their own.
    """

    name: str
    randomizer: Randomizer
    minimum: int
    delta: float
    decode: str | None = None
    corrupted: int = 0
    note_size: int = 0
    decoys: int = 0

    def params(self) -> dict[str, Any]:
        """Return the plan as plain data, as a draft in JSON has it."""
        names = ("name", "minimum", "delta", "decode", "corrupted", "note_size", "decoys")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "randomizer": self.randomizer.params()}


def draft_groups(
    plans: Sequence[GroupPlan],
    *,
    task: tasks.Task,
    suite: Suite,
    shufflers: int = 1,
    trap_delta: float = 0.0,
) -> tuple[GroupTerms, ...]:
    """Compute the terms of each group.

    *Guarantee:* the promise is what the minimum crowd gives, less the corrupted and the people whom
    answers to the corrupted expose, and every client confirms it (S20.13). Its δ includes the
    chance that traps count wrongly.
    """
    if len(plans) != len(task.groups):
        raise Misuse(
            f"task {task.name} needs one plan for each of its groups, {', '.join(task.groups)}; got"
            f" {len(plans)}"
        )
    if isinstance(task, tasks.NeedsCrowds):
        for plan, least in zip(plans, task.least_crowds(), strict=True):
            if plan.minimum < least:
                raise Misuse(
                    f"`minimum` of group {plan.name!r} is {plan.minimum}, but task {task.name} with"
                    f" these parameters needs {least}: raise it, or ask for fewer per person"
                )
    if any(isinstance(plan.randomizer, CoinResponse) for plan in plans):
        tasks.check_coin_allowed(task, sizes=[plan.minimum for plan in plans])
    if any(plan.decoys for plan in plans):
        tasks.check_decoys_allowed(task, sizes=[plan.minimum for plan in plans])
    for plan in plans:
        _check_decoys(plan)
    exposed = tasks.exposure(
        task,
        sizes=[plan.minimum for plan in plans],
        corrupted=[plan.corrupted for plan in plans],
        shufflers=shufflers,
        decoys=[plan.decoys for plan in plans],
    )
    sizes = least_sizes(task, [plan.randomizer for plan in plans], suite=suite)
    groups = []
    for plan, (payload, answer), exposure in zip(plans, sizes, exposed, strict=True):
        guarantee = promised(
            plan.randomizer.law,
            crowd=plan.minimum,
            delta=delta_less(plan.delta, trap_delta),
            corrupted=plan.corrupted,
            exposed=exposure,
            decoys=plan.decoys,
        )
        groups.append(
            GroupTerms(
                name=plan.name,
                randomizer=plan.randomizer.params(),
                decode=plan.decode or plan.randomizer.decodes[0],
                minimum=plan.minimum,
                payload_size=payload,
                answer_size=max(USUAL_ANSWER, answer),
                promise=Promise(guarantee.epsilon, plan.delta, plan.corrupted, exposure),
                note_size=plan.note_size,
                decoys=plan.decoys,
            )
        )
    return tuple(groups)


def _check_decoys(plan: GroupPlan) -> None:
    """Refuse decoys that the terms could not have, or that would be told from reports."""
    if type(plan.decoys) is not int or not 0 <= plan.decoys <= MOST_DECOYS:
        raise Misuse(
            f"`decoys` of group {plan.name!r} must be a whole number from 0 to {MOST_DECOYS}, got"
            f" {plan.decoys!r}"
        )
    if plan.decoys and plan.note_size:
        raise Misuse(
            f"group {plan.name!r} cannot have both `decoys` and notes: a note would show which"
            " reports are decoys"
        )
    if plan.decoys and not plan.randomizer.takes_decoys:
        raise Misuse(
            f"group {plan.name!r} cannot have decoys, because {plan.randomizer.name} draws none:"
            " choose a grid, a codebook, or an exact minkowski or bounded response"
        )


def draft_work(task: tasks.Task) -> Work:
    """Return the task in the form of the terms."""
    params = {key: value for key, value in task.params().items() if key != "name"}
    return Work(task.name, params)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What an organizer decides for a round; with the roles' keys and the times it becomes terms.

    Attributes:
        trap_delta: the part of every group's δ that is for traps if there are several shufflers;
            by default a thousandth of the smallest δ.
    """

    round: str
    task: tasks.Task
    groups: Sequence[GroupPlan]
    letter_size: int = 256
    grace: int = 3600
    settle: SettleTerms | UnsetType = UNSET
    trap_delta: float | None = None
    window: int | UnsetType = UNSET

    def terms(
        self,
        *,
        suite: Suite,
        server: Party,
        shufflers: Sequence[ShufflerParty],
        board: Notary,
        times: tuple[int, int, int],
    ) -> Terms:
        """Compute sizes, exposure and promises; `times` are those to open, close, expire."""
        opens, closes, expires = times
        traps, hops = self._trap_delta(len(shufflers)), len(shufflers)
        return Terms(
            round=self.round,
            suite=suite.name,  # type: ignore[arg-type] # the suites are the two of the terms
            groups=draft_groups(
                self.groups, task=self.task, suite=suite, shufflers=hops, trap_delta=traps
            ),
            task=draft_work(self.task),
            server=server,
            shufflers=tuple(shufflers),
            board=board,
            opens=opens,
            closes=closes,
            expires=expires,
            grace=self.grace,
            letter_size=self.letter_size,
            trap_delta=traps,
            settle=self.settle,
            window=self.window,
        )

    def _trap_delta(self, shufflers: int) -> float:
        if shufflers == 1:
            return 0.0  # a single shuffler counts uploads and needs no traps
        least = min(group.delta for group in self.groups)
        trap_delta = TRAP_SHARE * least if self.trap_delta is None else self.trap_delta
        if not 0 < trap_delta < min(least, 0.5):
            raise Misuse(
                f"`trap_delta` must be above 0 and below the smallest delta, {least:g}, and 0.5;"
                f" got {trap_delta:g}"
            )
        return trap_delta


def read_draft(plain: dict[str, Any]) -> Draft:
    """Read a draft as an organizer writes it in JSON."""
    missing, extra = _FIELDS - _OPTIONAL - set(plain), set(plain) - _FIELDS
    if missing or extra:
        raise Misuse(
            f"a draft has the fields {', '.join(sorted(_FIELDS))};"
            f" missing {sorted(missing)}, unknown {sorted(extra)}"
        )
    named = ("round", "letter_size", "grace", "trap_delta", "window")
    rest = {name: plain[name] for name in named if name in plain}
    groups = tuple(_group(group) for group in plain["groups"])
    task = tasks.from_params(plain["task"])
    settling = _settling_terms(plain.get("settle"), task, groups[0].randomizer.domain)
    draft = Draft(task=task, groups=groups, settle=settling, **rest)
    _check_letters(draft)
    return draft


def usual_settling(task: tasks.Task, domain: object) -> SettleTerms:
    """Return the usual terms of settling for a task with candidates, or with mutual neighbours.

    Neighbours learn of each other whether they are near. Candidates learn the ring: the last one
    ends at the distance that counts as near, and nobody settles with somebody beyond it.
    """
    radius = getattr(task, "radius", None)
    if task.name == "neighbours" and radius is not None:
        return SettleTerms(cell=radius / 5, rings=(0.9 * radius,), asks=())
    if radius is None and isinstance(domain, Box):
        factors = scale_of(domain) or (1.0,) * domain.dimension
        sides = zip(domain.lo, domain.hi, factors, strict=True)
        radius = min((high - low) * factor for low, high, factor in sides) / 5
    if radius is None:
        raise Misuse("for this domain and task, state the `cell` and the `rings` of `settle`")
    rings = tuple(radius * n / _RINGS for n in range(1, _RINGS + 1))
    return SettleTerms(cell=radius / _CELLS, rings=rings)


_RINGS = 4
_CELLS = 4.5  # the radius of the last ring in cells: a table of 9 x 9 in the plane


def _settling_terms(plain: object, task: tasks.Task, domain: object) -> SettleTerms | UnsetType:
    """Read the terms of settling; refuse them for a task that gives no candidates."""
    if plain is None:
        return UNSET
    if isinstance(plain, dict) and not {"cell", "rings"} <= set(plain):
        plain = {**msgspec.to_builtins(usual_settling(task, domain)), **plain}
    try:
        settling = msgspec.convert(plain, SettleTerms)
    except msgspec.ValidationError as error:
        raise Misuse(f"`settle` of the draft does not fit: {error}") from None
    if task.name == "neighbours" and not settling.asks:
        if not getattr(task, "mutual", False):
            raise Misuse("to settle, neighbours must list each other: set `mutual` of the task")
        return settling
    if not settling.asks or getattr(task, "candidates", 1) < 2:
        raise Misuse(
            f"task {task.name} with these parameters gives no candidates to settle with: set"
            " `candidates` of the task and `asks` of `settle`, or leave `settle` out"
        )
    return settling


def _check_letters(draft: Draft) -> None:
    """Refuse letters that are too small to settle by."""
    if draft.settle is UNSET:
        return
    axes = max(group.randomizer.domain.dimension for group in draft.groups)
    least = least_letter(Rings(draft.settle.rings, side=draft.settle.cell, axes=axes))
    if least > draft.letter_size:
        raise Misuse(f"to settle, `letter_size` must be at least {least}, got {draft.letter_size}")


def _group(plain: dict[str, Any]) -> GroupPlan:
    """Read a group, written by hand or by `coatcheck plan`."""
    try:
        return GroupPlan(**{**plain, "randomizer": from_draft(plain["randomizer"])})
    except (TypeError, KeyError) as error:
        raise Misuse(f"a group of the draft does not fit: {error}") from None
