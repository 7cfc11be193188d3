"""A release, stage by stage: what is done is written down, so that a crash costs one part.

The leader of the database drives it, and hands parts to a runner. It touches counts, hashes and
names; items are in the depot. SPEC section 10.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.shuffler import RANK_SIZE, Shuffler, ShufflerState, as_rows, gather, sift
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import PART, Manifest, Part, bits_of, capacity_of_part
from coatcheck.protocol.wire.uploads import ID_SIZE, Tally, content_id, items_of
from coatcheck.services import clock
from coatcheck.services.batch_transfer import IN, OUT, part_name
from coatcheck.services.settings import ShufflerSettings, keyring_of
from coatcheck.services.shuffler.rounds import role_of
from coatcheck.services.shuffler.store import Bundle, ShufflerRound, ShufflerStore, unpack_uploads
from coatcheck.services.worker_pools import Runner, keep_terms, runner_of, terms_of
from coatcheck.stores.blobs import ByteRange, RangeRequest, SealedFiles, byte_ranges

# HOUSE-DOC services.shuffler.stages: "The stages of a release: functions of files in the depot, done by any hand, as often as need be.\n\n*Peel* opens this shuffler's layer of a part of what came in, and deals the items by the leading\nbits of their ranks. *Gather* makes a partition of the batch from what was dealt to it. A stage\nloads the keys that it needs by itself, and its file is there in whole or not at all, so doing it\ntwice changes nothing. The bytes between them are in the depot only, sealed. SPEC section 10.\n"
_COUNT: Final = np.dtype(">u4")


class Received(NamedTuple):
    """What came in of a group: how many items.

    The count is in the names of files. A round may reopen and be released with more uploads: who
    began with fewer and comes late writes no file of those.
    """

    group: int
    items: int

    def exported(self, number: int) -> str:
        """Name a file of uploads."""
        return self._name("up", number)

    def told(self, number: int) -> str:
        """Name what a part tells of its items: ranks and names."""
        return self._name("told", number)

    def dealt(self, number: int) -> str:
        """Name what a part deals to the partitions."""
        return self._name("dealt", number)

    def left(self) -> str:
        """Name the ranks that are left out."""
        return self._name("left", 0)

    def _name(self, what: str, number: int) -> str:
        return f"{what}-{self.group}-{self.items}-{number}"


class Source(NamedTuple):
    """A part of what came in: uploads that were exported, or a partition of the batch before."""

    of: Received
    number: int
    name: str


class Target(NamedTuple):
    """A partition of the batch: its group and place there, its number, and an item's size."""

    of: Received
    within: int
    number: int
    size: int


def role_at(crate: SealedFiles, settings: ShufflerSettings) -> Shuffler:
    """Make the role of a round with its secret, for a stage."""
    state = ShufflerState(bytearray(crate.key().secret))
    return role_of(terms_of(crate), keyring_of(settings.key_files), state)


def peel(crate: SealedFiles, settings: ShufflerSettings, source: Source, bits: int) -> bytes:
    """Peel a part; how many items it has for each partition."""
    role = role_at(crate, settings)
    raw, of, number = crate.get(source.name), source.of, source.number
    if role.hop:
        size = role.round.item_size(of.group, role.hop)
        items = (raw[at : at + size] for at in range(0, len(raw), size))
        sealed = {content_id(item): item for item in items}
    else:
        sealed = _uploaded(raw, crate, role.round)
    peeled = role.peeler.peel(of.group, sealed)
    pieces = peeled.shares(bits)
    clock.reach("stage.peel", alone=True)
    crate.put_pieces(of.dealt(number), [piece.tobytes() for piece in pieces])
    crate.put(of.told(number), peeled.ranks.tobytes())
    clock.reach("stage.peeled", alone=True)
    return np.array([len(piece) for piece in pieces], _COUNT).tobytes()


def _uploaded(raw: bytes, crate: SealedFiles, round_: Round) -> dict[bytes, bytes]:
    """Open bundles of uploads as they are stored, and cut them into items by their ids."""
    key, is_alone = crate.key(), len(round_.terms.shufflers) == 1
    items: dict[bytes, bytes] = {}
    for bundle in msgspec.msgpack.decode(raw, type=list[Bundle]):
        found = unpack_uploads(key, crate.digest, bundle)
        if is_alone:  # as `items_of` has it, and millions of calls less
            items.update(found)
            continue
        for name, body in found:
            items.update(items_of(name, body, round_))
    return items


