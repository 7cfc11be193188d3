"""A bad round or a missing key affects only itself: the other rounds go on."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Forgotten, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import read_signed, verify_signatures
from coatcheck.protocol.keys import read_keys
from coatcheck.protocol.state_machine import ShufflerPhase
from coatcheck.services.database_writer import Leadership
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.settings import Keyring
from coatcheck.services.shuffler.admission import TokenAdmission
from coatcheck.services.shuffler.routes import ShufflerService
from coatcheck.services.shuffler.store import ShufflerRound, ShufflerStore
from coatcheck.services.web.routing import Problem
from support.service_rounds import PATIENCE
from support.shufflers import LoneShuffler, lone_shuffler


def strange(lone: LoneShuffler) -> bytes:
    """Return terms that name another sealing key than the shuffler's."""
    make_keys(lone.folder / "other", name="other")
    other = read_keys(lone.folder / "other.key")
    return lone.terms(lone.folder, 3, name="strange", other=other)


def again(lone: LoneShuffler, *keys: str) -> ShufflerService:
    """Restart the shuffler on its store, with these key files."""
    service = ShufflerService(lone.service.settings, lone.service.store)
    service.keyring = Keyring([lone.folder / key for key in keys])
    return service


def test_terms_with_another_sealing_key_are_not_stored(tmp_path: Path) -> None:
    """They are neither signed nor opened nor stored."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            signed = strange(lone)
            with pytest.raises(Refused, match="sealing key"):
                await lone.service.sign(read_signed(signed))
            with pytest.raises(Misuse, match="sealing key"):
                await lone.service.open_round(
                    verify_signatures(read_signed(signed)).digest.hex(), read_signed(signed)
                )
            assert len(lone.service.store.rounds()) == 1
            await lone.service.step()

    asyncio.run(whole())


def test_a_bad_round_in_the_store_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad round of an earlier version is left out, logged once, and answered with 503."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            signed = strange(lone)
            digest = verify_signatures(read_signed(signed)).digest
            fence = lone.service.leadership.fence
            lone.service.store.begin(ShufflerRound(digest, "strange", signed), fence=fence)
            await lone.service.step()
            await lone.service.step()
            assert set(await lone.upload(3)) == {201}
            assert await lone.wait(100) == "released"
            with pytest.raises(Problem) as told:
                lone.service.live_round(digest.hex())
            assert told.value.kind.status == 503
            await lone.service.leadership.end()
            service = again(lone, "shuffler-1.key")
            await service.leadership.renew()
            assert service.leadership.leads
            await service.peers.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(whole())
    told = [record.getMessage() for record in caplog.records if "strange" in record.getMessage()]
    assert len(told) == 2  # once a process
    assert all("Misuse at shuffler.py:" in line for line in told)


def test_a_key_goes_when_its_rounds_are_over(tmp_path: Path) -> None:
    """After rotation and the end of its rounds the old key file is not needed any more."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            make_keys(tmp_path / "fresh", name="shuffler-1")
            await lone.abandon()
            await lone.service.leadership.end()
            service = again(lone, "fresh.key")
            await asyncio.wait_for(service.leadership.renew(), PATIENCE)
            assert service.leadership.leads
            live = service.live_round(lone.round.digest.hex())
            assert (live.stored.phase, live.hop) == (ShufflerPhase.ABANDONED, None)
            await service.peers.close()

    asyncio.run(whole())


def test_a_key_that_goes_too_early_costs_its_round(tmp_path: Path) -> None:
    """A live round without its key is reported; the shuffler leads all the same."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            make_keys(tmp_path / "fresh", name="shuffler-1")
            await lone.service.leadership.end()
            service = again(lone, "fresh.key")
            await asyncio.wait_for(service.leadership.renew(), PATIENCE)
            assert service.leadership.leads
            with pytest.raises(Problem, match="operator"):
                service.live_round(lone.round.digest.hex())
            await service.leadership.end()
            healed = again(lone, "fresh.key", "shuffler-1.key")
            await healed.leadership.renew()
            assert healed.live_round(lone.round.digest.hex()).stored.phase is ShufflerPhase.OPEN
            await service.peers.close()
            await healed.peers.close()

    asyncio.run(whole())


def test_the_service_holds_no_secret_of_the_order(tmp_path: Path) -> None:
    """Only the worker that releases reads it; the process that checks uploads never does."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            assert lone.service.store.secret(lone.round.digest) != bytes(32)
            assert lone.live.role is not None
            assert lone.live.role.state.secret == bytes(32)

    asyncio.run(whole())


