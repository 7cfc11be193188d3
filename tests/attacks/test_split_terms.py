"""A server that shows two halves of the people different terms gains nothing."""

import json

import pytest

from coatcheck.errors import BadSignature, Equivocation, Malformed, Misuse, Refused
from coatcheck.protocol import client
from coatcheck.protocol.agreement import SignedTerms, TrustedTerms, countersign, propose
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.protocol.terms import read_terms
from support.rounds import CLOSES, OPENS, SmallRound

SMALL = SmallRound(minimum=10)


def second_version() -> tuple[SignedTerms, TrustedTerms]:
    """Sign other terms under the same name, and let a person trust them unseen."""
    plain = json.loads(SMALL.round.document)
    plain["letter_size"] += 1
    round_ = read_terms(json.dumps(plain).encode())
    careless = TrustedTerms(round_.terms, round_.document)
    return propose(round_.terms, keys=SMALL.roles.server), careless


def test_the_honest_shuffler_signs_one_version() -> None:
    """Without its signature the second half refuses to join."""
    signed, _ = second_version()
    pledged = {SMALL.round.terms.round: SMALL.round.digest}
    with pytest.raises(Equivocation):
        countersign(signed, keys=SMALL.roles.shufflers[0], pledged=pledged)
    with pytest.raises(BadSignature):
        examine(
            signed,
            group="riders",
            trusted=SMALL.roles.trusted,
            limit=Limit(10.0, 1e-3),
            now=OPENS,
            simulated=True,
        )


def test_even_careless_people_cannot_be_split() -> None:
    """Uploads under the second version are refused, and the first half is no crowd."""
    _, other = second_version()
    shuffler = SMALL.shuffler()
    for ticket in SMALL.crowd(5):
        shuffler.receive(ticket.upload, now=OPENS)
    for group, invitation in enumerate(SMALL.invitations):
        careless = Invitation(
            other, group, invitation.randomizer, invitation.guarantee, simulated=True
        )
        for _ in range(5):
            ticket = careless.join((0.5, 0.5), ledger=None, entropy=SMALL.entropy)
            with pytest.raises(Malformed, match="other terms"):
                shuffler.receive(ticket.upload, now=OPENS)
    with pytest.raises(Refused, match="5 of the 10"):
        shuffler.close(now=CLOSES)
    shuffler.abandon()
    assert shuffler.phase is ShufflerPhase.ABANDONED


def test_relabeled_uploads_do_not_open() -> None:
    """Putting the first version's digest on the second half's uploads does not help."""
    _, other = second_version()
    shuffler = SMALL.shuffler()
    for group, invitation in enumerate(SMALL.invitations):
        careless = Invitation(
            other, group, invitation.randomizer, invitation.guarantee, simulated=True
        )
        for _ in range(10):
            raw = careless.join((0.5, 0.5), ledger=None, entropy=SMALL.entropy).upload
            shuffler.receive(raw[:4] + SMALL.round.digest + raw[36:], now=OPENS)
    assert shuffler.crowd == (10, 10)
    shuffler.close(now=CLOSES)
    with pytest.raises(Refused, match="0 of the 10"):
        shuffler.release()


def test_a_ticket_remembers_which_terms_it_joined() -> None:
    """The other version does not work with the ticket, whoever signs it."""
    _, other = second_version()
    with pytest.raises(Misuse, match="another round"):
        client.read(SMALL.join(0), [], other)
