"""One suite over every store: memory, SQLite and PostgreSQL behave the same."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from coatcheck.errors import Fenced, Forgotten, Misuse, Refused
from coatcheck.protocol import state_machine as of_server
from coatcheck.protocol import state_machine as of_shuffler
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.board.store import BoardStore
from coatcheck.services.server.store import ServerRound, ServerStore
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.stores.database import Row
from support.service_rounds import until

DIGEST, OTHER = b"d" * 32, b"o" * 32
KINDS = ("memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.world))


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Provide the address of an empty store of each kind."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'store.db'}"
    address: str = request.getfixturevalue("postgres").database()
    return address


@pytest.fixture
def shuffler(url: str, tmp_path: Path) -> Iterator[ShufflerStore]:
    """Provide a shuffler's store with one open round, led with token 1."""
    store = ShufflerStore(url, tmp_path / "keys")
    assert store.lead("me", seconds=60) == 1
    store.begin(ShufflerRound(DIGEST, "example", b"signed"), fence=1)
    yield store
    store.close()


@pytest.fixture
def server(url: str, tmp_path: Path) -> Iterator[ServerStore]:
    """Provide a server's store, led with token 1."""
    store = ServerStore(url, tmp_path / "keys")
    assert store.lead("me", seconds=60) == 1
    yield store
    store.close()


@pytest.fixture
def board(url: str) -> Iterator[BoardStore]:
    """Provide a board's store, led with token 1."""
    store = BoardStore(url)
    assert store.lead("me", seconds=60) == 1
    yield store
    store.close()


def upload(
    number: int, *, body: bytes = b"body", token: bytes | None = None, digest: bytes = DIGEST
) -> Upload:
    """Return an upload."""
    return Upload(number % 2, digest, number.to_bytes(16, "big"), body, token)


def is_forgotten(store: ShufflerStore, digest: bytes) -> bool:
    """Check that uploads and secret of a round cannot be read any more."""
    for ask in (store.held, store.secret):
        with pytest.raises(Forgotten):
            ask(digest)
    return True


def held(store: ShufflerStore, digest: bytes) -> dict[bytes, tuple[int, bytes]] | None:
    """Return the stored uploads of a round, or None if they are deleted."""
    try:
        return store.held(digest)
    except Forgotten:
        return None


def test_uploads_are_kept_once(shuffler: ShufflerStore) -> None:
    """The same bytes again are known, others under the id conflict; all in one transaction."""
    first = shuffler.put([upload(1), upload(2), upload(1), upload(1, body=b"x")])
    assert first == [Verdict.NEW, Verdict.NEW, Verdict.KNOWN, Verdict.CONFLICT]
    again = shuffler.put([upload(2), upload(2, body=b"x"), upload(3)])
    assert again == [Verdict.KNOWN, Verdict.CONFLICT, Verdict.NEW]
    assert shuffler.crowd(DIGEST) == {0: 1, 1: 2}
    assert sorted(name[-1] for name in shuffler.held(DIGEST)) == [1, 2, 3]


def test_many_uploads_at_once(shuffler: ShufflerStore) -> None:
    """A transaction may hold more uploads than a statement has parameters."""
    assert shuffler.put([upload(n) for n in range(1500)]) == [Verdict.NEW] * 1500
    assert shuffler.put([upload(n) for n in range(1500)]) == [Verdict.KNOWN] * 1500
    assert shuffler.put([]) == []


def test_a_closed_round_accepts_nothing_new(shuffler: ShufflerStore) -> None:
    """After closing, known uploads are known and new ones refused; reopening accepts them again."""
    shuffler.put([upload(1)])
    shuffler.move(DIGEST, "close", fence=1)
    assert shuffler.put([upload(1), upload(2)]) == [Verdict.KNOWN, Verdict.CLOSED]
    shuffler.move(DIGEST, "reopen", fence=1)
    assert shuffler.put([upload(2)]) == [Verdict.NEW]
    unknown = Upload(0, OTHER, bytes(16), b"body")
    assert shuffler.put([unknown, upload(3)]) == [Verdict.CLOSED, Verdict.NEW]


def test_a_token_serves_one_upload(shuffler: ShufflerStore) -> None:
    """A one-use token is spent by one upload, and a retry of that upload spends nothing."""
    token = b"t" * 32
    first = [upload(1, token=token), upload(2, token=token)]
    assert {*shuffler.put(first)} == {Verdict.NEW, Verdict.SPENT}
    assert {*shuffler.put(first)} == {Verdict.KNOWN, Verdict.SPENT}
    assert shuffler.put([upload(3, token=b"u" * 32)]) == [Verdict.NEW]


