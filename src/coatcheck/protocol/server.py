"""The server role: open a batch, drop invalid reports and count why, compute, seal the answers.

The server learns noisy values and one-time keys, in an order that tells nothing about the senders.
The task behind it sees estimates only.

`Server.answer` does a whole round: `open` its batch, let the task compute `answers`, and seal the
entries of the bulletin. The in-memory simulation and the commands over files call it;
`services.server.pipeline` runs the same methods and functions (`open_part`, `answers`,
`seal_part`) as stages over files. No I/O. SPEC section 11; paper section "A Concrete Protocol".
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
from coatcheck.protocol.keys import KeyPairs, OpeningKey, addresses_of, first_seen, usable_contacts
from coatcheck.protocol.log.verification import verify_batch, verify_outcome
from coatcheck.protocol.outcomes import (
    FEW_REPORTS,
    NO_REASON,
    TASK,
    due,
    is_short,
    outcome_without_batch,
)
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
from coatcheck.randomizers.density import LEARNED, batch_belief, decode_batch
from coatcheck.tasks.contract import RunsByRegion
from coatcheck.tasks.execution import Map, Region, regions
from coatcheck.tasks.learning import answers_mean_only, mean_of

_Mask = NDArray[np.bool_]
NOWHERE: Final = 2**32 - 1
"""The place of a report that has no entry."""
_Rows = NDArray[np.uint8]
Reports = NDArray[np.int64]


@dataclass(frozen=True)
class OpenedReports:
    """Valid reports of a group or a partition, as columns: row i of each belongs to one report.

    Attributes:
        tally: the numbers of reports that arrived and were dropped.
        contacts: the one-time keys.
        addresses: the addresses of these keys.
        payloads: the randomized values, encoded.
        reports: the randomized values as numbers.
        notes: the public bytes beside them.
    """

    tally: Tally
    contacts: NDArray[np.uint8]
    addresses: NDArray[np.uint8]
    payloads: NDArray[np.uint8]
    reports: NDArray[np.int64]
    notes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.contacts)

    def keep(self, rows: _Mask, reason: str) -> "OpenedReports":
        """Keep these rows, and count the others as dropped for a reason."""
        dropped = len(self) - int(rows.sum())
        if not dropped:
            return self
        return OpenedReports(
            self.tally.drop(reason, dropped),
            self.contacts[rows],
            self.addresses[rows],
            self.payloads[rows],
            self.reports[rows],
            self.notes[rows],
        )


class Server:
    """The server of one round.

    *Guarantee:* the server answers no report twice and no round below its minimum crowd, and
    counts every drop under a reason.

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
            raise Misuse(
                "the terms name other keys for the server: use the key file that they name"
            )
        self.round = round_
        self._keys = keys
        self._bulk = bulk or Bulk()
        self.state = state or ServerState()
        # A task may hold what the terms do not publish (a validation set): the caller may pass it.
        self.task = task or tasks.from_params({"name": terms.task.name, **terms.task.params})
        if self.task.name != terms.task.name:
            raise Misuse(
                f"`task` must be {terms.task.name!r} as in the terms, got {self.task.name!r}"
            )
        self.opened: Sequence[OpenedReports] = ()
        self.randomizers = tuple(from_params(group.randomizer) for group in terms.groups)
        self._check_sizes()

    @property
    def phase(self) -> ServerPhase:
        """Where the round stands."""
        return self.state.phase

    def accept(self, raw: bytes) -> None:
        """Take the last shuffler's batch; the same batch again changes nothing."""
        if self.state.accepted:
            if Batch.decode(raw, self.round).manifest.content != self.state.accepted:
                raise Refused("this round has another batch already, and the first one stays")
            return
        after = SERVER_TRANSITIONS.after(self.phase, "accept")
        last = len(self.round.terms.shufflers) - 1
        self.state.accepted = verify_batch(raw, self.round, hop=last).manifest.content
        self.state.phase = after

    def answer(self, raw: bytes) -> bytes:
        """Take the batch and make the signed bulletin; the same batch gives the same bulletin.

        If a group is below its minimum crowd, the bulletin refuses the round. If the task raises,
        the round has its batch, and a later call may answer it.
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
        """Abandon a round whose batch did not arrive in time; return the signed outcome."""
        after = self._phase_after_abandoning()
        if now < due(self.round, len(self.round.terms.shufflers)):
            raise Refused("the batch of this round is not overdue: wait for it")
        return self._end(after, outcome_without_batch(self.round, sign=self._keys.signing.sign))

    def hear(self, raw: bytes) -> bytes:
        """Abandon a round that a shuffler abandoned; return its signed outcome."""
        after = self._phase_after_abandoning()
        verify_outcome(raw, self.round, before=len(self.round.terms.shufflers))
        return self._end(after, raw)

    def _phase_after_abandoning(self) -> ServerPhase:
        """Return the phase after `abandon`; refused once the batch is here."""
        if self.state.accepted:
            raise Refused("this server has the batch of the round and will answer it")
        return SERVER_TRANSITIONS.after(self.phase, "abandon")

    def _end(self, after: ServerPhase, bulletin: bytes) -> bytes:
        self.state.phase, self.state.bulletin = after, bulletin
        return bulletin

    def open(self, batch: Batch) -> list[OpenedReports]:
        """Open the reports of every group; an invalid report is dropped and affects no other."""
        groups = []
        for number, (items, tally) in enumerate(zip(batch.items, batch.tallies, strict=True)):
            parts = [self.open_part(number, items[part]) for part in partition_slices(len(items))]
            groups.append(join_partitions(parts, before=tally))
        return drop_repeated_keys(groups)

    def open_part(self, number: int, items: Sequence[bytes]) -> OpenedReports:
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

        With several regions, `run` runs them (see `tasks.answer`).
        """
        # With a participation coin, the task sees only the reports of people whose coin let them
        # report. The silent people count in the crowd and get an answer, too.
        spoken = [
            spoken_reports(randomizer, rows)
            for randomizer, rows in zip(self.randomizers, reports, strict=True)
        ]
        speaker_reports = [rows for _, rows in spoken]
        speaker_notes = [note[speaks] for note, (speaks, _) in zip(notes, spoken, strict=True)]
        answers = self._mean(speaker_reports) or self._answers(
            speaker_reports, speaker_notes, regions=regions, run=run
        )
        return [
            tasks.with_silent(group, speaks, size=len(rows))
            for group, (speaks, _), rows in zip(answers, spoken, reports, strict=True)
        ]

    def _answers(
        self,
        speaker_reports: Sequence[Reports],
        notes: Sequence[tasks.Notes],
        *,
        regions: int,
        run: Map,
    ) -> list[tasks.Answers]:
        """Let the task answer the people whose coin let them report."""
        beliefs = None
        if isinstance(self.task, tasks.ReadsBeliefs) and self.task.reads_beliefs:
            groups = zip(self.randomizers, speaker_reports, self.round.terms.groups, strict=True)
            beliefs = [
                belief(
                    without_coin(randomizer),
                    rows,
                    prior=self._priors.get(group.name),
                    decoys=group.decoys,
                )
                for randomizer, rows, group in groups
            ]
        estimates = self._estimates(speaker_reports)
        return tasks.answer(
            self.task, estimates, notes=notes, beliefs=beliefs, regions=regions, run=run
        )

    def _mean(self, speaker_reports: Sequence[Reports]) -> list[tasks.Answers]:
        """Compute a mean in parts, if the task answers with nothing else; empty otherwise.

        A decoder that learns from the whole batch needs all reports at once.
        """
        decode = cast("Decode", self.round.terms.groups[0].decode)
        if not answers_mean_only(self.task) or decode in LEARNED:
            return []
        part = without_coin(self.randomizers[0])
        return [mean_of(self.task, speaker_reports[0], lambda rows: numbers(part, rows, decode))]

    def _estimates(self, speaker_reports: Sequence[Reports]) -> list[tasks.Floats]:
        groups = zip(self.randomizers, speaker_reports, self.round.terms.groups, strict=True)
        return [
            numbers(
                without_coin(randomizer),
                rows,
                cast("Decode", group.decode),
                prior=self._priors.get(group.name),
                decoys=group.decoys,
            )
            for randomizer, rows, group in groups
        ]

    def regions(
        self, reports: Sequence[Reports], notes: Sequence[tasks.Notes], *, count: int
    ) -> list[tuple[Region, tasks.Floats]]:
        """Cut space into regions for a task with a limited reach; return each with its estimates.

        Empty for any other task. `answers` with the same number of regions makes the same cuts.
        """
        task = self.task
        if not isinstance(task, RunsByRegion) or task.reach is None:
            return []
        reads_more = isinstance(task, tasks.ReadsNotes) or getattr(task, "reads_beliefs", False)
        if reads_more or isinstance(self.randomizers[0], CoinResponse) or count <= 1:
            return []
        (estimates,) = self._estimates(reports)
        ordered = estimates[tasks.canonical_order(estimates, notes[0])]
        parts = regions(task.placed(ordered), reach=task.reach, count=count)
        return [(region, ordered[region.around]) for region in parts]

    def _entries(self, opened: Sequence[OpenedReports]) -> list[list[bytes]]:
        answers_by_group = self.answers(
            [group.reports for group in opened], [group.notes for group in opened]
        )
        return [
            [
                entry
                for part in partition_slices(len(answers))
                for entry in self.seal_part(number, answers, part, opened)
            ]
            for number, answers in enumerate(answers_by_group)
        ]

    def seal_part(
        self, number: int, answers: tasks.Answers, rows: slice, opened: Sequence[OpenedReports]
    ) -> list[bytes]:
        """Write and seal the entries of some rows of a group."""
        size, reports = self.round.terms.groups[number].answer_size, opened[number]
        texts = encode_answers(answers, rows, opened, size=size)
        keys = reports.contacts[rows, : self.round.suite.sealing_size]
        names = reports.addresses[rows]
        return seal_entries(texts, keys, names, self.round, group=number, bulk=self._bulk)

    def _check_sizes(self) -> None:
        """Refuse terms whose sizes are not those of the randomizers and the task."""
        groups = self.round.terms.groups
        if len(groups) != len(self.task.groups):
            raise Refused(
                f"task {self.task.name} has the groups {', '.join(self.task.groups)}, but the terms"
                f" have {len(groups)} groups"
            )
        if any(isinstance(randomizer, CoinResponse) for randomizer in self.randomizers):
            tasks.check_coin_allowed(self.task, sizes=[group.minimum for group in groups])
        if any(group.decoys for group in groups):
            tasks.check_decoys_allowed(self.task, sizes=[group.minimum for group in groups])
        sizes = least_sizes(self.task, self.randomizers, suite=self.round.suite)
        for group, (payload, answer) in zip(groups, sizes, strict=True):
            if group.payload_size != payload:
                raise Refused(
                    f"`payload_size` of {group.name!r} must be {payload}, not {group.payload_size}:"
                    " ask for terms that are drafted with these mechanisms"
                )
            if group.answer_size < answer:
                raise Refused(
                    f"`answer_size` of {group.name!r} must be at least {answer}, not"
                    f" {group.answer_size}: ask for terms that are drafted for this task"
                )


