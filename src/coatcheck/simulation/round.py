"""A whole round in memory: the same objects that ship, driven with arrays in and arrays out.

Knows everybody's values and secrets, so nothing here serves people: randomness may be seeded, and
clients are told. Also shows what an adversary in each role sees. SPEC section 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import tasks
from coatcheck.accounting.guarantee import Guarantee, html_table, rounded_up
from coatcheck.domains.tables import read_people
from coatcheck.entropy import Entropy, source
from coatcheck.errors import Misuse
from coatcheck.protocol import client
from coatcheck.protocol.agreement import (
    AgreedTerms,
    SignedTerms,
    Trust,
    countersign,
    propose,
    verify_signatures,
)
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.drafting import Draft, GroupPlan
from coatcheck.protocol.keys import KeyPairs, PublicKeys, VerifyingKey
from coatcheck.protocol.log.verification import VerifiedBulletin, verify_bulletin
from coatcheck.protocol.server import Server, split_rows
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import Round, Suite, Tokens, suite_named
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.messages import Answer
from coatcheck.protocol.wire.uploads import Tally
from coatcheck.randomizers import Prior

OPENS, CLOSES, EXPIRES = 1_000, 2_000, 3_000
_NO_LIMIT: Final = Limit(epsilon=1e6, delta=1.0)


@dataclass(frozen=True)
class RoleKeys:
    """The keys of everyone who runs a round."""

    server: KeyPairs
    shufflers: tuple[KeyPairs, ...]
    board: KeyPairs

    @classmethod
    def draw(cls, *, suite: Suite, shufflers: int, entropy: Entropy) -> "RoleKeys":
        """Draw fresh keys."""
        keys = [KeyPairs(suite, entropy.token(32)) for _ in range(2 + shufflers)]
        return cls(keys[0], tuple(keys[2:]), keys[1])

    @property
    def trusted(self) -> Trust:
        """The verifying keys that a person would know from elsewhere."""
        known = ((name.partition("-")[0], keys) for name, keys in self._named())
        return Trust.of((role, [keys.signing.public_raw]) for role, keys in known)

    def _named(self) -> list[tuple[str, KeyPairs]]:
        shufflers = enumerate(self.shufflers, start=1)
        mixing = [(f"shuffler-{n}", keys) for n, keys in shufflers]
        return [("server", self.server), ("board", self.board), *mixing]

    def agree(
        self,
        groups: Sequence[GroupPlan],
        *,
        task: tasks.Task,
        name: str,
        suite: Suite,
        trap_delta: float | None = None,
    ) -> SignedTerms:
        """Draft terms, sign them and have every shuffler sign them."""
        public = [
            PublicKeys(
                name=name,
                suite=suite.name,
                verifying=keys.signing.public_raw.hex(),
                sealing=keys.opening.public_raw.hex(),
                url=f"https://{name}.example",
            )
            for name, keys in self._named()
        ]
        terms = Draft(round=name, task=task, groups=groups, trap_delta=trap_delta).terms(
            suite=suite,
            server=public[0].party,
            shufflers=[one.shuffler(Tokens()) for one in public[2:]],
            board=public[1].notary,
            times=(OPENS, CLOSES, EXPIRES),
        )
        signed = propose(terms, keys=self.server)
        for keys in self.shufflers:
            signed = countersign(signed, keys=keys, pledged={})
        return signed


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a simulated round came to, for everybody at once.

    Attributes:
        groups: what was planned for each group.
        tickets: for each group one ticket per person, in the order of the values.
        answers: for each group what each ticket opened.
        guarantees: what each group was promised.
        names: for each group what its people are called: the table's index, or row numbers.
    """

    round: AgreedTerms
    keys: RoleKeys
    groups: tuple[GroupPlan, ...]
    tickets: tuple[tuple[Ticket, ...], ...]
    answers: tuple[tuple[Answer, ...], ...]
    guarantees: tuple[Guarantee, ...]
    bulletin: VerifiedBulletin
    board: Board
    batch: bytes
    uploads: tuple[bytes, ...]
    task: tasks.Task
    names: tuple[tuple[Any, ...], ...]

    def __repr__(self) -> str:
        people = ", ".join(
            f"{len(tickets)} {group.name}"
            for group, tickets in zip(self.groups, self.tickets, strict=True)
        )
        return f"Outcome({people}; {self.task.name})"

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """What was counted of each group."""
        return self.bulletin.heading.tallies

    @cached_property
    def whose(self) -> dict[bytes, tuple[int, int]]:
        """Whose each address is: group and row. Only a simulation can know."""
        return {
            ticket.keys.address: (group, row)
            for group, tickets in enumerate(self.tickets)
            for row, ticket in enumerate(tickets)
        }

    def values(self, group: int) -> NDArray[np.float64]:
        """Return the numbers that each person of a group was told, one row per person."""
        return np.array([answer.values for answer in self.answers[group]], dtype=np.float64)

    def partners(self, group: int) -> list[tuple[tuple[int, int], ...]]:
        """Return for each person of a group the partners told of, as (group, row)."""
        return [
            tuple(self.whose[client.address(partner, self.round)] for partner in answer.partners)
            for answer in self.answers[group]
        ]

    def table(self, group: int) -> list[dict[str, Any]]:
        """Return one row per person: name, partners by name, numbers; a data frame takes it."""
        return [
            {
                "name": name,
                "partners": [self.names[g][row] for g, row in partners],
                "values": list(answer.values),
            }
            for name, partners, answer in zip(
                self.names[group], self.partners(group), self.answers[group], strict=True
            )
        ]

    def _repr_html_(self) -> str:
        rows = [
            (group.name, f"{len(tickets):,}", rounded_up(told.epsilon), f"{told.delta:.3g}")
            for group, tickets, told in zip(self.groups, self.tickets, self.guarantees, strict=True)
        ]
        return html_table(self.task.name, ("group", "people", "ε", "δ"), rows)


