"""The browser client in a real round with the Python roles: same bytes, same refusals."""

import json
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from coatcheck.accounting.guarantee import Disclosure, rounded_up
from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded
from coatcheck.errors import Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import (
    SignedTerms,
    countersign,
    propose,
    verify_signatures,
    write_signed,
)
from coatcheck.protocol.board import Board
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.log import verification
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.outcomes import outcome_due
from coatcheck.protocol.settling.candidates import disclosure
from coatcheck.protocol.terms import CLASSICAL, Round, SettleTerms, suite_named
from coatcheck.protocol.ticket import Ticket, read_ticket, write_ticket
from coatcheck.protocol.wire.bulletins import ANSWERED, Bulletin
from coatcheck.randomizers import BoundedResponse, MinkowskiResponse, Randomizer, SphereResponse
from coatcheck.simulation.round import RoleKeys
from coatcheck.tasks.matching import LeastCostMatching
from support.endings import ENDS, shown
from support.endings import SMALL as CHARGED
from support.rounds import CLOSES, OPENS, SQUARE, SmallRound
from support.settling import with_candidates
from world.web.browser import Refusal, ask


def offer(small: SmallRound, group: str = "riders", **changed: Any) -> dict[str, Any]:
    """Return what a person knows before joining."""
    return {
        "signed": json.loads(write_signed(small.signed)),
        "group": group,
        "trusted": small.roles.trusted.plain(),
        "limit": {"epsilon": 10.0, "delta": small.delta},
        "now": OPENS,
        **changed,
    }


def answered(small: SmallRound, tickets: list[Ticket]) -> Board:
    """Shuffle, answer and publish."""
    board = small.board()
    board.publish(small.server().answer(small.batch(tickets)), small.round)
    return board


@pytest.mark.parametrize(
    ("suite", "shufflers"), [("x25519", 1), ("x25519", 3), ("mlkem768-x25519", 2)]
)
def test_a_person_joins_from_the_browser(suite: str, shufflers: int) -> None:
    """An upload made in the browser is accepted, answered, and its answer opens on both sides."""
    small = SmallRound(suite=suite, shufflers=shufflers, note_size=5)
    joined = ask("join", value=[0.25, 0.75], **offer(small))
    ticket = read_ticket(joined["ticket"].encode())
    assert ticket.keys.address.hex() == joined["address"]
    shuffler = small.shuffler()
    receipt = shuffler.receive(ticket.upload, now=OPENS)
    document, expected = joined["ticket"], ticket
    for hop in range(1, shufflers):
        word = small.shuffler(hop).receive(ticket.registrations[hop - 1], now=OPENS)
        document = ask("registered", ticket=document, receipt=word.hex(), **offer(small))
        expected = client.keep_registered(expected, word, small.round)
    document = ask("receipt", ticket=document, receipt=receipt.hex(), **offer(small))
    assert read_ticket(document.encode()) == client.keep_receipt(expected, receipt, small.round)
    board = answered(small, [ticket, *small.crowd(3)])
    raw = board.bulletin(small.round.digest)
    here = ask("collect", ticket=document, bulletin=raw.hex(), **offer(small))
    there = client.collect(ticket, verification.verify_bulletin(raw, small.round))
    assert here["values"] == list(there.values)
    assert len(here["values"]) == 2


def test_both_clients_count_the_reports_of_the_minimum_crowd() -> None:
    """An answered heading needs three reports of each of three people; eight are too few."""
    small = SmallRound(minimum=3, decoys=2, task=LeastCostMatching(groups=("riders", "drivers")))
    tickets = small.crowd(3)
    raw = answered(small, tickets).bulletin(small.round.digest)
    shown = Bulletin.decode(raw, small.round)
    entries = [list(shown.entries[0][1:]), list(shown.entries[1])]
    tallies = (shown.heading.tallies[0].drop("malformed"), shown.heading.tallies[1])
    short = Bulletin.compose(
        entries, ANSWERED, small.round.digest, tallies, shown.heading.roots
    ).signed(small.roles.server.signing.sign)
    ticket = write_ticket(tickets[1]).decode()
    with pytest.raises(Refusal, match="fewer reports than its minimum crowd"):
        ask("collect", ticket=ticket, bulletin=short.encode().hex(), **offer(small))
    with pytest.raises(Refused, match="fewer reports than its minimum crowd"):
        client.collect(tickets[1], verification.verify_bulletin(short.encode(), small.round))
    assert ask("collect", ticket=ticket, bulletin=raw.hex(), **offer(small))["partners"]