def refusal(raw: bytes, *, round_: Round, keys: KeyPairs) -> bytes:
    """Make the signed bulletin that refuses a batch, so that people learn that it has no answers.

    The manifest of the batch is enough.
    """
    manifest, _ = Manifest.begin(raw, round_)
    no_entries: list[list[bytes]] = [[] for _ in manifest.tallies]
    reason = FEW_REPORTS if is_short(manifest.tallies, round_) else TASK
    counts = (manifest.tallies, manifest.roots)
    draft = Bulletin.compose(no_entries, REFUSED, round_.digest, *counts, reason=reason)
    return draft.signed(keys.signing.sign).encode()


# -- opening the reports of a partition


def partition_slices(count: int) -> list[slice]:
    """Cut `count` rows into partitions; no rows are one empty partition."""
    return [slice(at, min(at + PART, count)) for at in range(0, max(1, count), PART)]


def split_rows(rows: NDArray[np.uint8]) -> list[bytes]:
    """Return the rows of a column as bytes."""
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
) -> OpenedReports:
    """Open and check the items of a partition of a group."""
    bound = binding(Purpose.REPORT, digest=round_.digest, group=group)
    plain = bulk.unseal_each(items, key=key, bounds=[bound] * len(items))
    return read_part(plain, round_, group=group, randomizer=randomizer)


