"""Rounds of two or three people whose every message is recorded by who sees it.

The roles are the shipped objects; only seals and coins are those of `ideal_seals`. A `Play` is one
run: people (`ada`, `ben`, ...) hold reports, steps are taken in a given order, and `Play.view` is
what a coalition sees of it. `Stage.views` runs all orders of the honest shuffler and all ways to
deal out the one-time keys, so two collections that it returns are equal exactly if the coalition
sees the same with the same chance.
"""

import io
import itertools
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import msgspec

from coatcheck.domains import Box
from coatcheck.errors import Error
from coatcheck.protocol import client
from coatcheck.protocol.agreement import verify_signatures
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.envelope import Purpose, binding, seal
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.letters import read_notice
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.outcomes import due, outcome_due
from coatcheck.protocol.server import Server
from coatcheck.protocol.settling.candidates import Candidates, begin
from coatcheck.protocol.shuffler import Shuffler, ShufflerState
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.terms import SettleTerms, suite_named
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.messages import Answer, PayloadFormat, encode_report
from coatcheck.protocol.wire.uploads import Tally, Upload, content_id, items_of
from coatcheck.randomizers import GridResponse
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys
from coatcheck.tasks import Task
from support.ideal_seals import IdealSeals, Joining, Named, Sealed, coin, ideal
from support.rounds import check

CELLS = 3
LINE = GridResponse(domain=Box(lo=(0.0,), hi=(1.0,)), epsilon=2.0, cells=(CELLS,), decode="raw")
PLACES = {"ada": 0.1, "ben": 0.9, "cem": 0.5, "cyd": 0.2, "dee": 0.8}
READER = "reader"
Step = tuple[str, ...]
View = tuple[tuple[object, ...], frozenset[object]]


class Report(NamedTuple):
    """A report before anybody holds it: the cell that the noise shows, and the seed of its keys."""

    cell: int
    seed: str