@pytest.mark.parametrize("shufflers", [1, 2])
def test_a_person_joins_from_the_browser_with_decoys(shufflers: int) -> None:
    """All reports of the browser's upload are answered, under the keys that Python derives."""
    task = LeastCostMatching(groups=("riders", "drivers"))
    small = SmallRound(minimum=3, shufflers=shufflers, decoys=2, task=task)
    joined = ask("join", value=[0.25, 0.75], **offer(small))
    ticket = read_ticket(joined["ticket"].encode())
    assert ticket.keys.address.hex() == joined["address"]
    assert read_ticket(write_ticket(ticket)) == ticket
    raw = answered(small, [ticket, *small.crowd(6)]).bulletin(small.round.digest)
    bulletin = verification.verify_bulletin(raw, small.round)
    for address in ticket.addresses:
        assert bulletin.find(address, ticket.group) is not None
    here = ask("collect", ticket=joined["ticket"], bulletin=raw.hex(), **offer(small))
    there = client.collect(ticket, bulletin)
    assert here["partners"] == [partner.contact.hex() for partner in there.partners]
    decoys = client.decoy_answers(ticket, bulletin)
    assert here["decoys"] == [
        [p.contact.hex() for p in shown.partners] for shown in decoys if shown
    ]
    assert len(here["decoys"]) == 2


def test_letters_go_both_ways() -> None:
    """Python and the browser read each other's letters once, and refuse what is altered."""
    small = SmallRound()
    joined = ask("join", value=[0.5, 0.5], **offer(small))
    ticket, other = read_ticket(joined["ticket"].encode()), small.join(1)
    board = answered(small, [ticket, other, *small.crowd(2)])
    wrote = ask(
        "write",
        ticket=joined["ticket"],
        body="at the blue door – 5 min",
        to=other.keys.contact_raw.hex(),
        **offer(small),
    )
    posting = bytes.fromhex(wrote["posting"])
    board.post(posting, small.round)
    inbox = client.read(other, board.letters(small.round.digest), small.round)
    assert [letter.body.decode() for letter in inbox.letters] == ["at the blue door – 5 min"]
    assert inbox.letters[0].sender.address == ticket.keys.address
    reply, _ = client.write(
        other, "coming, né?".encode(), to=ticket.keys.contact_raw, round_=small.round
    )
    board.post(reply, small.round)
    altered = reply[:-1] + bytes((reply[-1] ^ 1,))
    postings = [raw.hex() for raw in [*board.letters(small.round.digest), altered, reply]]
    got = ask("read", ticket=wrote["ticket"], postings=postings, **offer(small))
    assert got["bodies"] == ["coming, né?"]
    assert got["refused"] == 2
    again = ask("read", ticket=got["ticket"], postings=[reply.hex()], **offer(small))
    assert (again["bodies"], again["refused"]) == ([], 1)
    assert read_ticket(again["ticket"].encode()).seen == ((other.keys.address, 0),)


CITY = Box.geographic(south=31.0, west=121.0, north=31.5, east=122.0)
DISK = Ball(radius=130.0, p=2, dimension=2)


@pytest.mark.parametrize(
    "randomizer",
    [
        BoundedResponse(domain=CITY, epsilon=4.0, radius=0.1),
        MinkowskiResponse(domain=DISK, epsilon=4.0, radius=0.3),
        SphereResponse(domain=DISK, epsilon=4.0, size=64, closest=5, turns=8),
    ],
    ids=["bounded", "minkowski on a ball", "sphere"],
)
def test_a_match_found_in_python_is_read_in_the_browser(randomizer: Randomizer) -> None:
    """A rider in the browser learns the driver's keys, which Python assigned."""
    entropy, suite = seeded(5), suite_named("x25519")
    task = LeastCostMatching(groups=("riders", "drivers"))
    drafts = [
        GroupPlan(name=name, randomizer=randomizer, minimum=3, delta=1e-3) for name in task.groups
    ]
    small = SmallRound()
    small.roles = RoleKeys.draw(suite=suite, shufflers=1, entropy=entropy)
    small.signed = small.roles.agree(drafts, task=task, name="noon", suite=suite)
    small.round = verify_signatures(small.signed)
    small.task = task  # a real task instead of the test's
    small.invitations = tuple(small.invite(group) for group in task.groups)
    joined = ask("join", value=[31.2, 121.4], **offer(small))
    ticket = read_ticket(joined["ticket"].encode())
    tickets = [ticket, *(small.join(g, (31.3, 121.5)) for g in (0, 0, 1, 1, 1))]
    raw = answered(small, tickets).bulletin(small.round.digest)
    there = client.collect(ticket, verification.verify_bulletin(raw, small.round))
    here = ask("collect", ticket=joined["ticket"], bulletin=raw.hex(), **offer(small))
    assert here["partners"] == [partner.contact.hex() for partner in there.partners]
    assert len(here["partners"]) == 1


