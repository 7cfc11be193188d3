"""A tick reads only rounds that may have changed: finished rounds do not slow it down."""

import asyncio
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.state_machine import ServerPhase, ShufflerPhase
from coatcheck.services.rounds import RoundService
from coatcheck.services.server.store import ServerRound
from coatcheck.services.shuffler.store import ShufflerRound
from support.clockwork import clockwork

Over = Callable[[bytes, str], Any]
OVER: dict[str, Over] = {
    "shuffler-1": lambda digest, name: ShufflerRound(digest, name, b"", ShufflerPhase.ENDED),
    "server": lambda digest, name: ServerRound(digest, name, b"", ServerPhase.PUBLISHED),
}


def end_rounds(service: RoundService[Any, Any, Any], over: Over, count: int) -> None:
    """Put finished rounds into a store."""
    for number in range(count):
        name = f"{count} {number}"
        record = over(hashlib.sha256(name.encode()).digest(), name)
        service.store.begin(record, fence=service.leadership.fence)


async def work(service: RoundService[Any, Any, Any]) -> int:
    """Count the database's virtual-machine steps in one tick, including the sweep of keys."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = service.store.database._connection
    service.untidy = True
    connection.set_progress_handler(count, 1)
    try:
        await service.step()
    finally:
        connection.set_progress_handler(None, 1)
    return steps


@pytest.mark.parametrize("name", ["shuffler-1", "server"])
def test_a_tick_costs_the_same_after_500_rounds(tmp_path: Path, name: str) -> None:
    """Only a deeper index may show, not more rows."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            service = works.rounds[name]
            # What the tick would spawn asks the other roles; here only what it reads counts.
            service.spawn = lambda _task: None  # type: ignore[method-assign, assignment]
            costs = []
            for finished in (5, 500):
                end_rounds(service, OVER[name], finished)
                costs.append(await work(service))
            assert 0 < costs[1] <= 1.2 * costs[0]
            unfinished = service.rounds.unfinished()
            assert [live.round.digest for live in unfinished] == [works.digest]

    asyncio.run(whole())


def test_a_round_that_ends_is_read_once_more(tmp_path: Path) -> None:
    """Its last phase is read and counted; then ticks skip it, and its name still finds it."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            await works.until(works.due + 60)
            assert works.phases() == {"shuffler-1": "ended", "server": "published"}
            rounds = works.server.rounds
            assert not rounds.unfinished()
            assert rounds.count(ServerPhase.PUBLISHED) == 1
            assert rounds.count(ServerPhase.AWAITING) == 0
            assert rounds.named("clockwork") is rounds[works.digest]
            await works.board.step()
            page = works.board.metrics.page().decode()
            assert 'coatcheck_rounds{phase="admitted"} 1.0' in page
            assert 'coatcheck_rounds{phase="shown"} 1.0' in page

    asyncio.run(whole())


def test_a_slow_tick_takes_no_round_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale read does not replace a newer phase: no step of the earlier phase runs again."""

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            service, loop = works.rounds["shuffler-1"], asyncio.get_running_loop()
            live, look = service.rounds[works.digest], service.store.unfinished
            looks: list[Any] = []

            def slow(known: Any) -> Any:
                found = look(known)
                looks.append(found)
                if len(looks) == 1:
                    move = service.move(live, "close")  # type: ignore[attr-defined] # a shuffler
                    asyncio.run_coroutine_threadsafe(move, loop).result()
                return found

            monkeypatch.setattr(service.store, "unfinished", slow)
            await service.refresh()
            assert len(looks) == 3
            assert live.stored.phase is ShufflerPhase.CLOSED

    asyncio.run(whole())


def test_a_tick_that_read_earlier_takes_no_round_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick that began first may read last: the other one then has the older state.

    `tests/models/refresh.pml` finds this order.
    """

    async def whole() -> None:
        async with clockwork(tmp_path) as works:
            await works.open()
            service, fence = works.rounds["shuffler-1"], works.rounds["shuffler-1"].leadership.fence
            live, look = service.rounds[works.digest], service.store.unfinished
            has_read, has_ended, calls = threading.Event(), threading.Event(), list[None]()

            def slow(known: Any) -> Any:
                calls.append(None)
                if len(calls) == 1:
                    has_read.wait()
                    return look(known)
                found = look(known)
                if not has_read.is_set():
                    service.store.move(works.digest, "close", fence=fence)
                    has_read.set()
                    has_ended.wait()
                return found

            async def first() -> None:
                await service.refresh()
                has_ended.set()

            monkeypatch.setattr(service.store, "unfinished", slow)
            await asyncio.gather(first(), service.refresh())
            assert len(calls) == 3
            assert live.stored.phase is ShufflerPhase.CLOSED

    asyncio.run(whole())
