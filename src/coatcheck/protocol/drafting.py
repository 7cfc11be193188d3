"""Drafting: from mechanisms and a task to the numbers that terms must state.

Whoever runs a round writes its terms with this; sizes, exposure and the promise are computed, so
that the people's own arithmetic finds them true. Sees no key but public ones and no value.
SPEC section 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.messages import PayloadFormat, answer_room
from coatcheck.protocol.suites import Suite
from coatcheck.protocol.terms import Group, Notary, Party, Promise, Work
from coatcheck.randomizers import Randomizer, from_draft

_FIELDS = {"round", "task", "groups", "letter_size"}
USUAL_ANSWER = 128
"""Bytes of an answer unless the task needs more: one size for most rounds tells them apart less."""


@dataclass(frozen=True, kw_only=True)
class GroupDraft:
    """A group as its organizer thinks of it.

    Attributes:
        decode: how the server reads reports; the randomizer's usual way by default.
        minimum: the crowd without which nothing is released.
        corrupted: how many members may help the server without breaking the promise.
    """

    name: str
    randomizer: Randomizer
    minimum: int
    delta: float
    decode: str | None = None
    corrupted: int = 0
    note_size: int = 0


def party(name: str, keys: KeyPairs) -> Party:
    """Introduce someone who signs and opens."""
    return Party(name, keys.signing.public_raw.hex(), keys.opening.public_raw.hex())


def notary(name: str, keys: KeyPairs) -> Notary:
    """Introduce someone who only signs."""
    return Notary(name, keys.signing.public_raw.hex())


def draft_groups(
    drafts: Sequence[GroupDraft], *, task: tasks.Task, suite: Suite
) -> tuple[Group, ...]:
    """Compute what the terms say of each group.

    *Guarantee:* the promise is what the crowd at its minimum gives, less the corrupted and those
    whom the answers to the corrupted expose.
    """
    if len(drafts) != len(task.groups):
        raise Misuse(f"task {task.name} has the groups {', '.join(task.groups)}: draft each once")
    exposed = tasks.exposure(
        task,
        sizes=[draft.minimum for draft in drafts],
        corrupted=[draft.corrupted for draft in drafts],
    )
    formats = [_format(draft.randomizer) for draft in drafts]
    rooms = task.answer_size([draft.randomizer.domain.dimension for draft in drafts])
    widest = max(format_.size for format_ in formats)
    made = []
    for draft, format_, told, room in zip(drafts, formats, exposed, rooms, strict=True):
        need = answer_room(
            references=room.references, numbers=room.numbers, suite=suite, payload=widest
        )
        promise = _promise(draft, exposed=told)
        made.append(
            Group(
                name=draft.name,
                randomizer=draft.randomizer.params(),
                decode=draft.decode or draft.randomizer.decodes[0],
                minimum=draft.minimum,
                payload_size=format_.size,
                answer_size=max(USUAL_ANSWER, need),
                promise=promise,
                note_size=draft.note_size,
            )
        )
    return tuple(made)


def draft_work(task: tasks.Task) -> Work:
    """Write a task as the terms name it."""
    params = {key: value for key, value in task.params().items() if key != "name"}
    return Work(task.name, params)


def _format(randomizer: Randomizer) -> PayloadFormat:
    if not randomizer.exact:
        raise Refused(f"{randomizer.name} computes in floats: its reports have no fixed size")
    return PayloadFormat.between(randomizer.low, randomizer.high)


def _promise(draft: GroupDraft, *, exposed: int) -> Promise:
    guarantee = amplify(
        draft.randomizer.law,
        crowd=draft.minimum,
        delta=draft.delta,
        corrupted=draft.corrupted,
        exposed=exposed,
    )
    return Promise(guarantee.epsilon, draft.delta, draft.corrupted, exposed)


@dataclass(frozen=True)
class Draft:
    """The parts of the terms that a draft decides."""

    round: str
    groups: tuple[Group, ...]
    task: Work
    letter_size: int


def read_plan(plan: dict[str, Any], suite: Suite) -> Draft:
    """Compute the sizes, exposure and promises of a plan as an organizer writes it."""
    missing, extra = _FIELDS - {"letter_size"} - set(plan), set(plan) - _FIELDS
    if missing or extra:
        raise Misuse(
            f"a draft has the fields {', '.join(sorted(_FIELDS))};"
            f" missing {sorted(missing)}, unknown {sorted(extra)}"
        )
    task = tasks.from_params(plan["task"])
    groups = draft_groups([_group(plain) for plain in plan["groups"]], task=task, suite=suite)
    return Draft(plan["round"], groups, draft_work(task), plan.get("letter_size", 256))


def _group(plain: dict[str, Any]) -> GroupDraft:
    """Read a group as written by hand, or as `coatcheck plan` gives it (with a promise)."""
    try:
        promise = plain.get("promise", {})
        asked = {name: promise[name] for name in ("delta", "corrupted") if name in promise}
        rest = {name: value for name, value in plain.items() if name != "promise"}
        mechanism = from_draft(plain["randomizer"])
        return GroupDraft(**{**asked, **rest, "randomizer": mechanism})
    except (TypeError, KeyError) as error:
        raise Misuse(f"a group of the draft does not fit: {error}") from None
