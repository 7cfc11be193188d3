"""When a round closes: by time and crowd, once, whatever the system's clock does."""

import asyncio
from pathlib import Path

from shufflers import staged


def test_a_full_round_waits_for_its_time(tmp_path: Path) -> None:
    """With its crowd there a round is released at its time, not before."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            assert set(await stage.upload(3)) == {201}
            assert await stage.wait(99) == "open"
            assert await stage.wait(1) == "released"
            assert set(await stage.upload(1)) == {409}

    asyncio.run(whole())


def test_a_small_round_extends_until_its_crowd_is_there(tmp_path: Path) -> None:
    """Past its time a round goes on taking uploads, and is released as soon as it is full."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            assert await stage.wait(500) == "open"
            assert set(await stage.upload(1)) == {201}
            assert await stage.wait(0) == "released"

    asyncio.run(whole())


def test_a_round_that_stays_small_is_abandoned(tmp_path: Path) -> None:
    """At its end nothing is released, and the store has forgotten every upload."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            assert await stage.wait(999) == "open"
            assert await stage.wait(1) == "abandoned"
            assert stage.service.store.held(stage.round.digest) == {}
            assert stage.live.stored.secret == bytes(32)

    asyncio.run(whole())


def test_steps_of_the_clock_close_a_round_once(tmp_path: Path) -> None:
    """Ten minutes forward do not close it early, ten back do not open it again."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(3)
            assert await stage.wait(10, step=600) == "open"
            assert await stage.wait(10, step=-600) == "open"
            assert await stage.wait(80) == "released"
            batch = stage.service.store.batch(stage.round.digest)
            assert await stage.wait(10, step=-600) == "released"
            assert await stage.wait(1000) == "released"
            assert stage.service.store.batch(stage.round.digest) == batch

    asyncio.run(whole())


def test_reports_that_do_not_open_do_not_make_a_crowd(tmp_path: Path) -> None:
    """A round that is full only with garbage is not released; with more people it is."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            for invitation in stage.invitations:
                raw = invitation.join((0.5, 0.5), ledger=None).upload
                assert await stage.post(raw[:-1] + bytes([raw[-1] ^ 1])) == 201
            assert await stage.wait(100) == "open"
            assert await stage.wait(1) == "open"
            assert set(await stage.upload(1)) == {201}
            assert await stage.wait(1) == "released"

    asyncio.run(whole())
