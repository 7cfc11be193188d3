"""The server: open a batch, drop what is wrong and count why, compute, seal one answer each.

It learns noisy values and one-time keys in an order that says nothing, never who sent which.
The task behind it sees estimates only. SPEC section 11, paper section "A Concrete Protocol".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.domains import Ball, Box, Categories
from coatcheck.errors import BadKey, Misuse, Refused
from coatcheck.protocol.ends import FEW_REPORTS, LATE, NO_REASON, TASK, abandoned, due, is_short
from coatcheck.protocol.envelope import Bulk, Purpose, binding
from coatcheck.protocol.keys import Contact, KeyPairs
from coatcheck.protocol.manifest import Batch, Manifest
from coatcheck.protocol.messages import (
    Answer,
    Partner,
    PayloadFormat,
    ReportTable,
    encode_answer,
    least_sizes,
)
from coatcheck.protocol.notices import ANSWERED, REFUSED, SERVER, Bulletin
from coatcheck.protocol.parcels import Tally
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


@dataclass(frozen=True)
class Opened:
    """The reports of one group that stayed: keys, payloads as sent, as numbers, and notes."""

    tally: Tally
    contacts: tuple[Contact, ...]
    payloads: tuple[bytes, ...]
    reports: NDArray[np.int64]
    notes: NDArray[np.uint8]


class Server:
    """The server of one round.

    *Guarantee:* no report is answered twice, no round below its minimum crowd is answered, and
    every drop is counted under a reason.
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
        self.randomizers = tuple(from_params(group.randomizer) for group in terms.groups)
        self._formats = tuple(PayloadFormat.between(r.low, r.high) for r in self.randomizers)
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
        opened = self.open(batch)
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
        return self._end(after, unheard(self.round, keys=self._keys))

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
        taken: set[bytes] = set()
        return [self._open_group(number, batch, taken) for number in range(len(batch.items))]

    def _open_group(self, number: int, batch: Batch, taken: set[bytes]) -> Opened:
        tally = batch.tallies[number]
        bound = binding(Purpose.REPORT, digest=self.round.digest, group=number)
        items = batch.items[number]
        opened = self._bulk.unseal_each(items, key=self._keys.opening, bounds=[bound] * len(items))
        plain = [text for text in opened if text is not None]
        tally = tally.drop("unopened", len(items) - len(plain))
        table = ReportTable.read(plain, self.round, number)
        reports, in_range = self._formats[number].decode(table.payloads)
        possible = in_range & _possible(self.randomizers[number], reports, in_range)
        kept: list[int] = []
        contacts: list[Contact] = []
        for row in range(len(plain)):
            contact = self._contact(table.contacts[row].tobytes())
            if not table.well_formed[row]:
                tally = tally.drop("malformed")
            elif not possible[row]:
                tally = tally.drop("out-of-domain")
            elif contact is None:
                tally = tally.drop("bad-key")
            elif contact.address in taken:
                tally = tally.drop("duplicate-address")
            else:
                taken.add(contact.address)
                contacts.append(contact)
                kept.append(row)
        payloads = tuple(table.payloads[row].tobytes() for row in kept)
        return Opened(tally, tuple(contacts), payloads, reports[kept], table.notes[kept])

    def _contact(self, raw: bytes) -> Contact | None:
        try:
            return Contact.decode(self.round.suite, raw)
        except BadKey:
            return None

    def _entries(self, opened: Sequence[Opened]) -> list[list[bytes]]:
        groups = self.round.terms.groups
        # The task sees those who spoke. Whoever was silent counts in the crowd, and is answered.
        spoken = [heard(one, g.reports) for one, g in zip(self.randomizers, opened, strict=True)]
        said = [
            (speaker(randomizer), reports, of, self._priors.get(of.name))
            for randomizer, (_, reports), of in zip(self.randomizers, spoken, groups, strict=True)
        ]
        estimates = [
            numbers(randomizer, reports, cast("Decode", of.decode), prior=prior)
            for randomizer, reports, of, prior in said
        ]
        notes = [group.notes[who] for group, (who, _) in zip(opened, spoken, strict=True)]
        beliefs = None
        if isinstance(self.task, tasks.ReadsBeliefs) and self.task.reads_beliefs:
            beliefs = [belief(mechanism, reports, prior=p) for mechanism, reports, _, p in said]
        found = tasks.answer(self.task, estimates, notes=notes, beliefs=beliefs)
        everybody = [
            tasks.among(answers, who, size=len(group.contacts))
            for answers, (who, _), group in zip(found, spoken, opened, strict=True)
        ]
        return [self._seal(number, answers, opened) for number, answers in enumerate(everybody)]

    def _seal(self, number: int, answers: tasks.Answers, opened: Sequence[Opened]) -> list[bytes]:
        size = self.round.terms.groups[number].answer_size
        bound = binding(Purpose.ANSWER, digest=self.round.digest, group=number)
        contacts = opened[number].contacts
        texts = [
            encode_answer(_answer(answers, row, opened), size=size) for row in range(len(contacts))
        ]
        keys = [contact.sealing for contact in contacts]
        sealed = self._bulk.seal_each(texts, to=keys, bound=bound)
        return [contact.address + one for contact, one in zip(contacts, sealed, strict=True)]

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


def unheard(round_: Round, *, keys: KeyPairs, reason: int = LATE) -> bytes:
    """Make the end of a round whose batch never came, or was lost."""
    return abandoned(round_, reason=reason, who=SERVER).signed(keys.signing.sign).encode()


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


def _possible(
    randomizer: Randomizer, reports: NDArray[np.int64], in_range: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Tell which reports the randomizer can give at all: all values share one set of them."""
    possible = np.zeros(len(reports), dtype=np.bool_)
    if in_range.any():
        origin = np.zeros((int(in_range.sum()), randomizer.domain.dimension), dtype=np.int64)
        possible[in_range] = randomizer.density(reports[in_range], origin) > 0
    return possible


def _answer(answers: tasks.Answers, row: int, opened: Sequence[Opened]) -> Answer:
    """Turn a task's answer to one report into keys and numbers."""
    if isinstance(answers, tasks.Values):
        own = tuple(float(number) for number in answers.data[row])
        return Answer(own, tuple(float(number) for number in answers.shared))
    other = opened[answers.group]
    named = tuple(
        Partner(
            answers.group,
            other.contacts[place].raw,
            other.payloads[place] if answers.located else b"",
        )
        for place in answers.of(row)
    )
    first = len(named) - (0 if answers.second is None else int(answers.second[row]))
    return Answer(partners=named[:first], second=named[first:])
