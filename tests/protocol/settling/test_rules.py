"""The rules of settling for pairing, one by one, and which letters count."""

import pytest
from msgspec.structs import replace

from coatcheck.accounting.guarantee import Disclosure
from coatcheck.errors import Refused
from coatcheck.protocol import letters
from coatcheck.protocol.settling.candidates import Candidates, disclosure
from coatcheck.protocol.settling.exchange import prf
from coatcheck.protocol.settling.rules import MARK, Kind, Progress, Settling, schedule
from coatcheck.protocol.terms import SettleTerms
from coatcheck.protocol.wire.bulletins import Posting
from coatcheck.protocol.wire.messages import Answer, Partner, encode_letter
from protocol.settling.test_settling import hand_over, meet, pair
from support.rounds import SmallRound
from support.settling import with_candidates

STEPS = schedule((1,))
TAG = next(index for index, step in enumerate(STEPS) if step.kind is Kind.TAG)
SMALL = SmallRound()
ONE, OTHER = SMALL.crowd(1)


def talked() -> tuple[Settling, Settling]:
    """Return two people who have asked and replied, and are about to write their tags."""
    one, other = pair()
    meet(one, other, Kind.TAG)
    return one, other


def test_the_first_notice_of_a_person_counts() -> None:
    """A second tag does not replace the first, for any reader."""
    one, other = talked()
    hand_over(one, other)
    hand_over(other, one)
    false = bytes((MARK, TAG)) + bytes(16)
    for reader in (one, other):
        assert not reader.notice(other.address, false)
        assert not reader.notice(one.address, false)
        assert reader.progress.dropped == {"repeated": 2}
    hand_over(one, other)
    hand_over(other, one)
    assert (one.partner, other.partner) == (other.address, one.address)


def test_the_first_notice_counts_even_if_it_tags_nobody() -> None:
    """A person whose first notice tags nobody is nobody's partner, whatever follows."""
    one, other = talked()
    (_, good), _ = (*other.speak(), None)
    for reader in (one, other):
        assert reader.notice(other.address, bytes((MARK, TAG)) + bytes(16))
        assert not reader.notice(other.address, good)
    for _ in range(2):
        hand_over(one, other)
    hand_over(other, one)
    assert one.partner is None
    assert other.partner is None


def test_a_letter_after_ones_tag_changes_nothing() -> None:
    """By then it is fixed whom a pass is for."""
    one, other = pair()
    meet(one, other, Kind.SHOW)
    ((_, late),) = other.speak()
    while one.progress.step <= TAG:
        one.speak()
    assert not one.receive(other.address, late)
    assert one.progress.dropped == {"late": 1}
    assert one.progress.heard == {}


def test_a_person_without_a_holder_tags_nobody() -> None:
    """Asking alone gives no partner."""
    one, other = pair()
    meet(one, other, Kind.ASK)
    while one.progress.step < TAG:
        one.speak()
    ((to, body),) = one.speak()
    secret = one._secret
    assert (to, body[2:]) == (one.address, prf(secret, b"nobody", bytes(1))[:16])
    assert one.progress.chosen == [b""]


@pytest.mark.parametrize("own", [True, False])
def test_a_notice_stands_at_its_writers_address(*, own: bool) -> None:
    """A notice at another address does not count, since readers of the writer's would miss it."""
    keys, at = ONE.keys, (ONE if own else OTHER).keys.address
    text = encode_letter(SMALL.round, sender=keys, recipient=at, counter=0, body=b"\0\3")
    raw = Posting(SMALL.round.digest, at, text + bytes(SMALL.round.suite.overhead)).encode()
    found = letters.read_notice(raw, SMALL.round)
    assert (found is not None) == own


def test_letters_of_settling_and_of_people_are_read_apart() -> None:
    """Letters of settling and of people are kept apart, and unread ones may be read later."""
    bodies, postings, writer = (b"\0\0cell", b"hello"), list[bytes](), ONE
    for body in bodies:
        raw, writer = letters.write(writer, body, to=OTHER.keys.contact_raw, round_=SMALL.round)
        postings.append(raw)
    for settling, expected in ((True, bodies[0]), (False, bodies[1])):
        inbox = letters.read(OTHER, postings, SMALL.round, settling=settling)
        assert [one.body for one in inbox.letters] == [expected]
        assert len(inbox.ticket.seen) == 1


def test_nobody_settles_with_themselves() -> None:
    """A server may list the person, a duplicate, or invalid keys."""
    round_ = with_candidates(SMALL, SettleTerms(cell=1.0, rings=(4.5,), asks=(1,)), most=2)
    contacts = (ONE.keys.contact_raw, OTHER.keys.contact_raw, OTHER.keys.contact_raw, bytes(64))
    answer = Answer(partners=tuple(Partner(1, contact) for contact in contacts))
    ticket = replace(ONE, settling=Progress(cell=(0, 0)))
    side = Candidates(ticket, answer, round_=round_, sizes=(1, 2))
    assert side.machine.lists == ((OTHER.keys.address,),)
    assert side.addresses == (ONE.keys.address, OTHER.keys.address)


def test_an_answer_with_more_candidates_than_the_terms_allow_is_refused() -> None:
    """So the promise bounds how many candidates learn something by letters."""
    settling = SettleTerms(cell=1.0, rings=(2.0, 4.5), asks=(1,))
    round_ = with_candidates(SMALL, settling, most=2)
    letters_tell = disclosure(round_, 0, axes=2)
    assert letters_tell == Disclosure(candidates=4, cells=69, rings=2, chooses=True)
    ticket, partner = replace(ONE, settling=Progress(cell=(0, 0))), Partner(1, bytes(64))
    Candidates(ticket, Answer(partners=(partner,) * 4), round_=round_, sizes=(1, 2))
    for answer in (Answer(partners=(partner,) * 5), Answer((), (), (partner,) * 3, (partner,) * 2)):
        with pytest.raises(Refused, match="names 5 candidates"):
            Candidates(ticket, answer, round_=round_, sizes=(1, 2))
    unknown = type(round_)(replace(SMALL.round.terms, settle=settling), SMALL.round.document)
    with pytest.raises(Refused, match="cannot compute how many candidates"):
        disclosure(unknown, 0, axes=2)
