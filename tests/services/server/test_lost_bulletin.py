"""A bulletin whose key is lost: the round is abandoned only if the board has no outcome of it."""

import asyncio
from pathlib import Path

import pytest

from coatcheck.errors import Unavailable
from coatcheck.protocol.outcomes import OPERATOR
from coatcheck.protocol.wire.bulletins import ABANDONED, ANSWERED, Heading
from support.clockwork import CLOSES, Clockwork, clockwork


async def answered(works: Clockwork, monkeypatch: pytest.MonkeyPatch, *, taken: bool) -> bytes:
    """Bring a round to its bulletin, which the board accepted or not, and lose the key."""

    def fail(*_: object, **__: object) -> None:
        raise Unavailable("the database is away")

    await works.open()
    await works.join(3)
    works.links["board"].cut = not taken
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(works.server.store, "finish", fail)
        await works.until(CLOSES + 60)
    assert works.phases()["server"] == "answered"
    assert bool(works.end()) == taken
    made = works.server.store.blob(works.digest, "bulletin")
    works.server.store.round_keys.destroy(works.digest, "batch")
    works.links["board"].cut = False
    await works.look()
    return made


def test_the_board_has_it_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks the board for the outcome and signs no second one."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            made = await answered(works, monkeypatch, taken=True)
            assert works.phases()["server"] == "published"
            assert works.server.store.blob(works.digest, "bulletin") == made
            end = works.end()
            assert end == Heading.decode(made)
            assert end.outcome == ANSWERED

    asyncio.run(whole())


def test_the_board_has_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server signs an outcome that says there is no answer."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await answered(works, monkeypatch, taken=False)
            assert works.phases()["server"] == "published"
            end = works.end()
            assert end is not None
            assert (end.outcome, end.reason) == (ABANDONED, OPERATOR)

    asyncio.run(whole())
