"""Uploads under failures and attacks: counted, bounded, and never finally refused too early."""

import asyncio
import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from coatcheck.errors import BadSignature, Malformed, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.log.verification import verify_batch
from coatcheck.protocol.ticket import Receipt
from coatcheck.protocol.wire.batches import sizes_of
from coatcheck.protocol.wire.bulletins import heading_size
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.services.person.session import Session
from coatcheck.services.shuffler import pipeline
from coatcheck.services.shuffler import rounds as of_shuffler
from coatcheck.services.shuffler.admission import TokenAdmission, admission_of
from coatcheck.services.shuffler.pipeline import release
from coatcheck.services.shuffler.store import Verdict
from coatcheck.services.web.client import HttpClient, NotTaken
from coatcheck.stores.round_keys import RoundKeys
from support.rounds import OPENS, SmallRound, released
from support.shufflers import LoneShuffler, lone_shuffler


def rubbish(lone: LoneShuffler) -> list[bytes]:
    """Return an upload for each group whose layer does not open."""
    made = [one.join((0.5, 0.5), ledger=None).upload for one in lone.invitations]
    return [raw[:-1] + bytes([raw[-1] ^ 1]) for raw in made]


def test_a_commit_whose_answer_is_lost_is_counted(tmp_path: Path) -> None:
    """The upload is stored, its sender is asked to retry, and it counts once."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            upload = lone.invitations[0].join((0.5, 0.5), ledger=None).upload
            real = lone.service.store.put

            def put(uploads: Sequence[Upload], **rest: Any) -> list[Verdict]:
                real(uploads, **rest)
                raise Unavailable("the connection broke at the commit")

            lone.service.store.put = put  # type: ignore[method-assign]
            assert await lone.post(upload) == 503
            lone.service.store.put = real  # type: ignore[method-assign]
            assert await lone.post(upload) == 201
            await lone.service.refresh()
            assert lone.live.crowd == {0: 1}

    asyncio.run(whole())


def test_no_more_uploads_than_a_batch_carries(tmp_path: Path) -> None:
    """Above the limit, new uploads are refused for lack of room; known ones get their receipt."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            limit = heading_size(2, 1) + 3 * max(sizes_of(lone.round))
            lone.service.settings = replace(lone.service.settings, batch_limit=limit)
            lone.live.capacity = lone.service.hold(lone.live.stored).capacity
            uploads = [lone.invitations[0].join((0.5, 0.5), ledger=None).upload for _ in range(4)]
            told = await asyncio.gather(*(lone.post(raw) for raw in uploads))
            assert sorted(told) == [201, 201, 201, 507]
            assert await lone.post(uploads[told.index(201)]) == 201
            assert await lone.post(uploads[told.index(507)]) == 507

    asyncio.run(whole())


def test_uploads_during_a_release_are_told_to_come_again(tmp_path: Path) -> None:
    """A closed round may reopen: only a released one refuses finally."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            fence, digest = lone.service.leadership.fence, lone.round.digest
            known = lone.invitations[0].join((0.5, 0.5), ledger=None).upload
            assert await lone.post(known) == 201
            lone.service.store.move(digest, "close", fence=fence)
            assert await lone.post(known) == 201
            assert set(await lone.upload(1)) == {425}
            lone.service.store.move(digest, "reopen", fence=fence)
            assert set(await lone.upload(2)) == {201}
            assert await lone.upload(1) == [201, 201]
            assert await lone.wait(100) == "released"
            assert set(await lone.upload(1)) == {409}

    asyncio.run(whole())


def test_invalid_uploads_do_not_repeat_a_long_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long release with too small a crowd the round pauses; it is not abandoned."""
    tries = []
    real = release

    def counted(*given: object) -> bool:
        tries.append(time.monotonic())
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "release", counted)
    monkeypatch.setattr(of_shuffler, "_QUICK", -1.0)
    monkeypatch.setattr(of_shuffler, "_REST", 1e6)

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.upload(2)
            for raw in rubbish(lone):
                assert await lone.post(raw) == 201
            assert await lone.wait(100) == "open"
            for _ in range(5):
                for raw in rubbish(lone):
                    assert await lone.post(raw) == 201
                assert await lone.wait(1) == "open"
            assert len(tries) == 1
            assert await lone.upload(1) == [201, 201]
            assert await lone.wait(1000) == "released"

    asyncio.run(whole())


