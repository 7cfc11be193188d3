"""The server: open a batch, drop what is wrong and count why, compute, seal one answer each.

It learns noisy values and one-time keys in an order that says nothing, never who sent which.
The task behind it sees estimates only. SPEC section 11, paper section "A Concrete Protocol".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Ball, Box, Categories
from coatcheck.errors import Misuse, Refused
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import KeyPairs, OpeningKey, addresses, first_seen, usable
from coatcheck.protocol.log.verification import verify_batch, verify_outcome
from coatcheck.protocol.outcomes import FEW_REPORTS, NO_REASON, TASK, due, is_short, unheard
from coatcheck.protocol.state_machine import SERVER_TRANSITIONS, ServerPhase, ServerState
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.batches import PART, Batch, Manifest
from coatcheck.protocol.wire.bulletins import ANSWERED, REFUSED, Bulletin
from coatcheck.protocol.wire.encoding import first_of_each
from coatcheck.protocol.wire.messages import (
    LOCATED,
    PARTNERS,
    VALUES,
    PayloadFormat,
    ReportTable,
    answer_heads,
    least_sizes,
)
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.randomizers import (
    CoinResponse,
    Decode,
    FieldwiseResponse,
    GridResponse,
    Prior,
    Randomizer,
    from_params,
)
from coatcheck.randomizers.composed import spoken_reports, without_coin
from coatcheck.randomizers.density import LEARNED, batch_belief
from coatcheck.tasks.contract import RunsByRegion
from coatcheck.tasks.execution import Map, Region, regions
from coatcheck.tasks.learning import answers_mean_only, mean_of

# HOUSE-DOC protocol.opened: 'Opened reports: what a server keeps of a partition of a batch, side by side, and what it drops.\n\nPure functions over the columns of a partition. The checks of one report need that report only;\nwhether two carry the same keys is seen over all partitions of all groups. SPEC section 11.\n'
_Mask = NDArray[np.bool_]
NOWHERE: Final = 2**32 - 1
"""The place of a report that is not answered."""


@dataclass(frozen=True)
class Opened:
    """Reports that stayed, as columns; row i of each is of one report.

    Attributes:
        tally: how many came in and were dropped.
        contacts: the one-time keys.
        addresses: their addresses.
        payloads: the reports as they were sent.
        reports: the reports as numbers.
    """

    tally: Tally
    contacts: NDArray[np.uint8]
    addresses: NDArray[np.uint8]
    payloads: NDArray[np.uint8]
    reports: NDArray[np.int64]
    notes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.contacts)

    def keep(self, rows: _Mask, reason: str) -> "Opened":
        """Keep these rows, and count the others as dropped for a reason."""
        lost = len(self) - int(rows.sum())
        if not lost:
            return self
        columns = (self.contacts, self.addresses, self.payloads, self.reports, self.notes)
        return Opened(self.tally.drop(reason, lost), *(column[rows] for column in columns))  # type: ignore[arg-type] # one column has other numbers


def parts_of(count: int) -> list[slice]:
    """Cut so many rows into partitions; no rows are one empty partition."""
    return [slice(at, min(at + PART, count)) for at in range(0, max(1, count), PART)]


def one_by_one(rows: NDArray[np.uint8]) -> list[bytes]:
    """Give the rows of a column as bytes."""
    raw, size = rows.tobytes(), rows.shape[1]
    return [raw[at : at + size] for at in range(0, len(raw), size)]


def open_part(
    items: Sequence[bytes],
    round_: Round,
    *,
    group: int,
    randomizer: Randomizer,
    key: OpeningKey,
    bulk: Bulk,
) -> Opened:
    """Open and check the items of a partition of a group."""
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    plain = bulk.unseal_each(items, key=key, bounds=[bound] * len(items))
    return read_part(plain, round_, group=group, randomizer=randomizer)


def read_part(
    plain: Sequence[bytes | None], round_: Round, *, group: int, randomizer: Randomizer
) -> Opened:
    """Read the opened items of a partition; None is one that did not open.

    A report that is wrong in several ways is counted under the first of: malformed,
    out-of-domain, bad-key.
    """
    texts = [text for text in plain if text is not None]
    table = ReportTable.read(texts, round_, group)
    reports, in_range = PayloadFormat.between(randomizer.low, randomizer.high).decode(
        table.payloads
    )
    inside = possible(randomizer, reports, in_range)
    known = usable(round_.suite, table.contacts)
    stays = table.well_formed & inside & known
    tally = Tally(len(plain)).drop("unopened", len(plain) - len(texts))
    tally = tally.drop("malformed", int((~table.well_formed).sum()))
    tally = tally.drop("out-of-domain", int((table.well_formed & ~inside).sum()))
    tally = tally.drop("bad-key", int((table.well_formed & inside & ~known).sum()))
    contacts = table.contacts[stays]
    names = addresses(round_.suite, contacts)
    return Opened(tally, contacts, names, table.payloads[stays], reports[stays], table.notes[stays])


def joined(parts: Sequence[Opened], *, before: Tally) -> Opened:
    """Put the partitions of a group together, in order; `before` is what the batch says of it."""
    losses = zip(before.dropped, *(part.tally.dropped for part in parts), strict=True)
    tally = replace(before, dropped=tuple(sum(loss) for loss in losses))
    return Opened(
        tally,
        np.concatenate([part.contacts for part in parts]),
        np.concatenate([part.addresses for part in parts]),
        np.concatenate([part.payloads for part in parts]),
        np.concatenate([part.reports for part in parts]),
        np.concatenate([part.notes for part in parts]),
    )


def without_repetitions(groups: Sequence[Opened]) -> list[Opened]:
    """Keep of all reports with the same keys the first, in the order of groups and rows."""
    first = first_seen(np.concatenate([group.addresses for group in groups]))
    ends = np.cumsum([len(group) for group in groups])
    parts = np.split(first, ends[:-1])
    return [
        group.keep(rows, "duplicate-address") for group, rows in zip(groups, parts, strict=True)
    ]


def places(groups: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint32]]:
    """Give each report the place of its entry in the bulletin, by the addresses of each group.

    Groups come in order, and entries of a group by address. `NOWHERE` is who has the keys of a
    report before.
    """
    ends = np.cumsum([len(group) for group in groups])
    order = first_of_each(np.concatenate(groups))
    found = np.full(ends[-1], NOWHERE, dtype=np.uint32)
    by_group = order[np.argsort(np.searchsorted(ends, order, side="right"), kind="stable")]
    found[by_group] = np.arange(len(by_group), dtype=np.uint32)
    return np.split(found, ends[:-1])


def possible(randomizer: Randomizer, reports: NDArray[np.int64], in_range: _Mask) -> _Mask:
    """Tell which reports the randomizer can give at all: all values share one set of them."""
    found = np.zeros(len(reports), dtype=np.bool_)
    if in_range.any():
        origin = np.zeros((int(in_range.sum()), randomizer.domain.dimension), dtype=np.int64)
        found[in_range] = randomizer.density(reports[in_range], origin) > 0
    return found


# HOUSE-DOC protocol.replies: "Replies: a task's answers to a partition of reports, as bytes of one size, and sealed.\n\nReferences become one-time keys here, and nowhere before: the task saw positions. SPEC section 8.\n"
_Rows = NDArray[np.uint8]


def encode_answers(
    answers: tasks.Answers, rows: slice, opened: Sequence[Opened], *, size: int
) -> _Rows:
    """Write the answers to some rows of a group, (n, size): how much one holds does not show."""
    part = answers.take(np.arange(len(answers))[rows])
    if isinstance(part, tasks.Values):
        return write_answers(part, size=size)
    of = opened[part.group]
    partners = np.concatenate([of.contacts[part.indices], of.payloads[part.indices]], axis=1)
    return write_answers(part, partners, contact=of.contacts.shape[1], size=size)


def write_answers(
    answers: tasks.Answers, partners: _Rows | None = None, *, contact: int = 0, size: int
) -> _Rows:
    """Write answers, each in so many bytes.

    `partners` are contact and payload of everybody whom references name, one row for each
    reference; a contact has so many bytes. None is nobody.
    """
    if isinstance(answers, tasks.Values):
        found = _values(answers)
    else:
        named = np.empty((0, 0), np.uint8) if partners is None else partners
        found = _partners(answers, named if answers.located else named[:, :contact])
    if found.shape[1] > size:
        raise Misuse(f"an answer takes {found.shape[1]} bytes, the terms give it {size}")
    return np.pad(found, ((0, 0), (0, size - found.shape[1])))


def seal_entries(
    texts: _Rows, keys: _Rows, addresses: _Rows, round_: Round, *, group: int, bulk: Bulk
) -> list[bytes]:
    """Seal each answer to the key of its person, and put the address in front."""
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=group)
    sealed = bulk.seal_each(one_by_one(texts), to=one_by_one(keys), suite=round_.suite, bound=bound)
    return [name + one for name, one in zip(one_by_one(addresses), sealed, strict=True)]


def _values(answers: tasks.Values) -> _Rows:
    """Write numbers: each one's own, then those that everybody is told."""
    count, width = answers.data.shape
    shared = np.broadcast_to(answers.shared, (count, len(answers.shared)))
    numbers = np.concatenate([answers.data, shared], axis=1).astype(">f8")
    body = np.frombuffer(numbers.tobytes(), dtype=np.uint8).reshape(count, 8 * numbers.shape[1])
    heads = answer_heads(np.full(count, VALUES), np.full(count, width), len(answers.shared))
    return np.concatenate([heads, body], axis=1)


