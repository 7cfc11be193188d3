"""The task as a stage: it sees what all partitions say, and writes down whom each answer names.

A task that looks only so far is done by region first: *cut* cuts space, *near* answers a region
with those around it, and *compute* puts the answers together. Every other task is *compute* alone.
What a task refuses it refuses again, so that is a result, and told by kind and line: its words may
quote a report.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Ball, Box
from coatcheck.durable_files import read_secret
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.server import NOWHERE, Server
from coatcheck.protocol.terms import ADDRESS_SIZE, Round, Work
from coatcheck.protocol.wire.batches import PART, capacity_of_part
from coatcheck.protocol.wire.encoding import read_document
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.randomizers import CodebookResponse, Prior, Randomizer, choose, from_draft
from coatcheck.randomizers.composed import spoken_reports, without_coin
from coatcheck.services import clock
from coatcheck.services.settings import ServerSettings, keyring_of
from coatcheck.services.telemetry import log, place_of
from coatcheck.services.worker_pools import terms_of
from coatcheck.stores.blobs import ByteRange, SealedFiles, byte_ranges
from coatcheck.tasks import Answers, References, Values
from coatcheck.tasks.contract import RunsByRegion
from coatcheck.tasks.execution import Region, answer_region, joined

# HOUSE-DOC services.server.columns: 'Columns: what the partitions of a batch say, as the stages of an answer leave it in the depot.'
COUNT: Final = np.dtype("<u4")
PLACES: Final = "places"
Bytes = NDArray[np.uint8]


class Source(NamedTuple):
    """A partition of the batch: its group, its number, and how many of its reports opened."""

    group: int
    number: int
    rows: int = 0


def opened(number: int) -> str:
    """Name what a partition says: addresses, then payloads and notes, then contacts."""
    return f"open-{number}"


def mark_of(pieces: Iterable[bytes]) -> str:
    """Mark what one try of the task wrote, so that another try takes nothing's place.

    A machine with another processor may round otherwise, and a task may then answer otherwise.
    """
    return hashlib.sha256(b"".join(pieces)).hexdigest()[:16]


def told_file(mark: str) -> str:
    """Name what each part of the bulletin is told."""
    return f"told-{mark}"


def wanted_file(mark: str) -> str:
    """Name what is wanted of each partition."""
    return f"wanted-{mark}"


def column(crate: SealedFiles, round_: Round, source: Source, place: int) -> Bytes:
    """Read a column of what a partition says."""
    of = round_.terms.groups[source.group]
    widths = (ADDRESS_SIZE, of.payload_size + of.note_size, round_.suite.contact_size)
    slot = byte_ranges([source.rows * width for width in widths])[place]
    raw = crate.piece(opened(source.number), place, start=slot.at, size=slot.length)
    return np.frombuffer(raw, np.uint8).reshape(source.rows, widths[place])


def places_of(crate: SealedFiles, sources: Sequence[Source]) -> list[NDArray[np.uint32]]:
    """Read where each report of each partition is in the bulletin."""
    at = byte_ranges([COUNT.itemsize * one.rows for one in sources])
    raws = [crate.piece(PLACES, n, start=slot.at, size=slot.length) for n, slot in enumerate(at)]
    return [np.frombuffer(raw, COUNT) for raw in raws]


# HOUSE-DOC services.server.told: 'What each part of a bulletin is told: the answers to its entries, and which keys they name.\n\nA task refers to people by position. Their keys are in the partitions, so each partition gets a list\nof its rows that a part of the bulletin wants, and each part knows from which partition every\nreference comes. Sees positions and numbers only.\n'
_Ints = NDArray[np.int64]
_Rows = NDArray[np.uint8]


class Told(Struct, frozen=True):
    """The answers to entries of one group, in the order of the bulletin.

    Attributes:
        people: how many.
        counts: of how many others each is told; empty if the answers are numbers.
        sources: from which partition each of these comes.
        second: how many of these are for a second pass, if there is one.
        about: the group of the others.
    """

    group: int
    people: int
    data: bytes = b""
    shared: bytes = b""
    counts: bytes = b""
    sources: bytes = b""
    second: bytes | None = None
    about: int = 0
    located: bool = False

    @classmethod
    def of(cls, group: int, answers: Answers, sources: _Ints) -> "Told":
        """Write answers; those with references with the partition of each."""
        if isinstance(answers, Values):
            data, shared = (np.asarray(one, np.float64) for one in (answers.data, answers.shared))
            return cls(group, len(answers), data.tobytes(), shared.tobytes())
        return cls(
            group,
            len(answers),
            counts=answers.counts().astype(np.int64).tobytes(),
            sources=sources.tobytes(),
            second=None if answers.second is None else answers.second.astype(np.int64).tobytes(),
            about=answers.group,
            located=answers.located,
        )

    @property
    def answers(self) -> Answers:
        """The answers; positions of references are of no use here, and are zero."""
        if not self.counts:
            data = np.frombuffer(self.data).reshape(self.people, -1)
            return Values(data, np.frombuffer(self.shared))
        indptr = np.concatenate([[0], np.cumsum(_ints(self.counts))])
        nobody = np.zeros(indptr[-1], np.int64)
        second = None if self.second is None else _ints(self.second)
        return References(self.about, indptr, nobody, located=self.located, second=second)


def partners_of(told: Sequence[Told], given: Mapping[int, _Rows]) -> list[_Rows | None]:
    """Give the row of each reference, in order; None where answers are numbers or name nobody.

    `given` has the rows that the partitions of each group gave to this part, in their order.
    """
    found: list[_Rows | None] = [None] * len(told)
    for about, rows in given.items():
        mine = [at for at, one in enumerate(told) if one.counts and one.about == about]
        listed = [_ints(told[at].sources) for at in mine]
        if not listed:
            continue
        named = np.empty_like(rows)
        named[np.argsort(np.concatenate(listed), kind="stable")] = rows
        cuts = np.cumsum([len(one) for one in listed])[:-1]
        for at, part in zip(mine, np.split(named, cuts), strict=True):
            found[at] = part
    return found


def _ints(raw: bytes) -> _Ints:
    return np.frombuffer(raw, np.int64)


@dataclass(frozen=True)
class Naming:
    """Where the reports of a group are: by position, their partition, row there and place.

    Attributes:
        ordered: the positions in the order of the bulletin.
        first: the place of the first of them.
    """

    partitions: _Ints
    rows: _Ints
    ordered: _Ints
    first: int


def naming(groups: Sequence[Sequence[tuple[int, NDArray[np.uint32]]]]) -> list[Naming]:
    """Find the reports of each group by the places that each of its partitions has."""
    found, first = [], 0
    for parts in groups:
        kept = [(number, np.flatnonzero(places != NOWHERE), places) for number, places in parts]
        where = np.concatenate([places[rows] for _, rows, places in kept])
        numbers = np.concatenate([np.full(len(rows), number) for number, rows, _ in kept])
        rows = np.concatenate([rows for _, rows, _ in kept])
        found.append(Naming(numbers, rows, np.argsort(where), first))
        first += len(where)
    return found


def write_told(
    answers: Sequence[Answers], named: Sequence[Naming], *, parts: int, size: int
) -> tuple[list[bytes], list[bytes]]:
    """Write what each part of the bulletin is told, and what is wanted of each partition.

    There are so many partitions; a part has so many entries. What is wanted of a partition is how
    many rows each part wants, and then the rows.
    """
    total = sum(len(one.ordered) for one in named)
    starts = range(0, total, size)
    told: list[bytes] = []
    wanted: list[tuple[_Ints, _Ints, _Ints]] = []
    for number, start in enumerate(starts):
        listed = []
        for group, (of, mine) in enumerate(zip(answers, named, strict=True)):
            lo, hi = (min(max(0, at - mine.first), len(of)) for at in (start, start + size))
            if lo == hi:
                continue
            part, sources = of.take(mine.ordered[lo:hi]), np.empty(0, np.int64)
            if isinstance(part, References):
                other = named[part.group]
                sources = other.partitions[part.indices]
                into = np.full(len(sources), number)
                wanted.append((sources, into, other.rows[part.indices]))
            listed.append(Told.of(group, part, sources))
        told.append(msgspec.msgpack.encode(listed))
    return told, _by_partition(wanted, parts=parts, into=len(starts))


def _by_partition(
    wanted: Sequence[tuple[_Ints, _Ints, _Ints]], *, parts: int, into: int
) -> list[bytes]:
    none = (np.empty(0, np.int64),) * 3
    sources, numbers, rows = (np.concatenate(one) for one in zip(none, *wanted, strict=True))
    order = np.argsort(sources, kind="stable")  # so that parts stay in order
    numbers, rows = numbers[order], rows[order]
    ends = np.searchsorted(sources[order], np.arange(parts + 1))
    cuts: list[tuple[Any, Any]] = list(pairwise(ends))
    return [
        np.concatenate([np.bincount(numbers[a:b], minlength=into), rows[a:b]])
        .astype("<u4")
        .tobytes()
        for a, b in cuts
    ]


# HOUSE-DOC services.server.insight: 'What only this server knows of a task: parameters that no terms publish.'
def task_of(work: Work, settings: ServerSettings) -> tasks.Task:
    """Rebuild the task of the terms with what only this server knows of it.

    Whatever is wrong is `Misuse`: files are the operator's to mend.
    """
    known: dict[str, dict[str, Any]] = {}
    try:
        if settings.insight:
            path, kind = settings.path(settings.insight), dict[str, dict[str, Any]]
            known = read_document(read_secret(path), kind, f"{path} is no file of task parameters")
        return tasks.from_params({"name": work.name, **work.params, **known.get(work.name, {})})
    except Refused as refused:
        raise Misuse(str(refused)) from None


# HOUSE-DOC services.server.learned: "What a round showed of where people are, and a later draft that is placed for it.\n\nOnly noisy reports of a shuffled batch are looked at, so this costs no privacy beyond the round's\nown promise (docs/how-to/use-a-prior.md). A prior enters a round as the points of a codebook, in\nits terms (docs/decisions/0012-what-the-terms-carry-of-a-prior.md). Runs in the server's worker.\n"
class Density(Struct, frozen=True):
    """Where the people of a group are, on a domain."""

    domain: dict[str, Any]
    points: list[list[float]]
    weights: list[float]


def shown_by(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Learn where people are; whatever goes wrong, the round is answered."""
    try:
        return learned(round_, randomizers, reports)
    except Exception as error:  # noqa: BLE001 - people wait for their answers
        log.error("nothing was learned of where people are: %s", place_of(error))
        return b""