def test_release_deletes_its_inputs(shuffler: ShufflerStore) -> None:
    """With the batch stored, secret and uploads are gone; once delivered, the batch is too."""
    shuffler.put([upload(1)])
    shuffler.move(DIGEST, "close", fence=1)
    shuffler.move(DIGEST, "release", batch=b"batch", fence=1)
    assert shuffler.blob(DIGEST, "batch") == b"batch"
    assert is_forgotten(shuffler, DIGEST)
    shuffler.move(DIGEST, "forget", fence=1)
    with pytest.raises(Misuse):
        shuffler.blob(DIGEST, "batch")


@pytest.mark.parametrize("move", ["abandon", "expire"])
def test_abandoning_deletes_everything(shuffler: ShufflerStore, move: str) -> None:
    """An abandoned round keeps its name only, whatever the reason."""
    shuffler.put([upload(1)])
    shuffler.move(DIGEST, move, fence=1)
    assert shuffler.round(DIGEST).phase is of_shuffler.ShufflerPhase.ABANDONED
    assert is_forgotten(shuffler, DIGEST)
    assert shuffler.put([upload(1)]) == [Verdict.CLOSED]


SHUFFLER_PATHS: dict[of_shuffler.ShufflerPhase, tuple[str, ...]] = {
    of_shuffler.ShufflerPhase.OPEN: (),
    of_shuffler.ShufflerPhase.CLOSED: ("close",),
    of_shuffler.ShufflerPhase.RELEASED: ("close", "release"),
    of_shuffler.ShufflerPhase.DELIVERED: ("close", "release", "forget"),
    of_shuffler.ShufflerPhase.ABANDONED: ("abandon",),
    of_shuffler.ShufflerPhase.ENDED: ("abandon", "tell"),
}
SERVER_PATHS: dict[of_server.ServerPhase, tuple[str, ...]] = {
    of_server.ServerPhase.PROPOSED: (),
    of_server.ServerPhase.AWAITING: ("agree",),
    of_server.ServerPhase.BATCHED: ("agree", "accept"),
    of_server.ServerPhase.ANSWERED: ("agree", "accept", "answer"),
    of_server.ServerPhase.REFUSED: ("agree", "accept", "refuse"),
    of_server.ServerPhase.ABANDONED: ("agree", "abandon"),
    of_server.ServerPhase.PUBLISHED: ("agree", "accept", "answer", "publish"),
    of_server.ServerPhase.OVERTAKEN: ("agree", "accept", "answer", "yield"),
    of_server.ServerPhase.LAPSED: ("lapse",),
}


def shuffler_move(store: ShufflerStore, digest: bytes, move: str) -> None:
    """Make a transition at a shuffler's store with valid arguments."""
    if move == "receive":
        if store.put([upload(7, digest=digest)]) == [Verdict.CLOSED]:
            raise Refused("the verdict is how a store refuses an upload")
    elif move == "accept":
        store.accept(digest, b"incoming", fence=1)
    else:
        batch = b"batch" if move == "release" else b""
        end = b"end" if move in {"abandon", "expire", "hear"} else b""
        store.move(digest, move, fence=1, batch=batch, end=end)


def server_move(store: ServerStore, digest: bytes, move: str) -> None:
    """Make a transition at a server's store with valid arguments."""
    calls: dict[str, Callable[[], object]] = {
        "agree": lambda: store.agree(digest, b"signed", fence=1),
        "accept": lambda: store.accept(digest, b"incoming", fence=1),
        "answer": lambda: store.answer(digest, "answer", b"bulletin", fence=1),
        "refuse": lambda: store.answer(digest, "refuse", b"bulletin", fence=1),
        "abandon": lambda: store.answer(digest, "abandon", b"end", fence=1),
        "lose": lambda: store.answer(digest, "lose", b"end", fence=1),
        "publish": lambda: store.finish(digest, "publish", fence=1),
        "yield": lambda: store.finish(digest, "yield", fence=1),
        "lapse": lambda: store.finish(digest, "lapse", fence=1),
    }
    calls[move]()


def blobs(store: ShufflerStore | ServerStore) -> list[Row]:
    """List the batches and bulletins of a store."""
    with store.database.transaction() as session:
        return session.rows(f"SELECT kind, raw FROM {store.role}_blobs ORDER BY kind")  # noqa: S608 - a role


