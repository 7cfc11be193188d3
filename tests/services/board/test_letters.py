"""Letters at a board: returned in pages, limited per address, and accepted for a limited time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from coatcheck.protocol.wire.bulletins import Posting, posting_size
from coatcheck.services.board import letters as board_letters
from coatcheck.services.board.routes import BoardService
from coatcheck.services.clock import Clock
from coatcheck.services.documents import AT_ONCE
from coatcheck.services.local_cluster import make_keys
from coatcheck.services.settings import BoardSettings
from support.boards import show
from support.rounds import SmallRound


class Scene:
    """A board without a socket that shows an answered round, and a clock that a test moves."""

    def __init__(self, folder: Path, *, each: int) -> None:
        self.small = SmallRound()
        self.tickets = self.small.crowd(2)
        self.bulletin = self.small.server().answer(self.small.batch(self.tickets))
        make_keys(folder / "board", name="board")
        self.settings = BoardSettings(
            name="board",
            store="memory:",
            keys=("board.key",),
            folder=str(folder),
            letters_each=each,
            lease=10_000.0,
        )
        self.time = float(self.small.round.terms.closes)
        self.steady = 0.0
        self.service = BoardService(self.settings)
        self.service.clock = Clock(wall=lambda: self.time, steady=lambda: self.steady)
        self.url = f"http://board/rounds/{self.small.round.digest.hex()}/letters"

    def wait(self, seconds: float) -> None:
        """Move time forward."""
        self.time += seconds
        self.steady += seconds

    def letter(self, to: int = 0) -> bytes:
        """Return a posting to a person: their contact, then the letter."""
        digest, keys = self.small.round.digest, self.tickets[to].keys
        sealed = os.urandom(self.small.round.letter_size())
        return keys.contact_raw + Posting(digest, keys.address, sealed).encode()

    def shown(self, stamped: bytes) -> bytes:
        """Return what the board shows of a posted letter."""
        return stamped[self.small.round.suite.contact_size :]


@asynccontextmanager
async def served(folder: Path, *, each: int = 3) -> AsyncIterator[tuple[Scene, httpx2.AsyncClient]]:
    """Run a board that shows a round."""
    scene = Scene(folder, each=each)
    service = scene.service
    await service.leadership.renew()
    show(service, scene.small, scene.bulletin)
    writer = asyncio.create_task(service.commits.run())
    through = httpx2.ASGITransport(app=service)
    try:
        async with httpx2.AsyncClient(transport=through) as http:
            yield scene, http
    finally:
        writer.cancel()


def test_letters_come_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page has a bounded size and names the next one; all pages together hold all letters."""

    async def whole() -> None:
        async with served(tmp_path, each=9) as (scene, http):
            size = posting_size(scene.small.round)
            monkeypatch.setattr(board_letters, "PAGE", 3 * size + 1)
            letters = [scene.letter() for _ in range(7)]
            for number, raw in enumerate(letters, start=2):
                answer = await http.post(scene.url, content=raw)
                assert (answer.status_code, answer.json()) == (201, {"place": number})
            whole, since = b"", 0
            pages = []
            while (page := await http.get(scene.url, params={"since": since})).content:
                pages.append(len(page.content) // size)
                whole += page.content
                since = int(page.headers["coatcheck-next"])
            assert (pages, since, whole) == ([3, 3, 1], 7, b"".join(map(scene.shown, letters)))
            assert (await http.get(scene.url, params={"since": 999})).content == b""

    asyncio.run(whole())


def test_an_address_has_a_limit_of_letters(tmp_path: Path) -> None:
    """A letter over the limit is refused, a repeated one is known, other addresses have room."""

    async def whole() -> None:
        async with served(tmp_path) as (scene, http):
            letters = [scene.letter() for _ in range(3)]
            for raw in letters:
                assert (await http.post(scene.url, content=raw)).status_code == 201
            for _ in range(2):
                more = await http.post(scene.url, content=scene.letter())
                assert more.status_code == 409
                assert "limit of letters" in more.json()["detail"]
                again = await http.post(scene.url, content=letters[0])
                assert (again.status_code, again.json()) == (201, {"place": 2})
                await scene.service.load()
            assert (await http.post(scene.url, content=scene.letter(1))).status_code == 201
            assert (await http.post(scene.url, content=scene.letter(1)[:-1])).status_code == 400

    asyncio.run(whole())


def test_several_letters_come_at_once(tmp_path: Path) -> None:
    """One request may carry several letters; a torn letter, or too many, are refused."""

    async def whole() -> None:
        async with served(tmp_path, each=99) as (scene, http):
            letters = [scene.letter(to) for to in (0, 1, 0)]
            for _ in range(2):
                answer = await http.post(scene.url, content=b"".join(letters))
                assert (answer.status_code, answer.json()) == (201, {"place": 2})
            shown = await http.get(scene.url)
            assert shown.content == b"".join(map(scene.shown, letters))
            cut = await http.post(scene.url, content=b"".join(letters)[:-1])
            assert cut.status_code == 400
            most = AT_ONCE * len(letters[0])
            assert (await http.post(scene.url, content=bytes(most + 1))).status_code == 413

    asyncio.run(whole())


def test_strangers_cannot_mute_an_address(tmp_path: Path) -> None:
    """Of 10,000 letters from people who know only an address none is shown; the partner's is."""

    async def whole() -> None:
        async with served(tmp_path, each=3) as (scene, http):
            size = scene.small.round.suite.contact_size
            real = scene.letter()
            junk = [os.urandom(size) + scene.shown(scene.letter()) for _ in range(9)]
            # The contact of somebody else, and a good letter before a bad one.
            junk += [scene.letter(1)[:size] + scene.shown(real), real + junk[0]]
            for _ in range(10_000 // 64 + 1):
                many = await http.post(scene.url, content=b"".join(junk[:9] * 7 + junk[:1]))
                assert many.status_code in {403, 429}
            for raw in junk:
                assert (await http.post(scene.url, content=raw)).status_code == 403
            assert (await http.post(scene.url, content=scene.shown(real))).status_code == 400
            assert not (await http.get(scene.url)).content
            assert (await http.post(scene.url, content=real)).status_code == 201
            assert (await http.get(scene.url)).content == scene.shown(real)

    asyncio.run(whole())


def test_letters_end_after_the_round(tmp_path: Path) -> None:
    """Letters are accepted for a while after a round expires, then refused; old ones stay."""

    async def whole() -> None:
        async with served(tmp_path) as (scene, http):
            terms = scene.small.round.terms
            scene.wait(terms.expires - terms.closes + scene.settings.letters_for - 1)
            assert (await http.post(scene.url, content=scene.letter())).status_code == 201
            scene.wait(1)
            assert (await http.post(scene.url, content=scene.letter())).status_code == 409
            assert (await http.get(scene.url)).content

    asyncio.run(whole())


def test_a_standby_process_signs_for_no_log(tmp_path: Path) -> None:
    """A standby does not sign: its older log would look like a log that shrank."""

    async def whole() -> None:
        async with served(tmp_path) as (scene, http):
            assert (await http.get("http://board/checkpoint")).status_code == 200
            await scene.service.leadership.end()
            for path in ("checkpoint", "proofs/inclusion?place=0&size=1"):
                assert (await http.get(f"http://board/{path}")).status_code == 503

    asyncio.run(whole())
