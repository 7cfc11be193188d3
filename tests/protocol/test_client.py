"""The client: which terms it refuses, what it stores, opens and reads."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import coatcheck
from coatcheck.accounting.amplification import Guarantee
from coatcheck.domains import Ball, Box
from coatcheck.entropy import seeded, system
from coatcheck.errors import Misuse, OutsideDomain, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SignedTerms, Trust, countersign, propose
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.terms import read_terms
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.messages import PayloadFormat
from coatcheck.randomizers import MinkowskiResponse
from support.rounds import OPENS, SmallRound

SMALL = SmallRound()
CROWD = SMALL.crowd(3)
LIMIT = Limit(epsilon=2.5, delta=1e-3)


class Purse:
    """A ledger that records its calls and may refuse."""

    def __init__(self, *, empty: bool = False) -> None:
        self.spent: list[str] = []
        self.settled: list[tuple[str, bool]] = []
        self.empty = empty

    def spend(self, guarantee: Guarantee, *, round_id: str, digest: bytes, until: int) -> None:
        """Record a round or refuse it."""
        assert len(digest) == 32
        assert until == SMALL.round.terms.expires + SMALL.round.terms.grace
        if self.empty:
            raise Refused(f"nothing is left for another {guarantee.epsilon}")
        self.spent.append(round_id)

    def record_outcome(self, round_id: str, *, answered: bool) -> None:
        """Record how a round ended."""
        self.settled.append((round_id, answered))


def look(signed: SignedTerms = SMALL.signed, **changes: Any) -> client.Invitation:
    """Examine terms as a careful person does, with one change."""
    usual = {
        "group": "riders",
        "trusted": SMALL.roles.trusted,
        "limit": LIMIT,
        "now": OPENS,
    }
    return examine(signed, **{**usual, **changes})


def resigned(change: Callable[[dict[str, Any]], object]) -> SignedTerms:
    """Let the server and the shuffler sign changed terms."""
    plain = json.loads(SMALL.round.document)
    change(plain)
    terms = read_terms(json.dumps(plain).encode()).terms
    signed = propose(terms, keys=SMALL.roles.server)
    return countersign(signed, keys=SMALL.roles.shufflers[0], pledged={})


def test_an_open_round_says_that_outsiders_must_not_flood_it() -> None:
    """Terms with `open` admission add an assumption that the promise and its caveat name."""
    open_ = resigned(lambda plain: plain["shufflers"][0].update(admission={"kind": "open"}))
    for signed, anybody in ((SMALL.signed, False), (open_, True)):
        promise = look(signed).guarantee
        assert promise.open is anybody
        assert any("floods" in one for one in promise.assumptions) is anybody
        assert ("an outsider who floods it" in promise.caveat) is anybody


def test_good_terms_are_an_invitation() -> None:
    """The guarantee is computed by the client and within its limit."""
    invitation = look()
    assert invitation.guarantee.epsilon <= LIMIT.epsilon
    assert invitation.guarantee.crowd == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limit": Limit(epsilon=1.0, delta=1e-3)}, "your limit"),
        ({"limit": Limit(epsilon=2.5, delta=1e-4)}, "your limit"),
        ({"now": OPENS - 1}, "not open"),
        ({"now": 3_000}, "expired"),
        ({"trusted": Trust()}, "trust"),
        ({"group": "pilots"}, "no group"),
    ],
)
def test_terms_that_do_not_suit_are_refused(changes: dict[str, Any], message: str) -> None:
    """Each refusal gives its reason."""
    with pytest.raises(Refused, match=message):
        look(**changes)


def randomizer(epsilon: float) -> dict[str, Any]:
    """Return the parameters of a mechanism with another budget."""
    domain = Box(lo=(0.0, 0.0), hi=(1.0, 1.0))
    return MinkowskiResponse(domain=domain, epsilon=epsilon, radius=0.5).params()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["groups"][0]["promise"].update(epsilon=0.5), "gives only"),
        (lambda t: t["groups"][0].update(randomizer=randomizer(8.0)), "gives only"),
        (lambda t: t["groups"][0].update(randomizer={"name": "plain"}), "cannot use a mechanism"),
        (lambda t: t["groups"][0].update(randomizer={}), "cannot use a mechanism"),
        (lambda t: t["groups"][0].update(decode="guess"), "decode"),
        (lambda t: t["groups"][0].update(payload_size=9), "size"),
    ],
)
def test_terms_that_promise_too_much_are_refused(
    change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """Valid signatures do not help: the client's own computation decides."""
    with pytest.raises(Refused, match=message):
        look(resigned(change))


