"""An answer, stage by stage: what is done is written down, so that a crash costs one part.

The leader of the database drives it, and hands parts to a runner. It touches manifests, counts and
hashes; reports are in the depot. SPEC section 11.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from coatcheck.protocol.agreement import read_signed, settle
from coatcheck.protocol.ends import FEW_REPORTS, is_short
from coatcheck.protocol.manifest import PART, Manifest
from coatcheck.protocol.merkle import HASH_SIZE, root_over
from coatcheck.protocol.notices import ANSWERED, REFUSED, Bulletin, Heading
from coatcheck.protocol.opened import NOWHERE, places
from coatcheck.protocol.parcels import Tally
from coatcheck.protocol.server import refusal
from coatcheck.services import faults
from coatcheck.services.batches import sealed
from coatcheck.services.keyring import keyring_of
from coatcheck.services.log import log
from coatcheck.services.runners import runner_of
from coatcheck.services.runners.contract import Done, Runner, keep_terms
from coatcheck.services.server import columns, computing, stages
from coatcheck.services.server.columns import COUNT, PLACES, Source, column, opened
from coatcheck.services.server.computing import Computed, Cut
from coatcheck.services.server.stages import Asked, Piece, Share
from coatcheck.services.settings import ServerSettings
from coatcheck.stores.crate import slots
from coatcheck.stores.server import ServerRound, ServerStore


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
        self._round = settle(read_signed(stored.signed))
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
        entries = -(-items // computing.entries_of_part(self._round, items))
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
        learns = computing.DENSITY in self._crate.names()
        density = self._crate.get(computing.DENSITY) if learns else b""
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
        runner.run(stages.open_reports, todo, self._noting("open"))
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
        found = places([np.concatenate(names[a:b]) for a, b in pairwise(firsts)])
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
        faults.reach("stage.compare")
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
        runner.run(computing.compute, [given], self._noting("compute", "all"))
        return msgspec.json.decode(self._notes["compute all"], type=Computed)

    def _has_files_of(self, computed: Computed) -> bool:
        mark = computed.mark
        return {columns.told(mark), columns.wanted(mark)} <= self._crate.names()

    def _regions(self, runner: Runner) -> Cut:
        """Have space cut for a task that looks only so far."""
        if sum(one.rows for one in self._sources) <= PART:
            return Cut()
        known = msgspec.json.decode(self._notes.get("cut all", b"null"), type=Cut | None)
        there = self._crate.names()
        if known is None or (known.sizes and computing.regions_name(known.mark) not in there):
            runner.run(computing.cut, [(self._sources,)], self._noting("cut", "all"))
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
            for number, slot in enumerate(slots(regions.sizes))
            if not (f"near {number}" in self._notes and computing.near_name(mark, number) in there)
        ]
        runner.run(computing.near, todo, self._noting("near"))
        told = (self._notes[f"near {number}"] for number in range(len(regions.sizes)))
        return next((raw.decode() for raw in told if raw), "")

    # -- deal

    def _deal(self, runner: Runner, computed: Computed) -> None:
        there, mark, parts = self._crate.names(), computed.mark, len(computed.told)
        where = slots([COUNT.itemsize * one.rows for one in self._sources])
        wanted = slots(computed.wanted)
        todo = [
            (one, Asked(where[one.number], wanted[one.number], parts, computed.each, mark))
            for one in self._sources
            if not (f"deal {one.number}" in self._notes and stages.dealt(mark, one.number) in there)
        ]
        runner.run(stages.deal, todo, self._noting("deal"))

    # -- seal

    def _seal(self, runner: Runner, computed: Computed) -> None:
        runner.run(stages.seal, self._unsealed(computed), self._noting("seal"))

    def _unsealed(self, computed: Computed) -> Iterator[tuple[Any, ...]]:
        """Give the parts of the bulletin that are not made, each with what was dealt to it."""
        count, told = len(computed.told), slots(computed.told)
        dealt = []
        for one in self._sources:
            rows = np.frombuffer(self._notes[f"deal {one.number}"], COUNT).reshape(2, count)
            widths = stages.dealt_width(self._round, one.group)
            at = slots([int(size) for size in widths @ rows.astype(np.int64)])
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