def read_part(
    plain: Sequence[bytes | None], round_: Round, *, group: int, randomizer: Randomizer
) -> OpenedReports:
    """Read the opened items of a partition; None stands for an item that did not open.

    A report with several flaws is counted once (S7.13), under the first of malformed,
    out-of-domain and bad-key.
    """
    opened = [text for text in plain if text is not None]
    table = ReportTable.read(opened, round_, group)
    reports, in_range = PayloadFormat.between(randomizer.low, randomizer.high).decode(
        table.payloads
    )
    inside = is_possible(randomizer, reports, in_range)
    usable = usable_contacts(round_.suite, table.contacts)
    is_valid = table.well_formed & inside & usable
    tally = Tally(len(plain)).drop("unopened", len(plain) - len(opened))
    tally = tally.drop("malformed", int((~table.well_formed).sum()))
    tally = tally.drop("out-of-domain", int((table.well_formed & ~inside).sum()))
    tally = tally.drop("bad-key", int((table.well_formed & inside & ~usable).sum()))
    contacts = table.contacts[is_valid]
    return OpenedReports(
        tally,
        contacts,
        addresses_of(round_.suite, contacts),
        table.payloads[is_valid],
        reports[is_valid],
        table.notes[is_valid],
    )


def join_partitions(parts: Sequence[OpenedReports], *, before: Tally) -> OpenedReports:
    """Join the partitions of a group, in order; `before` is the group's tally in the batch."""
    losses = zip(before.dropped, *(part.tally.dropped for part in parts), strict=True)
    tally = replace(before, dropped=tuple(sum(loss) for loss in losses))
    return OpenedReports(
        tally,
        np.concatenate([part.contacts for part in parts]),
        np.concatenate([part.addresses for part in parts]),
        np.concatenate([part.payloads for part in parts]),
        np.concatenate([part.reports for part in parts]),
        np.concatenate([part.notes for part in parts]),
    )