def test_a_batch_is_checked_before_it_is_kept() -> None:
    """Its place in the cascade and its signature count, not the sender."""
    made = SmallRound(shufflers=2)
    first = made.shuffler()
    for ticket in made.crowd(3):
        first.receive(ticket.upload, now=OPENS)
    raw = released(first)
    verify_batch(raw, made.round, hop=0)
    with pytest.raises(Malformed, match="that of hop 1 is due"):
        verify_batch(raw, made.round, hop=1)
    with pytest.raises(BadSignature):
        verify_batch(raw[:190] + bytes([raw[190] ^ 1]) + raw[191:], made.round, hop=0)
    with pytest.raises(Malformed, match="hash"):
        verify_batch(raw[:-1] + bytes([raw[-1] ^ 1]), made.round, hop=0)


class _Telling(HttpClient):
    """A shuffler with another answer at every try."""

    def __init__(self, *told: Exception) -> None:
        self._told = list(told)

    async def send(self, *given: object, **named: object) -> bytes:
        """Refuse."""
        del given, named
        raise self._told.pop(0)


@pytest.mark.parametrize("first", [NotTaken("being released"), Unavailable("no answer")])
def test_an_upload_that_was_not_taken_is_reported_so(first: Exception, tmp_path: Path) -> None:
    """The owner of a report that cannot have arrived learns that the round is over."""
    made = SmallRound()
    offer = made.offer()
    peers = _Telling(first, Refused("closed"))
    session = Session("http://x", path=tmp_path / "t", trusted=Trust(), peers=peers, offer=offer)
    session.prepare(made.invitations[0], (0.5, 0.5), ledger=None)
    if not isinstance(first, NotTaken):
        assert not asyncio.run(session.upload(made.round, token=str(first))).receipt
        return
    with pytest.raises(Refused, match="closed"):
        asyncio.run(session.upload(made.round, token=str(first)))


def test_a_lost_receipt_is_given_while_the_round_is_released(tmp_path: Path) -> None:
    """An accepted upload gets its receipt after closing too; any other is asked to retry."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            mine, late = (lone.invitations[0].join((0.5, 0.5), ledger=None) for _ in range(2))
            assert await lone.post(mine.upload) == 201
            fence = lone.service.leadership.fence
            lone.service.store.move(lone.round.digest, "close", fence=fence)
            assert await lone.post(mine.upload) == 201
            assert await lone.post(late.upload) == 425

    asyncio.run(whole())


def count(lone: LoneShuffler, verdict: str) -> float:
    """Return the number of uploads counted under a verdict."""
    found = lone.service.metrics.registry.get_sample_value(
        "coatcheck_taken_total", {"verdict": verdict}
    )
    return found or 0.0


def ticket(lone: LoneShuffler) -> bytes:
    """Return a new person's ticket."""
    return lone.invitations[0].join((0.5, 0.5), ledger=None).upload


def unused(*given: object, **named: object) -> list[Verdict]:
    """Replace a store that must not be called."""
    raise AssertionError((given, named))


@pytest.mark.parametrize("end", ["released", "delivered", "abandoned"])
def test_a_round_that_is_over_asks_neither_store_nor_token(end: str, tmp_path: Path) -> None:
    """Every upload is refused as closed and costs no transaction."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            assert await lone.upload(3) == [201] * 6
            if end == "abandoned":
                await lone.abandon()
            else:
                assert await lone.wait(100) == "released"
            if end == "delivered":
                fence = lone.service.leadership.fence
                lone.service.store.move(lone.round.digest, "forget", fence=fence)
                await lone.service.refresh()
            assert lone.live.stored.phase.value == end
            lone.service.store.put = unused  # type: ignore[method-assign]
            lone.service.admission = TokenAdmission(frozenset({bytes(32)}))
            for raw in (ticket(lone), b"rubbish"):
                status, body = await lone.ask(raw)
                assert (status, b"no more uploads" in body) == (409, True)

    asyncio.run(whole())


def test_a_receipt_is_signed_for_these_very_bytes(tmp_path: Path) -> None:
    """The receipt names the upload; the same bytes are signed for again and count once."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            raw = ticket(lone)
            status, body = await lone.ask(raw)
            assert status == 201
            receipt = Receipt.decode(body)
            assert receipt.content == hashlib.sha256(raw).digest()
            key = bytes.fromhex(lone.round.terms.shufflers[0].verifying)
            receipt.check(VerifyingKey(key))
            status, again = await lone.ask(raw)
            assert (status, again[:84]) == (201, body[:84])
            assert lone.live.crowd == {0: 1}
            assert (count(lone, "new"), count(lone, "known")) == (1, 1)
            assert await lone.post(raw[:-1] + bytes([raw[-1] ^ 1])) == 409
            assert count(lone, "conflict") == 1

    asyncio.run(whole())