def test_a_shufflers_store_follows_the_table(shuffler: ShufflerStore) -> None:
    """Each phase and transition leads where the table says, or changes nothing."""
    moves = of_shuffler.SHUFFLER_TRANSITIONS
    names = sorted({move for _, move, _ in moves})
    assert set(SHUFFLER_PATHS) == set(of_shuffler.ShufflerPhase)
    for number, (phase, move) in enumerate(itertools.product(of_shuffler.ShufflerPhase, names)):
        digest = number.to_bytes(32, "big")
        shuffler.begin(ShufflerRound(digest, f"round {number}", b"signed"), fence=1)
        shuffler.put([upload(1, digest=digest)])
        for step in SHUFFLER_PATHS[phase]:
            shuffler_move(shuffler, digest, step)
        before = (shuffler.round(digest), held(shuffler, digest), blobs(shuffler))
        assert before[0].phase is phase
        if moves.allows(phase, move):
            shuffler_move(shuffler, digest, move)
            assert shuffler.round(digest).phase is moves.after(phase, move)
            continue
        with pytest.raises(Refused):
            shuffler_move(shuffler, digest, move)
        assert (shuffler.round(digest), held(shuffler, digest), blobs(shuffler)) == before


def test_a_servers_store_follows_the_table(server: ServerStore) -> None:
    """The same for the server; another batch is tried, since the same one is no transition."""
    moves = of_server.SERVER_TRANSITIONS
    names = sorted({move for _, move, _ in moves})
    assert set(SERVER_PATHS) == set(of_server.ServerPhase)
    for number, (phase, move) in enumerate(itertools.product(of_server.ServerPhase, names)):
        digest = number.to_bytes(32, "big")
        server.begin(ServerRound(digest, f"round {number}", b"draft"), fence=1)
        for step in SERVER_PATHS[phase]:
            server_move(server, digest, step)
        before = (server.round(digest), blobs(server))
        assert before[0].phase is phase
        if moves.allows(phase, move):
            server_move(server, digest, move)
            assert server.round(digest).phase is moves.after(phase, move)
        elif move == "accept" and before[0].accepted:
            assert server.accept(digest, b"incoming", fence=1)
            assert not server.accept(digest, b"other", fence=1)
            assert (server.round(digest), blobs(server)) == before
        else:
            with pytest.raises(Refused):
                server_move(server, digest, move)
            assert (server.round(digest), blobs(server)) == before


def test_one_batch_is_accepted(shuffler: ShufflerStore) -> None:
    """The batch of the shuffler before is stored once, by its hash."""
    assert shuffler.accept(DIGEST, b"batch", fence=1)
    assert shuffler.accept(DIGEST, b"batch", fence=1)
    assert not shuffler.accept(DIGEST, b"other", fence=1)
    with pytest.raises(Misuse):
        shuffler.accept(OTHER, b"batch", fence=1)
    assert shuffler.blob(DIGEST, "incoming") == b"batch"
    shuffler.move(DIGEST, "release", batch=b"next", fence=1)
    assert shuffler.accept(DIGEST, b"batch", fence=1)
    with pytest.raises(Misuse):
        shuffler.blob(DIGEST, "incoming")


def test_a_name_is_reserved_once(shuffler: ShufflerStore) -> None:
    """The first digest stays, and beginning a round again changes nothing."""
    assert shuffler.pledge("example", DIGEST, fence=1) == DIGEST
    assert shuffler.pledge("example", OTHER, fence=1) == DIGEST
    before = shuffler.secret(DIGEST)
    shuffler.begin(ShufflerRound(DIGEST, "example", b"other"), fence=1)
    assert shuffler.rounds()[0].signed == b"signed"
    assert shuffler.secret(DIGEST) == before


def test_a_server_answers_once(server: ServerStore) -> None:
    """One proposal per name, one batch per round, one bulletin per batch."""
    first = ServerRound(DIGEST, "example", b"draft")
    server.begin(first, fence=1)
    server.begin(ServerRound(OTHER, "example", b"x"), fence=1)
    assert server.rounds() == [first]
    server.agree(DIGEST, b"signed", fence=1)
    assert server.rounds()[0].signed == b"signed"
    assert server.accept(DIGEST, b"batch", fence=1)
    assert server.blob(DIGEST, "incoming") == b"batch"
    assert server.answer(DIGEST, "answer", b"bulletin", fence=1) == "answered"
    with pytest.raises(Refused):
        server.answer(DIGEST, "refuse", b"second", fence=1)
    assert server.blob(DIGEST, "bulletin") == b"bulletin"
    with pytest.raises(Misuse):
        server.blob(DIGEST, "incoming")
    server.finish(DIGEST, "publish", fence=1)
    last = server.round(DIGEST)
    assert (last.phase, last.outcome) == (of_server.ServerPhase.PUBLISHED, "answered")


