"""The events of a run as the JSON entries that the page draws.

What the page shows is a fold over all entries, so a page that is opened late gets all of them from
the beginning. They hold everybody's places; the page hides what an adversary would not see.
"""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coatcheck.demo.events import Event, Letter, plain_promise
from coatcheck.domains import Box
from coatcheck.errors import Misuse
from coatcheck.protocol import client
from coatcheck.protocol.server import split_rows

if TYPE_CHECKING:
    from coatcheck.accounting.guarantee import Guarantee
    from coatcheck.demo.run import Run
    from coatcheck.randomizers import Decode

Entry = dict[str, Any]
_MOST, _DELTA = 64.0, 1e-2


class History:
    """An observer of a run that stores every event, for pages that wait for new entries."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._first = 0  # the number of the first entry; those of earlier rounds are gone
        self._changed = asyncio.Event()

    def __call__(self, run: "Run", event: Event) -> None:
        """Store an event."""
        describe = _DESCRIBED.get(event.kind)
        sealed = run.passed
        self.add(event.kind, sealed=sealed, **(describe(run, event) if describe else {}))

    def add(self, kind: str, **fields: Any) -> None:
        """Add an entry and wake the listeners."""
        self.entries.append({"kind": kind, **fields})
        self.wake()

    def begin(self) -> None:
        """Begin a new round: listeners forget the round before."""
        self._first += len(self.entries)
        self.entries.clear()
        self.add("again")

    def wake(self) -> None:
        """Wake the listeners, because something has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, start: int, *, seconds: float) -> list[tuple[int, Entry]]:
        """Return the entries from a number on, after waiting for one if there is none."""
        if self._first + len(self.entries) <= start:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), seconds)
        first = max(start - self._first, 0)
        return list(enumerate(self.entries[first:], start=self._first + first))


def unit(box: Box | None, places: Any) -> list[list[float]]:
    """Return places (latitude, longitude) as shares (right, up) of the box."""
    if box is None:
        raise Misuse("the page needs places, and the learning demo has none")
    low, high = np.array(box.lo), np.array(box.hi)
    shares = (np.asarray(places, dtype=np.float64) - low) / (high - low)
    rounded: list[list[float]] = np.round(shares[:, ::-1], 5).tolist()
    return rounded


def on_map(attack: dict[str, Any], box: Box | None) -> dict[str, Any]:
    """Return the trilaterator's attack with its places as shares of the box."""

    def share(place: list[float]) -> list[float]:
        return unit(box, [place])[0]

    app, ours = attack["app"], attack["coatcheck"]
    return {
        **attack,
        "app": {
            **app,
            "asked": [[share(at["claimed"]), at["told_m"]] for at in app["asked"]],
            "circles": [[share(at["center"]), at["radius_m"]] for at in app["circles"]],
            "guess": share(app["guess"]),
        },
        "coatcheck": {
            **ours,
            "rounds": [{**at, "claimed": share(at["claimed"])} for at in ours["rounds"]],
            "guess": share(ours["guess"]),
        },
    }


def _places(run: "Run", group: int, reports: Any, decode: str) -> list[list[float]]:
    """Return reports as places, decoded as `decode` says."""
    randomizer = run.scenario.drafts[group].randomizer
    return unit(run.scenario.box, randomizer.estimate(np.array(reports), cast("Decode", decode)))


def _terms(run: "Run", _: Event) -> Entry:
    terms, scenario = run.round.terms, run.scenario
    groups = zip(terms.groups, scenario.drafts, scenario.values, strict=True)
    return {
        "round": terms.round,
        "demo": scenario.name,
        "trilaterator": scenario.trilaterator,
        "radius": scenario.task.params().get("radius"),
        "digest": run.round.digest.hex(),
        "task": terms.task.name,
        "shufflers": len(terms.shufflers),
        "groups": [
            {
                "name": group.name,
                "people": len(values),
                "minimum": group.minimum,
                "mechanism": group.randomizer["name"],
                "local": draft.randomizer.epsilon,
                "epsilon": group.promise.epsilon,
                "full": str(_guarantee(run, group.name)),
                "plain": plain_promise(
                    epsilon=group.promise.epsilon, delta=group.promise.delta, also=scenario.besides
                ),
                "delta": group.promise.delta,
                "upload_bytes": run.round.upload_sizes[number],
                "entry_bytes": run.round.entry_size(number),
            }
            for number, (group, draft, values) in enumerate(groups)
        ],
        "metres": [] if scenario.box is None else (2 * scenario.box.scale[::-1]).tolist(),
        "places": [unit(scenario.box, values) for values in scenario.values],
    }


def _guarantee(run: "Run", group: str) -> "Guarantee":
    """Return the guarantee that a person's own client computes."""
    limit, now = client.Limit(_MOST, _DELTA, run.scenario.disclosures), int(time.time())
    trusted = run.cluster.trusted
    return client.examine(run.signed, group=group, trusted=trusted, limit=limit, now=now).guarantee


def _joined(run: "Run", event: Event) -> Entry:
    group, report = event.person[0], run.reports[event.person]
    entry = {
        "who": event.person,
        "address": run.tickets[event.person].keys.address.hex(),
        "report": report,
        "sent": _places(run, group, [report], "raw")[0],
        "thought": _places(run, group, [report], run.round.terms.groups[group].decode)[0],
    }
    return {"people": [entry]}


def _opened(run: "Run", _: Event) -> Entry:
    return {
        "groups": [
            {
                "addresses": [address.hex() for address in split_rows(opened.addresses)],
                "places": _places(run, group, opened.reports, "raw"),
                "dropped": opened.tally.received - opened.tally.kept,
            }
            for group, opened in enumerate(run.seen)
        ]
    }


def _published(run: "Run", _: Event) -> Entry:
    if run.bulletin is None or run.watched is None:
        raise Misuse("the round is not on the board yet; complete it first")
    heading = run.bulletin.heading
    size = len(run.bulletin.encode())
    return {
        "entries": heading.sizes,
        "root": heading.root.hex(),
        "bytes": size,
        "witnessed": {"size": run.watched.size, "root": run.watched.root.hex()},
    }


def _collected(run: "Run", event: Event) -> Entry:
    answer = run.answers[event.person]
    entry = {
        "who": event.person,
        "partners": [client.address(partner, run.round).hex() for partner in answer.partners],
        "candidates": len(answer.partners) + len(answer.second) if run.scenario.settle else 0,
        "them": run.partners(event.person),
    }
    return {"people": [entry]}


def _settled(run: "Run", event: Event) -> Entry:
    letters = (letter for letter in run.letters if letter.reader == event.person)
    return {
        "people": [{"who": event.person, "them": run.settled[event.person]}],
        "letters": [_letter(letter) for letter in letters],
    }


def _letters(_: "Run", event: Event) -> Entry:
    return {"letters": [_letter(letter) for letter in event.letters]}


def _letter(letter: Letter) -> Entry:
    return {"to": letter.reader, "from": letter.sender, "body": letter.body}


_DESCRIBED = {
    "terms": _terms,
    "joined": _joined,
    "noted": lambda run, _: {"count": len(run.noted)},
    "opened": _opened,
    "published": _published,
    "collected": _collected,
    "letters": _letters,
    "settled": _settled,
}
