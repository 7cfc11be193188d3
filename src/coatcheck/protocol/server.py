"""The server: open a batch, drop what is wrong and count why, compute, seal one answer each.

It learns noisy values and one-time keys in an order that says nothing, never who sent which.
The task behind it sees estimates only. SPEC section 11, paper section "A Concrete Protocol".
"""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Ball, Box, Categories
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.ends import FEW_REPORTS, NO_REASON, TASK, due, is_short, unheard
from coatcheck.protocol.envelope import Bulk
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.manifest import Batch, Manifest
from coatcheck.protocol.messages import least_sizes
from coatcheck.protocol.notices import ANSWERED, REFUSED, Bulletin
from coatcheck.protocol.opened import (
    Opened,
    joined,
    open_part,
    parts_of,
    without_repetitions,
)
from coatcheck.protocol.replies import encode_answers, seal_entries
from coatcheck.protocol.server_moves import MOVES, Phase, ServerState
from coatcheck.protocol.terms import Round
from coatcheck.protocol.verification import verify_batch, verify_end
from coatcheck.randomizers import (
    CoinResponse,
    Decode,
    FieldwiseResponse,
    GridResponse,
    Prior,
    Randomizer,
    from_params,
)
from coatcheck.randomizers.coin import heard, speaker
from coatcheck.randomizers.reading import LEARNED, believed
from coatcheck.tasks.contract import RunsByRegion
from coatcheck.tasks.means import mean_of, tells_mean_only
from coatcheck.tasks.regions import Map, Region, regions

Reports = NDArray[np.int64]


