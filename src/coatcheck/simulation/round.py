"""A whole round in memory, run by the role objects that the services use.

`simulate` takes arrays of values and returns everybody's answers. It knows all values and secrets
and may use seeded randomness, so it must not serve people; clients join with `simulated=True`.
`view` shows what an adversary in each role sees. SPEC section 1.
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
_NO_LIMIT: Final = Limit(epsilon=1e6, delta=1.0, disclosures=1_000_000)


@dataclass(frozen=True)
class RoleKeys:
    """The keys of all roles of a round."""

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
        """The verifying keys that a person would trust beforehand."""
        roles = ((name.partition("-")[0], keys) for name, keys in self._named())
        return Trust.of((role, [keys.signing.public_raw]) for role, keys in roles)

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
        **optional: Any,
    ) -> SignedTerms:
        """Draft terms, with further fields of a draft, signed by the server and every shuffler."""
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
        draft = Draft(round=name, task=task, groups=groups, trap_delta=trap_delta, **optional)
        terms = draft.terms(
            suite=suite,
            server=public[0].party,
            shufflers=[keys.shuffler(Tokens()) for keys in public[2:]],
            board=public[1].notary,
            times=(OPENS, CLOSES, EXPIRES),
        )
        signed = propose(terms, keys=self.server)
        for keys in self.shufflers:
            signed = countersign(signed, keys=keys, pledged={})
        return signed


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a simulated round, for everybody at once.

    Attributes:
        groups: the plan of each group.
        tickets: for each group one ticket per person, in the order of the values.
        answers: for each group the answer that each ticket opened.
        guarantees: the guarantee of each group.
        names: for each group the names of its people: the table's index, or row numbers.
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
        """The counts of each group."""
        return self.bulletin.heading.tallies

    @cached_property
    def whose(self) -> dict[bytes, tuple[int, int]]:
        """The owner of each report's address, as group and row; only a simulation can know."""
        return {
            ticket.keys.address: (group, row)
            for group, tickets in enumerate(self.tickets)
            for row, ticket in enumerate(tickets)
        }

    @cached_property
    def decoys(self) -> frozenset[bytes]:
        """The addresses of all decoys; only a simulation can know."""
        return frozenset(
            address
            for tickets in self.tickets
            for ticket in tickets
            for address in ticket.addresses[1:]
        )

    def values(self, group: int) -> NDArray[np.float64]:
        """Return the numbers in the answers of a group, one row per person."""
        return np.array([answer.values for answer in self.answers[group]], dtype=np.float64)

    def partners(self, group: int) -> list[tuple[tuple[int, int], ...]]:
        """Return for each person of a group the partners in the answer, as (group, row).

        An address in an answer that is a decoy's is nobody's, and left out.
        """
        named = (
            [client.address(partner, self.round) for partner in answer.partners]
            for answer in self.answers[group]
        )
        return [
            tuple(self.whose[address] for address in listed if address not in self.decoys)
            for listed in named
        ]

    def table(self, group: int) -> list[dict[str, Any]]:
        """Return one row per person, for a data frame: name, names of partners, numbers."""
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
            (group.name, f"{len(tickets):,}", rounded_up(promise.epsilon), f"{promise.delta:.3g}")
            for group, tickets, promise in zip(
                self.groups, self.tickets, self.guarantees, strict=True
            )
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
    """Run a round of the real roles in memory, and return everybody's answers.

    Args:
        plan: a plan of `coatcheck.plan`, or one `GroupPlan` per group.
        values: for each group, by its name or in the order of the plan, one row per person: an
            array, a list, or a table of pandas, polars or GeoPandas.
        task: the task to compute; by default that of the plan.
        notes: for each group one note per person, if the task reads notes.
        clamp: whether to move values outside the domain to its boundary.
        entropy: a source, or the seed of one that repeats; seals are fresh either way.
        suite: the cipher suite for reports and answers.
        shufflers: the length of the cascade; with several, a group needs more people than its
            minimum.
        name: the name of the round.
        prior: public knowledge of where people are, for a learned decoder: one for all groups, or
            one for each by its name. A prior made of the very values is rejected.
    """
    groups = tuple(plan)
    work: tasks.Task | None = task or getattr(plan, "task", None)
    if work is None:
        raise Misuse("`task` is missing: pass it here, or to `plan`")
    tables = [
        read_people(rows, group.randomizer.domain)
        for group, rows in zip(groups, _by_group(groups, values), strict=True)
    ]
    people = [table.rows for table in tables]
    written = notes or [[b""] * len(rows) for rows in people]
    if [len(texts) for texts in written] != [len(rows) for rows in people]:
        raise Misuse("`notes` must have one note per person for each group")
    priors = dict.fromkeys((g.name for g in groups), prior) if isinstance(prior, Prior) else prior
    for group, rows in zip(groups, people, strict=True):
        if priors and (own := priors.get(group.name)) is not None:
            own.check_not(rows)
    draws = source(entropy)
    kind = suite_named(suite)
    keys = RoleKeys.draw(suite=kind, shufflers=shufflers, entropy=draws)
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
            invitation.join(value, ledger=None, entropy=draws, note=note, clamp=clamp)
            for value, note in zip(rows, texts, strict=True)
        )
        for invitation, rows, texts in zip(invitations, people, written, strict=True)
    )
    uploads = tuple(ticket.upload for group in tickets for ticket in group)
    traps = [ticket.registrations for group in tickets for ticket in group]
    batch = shuffle_uploads(
        uploads, round_, keys=keys.shufflers, entropy=draws, registrations=traps
    )
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
    """Return everybody's values in the order of the groups."""
    names = [group.name for group in groups]
    if isinstance(values, Mapping):
        if set(values) != set(names):
            raise Misuse(
                f"`values` must name the groups of the plan, {names}, not {sorted(values)}"
            )
        return [values[name] for name in names]
    if len(values) != len(names):
        raise Misuse(f"`values` must have one entry for each of {names}, got {len(values)}")
    return values


