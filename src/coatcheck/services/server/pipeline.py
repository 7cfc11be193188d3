"""An answer: the batch of a round comes in, and the entries of a bulletin come out.

`answer` runs in a worker of the leading process. It touches manifests, counts and hashes; the
reports stay in sealed files of the round. Each stage below it does one part at a time, in any order
and on any worker, and the result of each part is recorded, so that a crash costs one part. A stage
loads the keys that it needs by itself and may run twice. Seals are fresh at every try, so of a part
that was sealed twice the result recorded first counts.

* `open_reports` opens a partition: `in-` to `columns-` (addresses, payloads and notes, contacts).
* `compare`, done by the job, finds duplicates in all `columns-` and writes `places`, the place of
  each report in the bulletin.
* The task, in `task_stage`, turns `columns-` and `places` into `answers-` and `requests-`, the rows
  that the parts of the bulletin need of each partition.
* `deal` gives the keys of a partition to the parts that need them: `columns-`, `places` and
  `requests-` to `shares-`.
* `seal` makes a part of the bulletin from its shares and its `answers-`, and writes it as `out-`.

SPEC section 11.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from coatcheck.errors import Forgotten, Unavailable
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.log.merkle import HASH_SIZE, leaf_hash, root_over
from coatcheck.protocol.outcomes import FEW_REPORTS, OPERATOR, is_short, outcome_without_batch
from coatcheck.protocol.server import (
    NOWHERE,
    entry_places,
    open_part,
    refusal,
    seal_entries,
    write_answers,
)
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS
from coatcheck.protocol.terms import ADDRESS_SIZE, Round
from coatcheck.protocol.wire.batches import PART, Manifest
from coatcheck.protocol.wire.bulletins import ANSWERED, REFUSED, Bulletin, Heading
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.randomizers import from_params
from coatcheck.services import clock
from coatcheck.services.batch_transfer import IN, bulletin_part_name, part_name
from coatcheck.services.server import task_stage
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.server.task_stage import (
    COUNT,
    PLACES,
    AnswerPart,
    Bytes,
    Computed,
    Partition,
    Regions,
    column,
    columns_file,
    partners_of,
)
from coatcheck.services.settings import ServerSettings, keyring_of
from coatcheck.services.telemetry import log
from coatcheck.services.worker_pools import PartArgs, Record, put_terms, runner_for, terms_of
from coatcheck.stores.blobs import ByteRange, RangeRequest, SealedFiles, byte_ranges

_T = TypeVar("_T")


def answer(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Answer the batch of a round and store how the round ends; return the outcome.

    *Guarantee:* the same batch gives the same entries in the same order, whichever workers do the
    parts, in whichever order, and however often; every report is answered once.
    """
    stored = store.round(digest)
    if not SERVER_TRANSITIONS.allows(stored.phase, "answer"):
        return stored.outcome  # an earlier try answered it
    clock.reach("server.open")
    try:
        job = Answering(store, settings, stored, fence)
        job.runner.run(open_reports, job.unopened(), job.record("open"))
        tallies = job.compare()
        if is_short(tallies, job.round):
            end = job.refuse_small(tallies)
        elif (computed := job.compute()).refused:
            end = job.refuse_failed(computed)
        else:
            job.runner.run(deal, job.undealt(computed), job.record("deal"))
            store.prepare(digest, "answer", fence=fence)
            job.runner.run(seal, job.unsealed(computed), job.record("seal"))
            end = job.sign(tallies, computed)
    except Forgotten:
        end = _lost(settings, stored)
    clock.reach("server.seal")
    outcome = store.answer(
        digest, end.move, end.heading, parts=end.parts, density=end.density, fence=fence
    )
    clock.reach("server.answered")
    return outcome


