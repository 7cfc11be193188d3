"""The task as a stage: it sees what all partitions say, and writes down whom each answer names.

A task that looks only so far is done by region first: *cut* cuts space, *near* answers a region
with those around it, and *compute* puts the answers together. Every other task is *compute* alone.
What a task refuses it refuses again, so that is a result, and told by kind and line: its words may
quote a report.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.errors import Refused
from coatcheck.protocol.manifest import PART, room_of_part
from coatcheck.protocol.messages import PayloadFormat
from coatcheck.protocol.opened import NOWHERE
from coatcheck.protocol.server import Server
from coatcheck.protocol.terms import Round
from coatcheck.services import faults
from coatcheck.services.keyring import keyring_of
from coatcheck.services.log import place_of
from coatcheck.services.runners.contract import terms_of
from coatcheck.services.server import columns
from coatcheck.services.server.columns import Source, column, mark_of, places_of
from coatcheck.services.server.insight import task_of
from coatcheck.services.server.learned import shown_by
from coatcheck.services.server.told import naming, write_told
from coatcheck.services.settings import ServerSettings
from coatcheck.stores.crate import Crate, Slot
from coatcheck.tasks.contract import RunsByRegion
from coatcheck.tasks.regions import Region, answer_region, joined

DENSITY: Final = "density"
_Places = list[NDArray[np.uint32]]


class Computed(Struct, frozen=True):
    """What came of the task: where it refused, or the bytes of each piece that it wrote.

    Attributes:
        mark: marks the files of the pieces.
        each: how many entries a part of the bulletin has.
    """

    refused: str = ""
    mark: str = ""
    told: list[int] = []
    wanted: list[int] = []
    each: int = PART


class Cut(Struct, frozen=True):
    """How space was cut: the bytes of each region, and what marks their file and answers."""

    mark: str = ""
    sizes: list[int] = []


def regions_name(mark: str) -> str:
    """Name the regions of a cut."""
    return f"regions-{mark}"


def near_name(mark: str, number: int) -> str:
    """Name the answers of a region."""
    return f"near-{mark}-{number}"


def entries_of_part(round_: Round, people: int) -> int:
    """Give how many entries a part of the bulletin has, if it answers so many people."""
    sizes = (round_.entry_size(group) for group in range(len(round_.terms.groups)))
    return room_of_part(people, max(sizes))


@dataclass(frozen=True)
class Heard:
    """What the server heard: the reports and notes of each group that are answered."""

    server: Server
    reports: list[NDArray[np.int64]]
    notes: list[tasks.Notes]


def _heard(
    crate: Crate, settings: ServerSettings, sources: Sequence[Source], where: _Places
) -> Heard:
    round_ = terms_of(crate)
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    server = Server(round_, keys=keys, task=task_of(round_.terms.task, settings))
    reports, notes = [], []
    for group, (of, by) in enumerate(zip(round_.terms.groups, server.randomizers, strict=True)):
        said = np.concatenate(
            [
                column(crate, round_, one, 1)[where[one.number] != NOWHERE]
                for one in sources
                if one.group == group
            ]
        )
        form = PayloadFormat.between(by.low, by.high)
        reports.append(form.decode(said[:, : of.payload_size])[0])
        notes.append(said[:, of.payload_size :])
    return Heard(server, reports, notes)


def cut(crate: Crate, settings: ServerSettings, sources: Sequence[Source]) -> bytes:
    """Cut space into regions for a task that looks only so far; how, or that there are none."""
    task = task_of(terms_of(crate).terms.task, settings)
    if not isinstance(task, RunsByRegion) or task.reach is None:
        return msgspec.json.encode(Cut())
    try:
        heard = _heard(crate, settings, sources, places_of(crate, sources))
        count = -(-sum(map(len, heard.reports)) // PART)
        found = heard.server.regions(heard.reports, heard.notes, count=count)
    except Refused:
        found = []  # it refuses again when it is to answer
    pieces = [
        msgspec.msgpack.encode([one.own.tobytes(), one.around.tobytes(), estimates.tobytes()])
        for one, estimates in found
    ]
    if not pieces:
        return msgspec.json.encode(Cut())
    mark = mark_of(pieces)
    crate.put_pieces(regions_name(mark), pieces)
    return msgspec.json.encode(Cut(mark, [len(one) for one in pieces]))


def near(crate: Crate, settings: ServerSettings, number: int, at: Slot, mark: str) -> bytes:
    """Answer a region; where the task refused, or nothing."""
    task = task_of(terms_of(crate).terms.task, settings)
    raw = crate.piece(regions_name(mark), number, start=at.at, size=at.length)
    own, around, estimates = msgspec.msgpack.decode(raw, type=list[bytes])
    region = Region(np.frombuffer(own, np.int64), np.frombuffer(around, np.int64))
    places = np.frombuffer(estimates).reshape(len(region.around), -1)
    try:
        found = answer_region(task, places, region)  # type: ignore[arg-type] # it was cut for it
    except Refused as error:
        return place_of(error).encode()
    faults.reach("stage.near", alone=True)
    told = [own, *(one.astype(np.int64).tobytes() for one in (found.indptr, found.indices))]
    plain = msgspec.msgpack.encode([*told, found.ordered, found.located])
    crate.put(near_name(mark, number), plain)
    faults.reach("stage.neared", alone=True)
    return b""


def _read_near(crate: Crate, regions: Cut) -> tasks.References:
    """Read what all regions were answered, each with those who are in it."""
    parts, told = [], []
    for number in range(len(regions.sizes)):
        raw = crate.get(near_name(regions.mark, number))
        *columns, ordered, located = msgspec.msgpack.decode(raw)
        own, starts, named = (np.frombuffer(one, np.int64) for one in columns)
        parts.append(Region(own, own))
        told.append(tasks.References(0, starts, named, ordered, located))
    return joined(parts, told)


def compute(
    crate: Crate, settings: ServerSettings, sources: Sequence[Source], regions: Cut
) -> bytes:
    """Run the task on all reports; the bytes of what each part of the bulletin is told.

    With regions, their answers are there already.
    """
    where = places_of(crate, sources)

    def known(_: Callable[..., Any], parts: Iterable[Region]) -> Iterator[tasks.References]:
        # By person, not by region: a machine with another processor may cut equal places otherwise.
        everybody = _read_near(crate, regions)
        return (everybody.take(part.own) for part in parts)

    try:
        heard = _heard(crate, settings, sources, where)
        count = len(regions.sizes)
        by: dict[str, Any] = {"regions": count, "run": known} if count else {}
        found = heard.server.answers(heard.reports, heard.notes, **by)
    except Refused as error:
        return msgspec.json.encode(Computed(refused=place_of(error)))
    faults.reach("stage.compute", alone=True)
    if settings.schedule and settings.schedule.learn:
        server = heard.server
        crate.put(DENSITY, shown_by(server.round, server.randomizers, heard.reports))
    groups = [[one for one in sources if one.group == group] for group in range(len(found))]
    named = naming([[(one.number, where[one.number]) for one in own] for own in groups])
    each = entries_of_part(heard.server.round, sum(map(len, found)))
    told, wanted = write_told(found, named, parts=len(sources), size=each)
    mark = mark_of([*told, *wanted])
    crate.put_pieces(columns.told(mark), told)
    crate.put_pieces(columns.wanted(mark), wanted)
    faults.reach("stage.computed", alone=True)
    sizes = [list(map(len, pieces)) for pieces in (told, wanted)]
    return msgspec.json.encode(Computed("", mark, sizes[0], sizes[1], each))