def test_an_invalid_upload_gets_its_reason(tmp_path: Path) -> None:
    """Wrong bytes are malformed, a wrong time is closed; neither reaches the store."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            raw = ticket(lone)
            lone.service.store.put = unused  # type: ignore[method-assign]
            assert await lone.post(raw[:-1]) == 400
            assert await lone.post(raw + b"x") == 413
            lone.steady, lone.wall = -1.0, lone.start - 1
            assert await lone.post(raw) == 409
            lone.steady, lone.wall = 1000.0, lone.start + 1000
            status, body = await lone.ask(raw)
            assert (status, b"at this time" in body) == (409, True)

    asyncio.run(whole())


def test_a_standby_process_accepts_uploads(tmp_path: Path) -> None:
    """It needs no lease for them, learns of rounds by itself, and makes no transitions."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            await lone.service.leadership.end()
            lone.service.rounds.clear()
            assert await lone.post(ticket(lone)) == 503
            with pytest.raises(Unavailable, match="standby"):
                await lone.service.list_rounds()
            await lone.service.follow()
            assert len(await lone.service.list_rounds()) == 1
            assert await lone.post(ticket(lone)) == 201
            assert lone.live.crowd == {0: 1}
            with pytest.raises(Unavailable, match="standby"):
                await lone.service.move(lone.live, "close")

    asyncio.run(whole())


def test_a_one_use_token_is_listed_and_serves_once(tmp_path: Path) -> None:
    """Only the token's hash is stored: an upload without a listed token is refused."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            listed = [hashlib.sha256(token).digest() for token in (b"one", b"two")]
            (tmp_path / "tokens").write_text("\n".join(one.hex() for one in listed))
            settings = replace(lone.service.settings, admission="tokens", tokens="tokens")
            lone.service.admission = admission_of(settings)
            first, second = ticket(lone), ticket(lone)
            assert await lone.post(first) == 403
            assert await lone.post(first, token=b"three") == 403
            assert await lone.post(first, token=b"one") == 201
            assert await lone.post(first, token=b"one") == 201
            assert await lone.post(second, token=b"one") == 403
            assert await lone.post(second, token=b"two") == 201
            assert lone.live.crowd == {0: 2}

    asyncio.run(whole())


def test_an_upload_of_a_round_that_was_just_dropped_is_kept(tmp_path: Path) -> None:
    """A commit while rounds are read anew, after a change of leadership, stores the upload."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            one = Upload(0, lone.round.digest, bytes(16), b"body")
            lone.service.rounds.clear()
            assert lone.service._verdicts([one]) == [Verdict.NEW]
            await lone.service.refresh()
            assert lone.live.crowd == {0: 1}

    asyncio.run(whole())


def test_people_are_not_told_where_keys_are(tmp_path: Path, caplog: Any) -> None:
    """With the folder of round keys away, people retry, and the log gives the reason once."""

    async def whole() -> None:
        async with lone_shuffler(tmp_path) as lone:
            lone.service.store.round_keys = RoundKeys(tmp_path / "hidden", prepared=True)
            for _ in range(2):
                status, body = await lone.ask(ticket(lone))
                assert status == 503
                assert b"hidden" not in body

    asyncio.run(whole())
    assert caplog.text.count("hidden is not the folder of round keys") == 1