def described(made: MinkowskiResponse) -> Callable[[dict[str, Any]], object]:
    """Return a change that states another mechanism, with the size of its reports."""
    size = PayloadFormat.between(made.low, made.high).size
    return lambda t: t["groups"][0].update(
        randomizer=made.params(), payload_size=size, decode=made.decodes[0]
    )


FLOATS = MinkowskiResponse(domain=Ball(radius=1.0, p=3, dimension=2), epsilon=1.9, radius=0.5)
WIDE = MinkowskiResponse(domain=Ball(radius=1.0, p=1, dimension=1_025), epsilon=2.0, radius=0.5)


@pytest.mark.parametrize(("made", "message"), [(FLOATS, "floats"), (WIDE, "1025 numbers")])
def test_a_mechanism_is_refused_before_its_law_is_computed(
    made: MinkowskiResponse, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floats leak and laws of thousands of numbers take minutes: both are refused at no cost."""
    signed = resigned(described(made))
    slow = property(lambda _: pytest.fail("the law was computed"))
    monkeypatch.setattr(MinkowskiResponse, "law", slow)
    with pytest.raises(Refused, match=message):
        look(signed)
    domain = Ball(radius=1.0, p=1, dimension=1_024)
    widest = MinkowskiResponse(domain=domain, epsilon=2.0, radius=0.5)
    with pytest.raises(pytest.fail.Exception, match="the law was computed"):
        look(resigned(described(widest)))


def test_a_mechanism_in_floats_is_for_simulations() -> None:
    """The same terms give an invitation in a simulated round."""
    assert look(resigned(described(FLOATS)), simulated=True).randomizer.params() == FLOATS.params()


def test_an_epsilon_within_rounding_of_the_promise_is_accepted() -> None:
    """A limit equal to the round's ε is enough; the next float below is not."""
    cost = look().guarantee.epsilon
    assert look(limit=Limit(cost, 1e-3))
    with pytest.raises(Refused, match="your limit"):
        look(limit=Limit(math.nextafter(cost, 0.0), 1e-3))
    promised = SMALL.round.terms.groups[0].promise.epsilon
    with pytest.raises(Refused, match="gives only"):
        look(resigned(lambda t: t["groups"][0]["promise"].update(epsilon=promised * 0.99)))


def test_seeded_randomness_is_for_simulations() -> None:
    """A real invitation accepts only the system's randomness."""
    invitation = look()
    with pytest.raises(Refused, match="simulations"):
        invitation.join((0.5, 0.5), ledger=None, entropy=seeded(1))
    unsaid = client.Invitation(
        invitation.round, invitation.group, invitation.randomizer, invitation.guarantee
    )
    with pytest.raises(Refused, match="simulations"):
        unsaid.join((0.5, 0.5), ledger=None, entropy=seeded(1))
    assert invitation.join((0.5, 0.5), ledger=None).upload
    assert invitation.join((0.5, 0.5), ledger=None, entropy=system()).upload


def test_a_refusing_ledger_lets_nothing_leave() -> None:
    """Joining asks the ledger before it returns anything."""
    with pytest.raises(Refused, match="nothing is left"):
        look().join((0.5, 0.5), ledger=Purse(empty=True))
    purse = Purse()
    look().join((0.5, 0.5), ledger=purse)
    assert purse.spent == [f"example/{SMALL.round.digest.hex()}"]


class Drawer:
    """A store for one ticket that records its calls."""

    def __init__(self, purse: Purse, ticket: Ticket | None = None) -> None:
        self.purse = purse
        self.ticket = ticket
        self.done: list[str] = []

    def load(self) -> Ticket | None:
        """Return the ticket."""
        return self.ticket

    def keep(self, ticket: Ticket) -> None:
        """Store a new ticket, before anything is paid."""
        assert not self.purse.spent
        self.ticket = ticket
        self.done.append("keep")

    def discard(self) -> None:
        """Remove the ticket."""
        self.ticket = None
        self.done.append("discard")


def test_the_ticket_is_stored_and_then_paid_for() -> None:
    """A second call sends the stored bytes, whatever the value, and pays for the same report."""
    purse = Purse()
    drawer = Drawer(purse)
    first = look().join((0.5, 0.5), ledger=purse, store=drawer)
    again = look().join(None, ledger=purse, store=drawer)
    assert first == again == drawer.ticket
    assert drawer.done == ["keep"]
    assert len(purse.spent) == 2
    assert look().join((0.1, 0.1), ledger=None, store=Drawer(Purse())) != first


def test_a_new_ticket_goes_when_the_ledger_refuses_and_a_stored_one_stays() -> None:
    """A refusal restores the state before: a report that may have been sent is kept."""
    empty = Purse(empty=True)
    drawer = Drawer(empty)
    with pytest.raises(Refused, match="nothing is left"):
        look().join((0.5, 0.5), ledger=empty, store=drawer)
    assert drawer.done == ["keep", "discard"]
    kept = Drawer(empty, SMALL.join(0))
    with pytest.raises(Refused, match="nothing is left"):
        look().join((0.5, 0.5), ledger=empty, store=kept)
    assert kept.done == []
    assert kept.ticket is not None


def test_a_ticket_of_another_group_or_round_is_not_used() -> None:
    """A file that is in use is an error, and nothing is paid."""
    purse = Purse()
    for other in (SMALL.join(1), SmallRound(name="morning").join(0)):
        drawer = Drawer(purse, other)
        with pytest.raises(Misuse, match=r"another (round|group)"):
            look().join((0.5, 0.5), ledger=purse, store=drawer)
        assert drawer.ticket is other
    assert not purse.spent


def test_a_value_outside_the_domain_costs_nothing() -> None:
    """The value is clamped only on request, and the ledger is not touched."""
    purse = Purse()
    with pytest.raises(OutsideDomain):
        look().join((1.5, 0.5), ledger=purse)
    assert purse.spent == []
    assert look().join((1.5, 0.5), ledger=purse, clamp=True).upload


def test_notes_have_one_size() -> None:
    """A short note is padded, a long one is refused."""
    small = SmallRound(note_size=4)
    sizes = {
        len(
            small.invitations[0].join((0.5, 0.5), ledger=None, entropy=small.entropy, note=n).upload
        )
        for n in (b"", b"ab", b"abcd")
    }
    assert sizes == {small.round.upload_sizes[0]}
    with pytest.raises(Misuse, match="note"):
        small.invitations[0].join((0.5, 0.5), ledger=None, entropy=small.entropy, note=b"abcde")


def test_terms_that_hide_an_exposure_are_refused() -> None:
    """The client counts corrupted people, and itself among those whom answers may expose."""

    def matching(exposed: int) -> Callable[[dict[str, Any]], object]:
        def change(plain: dict[str, Any]) -> None:
            plain["task"] = {"name": "least-cost-matching", "params": {}}
            plain["groups"][0]["minimum"] = plain["groups"][1]["minimum"] = 50
            plain["groups"][1]["promise"]["corrupted"] = 4
            plain["groups"][0]["promise"]["exposed"] = exposed

        return change

    assert look(resigned(matching(4))).guarantee.exposed == 4
    with pytest.raises(Refused, match="expose 4"):
        look(resigned(matching(3)))

    def unknown(plain: dict[str, Any]) -> None:
        plain["groups"][0]["minimum"] = 50
        plain["groups"][0]["promise"]["corrupted"] = 1

    with pytest.raises(Refused, match="cannot compute"):
        look(resigned(unknown))


MADE_BY = {
    "AgreedTerms": "agreement",
    "TrustedTerms": "agreement",
    "VerifiedBulletin": "log/verification",
    "VerifiedCheckpoint": "log/verification",
    "VerifiedEntry": "log/verification",
    "VerifiedHeading": "log/verification",
    "Invitation": "client",
}


def test_checked_types_are_constructed_only_where_they_are_checked() -> None:
    """No other module calls these constructors, so the types prove the checks."""
    package = Path(coatcheck.__file__).parent
    for path in package.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for name, module in MADE_BY.items():
            made = re.search(rf"(?<!class )\b{name}\(", source)
            assert not made or path == package / "protocol" / f"{module}.py", (path, name)
