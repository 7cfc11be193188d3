"""A release: the uploads of a closed round, or the batch before, go in, and a batch comes out.

`release` runs in a worker of the leading process. It touches counts, hashes and names; the items
stay in sealed files of the round. Each stage below it does one part at a time, in any order and on
any worker, and the result of each part is recorded, so that a crash costs one part. A stage loads
the keys that it needs by itself, and each file is there in whole or not at all, so doing a part
twice changes nothing. If the process dies, the next leader finds the round still closed and calls
`release` again, which does only the parts without a recorded result.

* `peel` opens this shuffler's layer of a part of what came in: `uploads-` (the first shuffler) or
  `in-` to `shares-`, the items by partition, and `ranks-`, the id and rank of every item.
* `sift`, done by the job, reads all `ranks-` of a group and writes `dropped-`, the ranks of the
  items that are left out.
* `gather` makes a partition of the batch from its shares and its dropped ranks: `out-`.

SPEC section 10.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.shuffler import RANK_SIZE, ShufflerState, as_rows, sift
from coatcheck.protocol.shuffler import gather as gather_rows
from coatcheck.protocol.state_machine import SHUFFLER_TRANSITIONS
from coatcheck.protocol.wire.batches import PART, Manifest, Part, bits_of, capacity_of_part
from coatcheck.protocol.wire.uploads import ID_SIZE, Tally, content_id, items_of
from coatcheck.services import clock
from coatcheck.services.batch_transfer import IN, OUT, part_name
from coatcheck.services.settings import ShufflerSettings, keyring_of
from coatcheck.services.shuffler.rounds import shuffler_of
from coatcheck.services.shuffler.store import (
    ShufflerRound,
    ShufflerStore,
    UploadRow,
    unpack_uploads,
)
from coatcheck.services.worker_pools import PartArgs, put_terms, runner_for, terms_of
from coatcheck.stores.blobs import ByteRange, RangeRequest, SealedFiles, byte_ranges

_COUNT: Final = np.dtype(">u4")
_ID_AND_RANK: Final = RANK_SIZE + ID_SIZE


def release(store: ShufflerStore, settings: ShufflerSettings, digest: bytes, fence: int) -> bool:
    """Release a closed round; False if a group is below its minimum crowd.

    *Guarantee:* the same uploads and secret give the same bytes, whichever workers do the parts,
    in whichever order, and however often. So a second try after a crash changes nothing.
    """
    stored = store.round(digest)
    if not SHUFFLER_TRANSITIONS.allows(stored.phase, "release"):
        return True  # an earlier try released it
    clock.reach("shuffler.shuffle")
    job = Release(store, settings, stored, fence)
    job.runner.run(peel, job.unpeeled(), job.record)
    sifted = job.sift()
    if sifted is None:
        return False
    store.prepare(digest, "release", fence=fence)
    job.runner.run(gather, job.ungathered(sifted), job.record)
    manifest = job.manifest(sifted)
    clock.reach("shuffler.release")
    store.move(digest, "release", fence=fence, batch=manifest)
    clock.reach("shuffler.released")
    return True


class GroupFiles(NamedTuple):
    """A group with its number of items, and the names of its files.

    The number is in the names because a round may reopen and be released with more uploads: a late
    worker of the earlier try then writes no file of the later one.
    """

    group: int
    items: int

    def uploads(self, number: int) -> str:
        """Name a file of uploads, as they are stored."""
        return self._name("uploads", number)

    def ranks(self, number: int) -> str:
        """Name the file of the ids and ranks of a part."""
        return self._name("ranks", number)

    def shares(self, number: int) -> str:
        """Name the file in which a part has a share for each partition."""
        return self._name("shares", number)

    def dropped(self) -> str:
        """Name the file of the ranks that are left out."""
        return self._name("dropped", 0)

    def _name(self, kind: str, number: int) -> str:
        return f"{kind}-{self.group}-{self.items}-{number}"


class Input(NamedTuple):
    """A part of what came in: a file of uploads, or a partition of the batch before."""

    files: GroupFiles
    number: int
    name: str

    @property
    def result(self) -> str:
        """The name under which the result of peeling it is recorded."""
        return f"peel {self.files.group}-{self.number}"


class Output(NamedTuple):
    """A partition of the batch: its place in its group, its number, and the size of an item."""

    files: GroupFiles
    within: int
    number: int
    size: int

    @property
    def result(self) -> str:
        """The name under which the result of gathering it is recorded."""
        return f"gather {self.number}"


class Sifted(Struct, frozen=True):
    """The tally of each group, and how many ranks are left out of each of its partitions."""

    tallies: list[tuple[int, list[int]]]
    left: list[list[int]]


class Release:
    """The job of one release: the parts that are left to do, and the results so far."""

    def __init__(
        self, store: ShufflerStore, settings: ShufflerSettings, stored: ShufflerRound, fence: int
    ) -> None:
        self._store, self._fence, self._digest = store, fence, stored.digest
        self._files = store.files(stored.digest)
        self._results = store.results(stored.digest)
        self._round = verify_signatures(read_signed(stored.signed))
        self._role = shuffler_of(self._round, keyring_of(settings.key_files))
        self._groups = range(len(self._round.terms.groups))
        self._crowd = store.crowd(stored.digest)
        self._before: Manifest | None = None
        if self._role.hop:
            self._before = Manifest.decode(store.blob(self._digest, "incoming"), self._round)
        self._tallies = self._received()
        received = [tally.received for tally in self._tallies]
        self._group_files = [GroupFiles(*pair) for pair in enumerate(received)]
        self._sizes = [self._round.item_size(group, self._role.hop + 1) for group in self._groups]
        self._bits = [bits_of(*pair) for pair in zip(received, self._sizes, strict=True)]
        self._pages = [] if self._before else [self._paged(*pair) for pair in enumerate(received)]
        self._inputs = list(self._listed())
        put_terms(self._files, stored.signed)
        plan = {"peel": len(self._inputs), "gather": sum(1 << bits for bits in self._bits)}
        store.plan(self._digest, plan, fence=fence)
        self.runner = runner_for(settings, self._files, is_small=sum(received) <= PART)

    def _received(self) -> list[Tally]:
        """Return the tally of each group as this shuffler received it."""
        if self._before:
            return list(self._before.tallies)
        return [
            Tally(self._round.items_each(group) * self._crowd.get(group, 0))
            for group in self._groups
        ]

    def _paged(self, group: int, received: int) -> list[list[int]]:
        """Cut the uploads of a group into pages of about as many items as a partition has."""
        size = capacity_of_part(received, self._sizes[group]) // self._round.items_each(group)
        return self._store.pages(self._digest, group, max(1, size))

    def _listed(self) -> Iterator[Input]:
        """List the parts of what came in."""
        if self._before:
            for place in self._before.places(self._round):
                files = self._group_files[place.group]
                yield Input(files, place.within, part_name(IN, place.number))
            return
        for files, pages in zip(self._group_files, self._pages, strict=True):
            for number in range(len(pages)):
                yield Input(files, number, files.uploads(number))

    def record(self, part: PartArgs, result: bytes) -> None:
        """Store the result of a part."""
        self._record(part[0].result, result)

    def _record(self, name: str, result: bytes) -> None:
        self._store.save_result(self._digest, name, result, fence=self._fence)
        self._results[name] = result

    def unpeeled(self) -> Iterator[tuple[Input, int]]:
        """Give the parts that are not peeled, each as soon as its file is there."""
        existing = self._files.names()
        unpeeled = [part for part in self._inputs if not self._is_peeled(part, existing)]
        for part in unpeeled:
            # Also if it is there: that costs little, and mends one that was changed.
            if not self._before:
                self._export(part)
            yield part, self._bits[part.files.group]

    def _is_peeled(self, part: Input, existing: set[str]) -> bool:
        written = {part.files.ranks(part.number), part.files.shares(part.number)}
        return part.result in self._results and written <= existing

    def _export(self, part: Input) -> None:
        """Write stored uploads into a file, as they are: under the round's key."""
        places = self._pages[part.files.group][part.number]
        uploads = self._store.page(self._digest, part.files.group, places)
        self._files.put(part.name, msgspec.msgpack.encode(uploads))
        clock.reach("stage.export")

    def sift(self) -> Sifted | None:
        """Find out which items are left out; None if too few people are left."""
        written = {files.dropped() for files in self._group_files}
        if "sift" in self._results and written <= self._files.names():
            return msgspec.json.decode(self._results["sift"], type=Sifted)
        tallies, remaining = [], []
        for group in self._groups:
            files = self._group_files[group]
            parts = [part for part in self._inputs if part.files == files]
            ranks = (
                as_rows(self._files.get(files.ranks(part.number)), _ID_AND_RANK) for part in parts
            )
            traps = self._store.registered(self._digest, group) if self._role.hop else b""
            sifted = sift(self._tallies[group], ranks, traps=as_rows(traps, ID_SIZE))
            pieces = sifted.shares(self._bits[group])
            self._files.put_pieces(files.dropped(), [piece.tobytes() for piece in pieces])
            tallies.append(sifted.tally)
            remaining.append([len(piece) for piece in pieces])
        registered = [self._crowd.get(group, 0) for group in self._groups]
        try:
            self._role.check_people(tallies, self._tallies, registered)
        except Refused:
            return None
        plain = [(tally.received, list(tally.dropped)) for tally in tallies]
        result = Sifted(plain, remaining)
        clock.reach("stage.sift")
        self._record("sift", msgspec.json.encode(result))
        return result

    def ungathered(
        self, sifted: Sifted
    ) -> Iterator[tuple[Output, list[tuple[int, ByteRange]], ByteRange]]:
        """Give the partitions that are not made, each with where its shares are."""
        existing, number = self._files.names("batch"), 0
        for group, size in enumerate(self._sizes):
            files = self._group_files[group]
            parts = [part for part in self._inputs if part.files.group == group]
            counts = [_counts(self._results[part.result]) for part in parts]
            ranges = [byte_ranges(rows_of_share, RANK_SIZE + size) for rows_of_share in counts]
            dropped = byte_ranges(sifted.left[group], RANK_SIZE)
            for within in range(1 << self._bits[group]):
                output = Output(files, within, number, size)
                if output.result not in self._results or part_name(OUT, number) not in existing:
                    shares = [
                        (part.number, of_part[within])
                        for part, of_part in zip(parts, ranges, strict=True)
                        if of_part[within].length
                    ]
                    yield output, shares, dropped[within]
                number += 1

    def manifest(self, sifted: Sifted) -> bytes:
        """Sign the manifest of the batch."""
        number, groups = 0, []
        for bits in self._bits:
            results = [self._results[f"gather {number + n}"] for n in range(1 << bits)]
            groups.append([Part(int.from_bytes(raw[:4]), raw[4:]) for raw in results])
            number += 1 << bits
        tallies = [Tally(received, tuple(dropped)) for received, dropped in sifted.tallies]
        earlier = self._before.roots if self._before else ()
        return self._role.manifest(tallies, groups, earlier=earlier)