def collect(
    crate: SealedFiles,
    settings: ShufflerSettings,
    target: Target,
    pieces: Sequence[tuple[int, ByteRange]],
    out: ByteRange,
) -> bytes:
    """Gather a partition from the pieces that each part dealt to it; its count and hash."""
    del settings

    width = RANK_SIZE + target.size
    wanted = [(target.of.dealt(source), slot, width) for source, slot in pieces]
    wanted.append((target.of.left(), out, RANK_SIZE))
    read = crate.pieces(
        RangeRequest(name, target.within, slot.at, slot.length * width)
        for name, slot, width in wanted
    )
    *found, gone = (as_rows(raw, of[2]) for raw, of in zip(read, wanted, strict=True))
    raw = gather([as_rows(b"", width), *found], gone)
    clock.reach("stage.gather", alone=True)
    crate.put(part_name(OUT, target.number), raw, use="batch")
    clock.reach("stage.gathered", alone=True)
    part = Part.of(raw, size=target.size)
    return part.items.to_bytes(4) + part.content


def counts_of(raw: bytes) -> list[int]:
    """Read how many rows each piece of a file has."""
    return [int(count) for count in np.frombuffer(raw, _COUNT)]


_TOLD: Final = RANK_SIZE + ID_SIZE


class Sifting(Struct, frozen=True):
    """What was counted of each group, and how many ranks of each partition are left out."""

    tallies: list[tuple[int, list[int]]]
    left: list[list[int]]