def simulate(
    plan: Iterable[GroupPlan],
    values: Mapping[str, Any] | Sequence[Any],
    *,
    task: tasks.Task | None = None,
    notes: Sequence[Sequence[bytes]] = (),
    clamp: bool = False,
    entropy: Entropy | int = 0,
    suite: str = "x25519",
    shufflers: int = 1,
    name: str = "simulation",
    prior: Prior | Mapping[str, Prior] | None = None,
) -> Outcome:
    """Run a round of the real roles in memory and return what everybody got.

    Args:
        plan: what is decided for each group: a plan of `coatcheck.plan`, or groups by hand.
        values: for each group, by its name or in the order of the plan, one row per person: an
            array, a list, or a table of pandas, polars or GeoPandas.
        task: what to compute; the task of the plan by default.
        notes: for each group one note per person, if the task reads notes.
        clamp: whether values outside the domain are moved to its edge.
        entropy: a source, or the seed of one that repeats; seals stay fresh either way.
        suite: how reports and answers are sealed.
        shufflers: how many stand in a row; with several, a group needs some more than its minimum.
        name: the name of the round.
        prior: what the server publicly knows of where people are, for a learned decode: one for
            all groups, or one for each by its name. The very values are refused.
    """
    groups = tuple(plan)
    work: tasks.Task | None = task or getattr(plan, "task", None)
    if work is None:
        raise Misuse("say what to compute: give a task here, or to the plan")
    tables = [
        read_people(given, group.randomizer.domain)
        for group, given in zip(groups, _by_group(groups, values), strict=True)
    ]
    people = [table.rows for table in tables]
    written = notes or [[b""] * len(rows) for rows in people]
    if [len(texts) for texts in written] != [len(rows) for rows in people]:
        raise Misuse("notes are given for each group, one per person")
    priors = dict.fromkeys((g.name for g in groups), prior) if isinstance(prior, Prior) else prior
    for group, rows in zip(groups, people, strict=True):
        if priors and (own := priors.get(group.name)) is not None:
            own.check_not(rows)
    drawn = source(entropy)
    kind = suite_named(suite)
    keys = RoleKeys.draw(suite=kind, shufflers=shufflers, entropy=drawn)
    signed = keys.agree(groups, task=work, name=name, suite=kind)
    round_ = verify_signatures(signed)
    invitations = [
        examine(
            signed,
            group=group.name,
            trusted=keys.trusted,
            limit=_NO_LIMIT,
            now=OPENS,
            simulated=True,
        )
        for group in groups
    ]
    tickets = tuple(
        tuple(
            invitation.join(value, ledger=None, entropy=drawn, note=note, clamp=clamp)
            for value, note in zip(rows, texts, strict=True)
        )
        for invitation, rows, texts in zip(invitations, people, written, strict=True)
    )
    uploads = tuple(ticket.upload for group in tickets for ticket in group)
    told = [ticket.registrations for group in tickets for ticket in group]
    batch = shuffle_uploads(uploads, round_, keys=keys.shufflers, entropy=drawn, told=told)
    board = Board(sign=keys.board.signing.sign, check=_check)
    board.log_terms(round_)
    server = Server(round_, keys=keys.server, task=work, priors=priors)
    board.publish(server.answer(batch), round_)
    bulletin = verify_bulletin(board.bulletin(round_.digest), round_)
    return Outcome(
        round=round_,
        keys=keys,
        groups=groups,
        tickets=tickets,
        answers=tuple(tuple(client.collect(t, bulletin) for t in group) for group in tickets),
        guarantees=tuple(invitation.guarantee for invitation in invitations),
        bulletin=bulletin,
        board=board,
        batch=batch,
        uploads=uploads,
        task=work,
        names=tuple(table.names for table in tables),
    )


