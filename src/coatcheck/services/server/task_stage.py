"""The task as a stage of an answer: column files in, answers per part of the bulletin out.

`compute` runs the task on the reports of all partitions and splits its answers into the parts of
the bulletin. A task that looks only so far is done by region first: `cut` cuts space into regions,
`near` answers a region with the people around it, and `compute` joins the answers. What a task
refuses it refuses again, so a refusal is a result; it names the error and its line only, as an
error's text may quote a report.

* `cut`: all `columns-` and `places` to `regions-`.
* `near`: a piece of `regions-` to `region-answers-`.
* `compute`: all `columns-` and `places`, and any `region-answers-`, to `answers-`, `requests-` and,
  if a schedule learns, `density`.
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

# Column files: what each partition of the batch has, as `open_reports` writes it.

COUNT: Final = np.dtype("<u4")
PLACES: Final = "places"
Bytes = NDArray[np.uint8]


class Partition(NamedTuple):
    """A partition of the batch: its group, its number, and how many of its reports opened."""

    group: int
    number: int
    rows: int = 0


def columns_file(number: int) -> str:
    """Name the columns of a partition: addresses, then payloads and notes, then contacts."""
    return f"columns-{number}"


def mark_of(pieces: Iterable[bytes]) -> str:
    """Return a mark for the files of one try of the task, so that another try replaces none.

    A machine with another processor may round otherwise, and a task may then answer otherwise.
    """
    return hashlib.sha256(b"".join(pieces)).hexdigest()[:16]


def answers_file(mark: str) -> str:
    """Name the answers of each part of the bulletin."""
    return f"answers-{mark}"


def requests_file(mark: str) -> str:
    """Name the rows that the parts of the bulletin need of each partition."""
    return f"requests-{mark}"


def column(files: SealedFiles, round_: Round, partition: Partition, index: int) -> Bytes:
    """Read a column of a partition."""
    group = round_.terms.groups[partition.group]
    widths = (ADDRESS_SIZE, group.payload_size + group.note_size, round_.suite.contact_size)
    at, size = byte_ranges([partition.rows * width for width in widths])[index]
    raw = files.piece(columns_file(partition.number), index, start=at, size=size)
    return np.frombuffer(raw, np.uint8).reshape(partition.rows, widths[index])


def places_of(files: SealedFiles, partitions: Sequence[Partition]) -> list[NDArray[np.uint32]]:
    """Read the place in the bulletin of each report of each partition."""
    ranges = byte_ranges([COUNT.itemsize * partition.rows for partition in partitions])
    raws = [files.piece(PLACES, n, start=at, size=size) for n, (at, size) in enumerate(ranges)]
    return [np.frombuffer(raw, COUNT) for raw in raws]


# The answers of each part of the bulletin.
#
# A task refers to people by position. Their keys are in the partitions, so each partition gets a
# list of the rows that a part of the bulletin needs, and each part knows from which partition each
# of its references comes. Only positions and numbers occur here.

_Ints = NDArray[np.int64]
_Rows = NDArray[np.uint8]


class AnswerPart(Struct, frozen=True):
    """The answers to entries of one group, in the order of the bulletin.

    Attributes:
        people: how many entries there are.
        counts: how many others each answer names; empty if the answers are numbers.
        sources: the partition from which each of the others comes.
        second: how many of the others are for a second pass, if there is one.
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
    def of(cls, group: int, answers: Answers, sources: _Ints) -> "AnswerPart":
        """Pack answers; each reference comes with the partition of the person."""
        if isinstance(answers, Values):
            data = np.asarray(answers.data, np.float64)
            shared = np.asarray(answers.shared, np.float64)
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
        """The answers; the positions of references are not needed here, and are zero."""
        if not self.counts:
            data = np.frombuffer(self.data).reshape(self.people, -1)
            return Values(data, np.frombuffer(self.shared))
        indptr = np.concatenate([[0], np.cumsum(_ints(self.counts))])
        nobody = np.zeros(indptr[-1], np.int64)
        second = None if self.second is None else _ints(self.second)
        return References(self.about, indptr, nobody, located=self.located, second=second)