class Server:
    """The server of one round.

    *Guarantee:* no report is answered twice, no round below its minimum crowd is answered, and
    every drop is counted under a reason.

    Attributes:
        opened: the reports behind the bulletin, by group; empty before it is made.
    """

    def __init__(
        self,
        round_: Round,
        *,
        keys: KeyPairs,
        state: ServerState | None = None,
        task: tasks.Task | None = None,
        bulk: Bulk | None = None,
        priors: Mapping[str, Prior] | None = None,
    ) -> None:
        terms = round_.terms
        self._priors = dict(priors or {})
        if keys.contact_raw.hex() != terms.server.sealing + terms.server.verifying:
            raise Misuse("these keys are not the server's keys of the terms")
        self.round = round_
        self._keys = keys
        self._bulk = bulk or Bulk()
        self.state = state or ServerState()
        # A task may hold what the terms do not publish (a validation set), so it may be handed in.
        self.task = task or tasks.from_params({"name": terms.task.name, **terms.task.params})
        if self.task.name != terms.task.name:
            raise Misuse(f"the terms name task {terms.task.name!r}, not {self.task.name!r}")
        self.opened: Sequence[Opened] = ()
        self.randomizers = tuple(from_params(group.randomizer) for group in terms.groups)
        self._check_sizes()

    @property
    def phase(self) -> Phase:
        """Where the round stands."""
        return self.state.phase

    def accept(self, raw: bytes) -> None:
        """Take the last shuffler's batch; the same batch twice is one batch."""
        if self.state.accepted:
            if Batch.decode(raw, self.round).manifest.content != self.state.accepted:
                raise Refused("this round is answered for another batch: one batch, one bulletin")
            return
        after, last = MOVES.after(self.phase, "accept"), len(self.round.terms.shufflers) - 1
        self.state.accepted = verify_batch(raw, self.round, hop=last).manifest.content
        self.state.phase = after

    def answer(self, raw: bytes) -> bytes:
        """Take the batch and turn it into the bulletin; the same batch gives the same bulletin.

        The round is refused if a group falls below its minimum crowd. If the task raises, the
        round has its batch and may be answered by a later call.
        """
        self.accept(raw)
        if self.state.bulletin:
            return self.state.bulletin
        batch = Batch.decode(raw, self.round)
        opened = self.opened = self.open(batch)
        tallies = [group.tally for group in opened]
        enough = not is_short(tallies, self.round)
        after = MOVES.after(self.phase, "answer" if enough else "refuse")
        entries = self._entries(opened) if enough else [[] for _ in opened]
        outcome, reason = (ANSWERED, NO_REASON) if enough else (REFUSED, FEW_REPORTS)
        counts = (tallies, batch.roots)
        draft = Bulletin.compose(entries, outcome, self.round.digest, *counts, reason=reason)
        bulletin = draft.signed(self._keys.signing.sign).encode()
        self.state.phase, self.state.bulletin = after, bulletin
        return bulletin

    def abandon(self, *, now: int) -> bytes:
        """End a round whose batch has not come in time; return the signed end."""
        after = self._unbatched()
        if now < due(self.round, len(self.round.terms.shufflers)):
            raise Refused("the batch of this round can still come: wait for it")
        return self._end(after, unheard(self.round, sign=self._keys.signing.sign))

    def hear(self, raw: bytes) -> bytes:
        """End a round that a shuffler gave up, with the shuffler's own word."""
        after = self._unbatched()
        verify_end(raw, self.round, before=len(self.round.terms.shufflers))
        return self._end(after, raw)

    def _unbatched(self) -> Phase:
        """Give the phase after an abandonment; refused once the batch is here."""
        if self.state.accepted:
            raise Refused("this server has the batch of the round, and goes on")
        return MOVES.after(self.phase, "abandon")

    def _end(self, after: Phase, bulletin: bytes) -> bytes:
        self.state.phase, self.state.bulletin = after, bulletin
        return bulletin

    def open(self, batch: Batch) -> list[Opened]:
        """Open the reports of every group; whatever is wrong with one costs that one only."""
        groups = []
        for number, (items, tally) in enumerate(zip(batch.items, batch.tallies, strict=True)):
            parts = [self.open_part(number, items[part]) for part in parts_of(len(items))]
            groups.append(joined(parts, before=tally))
        return without_repetitions(groups)

    def open_part(self, number: int, items: Sequence[bytes]) -> Opened:
        """Open and check the items of a partition of a group."""
        return open_part(
            items,
            self.round,
            group=number,
            randomizer=self.randomizers[number],
            key=self._keys.opening,
            bulk=self._bulk,
        )

    def answers(
        self,
        reports: Sequence[Reports],
        notes: Sequence[tasks.Notes],
        *,
        regions: int = 1,
        run: Map = map,
    ) -> list[tasks.Answers]:
        """Let the task answer the reports of every group, one answer for each.

        With several regions, `run` does them (`tasks.answer`).
        """
        # The task sees those who spoke. Whoever was silent counts in the crowd, and is answered.
        spoken = [heard(one, own) for one, own in zip(self.randomizers, reports, strict=True)]
        said = [own for _, own in spoken]
        heeded = [note[who] for note, (who, _) in zip(notes, spoken, strict=True)]
        found = self._mean(said) or self._told(said, heeded, regions=regions, run=run)
        return [
            tasks.among(answers, who, size=len(own))
            for answers, (who, _), own in zip(found, spoken, reports, strict=True)
        ]

    def _told(
        self, said: Sequence[Reports], notes: Sequence[tasks.Notes], *, regions: int, run: Map
    ) -> list[tasks.Answers]:
        """Let the task answer those who spoke."""
        beliefs = None
        if isinstance(self.task, tasks.ReadsBeliefs) and self.task.reads_beliefs:
            groups = zip(self.randomizers, said, self.round.terms.groups, strict=True)
            beliefs = [
                belief(speaker(one), own, prior=self._priors.get(of.name))
                for one, own, of in groups
            ]
        estimates = self._estimates(said)
        return tasks.answer(
            self.task, estimates, notes=notes, beliefs=beliefs, regions=regions, run=run
        )

    def _mean(self, said: Sequence[Reports]) -> list[tasks.Answers]:
        """Answer with the mean a part at a time, if that is all that the task tells; else nothing.

        What reads a report by the others needs all at once.
        """
        how = cast("Decode", self.round.terms.groups[0].decode)
        if not tells_mean_only(self.task) or how in LEARNED:
            return []
        part = speaker(self.randomizers[0])
        return [mean_of(self.task, said[0], lambda some: numbers(part, some, how))]

    def _estimates(self, said: Sequence[Reports]) -> list[tasks.Floats]:
        groups = zip(self.randomizers, said, self.round.terms.groups, strict=True)
        return [
            numbers(speaker(one), own, cast("Decode", of.decode), prior=self._priors.get(of.name))
            for one, own, of in groups
        ]

    def regions(
        self, reports: Sequence[Reports], notes: Sequence[tasks.Notes], *, count: int
    ) -> list[tuple[Region, tasks.Floats]]:
        """Cut space for a task that looks only so far: each region, and what it sees.

        Nothing for any other task. As `answers` does with as many regions.
        """
        task = self.task
        if not isinstance(task, RunsByRegion) or task.reach is None:
            return []
        others = isinstance(task, tasks.ReadsNotes | tasks.ReadsBeliefs)
        if others or isinstance(self.randomizers[0], CoinResponse) or count <= 1:
            return []
        (estimates,) = self._estimates(reports)
        ordered = estimates[tasks.canonical_order(estimates, notes[0])]
        parts = regions(task.placed(ordered), reach=task.reach, count=count)
        return [(one, ordered[one.around]) for one in parts]

    def _entries(self, opened: Sequence[Opened]) -> list[list[bytes]]:
        everybody = self.answers([one.reports for one in opened], [one.notes for one in opened])
        return [
            [
                entry
                for part in parts_of(len(answers))
                for entry in self.seal_part(number, answers, part, opened)
            ]
            for number, answers in enumerate(everybody)
        ]

    def seal_part(
        self, number: int, answers: tasks.Answers, rows: slice, opened: Sequence[Opened]
    ) -> list[bytes]:
        """Write and seal the entries of some rows of a group."""
        size, own = self.round.terms.groups[number].answer_size, opened[number]
        texts = encode_answers(answers, rows, opened, size=size)
        keys = own.contacts[rows, : self.round.suite.sealing_size]
        names = own.addresses[rows]
        return seal_entries(texts, keys, names, self.round, group=number, bulk=self._bulk)

    def _check_sizes(self) -> None:
        """Refuse terms whose sizes are not those of the randomizers and the task."""
        groups = self.round.terms.groups
        if len(groups) != len(self.task.groups):
            raise Refused(
                f"task {self.task.name} has the groups {', '.join(self.task.groups)}, the terms"
                f" have {len(groups)}"
            )
        if any(isinstance(randomizer, CoinResponse) for randomizer in self.randomizers):
            tasks.check_silence(self.task, sizes=[group.minimum for group in groups])
        sizes = least_sizes(self.task, self.randomizers, suite=self.round.suite)
        for of, (payload, answer) in zip(groups, sizes, strict=True):
            if of.payload_size != payload:
                raise Refused(
                    f"reports of {of.name!r} take {payload} bytes, terms say {of.payload_size}"
                )
            if of.answer_size < answer:
                raise Refused(
                    f"answers to {of.name!r} can take {answer} bytes, terms give {of.answer_size}"
                )