def _by_group(
    groups: Sequence[GroupPlan], values: Mapping[str, Any] | Sequence[Any]
) -> Sequence[Any]:
    """Put everybody's values into the order of the groups."""
    names = [group.name for group in groups]
    if isinstance(values, Mapping):
        if set(values) != set(names):
            raise Misuse(f"the plan has the groups {names}, values are for {sorted(values)}")
        return [values[name] for name in names]
    if len(values) != len(names):
        raise Misuse(f"the plan has {len(names)} groups, values are for {len(values)}")
    return values


def shuffle_uploads(
    uploads: Iterable[bytes],
    round_: Round,
    *,
    keys: Iterable[KeyPairs],
    entropy: Entropy,
    told: Iterable[Sequence[bytes]] = (),
) -> bytes:
    """Pass uploads, and what is `told` of traps, through shufflers; return the last one's batch."""
    batch, handed = b"", [list(uploads), *zip(*told, strict=True)]
    for hop, own in enumerate(keys):
        shuffler = Shuffler(round_, keys=own, state=fresh_state(entropy, simulated=True))
        for raw in handed[hop]:
            shuffler.receive(raw, now=round_.terms.opens)
        shuffler.accept(batch) if hop else shuffler.close(now=round_.terms.closes)
        batch = shuffler.release()
    return batch


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)


@dataclass(frozen=True)
class View:
    """What an adversary holds after a round.

    Attributes:
        reports: for each group the opened reports in the batch's order; empty for an onlooker.
        addresses: for each group the addresses; the batch's order, or the board's for an onlooker.
        linked: rows of `reports` whose owner the adversary knows, as (group, row) to person.
        told: the addresses that the corrupted people's answers gave away.
    """

    reports: tuple[NDArray[np.int64], ...]
    addresses: tuple[tuple[bytes, ...], ...]
    linked: dict[tuple[int, int], tuple[int, int]]
    told: frozenset[bytes]


def view(outcome: Outcome, role: str, *, corrupted: Sequence[tuple[int, int]] = ()) -> View:
    """Return what the `server` (with corrupted people if given) or an `onlooker` sees."""
    if role == "onlooker":
        shown = tuple(tuple(entry[:16] for entry in group) for group in outcome.bulletin.entries)
        return View((), shown, {}, frozenset())
    if role != "server":
        raise Misuse(f"there is no view of {role!r}: choose server or onlooker")
    server = Server(outcome.round, keys=outcome.keys.server, task=outcome.task)
    opened = server.open(Batch.decode(outcome.batch, outcome.round))
    addresses = tuple(tuple(split_rows(group.addresses)) for group in opened)
    mine = {outcome.tickets[g][row].keys.address: (g, row) for g, row in corrupted}
    linked = {
        (group, row): mine[address]
        for group, listed in enumerate(addresses)
        for row, address in enumerate(listed)
        if address in mine
    }
    told = frozenset(
        client.address(partner, outcome.round)
        for g, row in corrupted
        for partner in outcome.answers[g][row].partners
    )
    return View(tuple(group.reports for group in opened), addresses, linked, told)
