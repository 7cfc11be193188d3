"""An answer, stage by stage: what is done is written down, so that a crash costs one part.

The leader of the database drives it, and hands parts to a runner. It touches manifests, counts and
hashes; reports are in the depot. SPEC section 11.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from coatcheck.errors import Forgotten, Misuse, Unavailable
from coatcheck.protocol.agreement import propose, read_signed, verify_signatures, write_signed
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.keys import SigningKey
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
from coatcheck.protocol.terms import (
    ADDRESS_SIZE,
    Notary,
    Round,
    ShufflerParty,
    Terms,
    read_terms,
    suite_named,
)
from coatcheck.protocol.wire.batches import PART, Manifest, check_capacity
from coatcheck.protocol.wire.bulletins import ANSWERED, REFUSED, Bulletin, Heading
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.randomizers import from_params
from coatcheck.services import clock
from coatcheck.services.batch_transfer import IN, announced, part_name, sealed
from coatcheck.services.server import task_stage
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.server.task_stage import (
    COUNT,
    PLACES,
    Computed,
    Cut,
    Source,
    Told,
    column,
    opened,
    partners_of,
)
from coatcheck.services.settings import ServerSettings, keyring_of
from coatcheck.services.telemetry import log
from coatcheck.services.web.client import HttpClient, LongBody
from coatcheck.services.worker_pools import Done, Runner, keep_terms, runner_of, terms_of
from coatcheck.stores.blobs import ByteRange, RangeRequest, SealedFiles, byte_ranges

# HOUSE-DOC services.server.stages: 'The stages of an answer: functions of files in the depot, done by any hand, as often as need be.\n\n*Open* opens and checks a partition of the batch. The task comes next (`computing.py`). *Deal*\ngives every part of the bulletin the keys that it needs of a partition. *Seal* writes and seals the\nentries of a part of the bulletin, in order, and computes its subtree. A stage loads the keys that\nit needs by itself. The bytes between them are in the depot only, sealed. SPEC section 11.\n'
Bytes = NDArray[np.uint8]


class Piece(NamedTuple):
    """What a partition dealt to a part of the bulletin: entries' keys, then partners."""

    source: Source
    at: int
    own: int
    wanted: int


class Asked(NamedTuple):
    """What a partition is asked to deal: where its places are, and what is wanted of it.

    Attributes:
        parts: of how many parts the bulletin is.
        each: how many entries a part has.
        mark: of which try of the task.
    """

    places: ByteRange
    wanted: ByteRange
    parts: int
    each: int
    mark: str


class Share(NamedTuple):
    """A part of the bulletin: of which try of the task, where it is told, and its first place."""

    mark: str
    told: ByteRange
    first: int


def dealt(mark: str, number: int) -> str:
    """Name what a partition deals to the parts of the bulletin, after one try of the task."""
    return f"dealt-{mark}-{number}"


def open_reports(crate: SealedFiles, settings: ServerSettings, source: Source) -> bytes:
    """Open a partition of the batch; how many reports stay, and how many go for each reason."""
    round_ = terms_of(crate)
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    raw, group = crate.get(part_name(IN, source.number)), source.group
    size = round_.item_size(group, len(round_.terms.shufflers))
    found = open_part(
        [raw[at : at + size] for at in range(0, len(raw), size)],
        round_,
        group=group,
        randomizer=from_params(round_.terms.groups[group].randomizer),
        key=keys.opening,
        bulk=Bulk(),
    )
    clock.reach("stage.open", alone=True)
    said = np.concatenate([found.payloads, found.notes], axis=1)
    pieces = [one.tobytes() for one in (found.addresses, said, found.contacts)]
    crate.put_pieces(opened(source.number), pieces)
    clock.reach("stage.opened", alone=True)
    return np.array([len(found), *found.tally.dropped], COUNT).tobytes()