def _partners(answers: tasks.References, partners: _Rows) -> _Rows:
    """Write whom each report is told of; nobody is an empty row of numbers."""
    counts = answers.counts()
    group = np.full((len(partners), 1), answers.group, dtype=np.uint8)
    named = np.concatenate([group, partners], axis=1)
    body = np.zeros((len(answers), int(counts.max(initial=0)), named.shape[1]), dtype=np.uint8)
    inside = np.arange(len(partners)) - np.repeat(answers.indptr[:-1], counts)
    body[answers.owners(), inside] = named
    kinds = np.where(counts > 0, LOCATED if answers.located else PARTNERS, VALUES)
    heads = answer_heads(kinds, counts, 0 if answers.second is None else answers.second)
    people, most, size = body.shape
    return np.concatenate([heads, body.reshape(people, most * size)], axis=1)


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
    def phase(self) -> ServerPhase:
        """Where the round stands."""
        return self.state.phase

    def accept(self, raw: bytes) -> None:
        """Take the last shuffler's batch; the same batch twice is one batch."""
        if self.state.accepted:
            if Batch.decode(raw, self.round).manifest.content != self.state.accepted:
                raise Refused("this round is answered for another batch: one batch, one bulletin")
            return
        after, last = (
            SERVER_TRANSITIONS.after(self.phase, "accept"),
            len(self.round.terms.shufflers) - 1,
        )
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
        after = SERVER_TRANSITIONS.after(self.phase, "answer" if enough else "refuse")
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
        verify_outcome(raw, self.round, before=len(self.round.terms.shufflers))
        return self._end(after, raw)

    def _unbatched(self) -> ServerPhase:
        """Give the phase after an abandonment; refused once the batch is here."""
        if self.state.accepted:
            raise Refused("this server has the batch of the round, and goes on")
        return SERVER_TRANSITIONS.after(self.phase, "abandon")

    def _end(self, after: ServerPhase, bulletin: bytes) -> bytes:
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
        spoken = [
            spoken_reports(one, own) for one, own in zip(self.randomizers, reports, strict=True)
        ]
        said = [own for _, own in spoken]
        heeded = [note[who] for note, (who, _) in zip(notes, spoken, strict=True)]
        found = self._mean(said) or self._told(said, heeded, regions=regions, run=run)
        return [
            tasks.with_silent(answers, who, size=len(own))
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
                belief(without_coin(one), own, prior=self._priors.get(of.name))
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
        if not answers_mean_only(self.task) or how in LEARNED:
            return []
        part = without_coin(self.randomizers[0])
        return [mean_of(self.task, said[0], lambda some: numbers(part, some, how))]

    def _estimates(self, said: Sequence[Reports]) -> list[tasks.Floats]:
        groups = zip(self.randomizers, said, self.round.terms.groups, strict=True)
        return [
            numbers(
                without_coin(one), own, cast("Decode", of.decode), prior=self._priors.get(of.name)
            )
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
            tasks.check_coin_allowed(self.task, sizes=[group.minimum for group in groups])
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
    kinds, weights, places = batch_belief(randomizer, reports, prior=prior)
    return tasks.Belief(kinds, weights, domain.from_unit(places))