def partners_of(answers: Sequence[AnswerPart], partners: Mapping[int, _Rows]) -> list[_Rows | None]:
    """Return the rows of the people that each group's answers name, in the order of the references.

    None where answers are numbers or name nobody. `partners` has the rows that the partitions of
    each group dealt to this part, in their order.
    """
    named: list[_Rows | None] = [None] * len(answers)
    for about, rows in partners.items():
        own = [at for at, part in enumerate(answers) if part.counts and part.about == about]
        sources = [_ints(answers[at].sources) for at in own]
        if not sources:
            continue
        in_order = np.empty_like(rows)
        in_order[np.argsort(np.concatenate(sources), kind="stable")] = rows
        cuts = np.cumsum([len(part) for part in sources])[:-1]
        for at, part in zip(own, np.split(in_order, cuts), strict=True):
            named[at] = part
    return named


def _ints(raw: bytes) -> _Ints:
    return np.frombuffer(raw, np.int64)


@dataclass(frozen=True)
class Positions:
    """Where the reports of a group are: the partition and the row there of each position.

    Attributes:
        ordered: the positions in the order of the bulletin.
        first: the place of the first of them.
    """

    partitions: _Ints
    rows: _Ints
    ordered: _Ints
    first: int


def positions_of(
    groups: Sequence[Sequence[tuple[int, NDArray[np.uint32]]]],
) -> list[Positions]:
    """Find the reports of each group by the places that each of its partitions has."""
    positions, first = [], 0
    for parts in groups:
        placed = [(number, np.flatnonzero(places != NOWHERE), places) for number, places in parts]
        order = np.concatenate([places[rows] for _, rows, places in placed])
        numbers = np.concatenate([np.full(len(rows), number) for number, rows, _ in placed])
        rows = np.concatenate([rows for _, rows, _ in placed])
        positions.append(Positions(numbers, rows, np.argsort(order), first))
        first += len(order)
    return positions


def split_answers(
    answers: Sequence[Answers], positions: Sequence[Positions], *, partitions: int, entries: int
) -> tuple[list[bytes], list[bytes]]:
    """Split answers into parts of so many entries; also say which rows each partition must deal.

    The request to a partition is how many rows each part needs, and then the rows.
    """
    starts = range(0, sum(len(group.ordered) for group in positions), entries)
    packed: list[bytes] = []
    needed: list[tuple[_Ints, _Ints, _Ints]] = []
    for number, start in enumerate(starts):
        parts = []
        for group, (of_group, own) in enumerate(zip(answers, positions, strict=True)):
            low, high = (
                min(max(0, at - own.first), len(of_group)) for at in (start, start + entries)
            )
            if low == high:
                continue
            part, sources = of_group.take(own.ordered[low:high]), np.empty(0, np.int64)
            if isinstance(part, References):
                others = positions[part.group]
                sources = others.partitions[part.indices]
                numbers = np.full(len(sources), number)
                needed.append((sources, numbers, others.rows[part.indices]))
            parts.append(AnswerPart.of(group, part, sources))
        packed.append(msgspec.msgpack.encode(parts))
    return packed, _requests(needed, partitions=partitions, parts=len(starts))


def _requests(
    needed: Sequence[tuple[_Ints, _Ints, _Ints]], *, partitions: int, parts: int
) -> list[bytes]:
    none = (np.empty(0, np.int64),) * 3
    columns = zip(none, *needed, strict=True)
    sources, numbers, rows = (np.concatenate(column) for column in columns)
    order = np.argsort(sources, kind="stable")  # so that parts stay in order
    numbers, rows = numbers[order], rows[order]
    ends = np.searchsorted(sources[order], np.arange(partitions + 1))
    cuts: list[tuple[Any, Any]] = list(pairwise(ends))
    return [
        np.concatenate([np.bincount(numbers[a:b], minlength=parts), rows[a:b]])
        .astype("<u4")
        .tobytes()
        for a, b in cuts
    ]


# The task, with what only this server knows of it.


def task_of(work: Work, settings: ServerSettings) -> tasks.Task:
    """Rebuild the task of the terms with the parameters that no terms publish.

    Any error is `Misuse`, because the operator can correct the file.
    """
    private: dict[str, dict[str, Any]] = {}
    try:
        if settings.private_task_parameters:
            path = settings.path(settings.private_task_parameters)
            kind = dict[str, dict[str, Any]]
            private = read_document(
                read_secret(path), kind, f"{path} is no file of task parameters"
            )
        return tasks.from_params({"name": work.name, **work.params, **private.get(work.name, {})})
    except Refused as refused:
        raise Misuse(str(refused)) from None


# A density prior: what a round showed of where people are, for the draft of a later one.
#
# Only noisy reports of a shuffled batch are used, so this costs no privacy beyond the round's own
# promise (docs/how-to/use-a-prior.md). A prior enters a round as the points of a codebook, in its
# terms (docs/decisions/0012-what-the-terms-carry-of-a-prior.md).


