"""A person's session against peers in this process: what it stores, pays and sends."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from coatcheck.accounting.ledger import Ledger
from coatcheck.errors import BadSignature, Equivocation, Misuse, Refused, Unavailable
from coatcheck.protocol import client
from coatcheck.protocol.board import Board, Record
from coatcheck.protocol.client import Limit
from coatcheck.protocol.outcomes import outcome_due
from coatcheck.protocol.ticket import Ticket
from coatcheck.services.person.session import Session
from coatcheck.services.person.store import TicketFile
from support.rounds import OPENS, SmallRound, check
from support.sessions import SMALL, URL, AtBoard, First, open_session

LIMIT = Limit(epsilon=10.0, delta=1e-3)
TOKEN = "a one-use token"  # noqa: S105 - of nobody


@pytest.fixture(autouse=True)
def _while_the_round_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: float(OPENS))


def join(path: Path, peers: First, **more: Any) -> Ticket:
    """Take part once."""
    usual: dict[str, Any] = {"group": "riders", "limit": LIMIT, "ledger": None, "patience": 0.0}
    usual["token"] = TOKEN
    return asyncio.run(open_session(path, peers).join((0.5, 0.5), **{**usual, **more}))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Provide a ledger with room for this round and few others."""
    return Ledger.open(tmp_path / "ledger", epsilon=4.0, delta=1e-2)


def test_a_session_stores_pays_sends_and_keeps_the_receipt(tmp_path: Path, ledger: Ledger) -> None:
    """A second session does not send again, and the round is paid once."""
    path, peers = tmp_path / "ticket", First()
    ticket = join(path, peers, ledger=ledger)
    assert peers.sent == [ticket.upload]
    assert peers.headers[0]["coatcheck-token"] == TOKEN
    assert TicketFile(path).read() == ticket
    assert ticket.receipt
    assert path.stat().st_mode & 0o777 == 0o600
    spent = ledger.spent
    assert join(path, peers, ledger=ledger) == ticket
    assert (len(peers.sent), ledger.spent) == (1, spent)


@pytest.mark.parametrize("phase", ["closed", "released", "abandoned", "expired"])
def test_a_round_that_takes_no_reports_costs_nothing(
    phase: str, tmp_path: Path, ledger: Ledger
) -> None:
    """Neither the ledger nor the disk changes, and nothing is sent."""
    path, peers = tmp_path / "ticket", First(phase=phase)
    with pytest.raises(Refused, match=f"it is {phase}: nothing was spent"):
        join(path, peers, ledger=ledger)
    assert (ledger.rounds, peers.sent) == ((), [])
    assert [path.name for path in tmp_path.glob("ticket*")] == ["ticket.checkpoint"]


def test_terms_that_are_not_in_the_boards_log_cost_nothing(tmp_path: Path, ledger: Ledger) -> None:
    """No report is sent: the server could have shown other terms to other people."""
    path, peers = tmp_path / "ticket", First()
    peers.board = Board(sign=SMALL.roles.board.signing.sign, check=check)
    with pytest.raises(Refused, match="has not logged the terms"):
        join(path, peers, ledger=ledger)
    peers.board.log_terms(SmallRound(name="morning").round)
    peers.board.record = lambda digest: Record(0)  # type: ignore[method-assign] # noqa: ARG005 - it says so
    with pytest.raises(Equivocation):
        join(path, peers, ledger=ledger)
    assert (ledger.rounds, peers.sent, path.exists()) == ((), [], False)
    peers.board = Board(sign=SMALL.roles.server.signing.sign, check=check)
    peers.board.log_terms(SMALL.round)
    with pytest.raises(BadSignature):
        join(path, peers, ledger=ledger)
    peers.board = SMALL.board()
    Path(f"{path}.checkpoint").unlink()
    assert join(path, peers, ledger=ledger).receipt


def test_a_stored_ticket_goes_on_though_the_round_is_released(tmp_path: Path) -> None:
    """Without a receipt the report may have arrived, so the session continues after release."""
    path, peers = tmp_path / "ticket", First()
    peers.lose = True
    with pytest.raises(Unavailable):
        join(path, peers)
    peers.phase = "released"
    ticket = join(path, peers)
    assert not ticket.receipt
    assert peers.sent == [ticket.upload] * 2


def test_a_refusal_leaves_nothing_behind(tmp_path: Path) -> None:
    """A full ledger or a value outside the domain leaves no prepared ticket behind."""
    small = Ledger.open(tmp_path / "ledger", epsilon=0.1, delta=1e-2)
    path, peers = tmp_path / "ticket", First()
    with pytest.raises(Refused):
        join(path, peers, ledger=small)
    with pytest.raises(Misuse):
        asyncio.run(
            open_session(path, peers).join(
                (9, 9), group="riders", limit=LIMIT, ledger=None, patience=0.0, token=TOKEN
            )
        )
    assert [path.name for path in tmp_path.glob("ticket*")] == ["ticket.checkpoint"]
    assert not peers.sent


def test_the_first_terms_count(tmp_path: Path) -> None:
    """Other terms at the same address are an equivocation, before and after joining."""
    path, peers = tmp_path / "ticket", First()
    mine = open_session(path, peers)
    asyncio.run(mine.offer())
    peers.small = SmallRound(name="morning")
    with pytest.raises(Equivocation, match="other terms now than before"):
        asyncio.run(mine.offer())
    peers.small = SMALL
    join(path, peers)
    peers.small = SmallRound(name="morning")
    with pytest.raises(Equivocation, match="other terms now than before"):
        join(path, peers)


