"""A draft: what an organizer writes by hand, and the terms' numbers computed from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from coatcheck import tasks
from coatcheck.cli.files import read
from coatcheck.domain import domain_from_params
from coatcheck.drafting import GroupDraft, draft_groups, draft_work
from coatcheck.errors import Misuse
from coatcheck.randomizers import REGISTRY, Randomizer
from coatcheck.suites import Suite
from coatcheck.terms import Group, Work

_FIELDS = {"round", "task", "groups", "letter_size"}


@dataclass(frozen=True)
class Draft:
    """The parts of the terms that a draft decides."""

    round: str
    groups: tuple[Group, ...]
    task: Work
    letter_size: int


def read_draft(path: Path, suite: Suite) -> Draft:
    """Read a draft and compute its sizes, exposure and promises."""
    try:
        plan = msgspec.json.decode(read(path), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misuse(f"{path} is no JSON object: {error}") from None
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
        promise = plain.pop("promise", {})
        asked = {name: promise[name] for name in ("delta", "corrupted") if name in promise}
        mechanism = _mechanism(dict(plain["randomizer"]))
        return GroupDraft(**{**asked, **plain, "randomizer": mechanism})
    except (TypeError, KeyError) as error:
        raise Misuse(f"a group of the draft does not fit: {error}") from None


def _mechanism(plain: dict[str, Any]) -> Randomizer:
    """Make a mechanism of a draft; what the draft leaves open (a radius) is searched."""
    name = plain.pop("name")
    if name not in REGISTRY:
        raise Misuse(f"a randomizer is one of {', '.join(sorted(REGISTRY))}, not {name!r}")
    make: Any = REGISTRY[name]
    made: Randomizer = make(domain=domain_from_params(plain.pop("domain")), **plain)
    return made
