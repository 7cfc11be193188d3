"""Adversaries: what each one sees of a round, and the guarantee that holds against it.

Every figure comes from the accountant, for the crowd of the round that is on the page. Knows the
terms and whom the answers point to. THREATS.md, DESIGN section 4.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from coatcheck import tasks
from coatcheck.accounting.amplification import amplify
from coatcheck.demo.events import Person
from coatcheck.demo.words import plain_promise
from coatcheck.errors import Misuse
from coatcheck.protocol.drafting import GroupPlan

ADVERSARIES: Final = ("server", "server-and-people", "onlooker", "shuffler", "relay", "witness")


def corrupted(sizes: Sequence[int], count: int) -> list[Person]:
    """Choose `count` people, the groups in turn, the last of each first."""
    if not 0 <= count <= sum(sizes) - len(sizes):
        raise Misuse(f"of {sum(sizes)} people 0 to {sum(sizes) - len(sizes)} can be corrupted")
    left, chosen = list(sizes), list[Person]()
    while len(chosen) < count:
        for group, size in enumerate(left):
            if size > 1 and len(chosen) < count:
                left[group] -= 1
                chosen.append((group, left[group]))
    return chosen


def against(
    name: str,
    groups: Sequence[GroupPlan],
    *,
    task: tasks.Task,
    group: int,
    people: int = 0,
    partners: Mapping[Person, Sequence[Person]] | None = None,
) -> dict[str, Any]:
    """Say what holds for an honest member of a group against this adversary."""
    if name not in ADVERSARIES or not 0 <= group < len(groups):
        raise Misuse(
            f"the adversaries are {', '.join(ADVERSARIES)}, the groups 0 to {len(groups) - 1}"
        )
    if name in _BLIND:
        return _told(name, epsilon=0.0, sentence=_BLIND[name], plain=_NOTHING)
    mine, sizes = groups[group], [one.minimum for one in groups]
    if name == "shuffler":
        local = mine.randomizer.epsilon_spent
        said = _SHUFFLER.format(local=local)
        return _told(name, epsilon=0.0, sentence=said, plain=_NOTHING, colluding=local)
    bad = corrupted(sizes, people if name == "server-and-people" else 0)
    counts = [sum(1 for g, _ in bad if g == number) for number in range(len(sizes))]
    exposed = tasks.exposure(task, sizes=sizes, corrupted=counts)[group]
    guarantee = amplify(
        mine.randomizer.law,
        crowd=mine.minimum,
        delta=mine.delta,
        corrupted=counts[group],
        exposed=min(exposed, mine.minimum - counts[group] - 1),
    )
    told = {p for person in bad for p in (partners or {}).get(person, ())} - set(bad)
    return _told(
        name,
        epsilon=guarantee.epsilon,
        sentence=str(guarantee),
        plain=plain_promise(epsilon=guarantee.epsilon, delta=guarantee.delta),
        delta=guarantee.delta,
        anonymous=guarantee.anonymous,
        corrupted=bad,
        exposed=sorted(told),
    )


_NOTHING: Final = "it learns nothing of any value (ε = 0), as long as the seals hold"
_BLIND: Final = {
    "onlooker": (
        "Whoever only reads the board sees addresses, sealed answers of one size and sealed"
        " letters: ε = 0 for every value, as long as the seals (HPKE) hold. The number of people"
        " is public."
    ),
    "relay": (
        "The relay sees who asks, which role is asked and when; every message is sealed to a role"
        " and has one size: ε = 0 for every value. Together with the board it knows who wrote"
        " which letter and who fetched which entry; it cannot open either."
    ),
    "witness": (
        "The witness sees the size and the root of the board's log, 32 bytes, and cosigns them if"
        " the log only grew: ε = 0 for every value. It never sees an entry."
    ),
}
_SHUFFLER: Final = (
    "The shuffler knows who hands in a parcel, and all parcels look alike: ε = 0 for every value,"
    " as long as the seals (HPKE) hold and it does not work with the server. If it does, the"
    " crowd hides nobody and only a person's own noise is left: ε = {local:.4g}, the local one."
)


def _told(name: str, **found: Any) -> dict[str, Any]:
    return {"adversary": name, "delta": 0.0, "corrupted": [], "exposed": [], **found}