def _document(small: SmallRound, old: str, new: str) -> dict[str, Any]:
    signed = json.loads(write_signed(small.signed))
    assert old in signed["document"]
    return {**signed, "document": signed["document"].replace(old, new, 1)}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"now": CLOSES * 10}, "not open at this time"),
        ({"trusted": {}}, "not one you trust"),
        ({"limit": {"epsilon": 0.01, "delta": 1e-3}}, "wait for a larger crowd"),
        ({"limit": {"epsilon": 10, "delta": 1e-9}}, "your limit is"),
        ({"group": "pilots"}, "has no group pilots"),
    ],
)
def test_terms_that_a_person_would_not_accept(changed: dict[str, Any], sentence: str) -> None:
    """Nothing leaves the browser when the terms are not good enough, and a sentence says why."""
    with pytest.raises(Refusal, match=sentence):
        ask("join", value=[0.5, 0.5], **offer(SmallRound(), **changed))


def test_tampered_terms_are_refused() -> None:
    """A changed crowd, a doubled field and a missing signature are each refused in words."""
    small = SmallRound(shufflers=2)
    forged = _document(small, '"minimum": 2', '"minimum": 9')
    with pytest.raises(Refusal, match="signature of server is not valid"):
        ask("join", value=[0.5, 0.5], **offer(small, signed=forged))
    doubled = _document(small, '"minimum": 2', '"minimum": 2, "minimum": 2')
    with pytest.raises(Refusal, match="minimum is repeated"):
        ask("join", value=[0.5, 0.5], **offer(small, signed=doubled))
    unsigned = json.loads(write_signed(small.signed))
    unsigned["shufflers"][1] = None
    with pytest.raises(Refusal, match="not every shuffler has signed"):
        ask("join", value=[0.5, 0.5], **offer(small, signed=unsigned))


def test_a_promise_that_the_crowd_does_not_give_is_refused() -> None:
    """Terms signed by everybody but promising too much fail the browser's own arithmetic."""
    small = SmallRound(minimum=50)
    terms = small.round.terms
    group = terms.groups[0]
    better = msgspec.structs.replace(group.promise, epsilon=group.promise.epsilon * 0.8)
    groups = (msgspec.structs.replace(group, promise=better), *terms.groups[1:])
    signed = _signed_anew(small, msgspec.structs.replace(terms, groups=groups))
    ask("join", value=[0.5, 0.5], **offer(small))
    with pytest.raises(Refusal, match="gives only"):
        ask("join", value=[0.5, 0.5], **offer(small, signed=json.loads(write_signed(signed))))


def test_the_chance_of_a_miscount_is_not_the_shuffles() -> None:
    """A cascade whose traps take more of δ than the promise allowed for is refused."""
    small = SmallRound(minimum=50, shufflers=2)
    ask("join", value=[0.5, 0.5], **offer(small))
    signed = _signed_anew(small, msgspec.structs.replace(small.round.terms, trap_delta=0.3999))
    with pytest.raises(Refusal, match="gives only"):
        ask("join", value=[0.5, 0.5], **offer(small, signed=json.loads(write_signed(signed))))


def _signed_anew(small: SmallRound, terms: Any) -> SignedTerms:
    signed = propose(terms, keys=small.roles.server)
    for keys in small.roles.shufflers:
        signed = countersign(signed, keys=keys, pledged={})
    return signed


