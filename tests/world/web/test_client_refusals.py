"""What the browser client refuses as the Python one does: trust, exposure, limits, loose terms."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.errors import Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SignedTerms, Trust, write_signed
from coatcheck.protocol.client import Limit
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.ticket import read_ticket
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.simulation.round import RoleKeys
from coatcheck.tasks import Task
from coatcheck.tasks.learning import Learning
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from support.rounds import OPENS, SmallRound, posting_counted, signed_blindly
from world.web.browser import Refusal, ask

SQUARE = Box(lo=(0.0, 0.0), hi=(1.0, 1.0))


def look(signed: SignedTerms, trust: Trust, **changed: Any) -> Any:
    """Examine terms in the browser, and join."""
    usual = {
        "signed": json.loads(write_signed(signed)),
        "group": "riders",
        "trusted": trust.plain(),
        "limit": {"epsilon": 10.0, "delta": 1e-3},
        "now": OPENS,
    }
    return ask("join", value=[0.5, 0.5], **{**usual, **changed})


def altered(small: SmallRound, change: Callable[[dict[str, Any]], object]) -> SignedTerms:
    """Let everybody sign changed terms."""
    plain = json.loads(small.round.document)
    change(plain)
    roles = small.roles
    document = json.dumps(plain).encode()
    return signed_blindly(document, server=roles.server, shufflers=roles.shufflers)


def test_a_key_is_trusted_in_its_role_only() -> None:
    """The board's key is no shuffler's, and a plain list of keys says too little."""
    small = SmallRound()
    roles = small.roles
    swapped = Trust.of(
        [
            ("server", [roles.server.signing.public_raw]),
            ("shuffler", [roles.board.signing.public_raw]),
            ("board", [roles.shufflers[0].signing.public_raw]),
        ]
    )
    with pytest.raises(Refusal, match="not one you trust as a shuffler"):
        look(small.signed, swapped)
    keys = [keys.signing.public_raw for keys in (roles.server, roles.board, *roles.shufflers)]
    with pytest.raises(Refusal, match="say in which role"):
        look(small.signed, swapped, trusted=[key.hex() for key in keys])
    assert look(small.signed, Trust(anywhere=frozenset(keys)))


def test_a_cascade_without_a_shuffler_that_is_relied_on_is_refused() -> None:
    """A person who relies on two shufflers joins no round with only one of them."""
    small = SmallRound(shufflers=2)
    plain = json.loads(small.round.document)
    plain["shufflers"], plain["trap_delta"] = plain["shufflers"][1:], 0
    document, roles = json.dumps(plain).encode(), small.roles
    signed = signed_blindly(document, server=roles.server, shufflers=roles.shufflers[1:])
    with pytest.raises(Refusal, match="omit shuffler 1 of the 2"):
        look(signed, roles.trusted)


@pytest.mark.parametrize("hop", [0, 1])
def test_a_later_shuffler_that_admits_anybody_is_refused(hop: int) -> None:
    """Its traps would count made-up people; at the first shuffler it is a choice."""
    small = SmallRound(shufflers=2)
    plain = json.loads(small.round.document)
    plain["shufflers"][hop]["admission"] = {"kind": "open"}
    document, roles = json.dumps(plain).encode(), small.roles
    signed = signed_blindly(document, server=roles.server, shufflers=roles.shufflers)
    with pytest.raises(Refusal, match="admits anybody" if hop else "the round costs"):
        look(signed, roles.trusted)


@pytest.mark.parametrize(
    "change",
    [
        lambda plain: plain.pop("coatcheck"),
        lambda plain: plain.pop("suite"),
        lambda plain: plain.update(toString=1),
        lambda plain: plain["task"]["params"].update(name="learning"),
        lambda plain: plain["server"].update(verifying=plain["server"]["verifying"] + "\n"),
        lambda plain: plain["server"].update(verifying=plain["server"]["verifying"].upper()),
        lambda plain: plain["groups"][0]["randomizer"]["domain"].pop("steps"),
        lambda plain: plain["groups"][0]["randomizer"]["domain"].pop("degrees"),
        lambda plain: plain["groups"][0]["randomizer"].pop("inset"),
        lambda plain: plain["groups"][0]["randomizer"].update(surprise=1),
    ],
)
def test_loose_terms_are_refused(change: Callable[[dict[str, Any]], object]) -> None:
    """A missing, unknown or differently spelled field is refused, whoever signed."""
    small = SmallRound()
    with pytest.raises(Refusal, match="terms"):
        look(altered(small, change), small.roles.trusted)


def test_the_limit_is_kept_to_the_last_digit() -> None:
    """A round that costs a float more than the person allows is refused."""
    small = SmallRound(minimum=50)
    cost = look(small.signed, small.roles.trusted)["epsilon"]
    limit = {"epsilon": cost, "delta": 1e-3}
    assert look(small.signed, small.roles.trusted, limit=limit)
    with pytest.raises(Refusal, match="your limit is"):
        look(
            small.signed, small.roles.trusted, limit={**limit, "epsilon": math.nextafter(cost, 0.0)}
        )


@pytest.mark.parametrize(
    "task",
    [
        LeastCostMatching(groups=("riders", "drivers"), capacity=(1, 3)),
        Neighbours(radius=0.1, limit=4, groups=("riders",)),
        Learning(dimension=2, groups=("riders",)),
    ],
    ids=lambda task: task.name,
)
def test_exposure_is_reckoned_as_in_python(task: Task) -> None:
    """What the terms must admit is the same number on both sides; one less is refused."""
    roles = RoleKeys.draw(suite=CLASSICAL, shufflers=1, entropy=seeded(3))
    randomizer = MinkowskiResponse(domain=SQUARE, epsilon=2.0, radius=0.5)
    drafts = [
        GroupPlan(name=name, randomizer=randomizer, minimum=40, delta=1e-3, corrupted=3)
        for name in task.groups
    ]
    signed = roles.agree(drafts, task=task, name="noon", suite=CLASSICAL)
    assert look(signed, roles.trusted)
    plain = json.loads(signed.document)
    promise = plain["groups"][0]["promise"]
    if not promise["exposed"]:
        return
    promise["exposed"] -= 1
    document = json.dumps(plain).encode()
    fewer = signed_blindly(document, server=roles.server, shufflers=roles.shufflers)
    with pytest.raises(Refusal, match="answers can expose"):
        look(fewer, roles.trusted)
    limit = Limit(10.0, 1e-3)
    with pytest.raises(Refused, match="answers can expose"):
        client.examine(fewer, group="riders", trusted=roles.trusted, limit=limit, now=OPENS)


@pytest.mark.parametrize(
    "task",
    [
        {"name": "echo", "params": {}},
        {"name": "learning", "params": {"dimension": 2}},
        {"name": "toString", "params": {}},
        {"name": "least-cost-matching", "params": {"capacity": [2, 2]}},
        {"name": "least-cost-matching", "params": {"capacity": 7}},
    ],
)
def test_an_exposure_that_nobody_can_tell_is_refused(task: dict[str, Any]) -> None:
    """With corrupted people in the terms the task must be known, and fit the groups."""
    small = SmallRound(minimum=5)

    def change(plain: dict[str, Any]) -> None:
        plain["task"] = task
        plain["groups"][1]["promise"]["corrupted"] = 1

    with pytest.raises(Refusal, match=r"expose|capacity|terms"):
        look(altered(small, change), small.roles.trusted)


@pytest.mark.parametrize("counter", [2**53, 2**64 - 1])
def test_a_letter_whose_counter_no_ticket_holds_is_refused(counter: int) -> None:
    """It is counted, not read, and the ticket is what it was."""
    small = SmallRound()
    writer = small.join(1).keys
    joined = look(small.signed, small.roles.trusted)
    reader = read_ticket(joined["ticket"].encode()).keys
    posting = posting_counted(small.round, writer=writer, reader=reader, counter=counter)
    got = ask(
        "read",
        ticket=joined["ticket"],
        postings=[posting.hex()],
        signed=json.loads(write_signed(small.signed)),
        group="riders",
        trusted=small.roles.trusted.plain(),
        limit={"epsilon": 10.0, "delta": 1e-3},
        now=OPENS,
    )
    assert (got["bodies"], got["refused"]) == ([], 1)
    assert read_ticket(got["ticket"].encode()).seen == ()


def test_a_coin_before_answers_that_name_people_is_refused() -> None:
    """Everybody has to speak where answers name people, and a client sees that by itself."""
    small = SmallRound()

    def tossed(plain: dict[str, Any]) -> None:
        for group in plain["groups"]:
            part = group["randomizer"]
            group["randomizer"] = {"name": "coin", "part": part, "rate": 0.5}
            group["payload_size"] += 1
        plain["task"] = {"name": "least-cost-matching", "params": {}}

    with pytest.raises(Refusal, match="names people in its answers"):
        look(altered(small, tossed), small.roles.trusted)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"witnesses": [["00" * 32]], "demanded": 2}, "must be from 0 to that of"),
        ({"witnesses": {"least": 2, "of": [["00" * 32]]}}, "must be from 0 to that of"),
        ({"witnesses": {"least": 1, "of": ["00"]}}, "say in which role"),
        ({"witnesses": ["00" * 32]}, "say in which role"),
        ({"server": ["a key"]}, "say in which role"),
        ({"board": "00" * 32}, "say in which role"),
    ],
    ids=["too many", "too many of a quorum", "no quorum", "no lists", "no key", "no list"],
)
def test_trust_that_is_none_is_refused(changed: dict[str, Any], sentence: str) -> None:
    """Malformed keys, or more witnesses than exist, are refused before anything else."""
    small = SmallRound()
    with pytest.raises(Refusal, match=sentence):
        look(small.signed, small.roles.trusted, trusted=small.roles.trusted.plain() | changed)