def test_a_round_whose_key_is_gone_is_abandoned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No key opens its uploads any more, so it ends at once with an error."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            assert set(await lone.upload(2)) == {201}
            lone.service.store.round_keys.destroy(lone.round.digest, "round")
            assert set(await lone.upload(1)) == {425}
            await lone.service.load()
            await lone.service.step()
            assert lone.live.stored.phase is ShufflerPhase.ABANDONED

    with caplog.at_level(logging.ERROR):
        asyncio.run(whole())
    assert "its key in the folder of round keys is gone" in caplog.text


def test_a_batch_whose_key_is_gone_is_abandoned(tmp_path: Path) -> None:
    """A released round ends at once when its batch cannot be decrypted."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(3)
            assert await lone.wait(100) == "released"
            lone.service.store.round_keys.destroy(lone.round.digest, "batch")
            assert await lone.wait(1) == "released"  # the step fails, and the next look knows why
            await lone.service.step()
            assert lone.live.stored.phase is ShufflerPhase.ABANDONED

    asyncio.run(whole())


def test_a_key_that_could_not_be_removed_is_removed_later(tmp_path: Path) -> None:
    """A transition is done when it is stored; removing the key is retried until it is gone."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            round_keys, digest = lone.service.store.round_keys, lone.round.digest
            await lone.service.step()
            real, tries = round_keys.destroy, []

            def destroy(digest: bytes, use: str) -> None:
                tries.append(use)
                if len(tries) < 4:
                    raise Unavailable("the disk is busy")
                real(digest, use)

            round_keys.destroy = destroy  # type: ignore[method-assign]
            with pytest.raises(Unavailable):
                await lone.abandon()
            for _ in range(3):
                with suppress(Unavailable):
                    await lone.service.step()
            assert lone.live.stored.phase is ShufflerPhase.ABANDONED
            with pytest.raises(Forgotten):
                round_keys.key(digest)

    asyncio.run(whole())


def test_renewal_survives_unforeseen_errors(caplog: pytest.LogCaptureFixture) -> None:
    """An error while reading the store is logged without its message, and retried."""
    tries = []

    async def gained() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise KeyError("5f3a9c")

    async def whole() -> None:
        leadership = Leadership(ShufflerStore("memory:"), seconds=PATIENCE, gained=gained)
        await leadership.renew()
        assert not leadership.leads
        await leadership.renew()
        assert leadership.leads

    with caplog.at_level(logging.DEBUG):
        asyncio.run(whole())
    assert "5f3a9c" not in caplog.text
    assert "KeyError at test_isolation.py:" in caplog.text


def test_the_lease_is_renewed_while_every_thread_waits_for_a_blob_store() -> None:
    """Slow blob stores use up the shared threads but do not cost the lead."""
    back = threading.Event()

    async def gained() -> None:
        pass

    async def whole() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        slow = asyncio.create_task(asyncio.to_thread(back.wait))
        leadership = Leadership(ShufflerStore("memory:"), seconds=PATIENCE, gained=gained)
        try:
            await asyncio.wait_for(leadership.renew(), PATIENCE)
            assert leadership.leads
            assert not slow.done()
        finally:
            back.set()
        await leadership.end()
        await slow

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("own", "match"),
    [
        ({"url": "http://127.0.0.1:9"}, "but it is at"),
        ({"admission": TokenAdmission(frozenset())}, "another `admission`"),
    ],
)
def test_terms_with_another_address_or_admission_are_not_signed(
    own: dict[str, Any], match: str, tmp_path: Path
) -> None:
    """A shuffler confirms its whole entry: its address and its admission policy."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            fine = read_signed(lone.terms(tmp_path, 3, name="fine"))
            await lone.service.sign(fine)
            strange = read_signed(lone.terms(tmp_path, 3, name="strange"))
            for name, value in own.items():
                setattr(lone.service, name, value)
            digest = verify_signatures(strange).digest.hex()
            with pytest.raises(Refused, match=match):
                await lone.service.sign(strange)
            with pytest.raises(Refused, match=match):
                await lone.service.open_round(digest, strange)

    asyncio.run(whole())