def test_a_bulletin_is_checked_before_it_is_read() -> None:
    """One flipped bit in the heading, in an entry or at the end is refused."""
    small = SmallRound()
    joined = ask("join", value=[0.5, 0.5], **offer(small))
    ticket = read_ticket(joined["ticket"].encode())
    raw = answered(small, [ticket, *small.crowd(2)]).bulletin(small.round.digest)
    for place in (1, 40, len(raw) - 1):
        bad = raw[:place] + bytes((raw[place] ^ 1,)) + raw[place + 1 :]
        with pytest.raises(Refusal):
            ask("collect", ticket=joined["ticket"], bulletin=bad.hex(), **offer(small))
    other = write_ticket(replace_seed(ticket)).decode()
    with pytest.raises(Refusal, match="is not on the board"):
        ask("collect", ticket=other, bulletin=raw.hex(), **offer(small))


def replace_seed(ticket: Ticket) -> Ticket:
    """Return the ticket of somebody else."""
    return msgspec.structs.replace(ticket, seed=bytes(32))


def test_the_boards_log_is_followed() -> None:
    """The bulletin is under the checkpoint, later ones continue it, and equivocation is refused."""
    small = SmallRound()
    tickets = small.crowd(2)
    board, other = answered(small, tickets), answered(small, tickets[:3] + small.crowd(1))
    first = _followed(small, board, since=0)
    posting, _ = client.write(tickets[0], b"hi", to=tickets[1].keys.contact_raw, round_=small.round)
    board.post(posting, small.round)
    later = _followed(small, board, since=first["size"], before=first)
    assert (first["size"], later["size"]) == (2, 3)
    with pytest.raises(Refusal, match="does not continue the one"):
        _followed(small, other, since=0, before=first)
    with pytest.raises(Refusal, match="not under the signed root"):
        _followed(small, board, since=0, shown=other)


def _followed(
    small: SmallRound,
    board: Board,
    *,
    since: int,
    before: dict[str, Any] | None = None,
    shown: Board | None = None,
) -> Any:
    """Follow a board from a checkpoint on, with the bulletin that it, or another one, shows."""
    path = board.inclusion(board.place(small.round.digest))
    proof = {
        "checkpoint": board.checkpoint().hex(),
        "place": board.place(small.round.digest),
        "path": [step.hex() for step in path],
        "since": [step.hex() for step in board.consistency(since)] if since else [],
    }
    raw = (shown or board).bulletin(small.round.digest)
    return ask("follow", bulletin=raw.hex(), proof=proof, before=before, **offer(small))


def test_the_browsers_ledger_refuses_in_time() -> None:
    """Rounds add up to the limit; the same bytes are free, a second report of a round is not."""
    stages = [SmallRound(name=f"round {n}", seed=n) for n in range(3)]
    tickets = [write_ticket(small.join(0)).decode() for small in stages]
    again = write_ticket(stages[0].join(0)).decode()
    cost = {"epsilon": 1.0, "delta": 1e-4, "local": 2.0, "round": {"endDue": 9}}
    first, same, other, second, third = ask(
        "ledger",
        limit={"epsilon": 2.0, "delta": 1e-2},
        tickets=[tickets[0], tickets[0], again, tickets[1], tickets[2]],
        costs=[cost] * 5,
    )
    assert (first, same, second) == (1.0, 1.0, 2.0)
    assert "joined this round before" in other
    assert "nothing was sent" in third


@pytest.mark.parametrize("kind", sorted(ENDS))
def test_the_browsers_ledger_charges_what_happened(kind: str) -> None:
    """The promise for a round that was answered with its crowd, the local ε for any other end.

    Without an end it is the promise, and from the deadline on the local ε at worst.
    """
    raw = shown(kind).encode()
    ticket = write_ticket(CHARGED.join(0)).decode()
    times = [0, outcome_due(CHARGED.round) - 1, outcome_due(CHARGED.round)]
    options = {"ticket": ticket, "times": times, **offer(CHARGED)}
    charged = ask("charged", bulletin=raw.hex(), **options)
    local, promise = charged["local"], charged["epsilon"]
    own = CHARGED.invitations[0].guarantee.epsilon
    assert promise == pytest.approx(own, rel=0.01)
    assert local == pytest.approx(SQUARE.law.epsilon)
    assert charged["spent"] == (promise if kind == "answered" else local)
    assert charged["worst"] == [charged["spent"]] * 3
    assert charged["words"]
    pending = ask("charged", bulletin="", **options)
    assert pending["spent"] == promise
    assert pending["worst"] == [promise, promise, local]