def drop_repeated_keys(groups: Sequence[OpenedReports]) -> list[OpenedReports]:
    """Keep the first of several reports with the same keys, in the order of groups and rows."""
    first = first_seen(np.concatenate([group.addresses for group in groups]))
    ends = np.cumsum([len(group) for group in groups])
    parts = np.split(first, ends[:-1])
    return [
        group.keep(rows, "duplicate-address") for group, rows in zip(groups, parts, strict=True)
    ]


def entry_places(groups: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint32]]:
    """Return the place of each report's entry in the bulletin, by the addresses of each group.

    Groups come in order, and the entries of a group by address. A report that repeats the keys of
    an earlier one has `NOWHERE`.
    """
    ends = np.cumsum([len(group) for group in groups])
    order = first_of_each(np.concatenate(groups))
    places = np.full(ends[-1], NOWHERE, dtype=np.uint32)
    by_group = order[np.argsort(np.searchsorted(ends, order, side="right"), kind="stable")]
    places[by_group] = np.arange(len(by_group), dtype=np.uint32)
    return np.split(places, ends[:-1])


def is_possible(randomizer: Randomizer, reports: NDArray[np.int64], in_range: _Mask) -> _Mask:
    """Return which reports are possible outputs of the randomizer, whatever the value."""
    mask = np.zeros(len(reports), dtype=np.bool_)
    if in_range.any():
        origin = np.zeros((int(in_range.sum()), randomizer.domain.dimension), dtype=np.int64)
        mask[in_range] = randomizer.density(reports[in_range], origin) > 0
    return mask


# -- estimating


def numbers(
    randomizer: Randomizer,
    reports: NDArray[np.int64],
    decode: Decode | None = None,
    *,
    prior: Prior | None = None,
    decoys: int = 0,
) -> NDArray[np.float64]:
    """Estimate reports as numbers, (n, d): a label as its index in the list, fields side by side.

    A learned decoder starts from the public prior, and knows how many decoys each person sends;
    other decoders and fields ignore both.
    """
    if decode not in LEARNED:
        prior = None
    elif decoys:
        return _among_decoys(randomizer, reports, decode, prior=prior, decoys=decoys)
    if isinstance(randomizer, GridResponse) and isinstance(randomizer.domain, Categories):
        return randomizer.label_points(reports, decode, prior=prior).astype(np.float64)
    if isinstance(randomizer, FieldwiseResponse):
        fields = zip(randomizer.parts.values(), randomizer.split_reports(reports), strict=True)
        columns = [
            numbers(part, rows, randomizer.part_decode(part, decode)) for part, rows in fields
        ]
        return np.concatenate(columns, axis=1)
    return np.asarray(randomizer.estimate(reports, decode, prior=prior), dtype=np.float64)