class Density(Struct, frozen=True):
    """Where the people of a group are, on a domain."""

    domain: dict[str, Any]
    points: list[list[float]]
    weights: list[float]


def density_shown(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Learn where people are; on any error log it and return nothing: people wait for answers."""
    try:
        return learn_density(round_, randomizers, reports)
    except Exception as error:  # noqa: BLE001 - people wait for their answers
        log.error("learned no density of people: %s", place_of(error))
        return b""


def learn_density(
    round_: Round, randomizers: Sequence[Randomizer], reports: Sequence[NDArray[np.int64]]
) -> bytes:
    """Encode the density that each group's reports show; empty if none shows enough."""
    densities: dict[str, Density] = {}
    for group, randomizer, own in zip(round_.terms.groups, randomizers, reports, strict=True):
        try:
            prior = Prior.learned_from(
                [(without_coin(randomizer), spoken_reports(randomizer, own)[1])]
            )
        except Misuse:
            continue  # too few, or of a mechanism that shows no density
        if isinstance(randomizer.domain, Box | Ball):
            points, weights = prior.points.tolist(), prior.weights.tolist()
            densities[group.name] = Density(randomizer.domain.params(), points, weights)
    return msgspec.json.encode(densities) if densities else b""


def with_density_prior(draft: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Return a draft with codebooks placed for the groups whose density is known."""
    densities = msgspec.json.decode(raw, type=dict[str, Density])
    groups = [_with_codebook(group, densities.get(group["name"])) for group in draft["groups"]]
    return {**draft, "groups": groups}


def _with_codebook(group: dict[str, Any], density: Density | None) -> dict[str, Any]:
    randomizer = from_draft(group["randomizer"])
    domain = randomizer.domain
    if density is None or not isinstance(domain, Box | Ball) or domain.params() != density.domain:
        return group
    prior = Prior.from_points(density.points, weights=density.weights)
    best = choose(epsilon=randomizer.epsilon, domain=domain, prior=prior)
    if not isinstance(best.randomizer, CodebookResponse) or not best.worth_a_report:
        return group
    return {**group, "randomizer": best.randomizer.params(), "decode": best.decode}


# The stages

DENSITY: Final = "density"
_Places = list[NDArray[np.uint32]]


class Computed(Struct, frozen=True):
    """The result of the task: where it refused, or the sizes of the pieces that it wrote.

    Attributes:
        mark: marks the files of the pieces.
        answers: the bytes of the answers of each part of the bulletin.
        requests: the bytes of the request to each partition.
        entries: how many entries a part of the bulletin has.
    """

    refused: str = ""
    mark: str = ""
    answers: list[int] = []
    requests: list[int] = []
    entries: int = PART

    @property
    def files(self) -> set[str]:
        """The names of the files."""
        return {answers_file(self.mark), requests_file(self.mark)}


class Regions(Struct, frozen=True):
    """How space was cut: the bytes of each region, and the mark of their file and answers."""

    mark: str = ""
    sizes: list[int] = []

    @property
    def file(self) -> str:
        """The name of the file of the regions."""
        return f"regions-{self.mark}"


def region_answers_file(mark: str, number: int) -> str:
    """Name the answers of a region."""
    return f"region-answers-{mark}-{number}"


def entries_of_part(round_: Round, people: int) -> int:
    """Return how many entries a part of the bulletin has, if it answers so many people."""
    sizes = (round_.entry_size(group) for group in range(len(round_.terms.groups)))
    return capacity_of_part(people, max(sizes))


@dataclass(frozen=True)
class Decoded:
    """The reports and notes of each group that are answered, and the role that answers them."""

    server: Server
    reports: list[NDArray[np.int64]]
    notes: list[tasks.Notes]


def _decoded(
    files: SealedFiles, settings: ServerSettings, partitions: Sequence[Partition], places: _Places
) -> Decoded:
    round_ = terms_of(files)
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    server = Server(round_, keys=keys, task=task_of(round_.terms.task, settings))
    reports, notes = [], []
    for number, (group, by) in enumerate(zip(round_.terms.groups, server.randomizers, strict=True)):
        payloads = np.concatenate(
            [
                column(files, round_, partition, 1)[places[partition.number] != NOWHERE]
                for partition in partitions
                if partition.group == number
            ]
        )
        form = PayloadFormat.between(by.low, by.high)
        reports.append(form.decode(payloads[:, : group.payload_size])[0])
        notes.append(payloads[:, group.payload_size :])
    return Decoded(server, reports, notes)


def cut(files: SealedFiles, settings: ServerSettings, partitions: Sequence[Partition]) -> bytes:
    """Cut space into regions for a task that looks only so far; return how, or that none are."""
    task = task_of(terms_of(files).terms.task, settings)
    if not isinstance(task, RunsByRegion) or task.reach is None:
        return msgspec.json.encode(Regions())
    try:
        decoded = _decoded(files, settings, partitions, places_of(files, partitions))
        count = -(-sum(map(len, decoded.reports)) // PART)
        regions = decoded.server.regions(decoded.reports, decoded.notes, count=count)
    except Refused:
        regions = []  # it refuses again when it is to answer
    pieces = [
        msgspec.msgpack.encode([region.own.tobytes(), region.around.tobytes(), estimates.tobytes()])
        for region, estimates in regions
    ]
    if not pieces:
        return msgspec.json.encode(Regions())
    result = Regions(mark_of(pieces), [len(piece) for piece in pieces])
    files.put_pieces(result.file, pieces)
    return msgspec.json.encode(result)


def near(
    files: SealedFiles, settings: ServerSettings, number: int, place: ByteRange, mark: str
) -> bytes:
    """Answer a region; return where the task refused, or nothing."""
    task = task_of(terms_of(files).terms.task, settings)
    raw = files.piece(Regions(mark).file, number, start=place.at, size=place.length)
    own, around, estimates = msgspec.msgpack.decode(raw, type=list[bytes])
    region = Region(np.frombuffer(own, np.int64), np.frombuffer(around, np.int64))
    places = np.frombuffer(estimates).reshape(len(region.around), -1)
    try:
        answers = answer_region(task, places, region)  # type: ignore[arg-type] # it was cut for it
    except Refused as error:
        return place_of(error).encode()
    clock.reach("stage.near", alone=True)
    columns = (answers.indptr, answers.indices)
    packed = [own, *(column.astype(np.int64).tobytes() for column in columns)]
    plain = msgspec.msgpack.encode([*packed, answers.ordered, answers.located])
    files.put(region_answers_file(mark, number), plain)
    clock.reach("stage.neared", alone=True)
    return b""


def _joined_regions(files: SealedFiles, regions: Regions) -> tasks.References:
    """Join the answers of all regions, each with the people in it."""
    parts, answers = [], []
    for number in range(len(regions.sizes)):
        raw = files.get(region_answers_file(regions.mark, number))
        *columns, ordered, located = msgspec.msgpack.decode(raw)
        own, indptr, indices = (np.frombuffer(packed, np.int64) for packed in columns)
        parts.append(Region(own, own))
        answers.append(tasks.References(0, indptr, indices, ordered, located))
    return joined(parts, answers)


def compute(
    files: SealedFiles,
    settings: ServerSettings,
    partitions: Sequence[Partition],
    regions: Regions,
) -> bytes:
    """Run the task on all reports; return the sizes of the pieces of its answers.

    With regions, their answers are there already.
    """
    places = places_of(files, partitions)

    def from_regions(_: Callable[..., Any], parts: Iterable[Region]) -> Iterator[tasks.References]:
        # By person, not by region: a machine with another processor may cut equal places otherwise.
        everybody = _joined_regions(files, regions)
        return (everybody.take(part.own) for part in parts)

    try:
        decoded = _decoded(files, settings, partitions, places)
        count = len(regions.sizes)
        by: dict[str, Any] = {"regions": count, "run": from_regions} if count else {}
        answers = decoded.server.answers(decoded.reports, decoded.notes, **by)
    except Refused as error:
        return msgspec.json.encode(Computed(refused=place_of(error)))
    clock.reach("stage.compute", alone=True)
    round_ = decoded.server.round
    if settings.schedule and settings.schedule.learn:
        files.put(DENSITY, density_shown(round_, decoded.server.randomizers, decoded.reports))
    groups = [[part for part in partitions if part.group == group] for group in range(len(answers))]
    positions = positions_of([[(part.number, places[part.number]) for part in of] for of in groups])
    entries = entries_of_part(round_, sum(map(len, answers)))
    packed, requests = split_answers(
        answers, positions, partitions=len(partitions), entries=entries
    )
    mark = mark_of([*packed, *requests])
    files.put_pieces(answers_file(mark), packed)
    files.put_pieces(requests_file(mark), requests)
    clock.reach("stage.computed", alone=True)
    sizes = [list(map(len, pieces)) for pieces in (packed, requests)]
    return msgspec.json.encode(Computed("", mark, sizes[0], sizes[1], entries))
