"""Drafting: from mechanisms and a task to the numbers that terms must state.

Whoever runs a round writes its terms with this; sizes, exposure and the promise are computed, so
that the people's own arithmetic finds them true. Sees no key but public ones and no value.
SPEC section 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify
from coatcheck.errors import Misuse
from coatcheck.protocol.settling.nearness import MOST_CELLS, reply_size
from coatcheck.protocol.settling.rules import word_size
from coatcheck.protocol.terms import (
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

_OPTIONAL = {"letter_size", "grace", "settle", "trap_delta", "window"}
_FIELDS = {"round", "task", "groups", *_OPTIONAL}
USUAL_ANSWER = 128
"""Bytes of an answer unless the task needs more: one size for most rounds tells them apart less."""


TRAP_SHARE = 1e-3
"""The share of δ for traps unless a draft states it: a smaller one costs a few more people."""


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """What is decided for a group of a round; the terms' numbers are computed from it.

    Attributes:
        randomizer: how members randomize.
        minimum: the crowd without which nothing is released.
        delta: the chance that the promise may fail.
        decode: how the server reads reports; the randomizer's usual way by default.
        corrupted: how many members may help the server without breaking the promise.
        note_size: bytes of the note that travels beside a report, unrandomized.
    """

    name: str
    randomizer: Randomizer
    minimum: int
    delta: float
    decode: str | None = None
    corrupted: int = 0
    note_size: int = 0

    def params(self) -> dict[str, Any]:
        """Give the plan as plain data, as a draft in JSON holds it."""
        names = ("name", "minimum", "delta", "decode", "corrupted", "note_size")
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
    """Compute what the terms say of each group.

    *Guarantee:* the promise is what the crowd at its minimum gives, less the corrupted and those
    whom the answers to the corrupted expose. Its δ has the chance that traps count wrongly.
    """
    if len(plans) != len(task.groups):
        raise Misuse(f"task {task.name} has the groups {', '.join(task.groups)}: plan each once")
    if isinstance(task, tasks.NeedsCrowds):
        for plan, least in zip(plans, task.least_crowds(), strict=True):
            if plan.minimum < least:
                raise Misuse(
                    f"group {plan.name!r} may have as few as {plan.minimum} people, but task"
                    f" {task.name} with these parameters needs {least}: raise its minimum, or ask"
                    " for fewer per person"
                )
    if any(isinstance(plan.randomizer, CoinResponse) for plan in plans):
        tasks.check_coin_allowed(task, sizes=[plan.minimum for plan in plans])
    exposed = tasks.exposure(
        task,
        sizes=[plan.minimum for plan in plans],
        corrupted=[plan.corrupted for plan in plans],
        each=shufflers,
    )
    sizes = least_sizes(task, [plan.randomizer for plan in plans], suite=suite)
    made = []
    for plan, (payload, answer), told in zip(plans, sizes, exposed, strict=True):
        guarantee = amplify(
            plan.randomizer.law,
            crowd=plan.minimum,
            delta=delta_less(plan.delta, trap_delta),
            corrupted=plan.corrupted,
            exposed=told,
        )
        made.append(
            GroupTerms(
                name=plan.name,
                randomizer=plan.randomizer.params(),
                decode=plan.decode or plan.randomizer.decodes[0],
                minimum=plan.minimum,
                payload_size=payload,
                answer_size=max(USUAL_ANSWER, answer),
                promise=Promise(guarantee.epsilon, plan.delta, plan.corrupted, told),
                note_size=plan.note_size,
            )
        )
    return tuple(made)


def draft_work(task: tasks.Task) -> Work:
    """Write a task as the terms name it."""
    params = {key: value for key, value in task.params().items() if key != "name"}
    return Work(task.name, params)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What an organizer decides of a round; the roles' keys and the times make it terms.

    Attributes:
        trap_delta: the part of every group's δ that is for traps, if there are several shufflers;
            a thousandth of the smallest by default.
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
        """Compute sizes, exposure and promises; `times` are when it opens, closes, expires."""
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
            return 0.0  # whatever a draft says: a single shuffler counts uploads
        least = min(group.delta for group in self.groups)
        found = TRAP_SHARE * least if self.trap_delta is None else self.trap_delta
        if not 0 < found < min(least, 0.5):
            raise Misuse(f"`trap_delta` is a part of the smallest delta, {least:g}: not {found:g}")
        return found


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
    made = Draft(task=task, groups=groups, settle=_settle(plain.get("settle"), task), **rest)
    _check_letters(made)
    return made


def _settle(plain: object, task: tasks.Task) -> SettleTerms | UnsetType:
    """Read how candidates settle, and refuse it where there are none."""
    if plain is None:
        return UNSET
    try:
        found = msgspec.convert(plain, SettleTerms)
    except msgspec.ValidationError as error:
        raise Misuse(f"`settle` of the draft does not fit: {error}") from None
    if task.name == "neighbours" and not found.asks:
        if not getattr(task, "mutual", False):
            raise Misuse("neighbours settle who is near with those who list them: set `mutual`")
        return found
    if not found.asks or getattr(task, "candidates", 1) < 2:
        raise Misuse(
            f"task {task.name} with these parameters gives nobody to settle with: ask it for"
            " candidates, and state `asks`, or leave `settle` out"
        )
    return found


def _check_letters(made: Draft) -> None:
    """Refuse letters that are too small to settle by."""
    if made.settle is UNSET:
        return
    axes, least = max(group.randomizer.domain.dimension for group in made.groups), 0
    radius = getattr(made.task, "radius", 0.0)
    if made.settle.asks:
        least = word_size(axes)
    elif radius > MOST_CELLS * made.settle.cell:
        raise Misuse(f"a radius has at most {MOST_CELLS} cells: make `cell` of `settle` larger")
    else:
        least = reply_size(radius, side=made.settle.cell, axes=axes)
    if least > made.letter_size:
        raise Misuse(f"to settle, letters need {least} bytes: state a `letter_size` of as many")


def _group(plain: dict[str, Any]) -> GroupPlan:
    """Read a group as written by hand, or as `coatcheck plan` gives it."""
    try:
        return GroupPlan(**{**plain, "randomizer": from_draft(plain["randomizer"])})
    except (TypeError, KeyError) as error:
        raise Misuse(f"a group of the draft does not fit: {error}") from None