def _among_decoys(
    randomizer: Randomizer,
    reports: NDArray[np.int64],
    decode: Decode,
    *,
    prior: Prior | None,
    decoys: int,
) -> NDArray[np.float64]:
    mean = decode == LEARNED[1]
    decoded = decode_batch(randomizer, reports, mean=mean, prior=prior, decoys=decoys)
    if decoded.places is None:
        return numbers(randomizer, reports, randomizer.plain_decode(decode))
    domain = randomizer.domain
    return domain.from_unit(decoded.places) if isinstance(domain, Box | Ball) else decoded.places


def belief(
    randomizer: Randomizer,
    reports: NDArray[np.int64],
    *,
    prior: Prior | None = None,
    decoys: int = 0,
) -> tasks.Belief:
    """Return the posterior of the values behind reports, from the density of the whole batch."""
    domain = randomizer.domain
    if not isinstance(domain, Box | Ball) or not randomizer.learns:
        raise Refused(
            f"{randomizer.name} on this domain has no decoder that learns where people are: choose"
            " a task that needs estimates only"
        )
    of = batch_belief(randomizer, reports, prior=prior, decoys=decoys)
    return tasks.Belief(of.kinds, of.weights, domain.from_unit(of.places), of.real)


# -- writing and sealing the answers to a partition


def encode_answers(
    answers: tasks.Answers, rows: slice, opened: Sequence[OpenedReports], *, size: int
) -> _Rows:
    """Write the answers to some rows of a group, (n, size), all of one size.

    Only here do references become one-time keys: the task works with positions.
    """
    part = answers.take(np.arange(len(answers))[rows])
    if isinstance(part, tasks.Values):
        return write_answers(part, size=size)
    group = opened[part.group]
    partners = np.concatenate([group.contacts[part.indices], group.payloads[part.indices]], axis=1)
    return write_answers(part, partners, contact=group.contacts.shape[1], size=size)


def write_answers(
    answers: tasks.Answers, partners: _Rows | None = None, *, contact: int = 0, size: int
) -> _Rows:
    """Write answers of `size` bytes each.

    `partners` has one row for each reference: the contact (of `contact` bytes) and the payload of
    the person whom it names.
    """
    if isinstance(answers, tasks.Values):
        texts = _values(answers)
    else:
        named = np.empty((0, 0), np.uint8) if partners is None else partners
        texts = _partners(answers, named if answers.located else named[:, :contact])
    if texts.shape[1] > size:
        raise Misuse(
            f"an answer takes {texts.shape[1]} bytes, but `answer_size` of the terms is {size}"
        )
    return np.pad(texts, ((0, 0), (0, size - texts.shape[1])))


def seal_entries(
    texts: _Rows, keys: _Rows, addresses: _Rows, round_: Round, *, group: int, bulk: Bulk
) -> list[bytes]:
    """Seal each answer to its person's key, and put the address in front."""
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=group)
    sealed = bulk.seal_each(split_rows(texts), to=split_rows(keys), suite=round_.suite, bound=bound)
    return [address + answer for address, answer in zip(split_rows(addresses), sealed, strict=True)]


def _values(answers: tasks.Values) -> _Rows:
    """Write numbers: each person's own, then those for everybody."""
    count, width = answers.data.shape
    shared = np.broadcast_to(answers.shared, (count, len(answers.shared)))
    numbers = np.concatenate([answers.data, shared], axis=1).astype(">f8")
    body = np.frombuffer(numbers.tobytes(), dtype=np.uint8).reshape(count, 8 * numbers.shape[1])
    heads = answer_heads(np.full(count, VALUES), np.full(count, width), len(answers.shared))
    return np.concatenate([heads, body], axis=1)


def _partners(answers: tasks.References, partners: _Rows) -> _Rows:
    """Write the partners of each report; without partners, an empty row of numbers."""
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
