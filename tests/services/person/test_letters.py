"""Letters to a few addresses through a relay: up to one place of the log, and in its order."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from coatcheck.errors import Refused
from coatcheck.protocol.wire.bulletins import RECIPIENT, Posting, posting_size
from coatcheck.services.board.routes import BoardService
from coatcheck.services.documents import NUMBERS
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.person.letters import OwnLetters
from coatcheck.services.settings import BoardSettings
from support.asking import ask
from support.boards import show
from support.rounds import SmallRound

if TYPE_CHECKING:
    from coatcheck.services.person.relay_client import RelayedClient

SMALL = SmallRound()
CROWD = SMALL.crowd(2)
NAMES = [ticket.keys.address for ticket in CROWD]
URL = f"/rounds/{SMALL.round.digest.hex()}"


class Peers:
    """A client that sends requests to a board directly and counts them."""

    def __init__(self, service: BoardService) -> None:
        self.service = service
        self.asked: list[str] = []
        self.sizes: list[int] = []
        self.lie: Any = None

    async def get(self, url: str) -> bytes:
        """Fetch a document."""
        self.asked.append(url)
        return (await ask(self.service, "GET", url)).body

    async def page(self, url: str) -> tuple[bytes, dict[str, str]]:
        """Fetch a page; meanwhile a person writes to the first address."""
        self.asked.append(url)
        answer = await ask(self.service, "GET", url)
        self.sizes.append(len(answer.body))
        post(self.service, 0)
        return self.lie(answer) if self.lie else (answer.body, dict(answer.headers))


def post(service: BoardService, to: int) -> bytes:
    """Post a letter."""
    sealed = os.urandom(SMALL.round.letter_size())
    raw = Posting(SMALL.round.digest, NAMES[to], sealed).encode()
    service.commit([(SMALL.round, "letter", raw)])
    return raw


@pytest.fixture
def peers(tmp_path: Path) -> Peers:
    """Provide a board that shows a round."""
    make_keys(tmp_path / "board", name="board")
    asked = {"keys": ("board.key",), "folder": str(tmp_path), "lease": 10_000.0}
    service = BoardService(BoardSettings(name="board", store="memory:", **asked))  # type: ignore[arg-type] # a table
    asyncio.run(service.leadership.renew())
    show(service, SMALL, SMALL.server().answer(SMALL.batch(CROWD)))
    return Peers(service)


def feed_of(peers: Peers) -> OwnLetters:
    """Open a letter source."""
    return OwnLetters(URL, size=posting_size(SMALL.round), peers=cast("RelayedClient", peers))


def test_letters_to_some_addresses_are_read_in_the_order_of_the_log(peers: Peers) -> None:
    """Letters written during an update come with the next one; no letter comes twice."""
    sent = [post(peers.service, number % 3) for number in range(60)]
    feed, mine = feed_of(peers), NAMES[:2]
    asyncio.run(feed.update(mine))
    wanted = [raw for raw in sent if raw[RECIPIENT] in mine]
    assert (feed.to(mine, since=0), feed.read) == (wanted, 60)
    assert feed.to(mine, since=30) == [raw for raw in sent[30:] if raw[RECIPIENT] in mine]
    assert max(peers.sizes) <= 3800
    more, late = len(peers.sizes), post(peers.service, 1)
    asyncio.run(feed.update(mine))
    fresh = feed.to(mine, since=60)
    assert (len(fresh), fresh[-1], feed.read) == (more + 1, late, 60 + more + 1)
    asyncio.run(feed.update(NAMES[2:3]))  # another address: what it has is read from the start
    assert len(feed.to(NAMES[2:3], since=0)) == 20


def test_a_look_without_news_is_one_request(peers: Peers) -> None:
    """The round's number of letters shows that there is nothing new."""
    feed = feed_of(peers)
    asyncio.run(feed.update(NAMES))  # each page brings a letter
    asyncio.run(feed.update([]))
    for name in NAMES:
        feed._ends[name] = feed.read
    peers.asked.clear()
    asyncio.run(feed.update(NAMES))
    assert peers.asked == [URL]


@pytest.mark.parametrize(
    "lie",
    [
        lambda answer: (answer.body[:-1], answer.headers),
        lambda answer: (answer.body, {}),
        lambda answer: (answer.body, {**answer.headers, NUMBERS: "1,0"}),
        lambda answer: (answer.body[:36] + bytes(16) + answer.body[52:], answer.headers),
        lambda answer: (answer.body, {**answer.headers, NUMBERS: "0,\u00b2"}),
        lambda answer: (answer.body, {**answer.headers, NUMBERS: "0," + "9" * 5000}),
        lambda answer: (answer.body, {**answer.headers, NUMBERS: "0,2"}),
    ],
)
def test_other_letters_than_were_asked_for_are_refused(peers: Peers, lie: Any) -> None:
    """Torn, unnumbered, disordered, misaddressed or wrongly numbered letters are refused."""
    for _ in range(2):
        post(peers.service, 1)
    peers.lie = lie
    with pytest.raises(Refused, match="other letters"):
        asyncio.run(feed_of(peers).update(NAMES[1:2]))


@pytest.mark.parametrize("count", [-1, 1 << 40, 1 << 70])
def test_more_letters_than_anybody_holds_are_not_asked_for(peers: Peers, count: int) -> None:
    """A board that claims more letters than the limit is not asked for them."""

    async def told(url: str) -> bytes:
        return (await ask(peers.service, "GET", url)).body.replace(
            b'"letters":0', b'"letters":%d' % count
        )

    peers.get = told  # type: ignore[method-assign] # a lie
    feed = feed_of(peers)
    with pytest.raises(Refused):
        asyncio.run(feed.update(NAMES))
    assert feed.read == 0