def test_the_browser_says_what_letters_tell_as_python_does() -> None:
    """Candidates, cells and rings are the same; a limit below refuses, and 0 means no letters."""
    settling = SettleTerms(cell=0.1, rings=(0.2, 0.45), asks=(1,))
    terms = with_candidates(CHARGED, settling, most=3).terms
    here = disclosure(Round(terms, b""), 0, axes=2)
    letters = ask("disclosure", terms=json.loads(msgspec.json.encode(terms)), axes=2)
    assert letters["letters"] == {
        "candidates": here.candidates,
        "cells": here.cells,
        "rings": here.rings,
        "chooses": here.chooses,
    }
    assert here == Disclosure(candidates=6, cells=69, rings=2, chooses=True)
    promise = replace(CHARGED.invitations[0].guarantee, letters=here)
    assert letters["text"] == promise.disclosure.replace(
        f"local ε = {rounded_up(promise.local_epsilon)}", "local ε = 1.000"
    )
    assert "names: do not settle" in letters["unknown"]
    assert letters["silent"] is None
    assert "limit of 0 `disclosures`" in letters["entered"]
    assert letters["allowed"] is None


def test_no_event_lowers_what_a_browser_has_spent() -> None:
    """3,000 random books of rounds, ends and late answers; the worst never exceeds the limit.

    Unless a round ended badly: its local ε may pass the limit, and nothing more is entered.
    """
    draw = random.Random(3_030)  # noqa: S311 - chooses test data

    def event(now: int) -> dict[str, object]:
        cost = {
            "epsilon": draw.choice([0.1, 0.5, 1.0]),
            "delta": 1e-6,
            "local": draw.choice([0.3, 2.0, 4.0]),
            "round": {"endDue": now + 3},
        }
        name = f"{now if draw.random() < 0.6 else draw.randrange(now + 1):02x}"
        answered = draw.random() < 0.5
        return {"round": name, "now": now} | draw.choice([{"cost": cost}, {"answered": answered}])

    books = [[event(now) for now in range(12)] for _ in range(3_000)]
    limit = {"epsilon": 3.0, "delta": 1e-2}
    late = 0
    for events, readings in zip(books, ask("books", limit=limit, books=books), strict=True):
        bad = any(event.get("answered") is False for event in events)
        for (spent, worst), (after, _) in pairwise(readings):
            assert all(x <= y for x, y in zip(spent, after, strict=True))
            assert all(x <= y for x, y in zip(spent, worst, strict=True))
            late += worst > spent
            assert bad or spent[0] <= limit["epsilon"]
    assert late > 1_000


@pytest.mark.parametrize("suite", ["x25519", "mlkem768-x25519"])
def test_one_seed_gives_the_same_keys_on_both_sides(suite: str) -> None:
    """Contact and address of a seed are equal in Python and in the browser."""
    keys = KeyPairs(suite_named(suite), bytes(range(32)))
    here = ask("pairs", suite=suite, seed=bytes(range(32)).hex())
    assert here == {"contact": keys.contact_raw.hex(), "address": keys.address.hex()}


def test_hostile_keys_are_refused() -> None:
    """Keys of small order or out of canonical form are refused by the browser, too."""
    prime = 2**255 - 19
    bad = [n.to_bytes(32, "little").hex() for n in (0, 1, prime - 1, prime, prime + 1)]
    assert all(ask("sealing", suite=CLASSICAL.name, keys=bad))
    assert all(ask("verifying", keys=bad))
    good = KeyPairs(CLASSICAL, bytes(32))
    assert ask("sealing", suite=CLASSICAL.name, keys=[good.opening.public_raw.hex()]) == [None]
    assert ask("verifying", keys=[good.signing.public_raw.hex()]) == [None]


def test_paths_of_the_tree_lead_to_its_root() -> None:
    """Every inclusion proof of a Python tree holds in the browser, and not for another leaf."""
    proofs = []
    for size in (1, 2, 3, 7, 8):
        tree = Tree([bytes((n, 7)) for n in range(size)])
        for place in range(size):
            path = [step.hex() for step in tree.inclusion(place)]
            proof = {"place": place, "size": size, "root": tree.root().hex(), "path": path}
            proofs += [{"leaf": bytes((place, 7)).hex(), **proof}, {"leaf": "aa", **proof}]
    verdicts = ask("proofs", proofs=proofs)
    assert verdicts[::2] == [None] * (len(proofs) // 2)
    assert all("not under the signed root" in verdict for verdict in verdicts[1::2])