# The stages


def peel(files: SealedFiles, settings: ShufflerSettings, part: Input, bits: int) -> bytes:
    """Open this shuffler's layer of a part, and share its items out to the partitions.

    The leading bits of an item's rank name its partition. Returns the number of items of each
    share.
    """
    state = ShufflerState(bytearray(files.key().secret))
    role = shuffler_of(terms_of(files), keyring_of(settings.key_files), state)
    raw, group = files.get(part.name), part.files.group
    if role.hop:
        size = role.round.item_size(group, role.hop)
        items = (raw[at : at + size] for at in range(0, len(raw), size))
        sealed = {content_id(item): item for item in items}
    else:
        sealed = _items(raw, files, role.round.items_each(group))
    peeled = role.peeler.peel(group, sealed)
    shares = peeled.shares(bits)
    clock.reach("stage.peel", alone=True)
    files.put_pieces(part.files.shares(part.number), [share.tobytes() for share in shares])
    files.put(part.files.ranks(part.number), peeled.ranks.tobytes())
    clock.reach("stage.peeled", alone=True)
    return np.array([len(share) for share in shares], _COUNT).tobytes()


def _items(raw: bytes, files: SealedFiles, count: int) -> dict[bytes, bytes]:
    """Open uploads as they are stored, and cut each into its items by their ids."""
    key = files.key()
    items: dict[bytes, bytes] = {}
    for row in msgspec.msgpack.decode(raw, type=list[UploadRow]):
        uploads = unpack_uploads(key, files.digest, row)
        if count == 1:  # as `items_of` has it, and millions of calls less
            items.update(uploads)
            continue
        for upload_id, body in uploads:
            items.update(items_of(upload_id, body, count=count))
    return items


def _counts(raw: bytes) -> list[int]:
    """Read how many items each share of a part has."""
    return [int(count) for count in np.frombuffer(raw, _COUNT)]


def gather(
    files: SealedFiles,
    settings: ShufflerSettings,
    output: Output,
    shares: Sequence[tuple[int, ByteRange]],
    dropped: ByteRange,
) -> bytes:
    """Make a partition of the batch from its shares; return its count and hash."""
    del settings
    width = RANK_SIZE + output.size
    requests = [
        RangeRequest(output.files.shares(number), output.within, place.at, place.length * width)
        for number, place in shares
    ]
    place = RangeRequest(
        output.files.dropped(), output.within, dropped.at, dropped.length * RANK_SIZE
    )
    *pieces, ranks = files.pieces([*requests, place])
    raw = gather_rows(
        [as_rows(b"", width), *(as_rows(piece, width) for piece in pieces)],
        as_rows(ranks, RANK_SIZE),
    )
    clock.reach("stage.gather", alone=True)
    files.put(part_name(OUT, output.number), raw, use="batch")
    clock.reach("stage.gathered", alone=True)
    part = Part.of(raw, size=output.size)
    return part.items.to_bytes(4) + part.content