def deal(crate: SealedFiles, settings: ServerSettings, source: Source, asked: Asked) -> bytes:
    """Deal a partition's keys to the parts of the bulletin; how many rows each gets, twice.

    First those whose entries it has, by place: place, address and key. Then those whom its
    entries name: contact and payload.
    """
    del settings
    places, wanted, parts, each, mark = asked
    round_, number = terms_of(crate), source.number
    names, said, contacts = (column(crate, round_, source, n) for n in range(3))
    raw = crate.piece(PLACES, number, start=places.at, size=places.length)
    place = np.frombuffer(raw, COUNT)
    order = np.argsort(place)[: int((place != NOWHERE).sum())]
    keys = contacts[order, : round_.suite.sealing_size]
    numbers = place[order].view(np.uint8).reshape(-1, COUNT.itemsize)
    own = np.concatenate([numbers, names[order], keys], axis=1)
    counts = np.bincount(place[order] // each, minlength=parts)
    raw = crate.piece(task_stage.wanted_file(mark), number, start=wanted.at, size=wanted.length)
    listed = np.frombuffer(raw, COUNT)
    others, rows = listed[:parts], listed[parts:]
    payload = round_.terms.groups[source.group].payload_size
    partners = np.concatenate([contacts[rows], said[rows, :payload]], axis=1)
    pairs = zip(_cut(own, counts), _cut(partners, others), strict=True)
    clock.reach("stage.deal", alone=True)
    crate.put_pieces(dealt(mark, number), [a.tobytes() + b.tobytes() for a, b in pairs])
    clock.reach("stage.dealt", alone=True)
    return np.array([counts, others], COUNT).tobytes()


def _cut(rows: Bytes, counts: NDArray[np.integer]) -> list[Bytes]:
    return np.split(rows, np.cumsum(counts)[:-1])


def dealt_width(round_: Round, group: int) -> tuple[int, int]:
    """Give the bytes of what is dealt of an entry, and of a partner of a group."""
    own = COUNT.itemsize + ADDRESS_SIZE + round_.suite.sealing_size
    return own, round_.suite.contact_size + round_.terms.groups[group].payload_size


def seal(
    crate: SealedFiles,
    settings: ServerSettings,
    number: int,
    share: Share,
    pieces: Sequence[Piece],
) -> bytes:
    """Make a part of the bulletin from what was dealt to it; its subtree's root, and its hash."""
    del settings
    round_, (mark, slot, first) = terms_of(crate), share
    own, partners = _gathered(crate, round_, number, pieces, mark)
    place = np.ascontiguousarray(own[:, : COUNT.itemsize]).view(COUNT).ravel()
    if not np.array_equal(place, np.arange(len(place)) + first):
        raise Unavailable(f"what was dealt to part {number} of the bulletin is not all of it")
    raw = crate.piece(task_stage.told_file(mark), number, start=slot.at, size=slot.length)
    answers = msgspec.msgpack.decode(raw, type=list[Told])
    at, leaves, entries = COUNT.itemsize, [], []
    start, contact = 0, round_.suite.contact_size
    for one, named in zip(answers, partners_of(answers, partners), strict=True):
        group, rows = one.group, own[start : start + one.people]
        size, start = round_.terms.groups[group].answer_size, start + one.people
        texts = write_answers(one.answers, named, contact=contact, size=size)
        names, keys = rows[:, at : at + ADDRESS_SIZE], rows[:, at + ADDRESS_SIZE :]
        made = seal_entries(texts, keys, names, round_, group=group, bulk=Bulk())
        leaves += [leaf_hash(bytes((group,)) + entry) for entry in made]
        entries += made
    raw = b"".join(entries)
    content = hashlib.sha256(raw).digest()
    clock.reach("stage.seal", alone=True)
    crate.put(sealed(number, content), raw, use="batch")
    clock.reach("stage.sealed", alone=True)
    return root_over(leaves) + content


def _gathered(
    crate: SealedFiles, round_: Round, number: int, pieces: Sequence[Piece], mark: str
) -> tuple[Bytes, dict[int, Bytes]]:
    """Read what was dealt to a part: its entries by place, and the partners of each group."""
    mine: list[Bytes] = []
    others: dict[int, list[Bytes]] = {}
    wide = [dealt_width(round_, one.source.group) for one in pieces]
    read = crate.pieces(
        RangeRequest(
            dealt(mark, one.source.number), number, one.at, one.own * first + one.wanted * second
        )
        for one, (first, second) in zip(pieces, wide, strict=True)
    )
    for one, (first, second), found in zip(pieces, wide, read, strict=True):
        raw, cut = np.frombuffer(found, np.uint8), one.own * first
        mine.append(raw[:cut].reshape(one.own, first))
        others.setdefault(one.source.group, []).append(raw[cut:].reshape(one.wanted, second))
    rows = np.concatenate(mine)
    place = np.ascontiguousarray(rows[:, : COUNT.itemsize]).view(COUNT).ravel()
    return rows[np.argsort(place)], {g: np.concatenate(of) for g, of in others.items()}


# HOUSE-DOC services.server.bulletins: "A bulletin on its way to the board: its heading, then its parts, one at a time.\n\nA role's end without entries is its heading alone. SPEC section 19.\n"
class Outgoing:
    """The end of a round as it is kept, in pieces.

    Attributes:
        names: the files of its parts, in order.
    """

    def __init__(self, store: ServerStore, digest: bytes) -> None:
        self.heading = store.kept(digest, "bulletin")
        self.crate = store.crate(digest)
        listed = store.listed(digest)
        if listed:
            self.crate.key("batch")  # without it nothing of them is read: that is told first
        self.names = [sealed(n, content) for n, content in enumerate(listed)]

    def part(self, name: str) -> bytes:
        """Read a part."""
        return self.crate.get(name, use="batch")

    def measured(self) -> tuple[int, bytes]:
        """Give how many bytes there are, and their hash."""
        found, size = hashlib.sha256(self.heading), len(self.heading)
        for name in self.names:
            raw = self.part(name)
            found.update(raw)
            size += len(raw)
        return size, found.digest()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Give the bytes, a part at a time."""
        yield self.heading
        for name in self.names:
            yield await asyncio.to_thread(self.part, name)


async def publish(
    store: ServerStore, digest: bytes, *, to: str, signing: SigningKey, peers: HttpClient
) -> None:
    """Hand the end of a round to the board."""
    going = await asyncio.to_thread(Outgoing, store, digest)
    size, content = await asyncio.to_thread(going.measured)
    headers = announced(content, digest=digest, signing=signing)
    clock.reach("server.deliver")
    url = f"{to}/rounds/{digest.hex()}/bulletin"
    await peers.stream(url, LongBody(size, going.pieces), headers=headers)
    clock.reach("server.delivered")


class End(NamedTuple):
    """How a round ends: the move, the signed heading, and the hashes of the bulletin's parts."""

    move: str
    heading: bytes
    parts: bytes = b""
    density: bytes = b""


class Compared(Struct, frozen=True):
    """What was counted of each group, once reports with the same keys were found."""

    tallies: list[tuple[int, list[int]]]


class Answering:
    """The answer to the batch of one round.

    *Guarantee:* the same batch gives the same entries in the same order, whoever does the parts, in
    whichever order, and however often; every report is answered once.
    """

    def __init__(
        self, store: ServerStore, settings: ServerSettings, stored: ServerRound, fence: int
    ) -> None:
        self._store, self._settings, self._fence = store, settings, fence
        self._digest, self._signed = stored.digest, stored.signed
        self._crate = store.crate(stored.digest)
        self._round = verify_signatures(read_signed(stored.signed))
        self._keys = keyring_of(settings.key_files).of(self._round.terms.server.verifying)
        self._raw = store.kept(self._digest, "incoming")
        self._manifest = Manifest.decode(self._raw, self._round)
        self._notes = store.noted(stored.digest)
        listed = self._manifest.places(self._round)
        self._sources = [Source(place.group, place.number) for place in listed]

    def make(self) -> End:
        """Do what is left to do; how the round ends."""
        keep_terms(self._crate, self._signed)
        items = sum(tally.kept for tally in self._manifest.tallies)
        parts = len(self._sources)
        entries = -(-items // task_stage.entries_of_part(self._round, items))
        self._plan = {"open": parts, "compute": 1, "deal": parts, "seal": entries}
        self._store.plan(self._digest, self._plan, fence=self._fence)
        runner = runner_of(self._settings, self._crate, little=items <= PART)
        self._open(runner)
        tallies = self._compared()
        if is_short(tallies, self._round):
            return self._refused(tallies)
        computed = self._computed(runner)
        if computed.refused:
            log.error("round %s is refused: %s", self._round.terms.round, computed.refused)
            return End("refuse", refusal(self._raw, round_=self._round, keys=self._keys))
        count = len(computed.told)
        self._plan = {**self._plan, "seal": count}
        self._store.plan(self._digest, self._plan, fence=self._fence)
        self._deal(runner, computed)
        self._store.prepare(self._digest, "answer", fence=self._fence)
        self._seal(runner, computed)
        return self._answered(tallies, [self._notes[f"seal {n}"] for n in range(count)])

    def _answered(self, tallies: list[Tally], made: list[bytes]) -> End:
        root = root_over([raw[:HASH_SIZE] for raw in made])
        counts = (tuple(tallies), self._manifest.roots)
        heading = Heading(ANSWERED, self._digest, *counts, root).sign(self._keys.signing.sign)
        learns = task_stage.DENSITY in self._crate.names()
        density = self._crate.get(task_stage.DENSITY) if learns else b""
        return End("answer", heading, b"".join(raw[HASH_SIZE:] for raw in made), density)

    def _refused(self, tallies: list[Tally]) -> End:
        none: list[list[bytes]] = [[] for _ in tallies]
        counts = (tallies, self._manifest.roots)
        draft = Bulletin.compose(none, REFUSED, self._digest, *counts, reason=FEW_REPORTS)
        return End("refuse", draft.signed(self._keys.signing.sign).encode())

    # -- open

    def _open(self, runner: Runner) -> None:
        there = self._crate.names()
        todo = [
            (one,)
            for one in self._sources
            if not (f"open {one.number}" in self._notes and opened(one.number) in there)
        ]
        runner.run(open_reports, todo, self._noting("open"))
        counted = [np.frombuffer(self._notes[f"open {one.number}"], COUNT) for one in self._sources]
        self._dropped = [one[1:].astype(np.int64) for one in counted]
        pairs = zip(self._sources, counted, strict=True)
        self._sources = [one._replace(rows=int(counts[0])) for one, counts in pairs]

    # -- compare

    def _compared(self) -> list[Tally]:
        """Find reports with the same keys, give each other one its place, and count."""
        if "compare" in self._notes and PLACES in self._crate.names():
            known = msgspec.json.decode(self._notes["compare"], type=Compared)
            return [Tally(received, tuple(dropped)) for received, dropped in known.tallies]
        names = [column(self._crate, self._round, one, 0) for one in self._sources]
        groups = [one.group for one in self._sources]
        firsts = np.searchsorted(groups, np.arange(len(self._manifest.tallies) + 1))
        found = entry_places([np.concatenate(names[a:b]) for a, b in pairwise(firsts)])
        tallies = []
        for tally, where, (a, b) in zip(
            self._manifest.tallies, found, pairwise(firsts), strict=True
        ):
            lost = np.sum(self._dropped[a:b], axis=0) + tally.dropped
            counted = Tally(tally.received, tuple(lost.tolist()))
            tallies.append(counted.drop("duplicate-address", int((where == NOWHERE).sum())))
        ends = np.cumsum([one.rows for one in self._sources])[:-1]
        pieces = np.split(np.concatenate(found).astype(COUNT), ends)
        self._crate.put_pieces(PLACES, [one.tobytes() for one in pieces])
        clock.reach("stage.compare")
        plain = [(one.received, list(one.dropped)) for one in tallies]
        self._note("compare", msgspec.json.encode(Compared(plain)))
        return tallies

    # -- compute

    def _computed(self, runner: Runner) -> Computed:
        known = self._notes.get("compute all")
        found = msgspec.json.decode(known, type=Computed) if known else None
        if found and (found.refused or self._has_files_of(found)):
            return found
        regions = self._regions(runner)
        refused = self._near(runner, regions)
        if refused:
            return Computed(refused)
        given = (self._sources, regions)
        runner.run(task_stage.compute, [given], self._noting("compute", "all"))
        return msgspec.json.decode(self._notes["compute all"], type=Computed)

    def _has_files_of(self, computed: Computed) -> bool:
        mark = computed.mark
        return {task_stage.told_file(mark), task_stage.wanted_file(mark)} <= self._crate.names()

    def _regions(self, runner: Runner) -> Cut:
        """Have space cut for a task that looks only so far."""
        if sum(one.rows for one in self._sources) <= PART:
            return Cut()
        known = msgspec.json.decode(self._notes.get("cut all", b"null"), type=Cut | None)
        there = self._crate.names()
        if known is None or (known.sizes and task_stage.regions_name(known.mark) not in there):
            runner.run(task_stage.cut, [(self._sources,)], self._noting("cut", "all"))
            known = msgspec.json.decode(self._notes["cut all"], type=Cut)
        return known

    def _near(self, runner: Runner, regions: Cut) -> str:
        """Have each region answered; where the task refused one."""
        if not regions.sizes:
            return ""
        self._plan = {**self._plan, "near": len(regions.sizes)}
        self._store.plan(self._digest, self._plan, fence=self._fence)
        there, mark = self._crate.names(), regions.mark
        todo = [
            (number, slot, mark)
            for number, slot in enumerate(byte_ranges(regions.sizes))
            if not (f"near {number}" in self._notes and task_stage.near_name(mark, number) in there)
        ]
        runner.run(task_stage.near, todo, self._noting("near"))
        told = (self._notes[f"near {number}"] for number in range(len(regions.sizes)))
        return next((raw.decode() for raw in told if raw), "")

    # -- deal

    def _deal(self, runner: Runner, computed: Computed) -> None:
        there, mark, parts = self._crate.names(), computed.mark, len(computed.told)
        where = byte_ranges([COUNT.itemsize * one.rows for one in self._sources])
        wanted = byte_ranges(computed.wanted)
        todo = [
            (one, Asked(where[one.number], wanted[one.number], parts, computed.each, mark))
            for one in self._sources
            if not (f"deal {one.number}" in self._notes and dealt(mark, one.number) in there)
        ]
        runner.run(deal, todo, self._noting("deal"))

    # -- seal

    def _seal(self, runner: Runner, computed: Computed) -> None:
        runner.run(seal, self._unsealed(computed), self._noting("seal"))

    def _unsealed(self, computed: Computed) -> Iterator[tuple[Any, ...]]:
        """Give the parts of the bulletin that are not made, each with what was dealt to it."""
        count, told = len(computed.told), byte_ranges(computed.told)
        dealt = []
        for one in self._sources:
            rows = np.frombuffer(self._notes[f"deal {one.number}"], COUNT).reshape(2, count)
            widths = dealt_width(self._round, one.group)
            at = byte_ranges([int(size) for size in widths @ rows.astype(np.int64)])
            dealt.append((one, at, rows.tolist()))
        there = self._crate.names("batch")
        for number in range(count):
            known = self._notes.get(f"seal {number}")
            if known and sealed(number, known[HASH_SIZE:]) in there:
                continue
            pieces = [
                Piece(one, at[number].at, own[number], wanted[number])
                for one, at, (own, wanted) in dealt
                if own[number] or wanted[number]
            ]
            yield number, Share(computed.mark, told[number], number * computed.each), pieces

    def _noting(self, stage: str, name: str = "") -> Done:
        """Write down what came of each part of a stage, by its number or the name of its part."""

        def done(given: tuple[Any, ...], result: bytes) -> None:
            part = given[0]
            number = part.number if isinstance(part, Source) else part
            self._note(f"{stage} {name or number}", result)

        return done

    def _note(self, name: str, raw: bytes) -> None:
        self._store.note(self._digest, name, raw, fence=self._fence)
        self._notes[name] = raw


# HOUSE-DOC services.server.jobs: "What a server computes, in its worker: the numbers of terms, and the answers to a batch.\n\nThe service's own process names these jobs and does none of them. So what computes is loaded when a\njob begins: loading it takes longer than everything else of a start.\n"
def draft(
    settings: ServerSettings,
    plan: dict[str, Any],
    times: tuple[int, int, int],
    *,
    url: str,
    shufflers: Sequence[ShufflerParty],
    board: Notary,
    density: bytes = b"",
) -> bytes:
    """Compute a plan's sizes and promises and sign it as the server.

    Where a density of people is known, mechanisms are placed for it, unless that promises less.
    """
    from coatcheck.protocol.drafting import read_draft  # noqa: PLC0415 - slow to load

    keys = keyring_of(settings.key_files)

    def made(plan: dict[str, Any]) -> Terms:
        return read_draft(plan).terms(
            suite=suite_named(keys.public.suite),
            server=replace(keys.public, url=url).party,
            shufflers=shufflers,
            board=board,
            times=times,
        )

    try:
        terms = made(plan)
        if density:
            from coatcheck.services.server.task_stage import placed  # noqa: PLC0415 - as above

            better = made(placed(plan, density))
            pairs = zip(better.groups, terms.groups, strict=True)
            if all(one.promise.epsilon <= other.promise.epsilon for one, other in pairs):
                terms = better
        signed = propose(terms, keys=keys.current)
    except msgspec.MsgspecError as error:
        raise Misuse(f"the plan makes no terms: {error}") from None
    check_capacity(read_terms(signed.document.encode()), limit=settings.batch_limit)
    return write_signed(signed)


def answer(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """Open, compute, seal, and keep the bulletin; how it ended.

    Seals are fresh at every try, so the part that was noted first is the one that counts.
    """
    # HOUSE: empty import

    stored = store.round(digest)
    if not SERVER_TRANSITIONS.allows(stored.phase, "answer"):
        return stored.outcome  # a try before this one did it
    round_ = verify_signatures(read_signed(stored.signed))
    clock.reach("server.open")
    try:
        end = Answering(store, settings, stored, fence).make()
    except Forgotten:
        keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
        end = End("lose", outcome_without_batch(round_, sign=keys.signing.sign, reason=OPERATOR))
    clock.reach("server.seal")
    outcome = store.answer(
        digest, end.move, end.heading, parts=end.parts, density=end.density, fence=fence
    )
    clock.reach("server.answered")
    return outcome


def refuse(store: ServerStore, settings: ServerSettings, digest: bytes, fence: int) -> str:
    """End a round that was not answered in time, whatever kept its task from it."""
    from coatcheck.protocol.server import refusal  # noqa: PLC0415 - slow to load

    stored = store.round(digest)
    round_ = verify_signatures(read_signed(stored.signed))
    keys = keyring_of(settings.key_files).of(round_.terms.server.verifying)
    try:
        move, bulletin = "refuse", refusal(store.kept(digest, "incoming"), round_=round_, keys=keys)
    except Forgotten:
        move, bulletin = (
            "lose",
            outcome_without_batch(round_, sign=keys.signing.sign, reason=OPERATOR),
        )
    return store.answer(digest, move, bulletin, fence=fence)