def test_a_board_has_a_key_value_store(board: BoardStore) -> None:
    """Terms stay unchanged; values are ordered, and a transaction writes all or nothing."""
    board.admit(DIGEST, b"signed", fence=1)
    board.admit(DIGEST, b"other", fence=1)
    board.admit(bytes(32), b"more", fence=1)
    assert (board.signed(DIGEST), board.signed(b"\1" * 32)) == (b"signed", None)
    assert board.newest(1) == [bytes(32)]
    with board.appending(fence=1) as key_values:
        for key in (b"b", b"a", b"c\xff", b"c"):
            key_values.put(key, b"first " + key)
        key_values.put(b"a", b"A")
        assert (key_values.get(b"a"), key_values.floor(b"bz")) == (b"A", (b"b", b"first b"))
    with suppress(ZeroDivisionError), board.appending(fence=1) as key_values:
        key_values.put(b"a", b"lost")
        assert key_values.span(b"a", b"b", 9) == [b"lost"]
        raise ZeroDivisionError
    with pytest.raises(Fenced), board.appending(fence=9):
        pass
    with board.staging(fence=1) as key_values:
        key_values.put(b"b2", bytes(1 << 20))
        key_values.put(b"b3", b"late")
        key_values.drop(b"c\xff", b"d")
    with board.reading() as key_values:
        assert key_values.span(b"a", b"z", 2) == [b"A", b"first b"]
        assert len(key_values.span(b"b2", b"b3", 9)[0]) == 1 << 20
        assert (key_values.get(b"b3"), key_values.get(b"c\xff")) == (b"late", None)
        assert (key_values.floor(b"zz"), key_values.floor(b"0")) == ((b"c", b"first c"), None)


def test_the_lease_has_one_holder(shuffler: ShufflerStore) -> None:
    """Another process waits for the lease to end and gets a larger token; the old one is void."""
    assert shuffler.lead("me", seconds=60) == 1
    assert shuffler.lead("you", seconds=60) is None
    assert shuffler.lead("me", seconds=0.01) == 1
    until(lambda: shuffler.lead("you", seconds=60) == 2)
    assert shuffler.lead("me", seconds=60) is None
    with pytest.raises(Fenced):
        shuffler.move(DIGEST, "close", fence=1)
    shuffler.resign("me")
    assert shuffler.lead("me", seconds=60) is None
    shuffler.resign("you")
    assert shuffler.lead("me", seconds=60) == 3
    assert shuffler.put([upload(1)]) == [Verdict.NEW]


def test_a_round_accepts_uploads_up_to_its_capacity(shuffler: ShufflerStore) -> None:
    """Beyond it a new upload gets `FULL`, a known one is known, and the count is exact."""
    rooms = {DIGEST: 3}
    two, more = [upload(1), upload(2)], [upload(3), upload(4), upload(1), upload(2, body=b"other")]
    assert shuffler.put(two, capacities=rooms) == [Verdict.NEW] * 2
    found = shuffler.put(more, capacities=rooms)
    assert sorted(one.value for one in found[:2]) == ["full", "new"]
    assert found[2:] == [Verdict.KNOWN, Verdict.CONFLICT]
    assert sum(shuffler.crowd(DIGEST).values()) == len(shuffler.held(DIGEST)) == 3
    assert shuffler.put([upload(5)], capacities=rooms) == [Verdict.FULL]
    assert shuffler.put([upload(5)], capacities={DIGEST: 2**40}) == [Verdict.NEW]


def test_uploads_need_no_lease(shuffler: ShufflerStore) -> None:
    """The lease is for transitions: an upload only needs a round that accepts it."""
    assert shuffler.lead("you", seconds=60) is None or shuffler.lead("me", seconds=60)
    assert shuffler.put([upload(1)]) == [Verdict.NEW]
    shuffler.move(DIGEST, "close", fence=1)
    assert shuffler.put([upload(1), upload(2)]) == [Verdict.KNOWN, Verdict.CLOSED]