def learned(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Write down what the reports of each group show; empty if none is enough to learn from."""
    found: dict[str, Density] = {}
    for group, made, own in zip(round_.terms.groups, randomizers, reports, strict=True):
        try:
            prior = Prior.learned_from([(without_coin(made), spoken_reports(made, own)[1])])
        except Misuse:
            continue  # too few, or of a mechanism that tells no density
        if isinstance(made.domain, Box | Ball):
            points, weights = prior.points.tolist(), prior.weights.tolist()
            found[group.name] = Density(made.domain.params(), points, weights)
    return msgspec.json.encode(found) if found else b""


def placed(plan: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Give the draft with codebooks for the groups of which something is known."""
    known = msgspec.json.decode(raw, type=dict[str, Density])
    return {**plan, "groups": [_group(group, known.get(group["name"])) for group in plan["groups"]]}


def _group(plain: dict[str, Any], density: Density | None) -> dict[str, Any]:
    made = from_draft(plain["randomizer"])
    domain = made.domain
    if density is None or not isinstance(domain, Box | Ball) or domain.params() != density.domain:
        return plain
    prior = Prior.from_points(density.points, weights=density.weights)
    best = choose(epsilon=made.epsilon, domain=domain, prior=prior)
    if not isinstance(best.randomizer, CodebookResponse) or not best.worth_a_report:
        return plain
    return {**plain, "randomizer": best.randomizer.params(), "decode": best.decode}


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
    return capacity_of_part(people, max(sizes))


@dataclass(frozen=True)
class Heard:
    """What the server heard: the reports and notes of each group that are answered."""

    server: Server
    reports: list[NDArray[np.int64]]
    notes: list[tasks.Notes]


def _heard(
    crate: SealedFiles, settings: ServerSettings, sources: Sequence[Source], where: _Places
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


def cut(crate: SealedFiles, settings: ServerSettings, sources: Sequence[Source]) -> bytes:
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


def near(
    crate: SealedFiles, settings: ServerSettings, number: int, at: ByteRange, mark: str
) -> bytes:
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
    clock.reach("stage.near", alone=True)
    told = [own, *(one.astype(np.int64).tobytes() for one in (found.indptr, found.indices))]
    plain = msgspec.msgpack.encode([*told, found.ordered, found.located])
    crate.put(near_name(mark, number), plain)
    clock.reach("stage.neared", alone=True)
    return b""


def _read_near(crate: SealedFiles, regions: Cut) -> tasks.References:
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
    crate: SealedFiles, settings: ServerSettings, sources: Sequence[Source], regions: Cut
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
    clock.reach("stage.compute", alone=True)
    if settings.schedule and settings.schedule.learn:
        server = heard.server
        crate.put(DENSITY, shown_by(server.round, server.randomizers, heard.reports))
    groups = [[one for one in sources if one.group == group] for group in range(len(found))]
    named = naming([[(one.number, where[one.number]) for one in own] for own in groups])
    each = entries_of_part(heard.server.round, sum(map(len, found)))
    told, wanted = write_told(found, named, parts=len(sources), size=each)
    mark = mark_of([*told, *wanted])
    crate.put_pieces(told_file(mark), told)
    crate.put_pieces(wanted_file(mark), wanted)
    clock.reach("stage.computed", alone=True)
    sizes = [list(map(len, pieces)) for pieces in (told, wanted)]
    return msgspec.json.encode(Computed("", mark, sizes[0], sizes[1], each))
