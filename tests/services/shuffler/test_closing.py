"""Closing of a round: by time and crowd, exactly once, whatever the system clock does."""

import asyncio
import time
from pathlib import Path

import pytest

from coatcheck.errors import Forgotten, Unavailable
from coatcheck.services.clock import Clock
from support.shufflers import lone_shuffler


def test_a_full_round_waits_for_its_time(tmp_path: Path) -> None:
    """A full round is released at its closing time, not before."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            assert set(await lone.upload(3)) == {201}
            assert await lone.wait(99) == "open"
            assert await lone.wait(1) == "released"
            assert set(await lone.upload(1)) == {409}

    asyncio.run(whole())


def test_a_small_round_extends_until_its_crowd_is_there(tmp_path: Path) -> None:
    """After its closing time a small round accepts uploads and is released once it is full."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(2)
            assert await lone.wait(500) == "open"
            assert set(await lone.upload(1)) == {201}
            assert await lone.wait(0) == "released"

    asyncio.run(whole())


def test_a_round_that_stays_small_is_abandoned(tmp_path: Path) -> None:
    """At its end nothing is released, and the store has deleted every upload."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(2)
            assert await lone.wait(999) == "open"
            assert await lone.wait(1) == "abandoned"
            with pytest.raises(Forgotten):
                lone.service.store.held(lone.round.digest)

    asyncio.run(whole())


def test_everyone_but_the_operator_sees_a_coarse_crowd(tmp_path: Path) -> None:
    """A power of two, with one new number per minute at most; the operator's count is exact."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path, minimum=5) as lone:
            digest = lone.round.digest.hex()

            async def told() -> tuple[int, bool]:
                group = (await lone.service.offer(digest)).status.groups[0]
                return group.crowd, group.enough

            lone.wall = lone.start = 60.0 * (lone.start // 60 + 1)
            lone.service.clock = Clock(wall=lambda: lone.wall, steady=lambda: lone.steady)
            assert await told() == (0, False)
            await lone.upload(3)
            assert await told() == (0, False)
            await lone.wait(60)
            assert await told() == (2, False)
            assert (await lone.service.crowd(digest)).groups[0].crowd == 3
            await lone.upload(3)
            assert await told() == (2, False)

    asyncio.run(whole())


def test_steps_of_the_clock_close_a_round_once(tmp_path: Path) -> None:
    """A step of ten minutes forward does not close it early; one back does not reopen it."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(3)
            assert await lone.wait(10, step=600) == "open"
            assert await lone.wait(10, step=-600) == "open"
            assert await lone.wait(80) == "released"
            batch = lone.service.store.blob(lone.round.digest, "batch")
            assert await lone.wait(10, step=-600) == "released"
            assert await lone.wait(1000) == "released"
            assert lone.service.store.blob(lone.round.digest, "batch") == batch

    asyncio.run(whole())


def test_reports_that_do_not_open_do_not_make_a_crowd(tmp_path: Path) -> None:
    """A round that is full only with invalid uploads waits until enough valid ones are there."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(2)
            for invitation in lone.invitations:
                raw = invitation.join((0.5, 0.5), ledger=None).upload
                assert await lone.post(raw[:-1] + bytes([raw[-1] ^ 1])) == 201
            assert await lone.wait(100) == "open"
            assert await lone.wait(1) == "open"
            assert set(await lone.upload(1)) == {201}
            assert await lone.wait(1) == "released"

    asyncio.run(whole())


def test_a_step_that_fails_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    """A release that fails is not retried at every tick."""

    async def broken(*_: object) -> bool:
        raise Unavailable("no worker is free")

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(3)
            real, before = lone.service.run_in_worker, time.monotonic()
            lone.service.run_in_worker = broken  # type: ignore[method-assign, assignment]
            assert await lone.wait(100) == "closed"
            assert lone.live.again >= before + 2 * lone.service.settings.tick
            assert lone.live.failed == 1
            lone.service.run_in_worker = real  # type: ignore[method-assign]
            assert await lone.wait(0) == "released"

    asyncio.run(whole())