def shuffle_uploads(
    uploads: Iterable[bytes],
    round_: Round,
    *,
    keys: Iterable[KeyPairs],
    entropy: Entropy,
    registrations: Iterable[Sequence[bytes]] = (),
) -> bytes:
    """Pass uploads and trap registrations through the shufflers; return the last one's batch."""
    batch, received = b"", [list(uploads), *zip(*registrations, strict=True)]
    for hop, own in enumerate(keys):
        shuffler = Shuffler(round_, keys=own, state=fresh_state(entropy, simulated=True))
        for raw in received[hop]:
            shuffler.receive(raw, now=round_.terms.opens)
        shuffler.accept(batch) if hop else shuffler.close(now=round_.terms.closes)
        batch = shuffler.release()
    return batch


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)


@dataclass(frozen=True)
class View:
    """What an adversary knows after a round.

    Attributes:
        reports: for each group the opened reports in the order of the batch; empty for an onlooker.
        addresses: for each group the addresses in the order of the batch, or of the board for an
            onlooker.
        linked: rows of `reports` with a known owner, as (group, row) to person.
        exposed: the addresses that the corrupted people's answers gave away.
    """

    reports: tuple[NDArray[np.int64], ...]
    addresses: tuple[tuple[bytes, ...], ...]
    linked: dict[tuple[int, int], tuple[int, int]]
    exposed: frozenset[bytes]


def view(outcome: Outcome, role: str, *, corrupted: Sequence[tuple[int, int]] = ()) -> View:
    """Return what the `server` (with corrupted people, if any) or an `onlooker` sees."""
    if role == "onlooker":
        board = outcome.bulletin.entries
        return View(
            (), tuple(tuple(entry[:16] for entry in group) for group in board), {}, frozenset()
        )
    if role != "server":
        raise Misuse(f"`role` must be server or onlooker, not {role!r}")
    server = Server(outcome.round, keys=outcome.keys.server, task=outcome.task)
    opened = server.open(Batch.decode(outcome.batch, outcome.round))
    addresses = tuple(tuple(split_rows(group.addresses)) for group in opened)
    corrupted_by_address = {
        address: (g, row) for g, row in corrupted for address in outcome.tickets[g][row].addresses
    }
    linked = {
        (group, row): corrupted_by_address[address]
        for group, listed in enumerate(addresses)
        for row, address in enumerate(listed)
        if address in corrupted_by_address
    }
    exposed = frozenset(
        client.address(partner, outcome.round)
        for g, row in corrupted
        for partner in outcome.answers[g][row].partners
    )
    return View(tuple(group.reports for group in opened), addresses, linked, exposed)
