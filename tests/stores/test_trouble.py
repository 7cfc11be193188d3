"""A store after restarts, with later schemas, full disks and lost databases."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from coatcheck.errors import Fenced, Misuse, Unavailable
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.board.store import BoardStore
from coatcheck.services.server.store import ServerStore
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore, Verdict
from coatcheck.stores.sqlite import SQLite
from support.postgresql import Postgres
from support.service_rounds import until

DIGEST, OTHER = b"d" * 32, b"o" * 32


def upload(
    number: int, *, body: bytes = b"body", token: bytes | None = None, digest: bytes = DIGEST
) -> Upload:
    """Make an upload."""
    return Upload(number % 2, digest, number.to_bytes(16, "big"), body, token)


@pytest.fixture
def url(database: Postgres | None, tmp_path: Path) -> str:
    """Return the address of an empty database of each kind."""
    return database.database() if database else f"sqlite:{tmp_path / 'store.db'}"


@pytest.mark.parametrize("opened", [ShufflerStore, ServerStore, BoardStore])
def test_a_restart_finds_everything(
    opened: Callable[[str, Path], ShufflerStore | ServerStore | BoardStore],
    url: str,
    tmp_path: Path,
) -> None:
    """The next process finds everything that one stored; the fencing token goes on."""
    first = opened(url, tmp_path / "keys")
    assert first.lead("me", seconds=0) == 1
    first.close()
    second = opened(url, tmp_path / "keys")
    assert second.lead("you", seconds=60) == 2
    second.close()


def test_a_later_schema_is_refused(url: str, tmp_path: Path) -> None:
    """A database that a later version wrote is left unchanged."""
    ShufflerStore(url, tmp_path / "keys").close()
    newer = "UPDATE coatcheck_schema SET version = 99"
    if url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:")) as lite:
            lite.execute(newer)
        lite.close()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(newer)
    with pytest.raises(Misuse, match="schema 99"):
        ShufflerStore(url, tmp_path / "keys")


def test_two_processes_open_a_fresh_store_at_once(url: str, tmp_path: Path) -> None:
    """Migrations run once, whichever process is first."""
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(ShufflerStore, [url] * 4, [tmp_path / "keys"] * 4))
    leads = [store.lead(str(n), seconds=60) for n, store in enumerate(opened)]
    assert sorted(map(str, leads)) == ["1", "None", "None", "None"]
    for store in opened:
        store.close()


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    """With no room left nothing is stored and the store says so; with room again it goes on."""
    store = ShufflerStore(f"sqlite:{tmp_path / 'store.db'}", tmp_path / "keys")
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(DIGEST, "example", b"signed"), fence=1)
    assert isinstance(store.database, SQLite)
    connection = store.database._connection
    assert connection is not None
    connection.execute("PRAGMA max_page_count = 20")
    with pytest.raises(Unavailable):
        store.put([upload(n, body=b"b" * 300) for n in range(1000)])
    assert store.crowd(DIGEST) == {}
    connection.execute("PRAGMA max_page_count = 100000")
    assert store.put([upload(1)]) == [Verdict.NEW]
    store.close()


def test_a_database_that_goes_comes_back(postgres: Postgres, tmp_path: Path) -> None:
    """While PostgreSQL is gone every call fails at once; afterwards nothing is missing."""
    store = ShufflerStore(postgres.database(), tmp_path / "keys")
    store.lead("me", seconds=60)
    store.begin(ShufflerRound(DIGEST, "example", b"signed"), fence=1)
    store.put([upload(1)])
    postgres.stop(crash=True)
    try:
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(Unavailable):
                store.put([upload(2)])
            assert time.monotonic() - begun < 20
    finally:
        postgres.start()

    def put() -> bool:
        with contextlib.suppress(Unavailable):
            verdicts = store.put([upload(1), upload(2)])
            assert verdicts == [Verdict.KNOWN, Verdict.NEW]
            return True
        return False

    until(put)
    store.close()


def test_an_unknown_address_is_refused() -> None:
    """The error says which kinds of store address exist."""
    with pytest.raises(Misuse, match="sqlite:FILE"):
        ShufflerStore("mysql://x", Path())


def test_a_process_that_stops_in_the_middle_does_not_keep_the_lead(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine stops within a transaction that holds the lease: PostgreSQL rolls it back."""
    monkeypatch.setattr("coatcheck.stores.postgres._STOPPED", 1)
    url, keys = postgres.database(), tmp_path / "keys"
    stopped, other = ShufflerStore(url, keys), ShufflerStore(url, keys)
    assert stopped.lead("stopped", seconds=0.01) == 1
    writing = stopped.writing(1)
    session = writing.__enter__()
    assert other.lead("other", seconds=60) == 2  # waits for the lock, five seconds at most
    with pytest.raises(psycopg.Error, match="idle-in-transaction") as broken:
        session.rows("SELECT 1")
    with pytest.raises(Unavailable):
        writing.__exit__(broken.type, broken.value, None)
    with pytest.raises(Fenced), stopped.writing(1):
        pass
    stopped.close()
    other.close()
