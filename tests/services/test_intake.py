"""Uploads under bad luck and bad will: counted, bounded, and never refused for good too early."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from coatcheck.errors import BadSignature, Malformed, Refused, Unavailable
from coatcheck.protocol.notices import heading_size
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import NotTaken, Peers
from coatcheck.services.http.deliveries import check_batch
from coatcheck.services.person.visit import Offer, Visit
from coatcheck.services.shuffler import service as of_shuffler
from coatcheck.services.shuffler.jobs import release
from coatcheck.stores.shuffler import Parcel, Verdict
from rounds import OPENS, released
from rounds import Stage as Protocol
from shufflers import Stage, staged


def rubbish(stage: Stage) -> list[bytes]:
    """Make an upload of each group whose layer does not open."""
    made = [one.join((0.5, 0.5), ledger=None).upload for one in stage.invitations]
    return [raw[:-1] + bytes([raw[-1] ^ 1]) for raw in made]


def test_a_commit_whose_answer_is_lost_is_counted(tmp_path: Path) -> None:
    """The upload is in the store, its sender is told to come again, and it counts once."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            upload = stage.invitations[0].join((0.5, 0.5), ledger=None).upload
            real = stage.service.store.put

            def put(parcels: Sequence[Parcel], *, fence: int) -> list[Verdict]:
                real(parcels, fence=fence)
                raise Unavailable("the connection broke at the commit")

            stage.service.store.put = put  # type: ignore[method-assign]
            assert await stage.post(upload) == 503
            stage.service.store.put = real  # type: ignore[method-assign]
            assert await stage.post(upload) == 201
            await stage.service.refresh()
            assert stage.live.crowd == {0: 1}

    asyncio.run(whole())


def test_no_more_uploads_than_a_batch_carries(tmp_path: Path) -> None:
    """Beyond the limit new uploads are told that there is no room; known ones get their receipt."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            limit = heading_size(2) + 3 * max(stage.live._sizes)
            stage.service.intake._settings = replace(stage.service.settings, batch_limit=limit)
            uploads = [stage.invitations[0].join((0.5, 0.5), ledger=None).upload for _ in range(4)]
            told = await asyncio.gather(*(stage.post(raw) for raw in uploads))
            assert sorted(told) == [201, 201, 201, 507]
            assert await stage.post(uploads[told.index(201)]) == 201
            assert await stage.post(uploads[told.index(507)]) == 507

    asyncio.run(whole())


def test_uploads_during_a_release_are_told_to_come_again(tmp_path: Path) -> None:
    """A closed round may open again: only a released one refuses for good."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            fence, digest = stage.service.frame.leadership.fence, stage.round.digest
            known = stage.invitations[0].join((0.5, 0.5), ledger=None).upload
            assert await stage.post(known) == 201
            stage.service.store.move(digest, "close", fence=fence)
            assert await stage.post(known) == 201
            assert set(await stage.upload(1)) == {425}
            stage.service.store.move(digest, "reopen", fence=fence)
            assert set(await stage.upload(2)) == {201}
            assert await stage.upload(1) == [201, 201]
            assert await stage.wait(100) == "released"
            assert set(await stage.upload(1)) == {409}

    asyncio.run(whole())


def test_rubbish_does_not_have_everything_peeled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long release that fell short the round rests, but it is not given up for it."""
    tries = []
    real = release

    def counted(*given: object) -> bool:
        tries.append(time.monotonic())
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(of_shuffler, "release", counted)
    monkeypatch.setattr(of_shuffler, "_QUICK", -1.0)
    monkeypatch.setattr(of_shuffler, "_REST", 1e6)

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            await stage.upload(2)
            for raw in rubbish(stage):
                assert await stage.post(raw) == 201
            assert await stage.wait(100) == "open"
            for _ in range(5):
                for raw in rubbish(stage):
                    assert await stage.post(raw) == 201
                assert await stage.wait(1) == "open"
            assert len(tries) == 1
            assert await stage.upload(1) == [201, 201]
            assert await stage.wait(1000) == "released"

    asyncio.run(whole())


def test_a_batch_is_checked_before_it_is_kept() -> None:
    """Its place in the cascade and the signature inside count, not who delivers it."""
    stage = Protocol(shufflers=2)
    first = stage.shuffler()
    for ticket in stage.crowd(2):
        first.receive(ticket.upload, now=OPENS)
    raw = released(first)
    check_batch(raw, stage.round, hop=0)
    with pytest.raises(Malformed, match="another shuffler"):
        check_batch(raw, stage.round, hop=1)
    with pytest.raises(BadSignature):
        check_batch(raw[:-1] + bytes([raw[-1] ^ 1]), stage.round, hop=0)


class _Telling(Peers):
    """A shuffler that says something else at every try."""

    def __init__(self, *told: Exception) -> None:
        self._told = list(told)

    async def send(self, *given: object, **named: object) -> bytes:
        """Refuse."""
        del given, named
        raise self._told.pop(0)


@pytest.mark.parametrize("first", [NotTaken("being released"), Unavailable("no answer")])
def test_who_was_certainly_not_taken_is_told(first: Exception, tmp_path: Path) -> None:
    """A report that cannot have arrived is no maybe: its owner learns that the round is over."""
    stage = Protocol()
    offer = Offer(stage.signed, "http://board.example", {})
    peers = _Telling(first, Refused("closed"))
    visit = Visit("http://x", path=tmp_path / "t", trusted=Trust(), peers=peers, offer=offer)
    visit.prepare(stage.invitations[0], (0.5, 0.5), ledger=None)
    if not isinstance(first, NotTaken):
        assert not asyncio.run(visit.hand_in(stage.round)).receipt
        return
    with pytest.raises(Refused, match="closed"):
        asyncio.run(visit.hand_in(stage.round))


def test_a_lost_receipt_is_given_while_the_round_is_released(tmp_path: Path) -> None:
    """Who is in already gets the receipt after closing too; who is not is told to come again."""

    async def whole() -> None:
        async with staged(tmp_path) as stage:
            mine, late = (stage.invitations[0].join((0.5, 0.5), ledger=None) for _ in range(2))
            assert await stage.post(mine.upload) == 201
            fence = stage.service.frame.leadership.fence
            stage.service.store.move(stage.round.digest, "close", fence=fence)
            assert await stage.post(mine.upload) == 201
            assert await stage.post(late.upload) == 425

    asyncio.run(whole())