class Joined(NamedTuple):
    """People's tickets, the seals that they made, and the seeds of their decoys."""

    tickets: dict[str, Ticket]
    table: dict[bytes, Sealed]
    decoys: dict[tuple[bytes, int], bytes]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Terms and keys, and which hop is honest.

    Attributes:
        people: the group of each person.
        honest: the hop of the honest shuffler; of the server, if it is the number of shufflers.
        traps: the `trap_delta` of a cascade.
        decoys: how many each person hands in.
        relayed: whether people reach the roles through a relay.
        settle: the terms of settling, if people settle.
        values: the true value of each person. A report may show any cell, whoever hands it in.
    """

    people: Mapping[str, int]
    task: Task
    hops: int = 1
    minimum: int = 2
    honest: int = 0
    traps: float = 0.3
    decoys: int = 0
    relayed: bool = False
    settle: SettleTerms | None = None
    values: Mapping[str, float] = field(default_factory=lambda: PLACES)
    roles: RoleKeys = field(init=False)
    _joined: dict[object, "Joined"] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        suite = suite_named("x25519")
        roles = RoleKeys.draw(suite=suite, shufflers=self.hops, entropy=Named("roles"))
        object.__setattr__(self, "roles", roles)

    @property
    def delta(self) -> float:
        """The δ of the promise: little more than what traps need, so that ε is above 0."""
        return self.traps + 0.01 if self.hops > 1 else 0.01

    @cached_property
    def _signed(self) -> Any:
        groups = [
            GroupPlan(
                name=name,
                randomizer=LINE,
                minimum=self.minimum,
                delta=self.delta,
                decoys=self.decoys,
            )
            for name in self.task.groups
        ]
        traps = self.traps if self.hops > 1 else None
        suite = suite_named("x25519")
        settling = {} if self.settle is None else {"settle": self.settle}
        return self.roles.agree(
            groups, task=self.task, name="r", suite=suite, trap_delta=traps, **settling
        )

    @cached_property
    def round(self) -> Any:
        """The round of the terms."""
        return verify_signatures(self._signed)

    @cached_property
    def invitations(self) -> list[client.Invitation]:
        """What a member of each group agrees to."""
        return [
            examine(
                self._signed,
                group=group,
                trusted=self.roles.trusted,
                limit=Limit(epsilon=10.0, delta=self.delta),
                now=OPENS,
                simulated=True,
            )
            for group in self.task.groups
        ]

    def joined(self, reports: Mapping[str, Report]) -> "Joined":
        """Let people join with reports; return their tickets, and what they sealed."""
        held = tuple(sorted(reports.items()))
        if held not in self._joined:
            seals = IdealSeals(cut=self.honest, last=self.hops)
            with ideal(seals):
                tickets = {person: self._join(person, report, seals) for person, report in held}
            self._joined[held] = Joined(tickets, seals.table, seals.decoys)
        tickets, table, decoys = self._joined[held]
        return Joined(dict(tickets), dict(table), dict(decoys))

    def _join(self, person: str, report: Report, seals: IdealSeals) -> Ticket:
        seals.owner = (person, report.seed)
        value = self.values[person]
        noise = _noise(value, report.cell)
        draws = Joining(person, noise=noise, seed=coin(report.seed, 32))
        invitation = self.invitations[self.people[person]]
        return invitation.join([value], ledger=None, entropy=draws)

    def play(self, reports: Mapping[str, Report], secret: bytes = b"") -> "Play":
        """Begin a run in which each person holds a report."""
        return Play(self, reports, secret or coin("secret", 32))

    def orders(self, play: "Play", *, most: int = 1_000_000) -> list[bytes]:
        """Return one secret for every order that the honest shuffler can give its items.

        A keyed hash with a secret key gives every order with the same chance; that is what the
        theorem assumes of BLAKE2b.
        """
        count = math.prod(math.factorial(len(items)) for items in play.arriving())
        found: dict[object, bytes] = {}
        for number in range(most):
            secret = coin(("secret", number), 32)
            found.setdefault(repr(play.order(secret)), secret)
            if len(found) == count:
                return list(found.values())
        raise AssertionError(f"the secret gives {len(found)} of {count} orders")

    def coupled(self, reports: Mapping[str, int], steps: Sequence[Step]) -> list[bytes]:
        """Return two secrets: the batch of one, and the other's after a swap, are in one order.

        A swap is undone by a second one. So if every pair of this kind shows the same two views
        before and after the swap, all orders together do, and one pair stands for each step that
        all orders would check.
        """
        release = ("release", str(self.honest))
        before, after = (
            self.play(self.held(held)).taken(steps[: steps.index(release)])
            for held in (reports, swapped(reports))
        )
        first = coin(("secret", 0), 32)
        wanted = before.texts(first)
        numbered = (coin(("secret", number), 32) for number in itertools.count())
        return [first, next(secret for secret in numbered if after.texts(secret) == wanted)]

    def views(
        self,
        reports: Mapping[str, int],
        steps: Sequence[Step],
        coalitions: Iterable[Collection[str]],
        *,
        deals: Iterable[Sequence[int]] | None = None,
        only: Sequence[bytes] = (),
    ) -> list[Counter[View]]:
        """Count the views of each coalition over all orders and all deals of keys.

        `reports` says which cell each person's report shows. `deals` permute the one-time keys of
        the reports, and `only` limits the secrets. A report's keys are named after its rank among
        the cells of its group, so that whoever holds it, it is the same report.
        """
        chosen = [frozenset(one) for one in coalitions]
        found = [Counter[View]() for _ in chosen]
        for deal in deals or [range(len(reports))]:
            held = self.held(reports, deal)
            secrets = only or self._orders_of(held, steps)
            for secret in secrets:
                play = self.play(held, secret).taken(steps)
                for coalition, counted in zip(chosen, found, strict=True):
                    counted[play.view(coalition)] += 1
        return found

    def held(self, reports: Mapping[str, int], deal: Sequence[int] = ()) -> dict[str, Report]:
        """Return the reports with their keys, dealt out in this order."""
        ranked = sorted(reports, key=lambda person: (self.people[person], reports[person]))
        return {
            person: Report(reports[person], f"seed {seed}")
            for person, seed in zip(ranked, deal or range(len(ranked)), strict=True)
        }

    def _orders_of(self, held: Mapping[str, Report], steps: Sequence[Step]) -> list[bytes]:
        """Return the secrets to try, given what arrives before the honest shuffler releases."""
        release = ("release", str(self.honest))
        if release not in steps:  # also if the server is the honest one
            return [coin("secret", 32)]
        before = self.play(held).taken(steps[: steps.index(release)])
        is_ready = before.shufflers[self.honest].phase is ShufflerPhase.CLOSED
        return self.orders(before) if is_ready else [coin("secret", 32)]


def swapped(reports: Mapping[str, int]) -> dict[str, int]:
    """Let Ada and Ben swap their reports."""
    return {**reports, "ada": reports["ben"], "ben": reports["ada"]}


class Play:
    """One run of a round, and who saw what of it."""

    def __init__(self, stage: Stage, reports: Mapping[str, Report], secret: bytes) -> None:
        self.stage, self.reports = stage, reports
        self.tickets, table, decoys = stage.joined(reports)
        self.seals = IdealSeals(cut=stage.honest, last=stage.hops, table=table, decoys=decoys)
        self.events: list[tuple[frozenset[str], object]] = []
        round_, roles = stage.round, stage.roles
        self.shufflers = [
            Shuffler(
                round_,
                keys=keys,
                state=ShufflerState(
                    bytearray(secret if hop == stage.honest else coin(("secret of", hop), 32))
                ),
            )
            for hop, keys in enumerate(roles.shufflers)
        ]
        self.server = Server(round_, keys=roles.server, task=stage.task)
        self.board = Board(sign=roles.board.signing.sign, check=check)
        self.board.log_terms(round_)
        self.batches: dict[int, bytes] = {}
        self.bulletin = b""
        self.now = OPENS
        self._states: dict[int, bytes] = {}
        self.answers = dict[str, Answer]()
        self.partners = Counter[str]()
        self._handles: dict[bytes, int] = {}
        for person, ticket in self.tickets.items():
            self.tell(person, what=msgspec.json.encode(ticket))

    def arriving(self) -> list[dict[bytes, bytes]]:
        """Return for each group the items, by id, that the honest shuffler is about to order."""
        shuffler, round_ = self.shufflers[self.stage.honest], self.stage.round
        groups: list[dict[bytes, bytes]] = [{} for _ in round_.terms.groups]
        if shuffler.hop:
            for group, items in Batch.decode(shuffler.state.incoming, round_).items_by_partition():
                groups[group] |= {content_id(item): item for item in items}
        else:
            for name, (group, body) in shuffler.state.held.items():
                groups[group] |= items_of(name, body, count=round_.items_each(group))
        return groups

    def order(self, secret: bytes) -> list[list[bytes]]:
        """Return the ids of each group's items in the order that a secret gives."""
        shuffler = self.shufflers[self.stage.honest]
        shuffler.state.secret[:] = secret
        rank = shuffler.peeler.rank
        return [
            sorted(items, key=partial(rank, group)) for group, items in enumerate(self.arriving())
        ]

    def texts(self, secret: bytes) -> list[list[bytes]]:
        """Return what is under the honest shuffler's layer, in the order that a secret gives."""
        groups = zip(self.order(secret), self.arriving(), strict=True)
        return [[self.text(items[name]) for name in order] for order, items in groups]

    def text(self, sealed: bytes) -> bytes:
        """Return what a seal hides; nothing if it is no seal of this run."""
        entry = self.seals.table.get(sealed)
        return entry.text if entry else b""

    # -- who sees what

    def tell(self, *seen_by: str, what: object) -> None:
        """Record that some parties see something."""
        self.events.append((frozenset(seen_by), what))

    def send(self, person: str, role: str, raw: object, *, also: Collection[str] = ()) -> None:
        """Record a request of a person: through a relay nobody sees both person and contents."""
        if self.stage.relayed:
            size = len(raw) if isinstance(raw, bytes) else 0  # requests have one size (S17.30)
            self.tell("network", "relay", what=(person, role, size))
            self.tell(role, *also, what=("relay", raw))
        else:
            self.tell("network", role, *also, what=(person, raw))

    def view(self, coalition: Collection[str]) -> View:
        """Return what a coalition sees, with everything that its keys open."""
        coalition = {*coalition, READER}
        seen = tuple(what for who, what in self.events if who & coalition)
        return seen, self.seals.opened(_bytes_in(seen), self._keys(coalition))

    def _keys(self, coalition: Collection[str]) -> set[bytes]:
        roles = self.stage.roles
        owners = {
            "server": roles.server.opening,
            **{f"shuffler {hop}": keys.opening for hop, keys in enumerate(roles.shufflers)},
            **{person: ticket.keys.opening for person, ticket in self.tickets.items()},
        }
        return {key.public_raw for name, key in owners.items() if name in coalition}

    # -- the steps

    def taken(self, steps: Iterable[Step]) -> "Play":
        """Take steps in order; one that a role refuses is an event that all parties may see.

        All may see what a role prints or logs, too: operators' logs go to many places.
        """
        with ideal(self.seals), _printed() as printed:
            for name, *rest in steps:
                call: Callable[..., None] = getattr(self, name)
                try:
                    call(*rest)
                except Error as error:
                    self.tell(READER, what=(name, tuple(rest), str(error)))
                if printed.tell():
                    self.tell(READER, what=printed.getvalue())
                    printed.seek(0)
                    printed.truncate()
                for shuffler in self.shufflers:
                    raw = msgspec.msgpack.encode(shuffler.state)
                    if self._states.get(shuffler.hop) != raw:
                        self._states[shuffler.hop] = raw
                        self.tell(f"shuffler {shuffler.hop}", what=raw)
        return self

    def register(self, person: str, hop: str) -> None:
        """Register a trap with a later shuffler."""
        raw = self.tickets[person].registrations[int(hop) - 1]
        self._receive(person, raw, self.shufflers[int(hop)])

    def upload(self, person: str) -> None:
        """Send the upload."""
        self._receive(person, self.tickets[person].upload, self.shufflers[0])

    def _receive(self, person: str, raw: bytes, shuffler: Shuffler) -> None:
        role = f"shuffler {shuffler.hop}"
        self.send(person, role, raw)
        self.send(person, role, shuffler.receive(raw, now=self.now))

    def close(self) -> None:
        """Close the round at the first shuffler."""
        self.now = CLOSES
        self.shufflers[0].close(now=self.now)

    def reopen(self) -> None:
        """Open the round again."""
        self.shufflers[0].reopen(now=self.now)

    def accept(self, hop: str) -> None:
        """Hand the batch of the shuffler before to this one."""
        self.shufflers[int(hop)].accept(self.batches.get(int(hop) - 1, b""))

    def release(self, hop: str) -> None:
        """Release the batch; the next role sees it."""
        at = int(hop)
        raw = self.batches[at] = self.shufflers[at].release()
        after = f"shuffler {at + 1}" if at + 1 < len(self.shufflers) else "server"
        self.tell("network", f"shuffler {at}", after, what=raw)

    def tamper(self, action: str, person: str = "", kind: str = "") -> None:
        """Let the first shuffler, in league with the server, change the batch that it hands on.

        It may `drop`, `repeat` or `alter` the `report` or the `trap` of a person, or `forge` an
        item. The model says which item is which; the shuffler would have to guess.
        """
        round_ = self.stage.round
        items = list(Batch.decode(self.batches[0], round_).items[0])
        if action == "forge":
            items.append(self._forged())
        else:
            item = self._item(person, kind)
            items.remove(item)
            altered = bytes((item[0] ^ 1,)) + item[1:]
            items += {"drop": [], "repeat": [item, item], "alter": [altered]}[action]
        batch = Batch.compose([[items]], [Tally(len(items))], digest=round_.digest)
        raw = self.batches[0] = batch.sign(self.stage.roles.shufflers[0].signing.sign)
        self.tell("network", "shuffler 0", "shuffler 1", what=raw)

    def _item(self, person: str, kind: str) -> bytes:
        """Return an item of a person as the first shuffler passes it on."""
        upload = Upload.decode(self.tickets[person].upload, self.stage.round)
        opened = [self.text(item) for item in upload.items(self.stage.round).values()]
        (item,) = (
            item for item in opened if (self.text(item) in self.seals.table) == (kind == "report")
        )
        return item

    def _forged(self) -> bytes:
        """Make an item for the second shuffler, with a report of no person under it."""
        round_, self.seals.owner = self.stage.round, ("nobody", "forged")
        keys = KeyPairs(round_.suite, coin("forged", 32))
        payload = PayloadFormat.between(LINE.low, LINE.high).encode((0,))
        text = encode_report(round_, group=0, contact=keys.contact_raw, payload=payload, note=b"")
        roles, digest = self.stage.roles, round_.digest
        bound = binding(Purpose.REPORT, digest=digest, group=0)
        inner = seal(text, to=roles.server.opening.public, bound=bound)
        bound = binding(Purpose.LAYER, digest=digest, group=0, hop=1)
        return seal(inner, to=roles.shufflers[1].opening.public, bound=bound)

    def forget(self, hop: str) -> None:
        """Erase a batch that the next role has."""
        self.shufflers[int(hop)].forget()

    def answer(self) -> None:
        """Let the server make the bulletin."""
        self.bulletin = self.server.answer(self.batches.get(len(self.shufflers) - 1, b""))
        opened = [(g.payloads.tobytes(), g.contacts.tobytes()) for g in self.server.opened]
        self.tell("server", what=(self.bulletin, tuple(opened)))

    def publish(self) -> None:
        """Show the outcome on the board."""
        place = self.board.publish(self.bulletin, self.stage.round)
        self.tell(READER, what=(self.bulletin, place, self.board.checkpoint()))

    def collect(self, person: str) -> None:
        """Read the whole bulletin and open one's own answer."""
        self.send(person, "board", b"bulletin")
        bulletin = verify_bulletin(self.bulletin, self.stage.round)
        with suppress(Error):
            self.answers[person] = client.collect(self.tickets[person], bulletin)
        self.tell(person, what=repr(self.answers.get(person)))

    def ask(self, person: str) -> None:
        """Ask the board for one's own entry alone."""
        self.send(person, "board", self.tickets[person].keys.address)

    def write(self, person: str) -> None:
        """Write a letter to the first partner of one's answer."""
        answer, round_ = self.answers[person], self.stage.round
        (partner, *_) = answer.partners
        raw, ticket = client.write(
            self.tickets[person], b"hello", to=partner.contact, round_=round_
        )
        self.tickets[person] = ticket
        self.send(person, "board", raw)
        self.tell(READER, what=(raw, self.board.post(raw, round_)))

    def read(self, person: str) -> None:
        """Read the letters to oneself."""
        round_ = self.stage.round
        inbox = client.read(self.tickets[person], self.board.letters(round_.digest), round_)
        self.tell(person, what=repr([(one.sender.raw, one.body) for one in inbox.letters]))

    def settle(self) -> None:
        """Let everybody settle from their true value, and decoys as nobody, all at one pace."""
        round_, settling = self.stage.round, list[tuple[str, Candidates]]()
        bulletin = verify_bulletin(self.bulletin, round_)
        for person, own in self.tickets.items():
            answers = (self.answers[person], *client.decoy_answers(own, bulletin))
            places = ([self.stage.values[person]], *(None for _ in own.decoys))
            tickets = (own, *own.decoy_tickets())
            for ticket, answer, place in zip(tickets, answers, places, strict=True):
                assert answer is not None
                begun = begin(ticket, place, round_=round_, now=0.0, axes=1)
                sizes = bulletin.heading.sizes
                side = Candidates(begun, answer, round_=round_, sizes=sizes)
                settling.append((person, side))
        while not all(side.machine.done for _, side in settling):
            before = len(self.board.letters(round_.digest))
            for person, side in settling:
                for posting in side.speak():
                    public = self._public(posting)
                    self.send(person, "board", public)
                    self.tell(READER, what=(public, self.board.post(posting, round_)))
            postings = self.board.letters(round_.digest)
            for _, side in settling:
                side.hear(postings[before:], read=len(postings))
        self.partners = Counter(person for person, side in settling for _ in side.partners)

    def _public(self, posting: bytes) -> object:
        """Return what a posting shows to those who cannot open it.

        A seal is ideal. The points of a notice are uniform, and a tag is pseudorandom to everybody
        but one candidate; so they show only which of them are equal. A signature is left out: it
        shows nothing that the notice does not.
        """
        notice = read_notice(posting, self.stage.round)
        if notice is None:
            return posting
        parts = [notice.body[at : at + 33] for at in range(2, len(notice.body), 33)]
        handles = [self._handles.setdefault(part, len(self._handles)) for part in parts]
        sizes = [len(part) for part in parts]
        return notice.sender.address, notice.counter, notice.body[:2], tuple(handles), tuple(sizes)

    # -- ends

    def abandon(self, hop: str) -> None:
        """Let an operator abandon the round, and tell the board and the next role."""
        self._ended(int(hop), self.shufflers[int(hop)].abandon())

    def expire(self, hop: str) -> None:
        """Let a shuffler's time run out."""
        self.now = due(self.stage.round, int(hop) + 1)
        self._ended(int(hop), self.shufflers[int(hop)].expire(now=self.now))

    def _ended(self, hop: int, outcome: bytes) -> None:
        self.bulletin = outcome
        with suppress(Error):
            self.board.publish(outcome, self.stage.round)
        self.tell(READER, what=outcome)
        is_last = hop + 1 == len(self.shufflers)
        with suppress(Error):
            (self.server.hear if is_last else self.shufflers[hop + 1].hear)(outcome)
        self.shufflers[hop].tell()

    def give_up(self) -> None:
        """Let the server's time run out."""
        self.now = outcome_due(self.stage.round)
        self.bulletin = self.server.abandon(now=self.now)
        self.tell("server", what=self.bulletin)

    def meet_partner(self, person: str) -> None:
        """Let a person learn who the first partner of their answer is."""
        contact = self.answers[person].partners[0].contact
        (partner,) = (
            name for name, ticket in self.tickets.items() if ticket.keys.contact_raw == contact
        )
        self.tell("names", what=(partner, contact))


@contextmanager
def _printed() -> Iterator[io.StringIO]:
    """Collect what is printed or logged."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, level = logging.StreamHandler(stream), root.level
    root.addHandler(handler)
    root.setLevel(logging.NOTSET + 1)
    try:
        with redirect_stdout(stream), redirect_stderr(stream):
            yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def _noise(value: float, cell: int) -> Named:
    """Return coins with which the mechanism draws this cell for a person with this value."""
    return Named("noise", value, cell, _noise_number(value, cell))


@cache
def _noise_number(value: float, cell: int) -> int:
    return next(
        number
        for number in itertools.count()
        if LINE.randomize_one([value], Named("noise", value, cell, number)) == (cell,)
    )


def _bytes_in(what: object) -> Iterable[bytes]:
    if isinstance(what, bytes):
        yield what
    elif isinstance(what, tuple):
        for part in what:
            yield from _bytes_in(part)