def refusal(raw: bytes, *, round_: Round, keys: KeyPairs) -> bytes:
    """Make the bulletin of a batch that its task cannot answer, so that people are told.

    Its manifest is enough.
    """
    manifest, _ = Manifest.begin(raw, round_)
    none: list[list[bytes]] = [[] for _ in manifest.tallies]
    reason = FEW_REPORTS if is_short(manifest.tallies, round_) else TASK
    counts = (manifest.tallies, manifest.roots)
    draft = Bulletin.compose(none, REFUSED, round_.digest, *counts, reason=reason)
    return draft.signed(keys.signing.sign).encode()


def numbers(
    randomizer: Randomizer,
    reports: NDArray[np.int64],
    how: Decode | None = None,
    *,
    prior: Prior | None = None,
) -> NDArray[np.float64]:
    """Estimate reports as numbers, (n, d): a label by its place in the list, fields in a row.

    A public prior is where a learned decode starts from; other decodes and fields ignore it.
    """
    if how not in LEARNED:
        prior = None
    if isinstance(randomizer, GridResponse) and isinstance(randomizer.domain, Categories):
        return randomizer.label_points(reports, how, prior=prior).astype(np.float64)
    if isinstance(randomizer, FieldwiseResponse):
        fields = zip(randomizer.parts.values(), randomizer.split_reports(reports), strict=True)
        found = [numbers(part, own, randomizer.part_decode(part, how)) for part, own in fields]
        return np.concatenate(found, axis=1)
    return np.asarray(randomizer.estimate(reports, how, prior=prior), dtype=np.float64)


def belief(
    randomizer: Randomizer, reports: NDArray[np.int64], *, prior: Prior | None = None
) -> tasks.Belief:
    """Say where the values behind reports can have been, by the density that the batch shows."""
    domain = randomizer.domain
    if not isinstance(domain, Box | Ball) or not randomizer.learns:
        raise Refused(
            f"reports of {randomizer.name} on this domain cannot be read by where people are:"
            " choose a task that needs estimates only"
        )
    kinds, weights, places = believed(randomizer, reports, prior=prior)
    return tasks.Belief(kinds, weights, domain.from_unit(places))
