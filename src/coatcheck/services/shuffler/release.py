"""A release, stage by stage: what is done is written down, so that a crash costs one part.

The leader of the database drives it, and hands parts to a runner. It touches counts, hashes and
names; items are in the depot. SPEC section 10.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from coatcheck.errors import Refused
from coatcheck.protocol.agreement import read_signed, settle
from coatcheck.protocol.manifest import PART, Manifest, Part, bits_of, room_of_part
from coatcheck.protocol.parcels import ID_SIZE, Tally
from coatcheck.protocol.peeling import RANK, rows, sift
from coatcheck.services import faults
from coatcheck.services.batches import IN, OUT, part_name
from coatcheck.services.keyring import keyring_of
from coatcheck.services.runners import runner_of
from coatcheck.services.runners.contract import Runner, keep_terms
from coatcheck.services.settings import ShufflerSettings
from coatcheck.services.shuffler import stages
from coatcheck.services.shuffler.rounds import role_of
from coatcheck.services.shuffler.stages import Received, Source, Target
from coatcheck.stores.crate import slots
from coatcheck.stores.shuffler import ShufflerRound, ShufflerStore

_TOLD: Final = RANK + ID_SIZE


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
        self._round = settle(read_signed(stored.signed))
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
        each = room_of_part(received, self._sizes[group]) // len(self._round.terms.shufflers)
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

        runner.run(stages.peel, self._unpeeled(), done)

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
        faults.reach("stage.export")

    # -- sift

    def _sifted(self) -> Sifting | None:
        lists = {of.left() for of in self._of}
        if "sift" in self._notes and lists <= self._crate.names():
            return msgspec.json.decode(self._notes["sift"], type=Sifting)
        tallies, remaining = [], []
        for group in self._groups:
            of = self._of[group]
            mine = [one for one in self._sources if one.of == of]
            found = (rows(self._crate.get(of.told(one.number)), _TOLD) for one in mine)
            known = self._store.registered(self._digest, group) if self._role.hop else b""
            sifted = sift(self._tallies[group], found, traps=rows(known, ID_SIZE))
            pieces = sifted.dealt(self._bits[group])
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
        faults.reach("stage.sift")
        self._note("sift", msgspec.json.encode(sifting))
        return sifting

    # -- gather

    def _gather(self, runner: Runner, sifting: Sifting) -> None:
        def done(given: tuple[Any, ...], result: bytes) -> None:
            self._note(_gathered(given[0].number), result)

        runner.run(stages.collect, self._ungathered(sifting), done)

    def _ungathered(self, sifting: Sifting) -> Iterator[tuple[Any, ...]]:
        there, number = self._crate.names("batch"), 0
        for group, size in enumerate(self._sizes):
            mine = [one for one in self._sources if one.of.group == group]
            counts = [stages.counts_of(self._notes[_peeled(one)]) for one in mine]
            places = [slots(one, RANK + size) for one in counts]
            out = slots(sifting.left[group], RANK)
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