def refuse(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Refuse a round that was not answered in time, for whatever reason."""
    stored = store.round(digest)
    round_ = verify_signatures(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    try:
        end = End("refuse", refusal(store.blob(digest, "incoming"), round_=round_, keys=keys))
    except Forgotten:
        end = _lost(settings, stored)
    return store.answer(digest, end.move, end.heading, fence=fence)


class End(NamedTuple):
    """How a round ends: the move, the signed heading, and the hashes of the bulletin's parts."""

    move: str
    heading: bytes
    parts: bytes = b""
    density: bytes = b""


def _lost(settings: ServerSettings, stored: ServerRound) -> End:
    """Sign the outcome of a round whose key is gone, and its batch with it."""
    round_ = verify_signatures(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    return End("lose", outcome_without_batch(round_, sign=keys.signing.sign, reason=OPERATOR))


class Compared(Struct, frozen=True):
    """The tally of each group, once reports with the same keys were found."""

    tallies: list[tuple[int, list[int]]]


class Request(NamedTuple):
    """What a partition deals: where its places are, and the rows that it is asked for.

    Attributes:
        parts: how many parts the bulletin has.
        entries: how many entries a part has.
        mark: marks the files of one try of the task.
    """

    places: ByteRange
    requests: ByteRange
    parts: int
    entries: int
    mark: str


class Share(NamedTuple):
    """What a partition dealt to a part of the bulletin: keys of entries, then of partners."""

    partition: Partition
    at: int
    own: int
    partners: int


class BulletinPart(NamedTuple):
    """A part of the bulletin: the try of the task, where its answers are, and its first place."""

    mark: str
    answers: ByteRange
    first: int


class Answering:
    """The job of one answer: the parts that are left to do, and the results so far."""

    def __init__(
        self, store: ServerStore, settings: ServerSettings, stored: ServerRound, fence: int
    ) -> None:
        self._store, self._fence, self._digest = store, fence, stored.digest
        self._files = store.files(stored.digest)
        self.round = verify_signatures(read_signed(stored.signed))
        self._keys = keyring_of(settings.key_files).of(self.round.terms.server.verifying)
        self._raw = store.blob(self._digest, "incoming")
        self._manifest = Manifest.decode(self._raw, self.round)
        self._results = store.results(stored.digest)
        listed = self._manifest.places(self.round)
        self._partitions = [Partition(place.group, place.number) for place in listed]
        put_terms(self._files, stored.signed)
        items = sum(tally.kept for tally in self._manifest.tallies)
        parts = len(self._partitions)
        sealed = -(-items // task_stage.entries_of_part(self.round, items))
        self._plan = {"open": parts, "compute": 1, "deal": parts, "seal": sealed}
        self._plan_parts()
        self.runner = runner_for(settings, self._files, is_small=items <= PART)

    def _plan_parts(self, **parts: int) -> None:
        """Store how many parts each stage has."""
        self._plan |= parts
        self._store.plan(self._digest, self._plan, fence=self._fence)

    def record(self, stage: str, name: str = "") -> Record:
        """Return what stores the result of each part of a stage, by a name or by its number."""

        def record_part(args: PartArgs, result: bytes) -> None:
            part = args[0]
            number = part.number if isinstance(part, Partition) else part
            self._record(f"{stage} {name or number}", result)

        return record_part

    def _record(self, name: str, result: bytes) -> None:
        self._store.save_result(self._digest, name, result, fence=self._fence)
        self._results[name] = result

    def _is_done(self, name: str, file: str, existing: set[str]) -> bool:
        return name in self._results and file in existing

    def unopened(self) -> Iterator[tuple[Partition]]:
        """Give the partitions that are not opened."""
        existing = self._files.names()
        for partition in self._partitions:
            name, file = f"open {partition.number}", columns_file(partition.number)
            if not self._is_done(name, file, existing):
                yield (partition,)

    def compare(self) -> list[Tally]:
        """Find reports with the same keys, give every other one its place, and count."""
        counts = [
            np.frombuffer(self._results[f"open {partition.number}"], COUNT)
            for partition in self._partitions
        ]
        self._partitions = [
            partition._replace(rows=int(of_partition[0]))
            for partition, of_partition in zip(self._partitions, counts, strict=True)
        ]
        if self._is_done("compare", PLACES, self._files.names()):
            compared = msgspec.json.decode(self._results["compare"], type=Compared)
            return [Tally(received, tuple(dropped)) for received, dropped in compared.tallies]
        dropped = [of_partition[1:].astype(np.int64) for of_partition in counts]
        addresses = [column(self._files, self.round, part, 0) for part in self._partitions]
        groups = [partition.group for partition in self._partitions]
        firsts = np.searchsorted(groups, np.arange(len(self._manifest.tallies) + 1))
        places_by_group = entry_places(
            [np.concatenate(addresses[a:b]) for a, b in pairwise(firsts)]
        )
        tallies = []
        for tally, of_group, (a, b) in zip(
            self._manifest.tallies, places_by_group, pairwise(firsts), strict=True
        ):
            lost = np.sum(dropped[a:b], axis=0) + tally.dropped
            counted = Tally(tally.received, tuple(lost.tolist()))
            tallies.append(counted.drop("duplicate-address", int((of_group == NOWHERE).sum())))
        ends = np.cumsum([partition.rows for partition in self._partitions])[:-1]
        pieces = np.split(np.concatenate(places_by_group).astype(COUNT), ends)
        self._files.put_pieces(PLACES, [piece.tobytes() for piece in pieces])
        clock.reach("stage.compare")
        plain = [(tally.received, list(tally.dropped)) for tally in tallies]
        self._record("compare", msgspec.json.encode(Compared(plain)))
        return tallies

    def compute(self) -> Computed:
        """Run the task, by region if it allows that; its result, or where it refused."""
        computed = self._result("compute all", Computed)
        if computed and (computed.refused or computed.files <= self._files.names()):
            return computed
        regions = self._regions()
        if regions.sizes:
            self._plan_parts(near=len(regions.sizes))
            self.runner.run(task_stage.near, self._unanswered(regions), self.record("near"))
            refusals = (self._results[f"near {number}"] for number in range(len(regions.sizes)))
            if refused := next(filter(None, refusals), b""):
                return Computed(refused.decode())
        parts = [(self._partitions, regions)]
        self.runner.run(task_stage.compute, parts, self.record("compute", "all"))
        return msgspec.json.decode(self._results["compute all"], type=Computed)

    def _result(self, name: str, kind: type[_T]) -> _T | None:
        raw = self._results.get(name)
        return None if raw is None else msgspec.json.decode(raw, type=kind)

    def _regions(self) -> Regions:
        """Have space cut into regions for a task that looks only so far."""
        if sum(partition.rows for partition in self._partitions) <= PART:
            return Regions()
        regions = self._result("cut all", Regions)
        if regions and (not regions.sizes or regions.file in self._files.names()):
            return regions
        self.runner.run(task_stage.cut, [(self._partitions,)], self.record("cut", "all"))
        return msgspec.json.decode(self._results["cut all"], type=Regions)

    def _unanswered(self, regions: Regions) -> Iterator[tuple[int, ByteRange, str]]:
        """Give the regions that are not answered."""
        existing = self._files.names()
        for number, place in enumerate(byte_ranges(regions.sizes)):
            file = task_stage.region_answers_file(regions.mark, number)
            if not self._is_done(f"near {number}", file, existing):
                yield number, place, regions.mark

    def undealt(self, computed: Computed) -> list[tuple[Partition, Request]]:
        """List the partitions that have not dealt their keys, each with what it is asked for."""
        parts, mark = len(computed.answers), computed.mark
        self._plan_parts(seal=parts)
        existing = self._files.names()
        places = byte_ranges([COUNT.itemsize * partition.rows for partition in self._partitions])
        ranges = zip(self._partitions, places, byte_ranges(computed.requests), strict=True)
        return [
            (partition, Request(place, requests, parts, computed.entries, mark))
            for partition, place, requests in ranges
            if not self._is_done(
                f"deal {partition.number}", shares_file(mark, partition.number), existing
            )
        ]

    def unsealed(self, computed: Computed) -> Iterator[tuple[int, BulletinPart, list[Share]]]:
        """Give the parts of the bulletin that are not sealed, each with what was dealt to it."""
        count, answers = len(computed.answers), byte_ranges(computed.answers)
        dealt = []
        for partition in self._partitions:
            raw = self._results[f"deal {partition.number}"]
            rows = np.frombuffer(raw, COUNT).reshape(2, count)
            widths = share_widths(self.round, partition.group)
            ranges = byte_ranges([int(size) for size in widths @ rows.astype(np.int64)])
            dealt.append((partition, ranges, rows.tolist()))
        existing = self._files.names("batch")
        for number in range(count):
            sealed = self._results.get(f"seal {number}")
            if sealed and bulletin_part_name(number, sealed[HASH_SIZE:]) in existing:
                continue
            shares = [
                Share(partition, ranges[number].at, own[number], partners[number])
                for partition, ranges, (own, partners) in dealt
                if own[number] or partners[number]
            ]
            first = number * computed.entries
            yield number, BulletinPart(computed.mark, answers[number], first), shares

    def sign(self, tallies: list[Tally], computed: Computed) -> End:
        """Sign the heading of the bulletin whose parts are sealed."""
        sealed = [self._results[f"seal {number}"] for number in range(len(computed.answers))]
        root = root_over([raw[:HASH_SIZE] for raw in sealed])
        counts = (tuple(tallies), self._manifest.roots)
        heading = Heading(ANSWERED, self._digest, *counts, root).sign(self._keys.signing.sign)
        learns = task_stage.DENSITY in self._files.names()
        density = self._files.get(task_stage.DENSITY) if learns else b""
        return End("answer", heading, b"".join(raw[HASH_SIZE:] for raw in sealed), density)

    def refuse_small(self, tallies: list[Tally]) -> End:
        """Sign that a group has too few valid reports."""
        none: list[list[bytes]] = [[] for _ in tallies]
        counts = (tallies, self._manifest.roots)
        bulletin = Bulletin.compose(none, REFUSED, self._digest, *counts, reason=FEW_REPORTS)
        return End("refuse", bulletin.signed(self._keys.signing.sign).encode())

    def refuse_failed(self, computed: Computed) -> End:
        """Sign that the task refused the reports, and log where."""
        log.error("round %s is refused: %s", self.round.terms.round, computed.refused)
        return End("refuse", refusal(self._raw, round_=self.round, keys=self._keys))


# The stages


def open_reports(files: SealedFiles, settings: ServerSettings, partition: Partition) -> bytes:
    """Open a partition of the batch.

    Returns how many reports stay, and how many are dropped for each reason.
    """
    round_, group = terms_of(files), partition.group
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    raw = files.get(part_name(IN, partition.number))
    size = round_.item_size(group, len(round_.terms.shufflers))
    reports = open_part(
        [raw[at : at + size] for at in range(0, len(raw), size)],
        round_,
        group=group,
        randomizer=from_params(round_.terms.groups[group].randomizer),
        key=keys.opening,
        bulk=Bulk(),
    )
    clock.reach("stage.open", alone=True)
    payloads = np.concatenate([reports.payloads, reports.notes], axis=1)
    columns = [rows.tobytes() for rows in (reports.addresses, payloads, reports.contacts)]
    files.put_pieces(columns_file(partition.number), columns)
    clock.reach("stage.opened", alone=True)
    return np.array([len(reports), *reports.tally.dropped], COUNT).tobytes()


def shares_file(mark: str, number: int) -> str:
    """Name what a partition deals to the parts of the bulletin, after one try of the task."""
    return f"shares-{mark}-{number}"


def share_widths(round_: Round, group: int) -> tuple[int, int]:
    """Return the bytes that a share has for an entry, and for a partner of a group."""
    own = COUNT.itemsize + ADDRESS_SIZE + round_.suite.sealing_size
    return own, round_.suite.contact_size + round_.terms.groups[group].payload_size


def deal(
    files: SealedFiles, settings: ServerSettings, partition: Partition, request: Request
) -> bytes:
    """Deal a partition's keys to the parts of the bulletin.

    A part gets place, address and key of its own entries, in order; then contact and payload of
    the people that its entries name. Returns the number of rows of each part, twice.
    """
    del settings
    round_, number = terms_of(files), partition.number
    addresses, payloads, contacts = (column(files, round_, partition, n) for n in range(3))
    raw = files.piece(PLACES, number, start=request.places.at, size=request.places.length)
    place = np.frombuffer(raw, COUNT)
    order = np.argsort(place)[: int((place != NOWHERE).sum())]
    keys = contacts[order, : round_.suite.sealing_size]
    numbers = place[order].view(np.uint8).reshape(-1, COUNT.itemsize)
    own = np.concatenate([numbers, addresses[order], keys], axis=1)
    own_counts = np.bincount(place[order] // request.entries, minlength=request.parts)
    at, size = request.requests
    raw = files.piece(task_stage.requests_file(request.mark), number, start=at, size=size)
    requests = np.frombuffer(raw, COUNT)
    partner_counts, rows = requests[: request.parts], requests[request.parts :]
    payload = round_.terms.groups[partition.group].payload_size
    partners = np.concatenate([contacts[rows], payloads[rows, :payload]], axis=1)
    pairs = zip(_cut(own, own_counts), _cut(partners, partner_counts), strict=True)
    clock.reach("stage.deal", alone=True)
    shares = [entries.tobytes() + named.tobytes() for entries, named in pairs]
    files.put_pieces(shares_file(request.mark, number), shares)
    clock.reach("stage.dealt", alone=True)
    return np.array([own_counts, partner_counts], COUNT).tobytes()


def _cut(rows: Bytes, counts: NDArray[np.integer]) -> list[Bytes]:
    return np.split(rows, np.cumsum(counts)[:-1])


def seal(
    files: SealedFiles,
    settings: ServerSettings,
    number: int,
    part: BulletinPart,
    shares: Sequence[Share],
) -> bytes:
    """Write and seal the entries of a part of the bulletin, in order.

    Returns the root of its subtree, and its hash.
    """
    del settings
    round_ = terms_of(files)
    own, partners = _read_shares(files, round_, number, shares, part.mark)
    place = np.ascontiguousarray(own[:, : COUNT.itemsize]).view(COUNT).ravel()
    if not np.array_equal(place, np.arange(len(place)) + part.first):
        raise Unavailable(f"part {number} of the bulletin lacks entries: its shares are incomplete")
    at, size = part.answers
    raw = files.piece(task_stage.answers_file(part.mark), number, start=at, size=size)
    answers = msgspec.msgpack.decode(raw, type=list[AnswerPart])
    leaves, entries = [], []
    start, contact = 0, round_.suite.contact_size
    for of_group, named in zip(answers, partners_of(answers, partners), strict=True):
        group, rows = of_group.group, own[start : start + of_group.people]
        size, start = round_.terms.groups[group].answer_size, start + of_group.people
        texts = write_answers(of_group.answers, named, contact=contact, size=size)
        _, addresses, keys = np.split(rows, [COUNT.itemsize, COUNT.itemsize + ADDRESS_SIZE], axis=1)
        sealed = seal_entries(texts, keys, addresses, round_, group=group, bulk=Bulk())
        leaves += [leaf_hash(bytes((group,)) + entry) for entry in sealed]
        entries += sealed
    raw = b"".join(entries)
    content = hashlib.sha256(raw).digest()
    clock.reach("stage.seal", alone=True)
    files.put(bulletin_part_name(number, content), raw, use="batch")
    clock.reach("stage.sealed", alone=True)
    return root_over(leaves) + content


def _read_shares(
    files: SealedFiles, round_: Round, number: int, shares: Sequence[Share], mark: str
) -> tuple[Bytes, dict[int, Bytes]]:
    """Read what was dealt to a part: its entries by place, and the partners of each group."""
    own_rows: list[Bytes] = []
    partners: dict[int, list[Bytes]] = {}
    widths = [share_widths(round_, share.partition.group) for share in shares]
    pieces = files.pieces(
        RangeRequest(
            shares_file(mark, share.partition.number),
            number,
            share.at,
            share.own * own + share.partners * partner,
        )
        for share, (own, partner) in zip(shares, widths, strict=True)
    )
    for share, (own, partner), piece in zip(shares, widths, pieces, strict=True):
        raw, cut = np.frombuffer(piece, np.uint8), share.own * own
        own_rows.append(raw[:cut].reshape(share.own, own))
        rows = raw[cut:].reshape(share.partners, partner)
        partners.setdefault(share.partition.group, []).append(rows)
    entries = np.concatenate(own_rows)
    place = np.ascontiguousarray(entries[:, : COUNT.itemsize]).view(COUNT).ravel()
    by_group = {group: np.concatenate(rows) for group, rows in partners.items()}
    return entries[np.argsort(place)], by_group
