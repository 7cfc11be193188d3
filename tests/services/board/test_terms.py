"""The terms that a board logs: from servers it trusts, naming this board at its own address."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.agreement import write_signed
from coatcheck.services.board.routes import BoardService
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.settings import BoardSettings
from support.asking import ask
from support.rounds import SmallRound

SMALL = SmallRound()
URL = SMALL.round.terms.board.url


def board(folder: Path) -> BoardService:
    """Return the board that the terms name; it trusts their server."""
    make_keys(folder / "board", name="board")
    asked: Any = {"keys": ("board.key",), "folder": str(folder), "lease": 10_000.0}
    service = BoardService(BoardSettings(name="board", store="memory:", **asked))
    service.keyring._pairs[SMALL.round.terms.board.verifying] = SMALL.roles.board
    service.trusted = frozenset((bytes.fromhex(SMALL.round.terms.server.verifying),))
    service.url = URL
    return service


@pytest.mark.parametrize(
    ("wrong", "status"), [("", 200), ("server", 403), ("board", 409), ("url", 409), ("digest", 400)]
)
def test_terms_of_strangers_and_of_other_boards_are_not_logged(
    wrong: str, status: int, tmp_path: Path
) -> None:
    """Rejected terms leave nothing in the log or in the store."""
    service = board(tmp_path)
    if wrong == "server":
        service.trusted = frozenset((bytes(32),))
    if wrong == "board":
        del service.keyring._pairs[SMALL.round.terms.board.verifying]
    if wrong == "url":
        service.url = "https://elsewhere.example"
    digest = ("0" * 64) if wrong == "digest" else SMALL.round.digest.hex()

    async def whole() -> None:
        await service.leadership.renew()
        committing = asyncio.create_task(service.commits.run())
        found = await ask(service, "PUT", f"/rounds/{digest}", write_signed(SMALL.signed))
        assert found.status == status
        assert service.seen.size == (status == 200)
        known = service.store.signed(SMALL.round.digest) is not None
        assert known == (status == 200)
        committing.cancel()

    asyncio.run(whole())
    service.store.close()