def test_a_missing_token_spends_nothing(tmp_path: Path, ledger: Ledger) -> None:
    """These terms admit by token: without one, nothing is stored, paid or sent."""
    path, peers = tmp_path / "ticket", First()
    with pytest.raises(Misuse, match="ask its operator for one"):
        join(path, peers, ledger=ledger, token="")
    assert (ledger.rounds, peers.sent, path.exists()) == ((), [], False)


def test_terms_of_a_round_elsewhere_are_refused(tmp_path: Path, ledger: Ledger) -> None:
    """Valid terms shown at a stranger's address are refused: nothing is spent or sent."""

    class Stranger(First):
        async def get(self, url: str, *, most: int = 0) -> bytes:
            return await super().get(url.replace("stranger", "shuffler-1"), most=most)

    path, peers = tmp_path / "ticket", Stranger()
    url = URL.replace("shuffler-1", "stranger")
    mine = Session(url, path=path, trusted=SMALL.roles.trusted, peers=peers)
    with pytest.raises(Refused, match=f"the terms are of the round at {URL}, not at {url}"):
        asyncio.run(mine.join((0.5, 0.5), group="riders", limit=LIMIT, ledger=ledger, patience=0))
    with pytest.raises(Refused, match="the right one"):
        _ = mine.round
    assert (ledger.rounds, peers.sent) == ((), [])


def test_nothing_is_prepared_before_the_offer_is_known(tmp_path: Path) -> None:
    """Without the offer the session cannot know whether the round accepts reports."""
    with pytest.raises(Misuse, match="fetch the offer first"):
        open_session(tmp_path / "ticket", First()).prepare(
            SMALL.invitations[0], (0.5, 0.5), ledger=None
        )
    assert not list(tmp_path.iterdir())


def test_what_is_no_offer_is_refused(tmp_path: Path) -> None:
    """The error says that there is no round at this address."""

    class Other(First):
        async def get(self, url: str, *, most: int = 0) -> bytes:
            del url, most
            return b'{"signed": 1}'

    with pytest.raises(Refused, match="is not the address of a round"):
        join(tmp_path / "ticket", Other())


def test_a_ticket_file_is_written_once_and_kept_up(tmp_path: Path) -> None:
    """A new ticket never replaces another file; its own is updated; a missing one is an error."""
    file = TicketFile(tmp_path / "ticket")
    assert file.load() is None
    with pytest.raises(Misuse, match="join first"):
        file.read()
    first, other = SMALL.join(0), SMALL.join(0)
    file.keep(first)
    with pytest.raises(Misuse, match="already exists"):
        file.keep(other)
    assert file.load() == first
    file.update(other)
    assert file.read() == other
    file.path.chmod(0o644)
    with pytest.raises(Refused, match="other users can read"):
        file.load()
    file.discard()
    assert file.load() is None


def test_waiting_for_answers_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the outcome is due, `collect` says to come back; afterwards it says who owes it.

    What a shuffler says of its phase is no end: nobody signed it.
    """
    path, peers = tmp_path / "ticket", AtBoard()
    TicketFile(path).keep(SMALL.join(0))
    for peers.phase in ("released", "abandoned"):
        with pytest.raises(Unavailable, match="has not ended; its outcome is due by"):
            asyncio.run(
                asyncio.wait_for(open_session(path, peers).collect(patience=0.0), timeout=300)
            )
    monkeypatch.setattr(time, "time", lambda: float(outcome_due(SMALL.round)))
    with pytest.raises(Refused, match="the server 'server' has owed since"):
        asyncio.run(open_session(path, peers).collect(patience=600.0))
    peers.away = True
    with pytest.raises(Unavailable, match="the board 'board' owes it"):
        asyncio.run(open_session(path, peers).collect(patience=0.0))


def test_an_abandoned_round_names_the_signer_and_reason(tmp_path: Path) -> None:
    """This holds long after every role but the board is gone."""
    path, peers = tmp_path / "ticket", AtBoard()
    TicketFile(path).keep(SMALL.join(0))
    peers.end = peers.shuffler.expire(now=SMALL.round.terms.expires)
    book = Ledger.open(tmp_path / "ledger", epsilon=9.0, delta=1e-2)
    book.spend(SMALL.invitations[0].guarantee, round_id=SMALL.round.name)
    with pytest.raises(Refused, match="abandoned the round: too few valid reports"):
        asyncio.run(open_session(path, peers).collect(patience=60.0, ledger=book))
    assert book.spent == pytest.approx(SMALL.invitations[0].randomizer.law.epsilon)


def test_letters_are_counted_before_they_leave_and_read_once(tmp_path: Path) -> None:
    """A counter is spent even if the board refuses, and a letter that was read stays read."""
    path, peers, friend = tmp_path / "ticket", AtBoard(), SMALL.join(1)
    file = TicketFile(path)
    file.keep(SMALL.join(0))
    with pytest.raises(Refused, match="no letters"):
        asyncio.run(open_session(path, peers).write(b"hi", to=friend.keys.contact_raw))
    assert file.read().written == 1
    to = file.read().keys.contact_raw
    peers.letter, _ = client.write(friend, b"hello", to=to, round_=SMALL.round)
    inbox = asyncio.run(open_session(path, peers).read())
    assert [letter.body for letter in inbox.letters] == [b"hello"]
    assert asyncio.run(open_session(path, peers).read()).refused == {"Replayed": 1}


def test_a_ticket_of_other_terms_is_an_equivocation(tmp_path: Path) -> None:
    """The shuffler must show the terms that the ticket was made for."""
    path = tmp_path / "ticket"
    first, mine = open_session(path, First()), open_session(path, First())
    for one in (first, mine):
        asyncio.run(one.offer())
    assert first.round.digest == SMALL.round.digest
    TicketFile(path).keep(SmallRound(name="morning").join(0))
    with pytest.raises(Equivocation, match="those that you joined with"):
        _ = mine.round