class Release:
    """The release of one closed round.

    *Guarantee:* the same uploads and secret give the same bytes, whoever does the parts, in
    whichever order, and however often.
    """

    def __init__(
        self, store: ShufflerStore, settings: ShufflerSettings, stored: ShufflerRound, fence: int
    ) -> None:
        self._store, self._settings, self._fence = store, settings, fence
        self._digest, self._signed = stored.digest, stored.signed
        self._crate = store.crate(stored.digest)
        self._notes = store.noted(stored.digest)
        self._round = verify_signatures(read_signed(stored.signed))
        self._role = role_of(self._round, keyring_of(settings.key_files))
        self._groups = range(len(self._round.terms.groups))
        self._crowd = store.crowd(stored.digest)
        self._before: Manifest | None = None
        if self._role.hop:
            self._before = Manifest.decode(store.kept(self._digest, "incoming"), self._round)
        self._tallies = self._counted()
        received = [tally.received for tally in self._tallies]
        self._of = [Received(*of) for of in enumerate(received)]
        self._sizes = [self._round.item_size(one, self._role.hop + 1) for one in self._groups]
        self._bits = [bits_of(*of) for of in zip(received, self._sizes, strict=True)]
        self._pages = [] if self._before else [self._paged(*of) for of in enumerate(received)]
        self._sources = list(self._listed())

    def _counted(self) -> list[Tally]:
        """Give the counts of each group before this shuffler's own."""
        if self._before:
            return list(self._before.tallies)
        hops = len(self._round.terms.shufflers)
        return [Tally(hops * self._crowd.get(group, 0)) for group in self._groups]

    def _paged(self, group: int, received: int) -> list[list[int]]:
        """Cut the uploads of a group into pages of about as many items as a partition has."""
        each = capacity_of_part(received, self._sizes[group]) // len(self._round.terms.shufflers)
        return self._store.pages(self._digest, group, max(1, each))

    def _listed(self) -> Iterator[Source]:
        """List the parts of what came in."""
        if self._before:
            for place in self._before.places(self._round):
                yield Source(self._of[place.group], place.within, part_name(IN, place.number))
            return
        for of, pages in zip(self._of, self._pages, strict=True):
            for number in range(len(pages)):
                yield Source(of, number, of.exported(number))

    def make(self) -> bytes | None:
        """Do what is left to do; the signed manifest, or None if too few people are left."""
        keep_terms(self._crate, self._signed)
        plan = {"peel": len(self._sources), "gather": sum(1 << bits for bits in self._bits)}
        self._store.plan(self._digest, plan, fence=self._fence)
        items = sum(tally.received for tally in self._tallies)
        runner = runner_of(self._settings, self._crate, little=items <= PART)
        self._peel(runner)
        sifting = self._sifted()
        if sifting is None:
            return None
        self._store.prepare(self._digest, "release", fence=self._fence)
        self._gather(runner, sifting)
        tallies = [Tally(received, tuple(dropped)) for received, dropped in sifting.tallies]
        return self._role.manifest(
            tallies, self._parts(), earlier=self._before.roots if self._before else ()
        )

    # -- peel

    def _peel(self, runner: Runner) -> None:
        def done(given: tuple[Any, ...], result: bytes) -> None:
            self._note(_peeled(given[0]), result)

        runner.run(peel, self._unpeeled(), done)

    def _unpeeled(self) -> Iterator[tuple[Source, int]]:
        """Give the parts that are not peeled, as soon as their files are there."""
        there = self._crate.names()
        todo = [one for one in self._sources if not self._is_peeled(one, there)]
        for source in todo:
            # Also if it is there: that costs little, and mends one that was changed.
            if not self._before:
                self._export(source)
            yield source, self._bits[source.of.group]

    def _is_peeled(self, source: Source, there: set[str]) -> bool:
        needed = {source.of.told(source.number), source.of.dealt(source.number)}
        return _peeled(source) in self._notes and needed <= there

    def _export(self, source: Source) -> None:
        """Write stored uploads into a file, as they are: under the round's key."""
        places = self._pages[source.of.group][source.number]
        bundles = self._store.page(self._digest, source.of.group, places)
        self._crate.put(source.name, msgspec.msgpack.encode(bundles))
        clock.reach("stage.export")

    # -- sift

    def _sifted(self) -> Sifting | None:
        lists = {of.left() for of in self._of}
        if "sift" in self._notes and lists <= self._crate.names():
            return msgspec.json.decode(self._notes["sift"], type=Sifting)
        tallies, remaining = [], []
        for group in self._groups:
            of = self._of[group]
            mine = [one for one in self._sources if one.of == of]
            found = (as_rows(self._crate.get(of.told(one.number)), _TOLD) for one in mine)
            known = self._store.registered(self._digest, group) if self._role.hop else b""
            sifted = sift(self._tallies[group], found, traps=as_rows(known, ID_SIZE))
            pieces = sifted.shares(self._bits[group])
            self._crate.put_pieces(of.left(), [one.tobytes() for one in pieces])
            tallies.append(sifted.tally)
            remaining.append([len(one) for one in pieces])
        registered = [self._crowd.get(group, 0) for group in self._groups]
        try:
            self._role.check_people(tallies, self._tallies, registered)
        except Refused:
            return None
        plain = [(one.received, list(one.dropped)) for one in tallies]
        sifting = Sifting(plain, remaining)
        clock.reach("stage.sift")
        self._note("sift", msgspec.json.encode(sifting))
        return sifting

    # -- gather

    def _gather(self, runner: Runner, sifting: Sifting) -> None:
        def done(given: tuple[Any, ...], result: bytes) -> None:
            self._note(_gathered(given[0].number), result)

        runner.run(collect, self._ungathered(sifting), done)

    def _ungathered(self, sifting: Sifting) -> Iterator[tuple[Any, ...]]:
        there, number = self._crate.names("batch"), 0
        for group, size in enumerate(self._sizes):
            mine = [one for one in self._sources if one.of.group == group]
            counts = [counts_of(self._notes[_peeled(one)]) for one in mine]
            places = [byte_ranges(one, RANK_SIZE + size) for one in counts]
            out = byte_ranges(sifting.left[group], RANK_SIZE)
            for within in range(1 << self._bits[group]):
                done = _gathered(number) in self._notes and part_name(OUT, number) in there
                if not done:
                    pairs = zip(mine, places, strict=True)
                    pieces = [(one.number, at[within]) for one, at in pairs if at[within].length]
                    yield Target(self._of[group], within, number, size), pieces, out[within]
                number += 1

    def _parts(self) -> list[list[Part]]:
        """Give what the manifest says of each partition."""
        number, groups = 0, []
        for bits in self._bits:
            notes = [self._notes[_gathered(number + n)] for n in range(1 << bits)]
            groups.append([Part(int.from_bytes(raw[:4]), raw[4:]) for raw in notes])
            number += 1 << bits
        return groups

    def _note(self, name: str, raw: bytes) -> None:
        self._store.note(self._digest, name, raw, fence=self._fence)
        self._notes[name] = raw


def _peeled(source: Source) -> str:
    return f"peel {source.of.group}-{source.number}"


def _gathered(number: int) -> str:
    return f"gather {number}"


# HOUSE-DOC services.shuffler.jobs: 'What a shuffler computes, in its worker: a release.'
def release(store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int) -> bool:
    """Release a closed round; False if it falls below its crowd.

    *Guarantee:* the same uploads and secret give the same bytes, so a second try after a crash
    changes nothing.
    """
    stored = store.round(digest)
    if not SHUFFLER_TRANSITIONS.allows(stored.phase, "release"):
        return True  # a try before this one did it
    clock.reach("shuffler.shuffle")
    manifest = Release(store, settings, stored, fence).make()
    if manifest is None:
        return False
    clock.reach("shuffler.release")
    store.move(digest, "release", fence=fence, batch=manifest)
    clock.reach("shuffler.released")
    return True
