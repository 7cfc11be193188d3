"""The gateway and the relay separately: key changes, and one answer to each fault."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    SIZES,
    Request,
    Response,
    SealedRequest,
    SignedKeys,
    read_keys,
    seal_request,
)
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.services.settings import RelaySettings
from coatcheck.services.web.client import HttpAnswer
from coatcheck.services.web.routing import OHTTP_KEY
from support.asking import ask
from support.relay_scene import BOARD, SEALED, Relayed, Scene, get, run


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Provide a fresh scene."""
    made = Scene(tmp_path)
    yield made
    made.board.store.close()


def test_errors_inside_a_sealed_request_are_sealed(scene: Scene) -> None:
    """Unknown and private addresses, no HTTP, Expect: each gets a sealed answer with its status."""
    token = (scene.local.folder / "admin.token").read_bytes()
    digest = b"0" * 64
    cases = [
        (get(b"/nowhere"), 404),
        (get(b"/metrics"), 404),
        (get(b"/rounds", (b"authorization", b"Bearer " + token)), 404),
        (Request(b"PUT", b"https", b"x", b"/rounds/" + digest, (), b"{}"), 404),
        (Request(b"POST", b"https", b"x", b"/rounds/" + digest + b"/bulletin"), 404),
        (Request(b"DELETE", b"https", b"x", b"/checkpoint"), 405),
        (get(b"/checkpoint"), 503),  # nobody leads here
        (get(b"/checkpoint", (b"expect", b"100-continue")), 400),
        (get(b"/rounds/" + digest + b"/heading"), 503),
        (get(GATEWAY_PATH.encode()), 404),
    ]

    async def whole() -> None:
        for request, status in cases:
            found = await scene.inside(request)
            assert found.status == status, request
            assert json.loads(found.content)["status"] == status
        text = seal_request(
            b"\x07 no request".ljust(4000, b"\0"), read_keys((await scene.keys()).keys)
        )
        answer = await ask(scene.board, "POST", GATEWAY_PATH, text.raw, SEALED)
        assert Response.decode(text.open(answer.body)).status == 400

    run(whole)


def test_what_does_not_open_has_one_answer(scene: Scene) -> None:
    """An unknown key and altered bytes get the same problem; wrong lengths get a bare refusal."""

    async def whole() -> None:
        good = (await scene.sealed(get(b"/checkpoint"))).raw
        wrong = [
            bytes((good[0] ^ 1,)) + good[1:],
            good[:-1] + bytes((good[-1] ^ 1,)),
            good[:6] + b"\x03" + good[7:],
            good[:7] + bytes(32) + good[39:],
        ]
        told = [await ask(scene.board, "POST", GATEWAY_PATH, raw, SEALED) for raw in wrong]
        assert {one.status for one in told} == {400}
        assert {json.loads(one.body)["type"] for one in told} == {OHTTP_KEY}
        assert len({one.body for one in told}) == 1
        for raw, status in ((good[:50], 400), (b"", 400), (bytes(SIZES[-1] + 1), 413)):
            response = await ask(scene.board, "POST", GATEWAY_PATH, raw, SEALED)
            assert response.status == status
        plain = await ask(scene.board, "POST", GATEWAY_PATH, good, {"content-type": "text/plain"})
        assert plain.status == 400

    run(whole)


def test_a_replaced_key_works_for_one_more_period(scene: Scene) -> None:
    """After one period a new key is shown; after two the old one opens nothing."""
    period = scene.board.settings.gateway_period

    async def status(sealed: SealedRequest) -> int:
        return (await ask(scene.board, "POST", GATEWAY_PATH, sealed.raw, SEALED)).status

    async def whole() -> None:
        first = await scene.keys()
        assert await scene.keys() == first
        old = await scene.sealed(get(b"/checkpoint"))
        scene.now += period
        second = await scene.keys()
        assert second.keys != first.keys
        assert first.until <= second.until
        new = await scene.sealed(get(b"/checkpoint"))
        assert [await status(one) for one in (old, new)] == [200, 200]
        scene.now += period
        assert [await status(one) for one in (old, new)] == [400, 200]
        scene.now += 5 * period
        assert [await status(one) for one in (old, new)] == [400, 400]

    run(whole)


def test_a_key_opens_nothing_after_its_signed_expiry(scene: Scene) -> None:
    """This holds even if no request came for long, so that the key was replaced late."""
    period = scene.board.settings.gateway_period

    async def whole() -> None:
        first = await scene.keys()
        old = await scene.sealed(get(b"/checkpoint"))
        scene.now += 1.9 * period
        assert (await scene.keys()).keys != first.keys
        for later, status in ((0.05 * period, 200), (0.05 * period, 400)):
            scene.now += later
            assert (scene.now < first.until) == (status == 200)
            response = await ask(scene.board, "POST", GATEWAY_PATH, old.raw, SEALED)
            assert response.status == status

    run(whole)


def test_the_role_signs_its_keys_with_every_key_it_has(scene: Scene) -> None:
    """A client that trusts one of the role's keys can verify them; altered ones fail."""

    async def whole() -> None:
        signed = await scene.keys()
        mine = scene.board.keyring.current.signing.public_raw
        assert signed.is_signed_by(mine)
        assert not SignedKeys(signed.keys, signed.until + 1, signed.signatures).is_signed_by(mine)
        stranger = KeyPairs(CLASSICAL, bytes(32)).signing.public_raw
        assert not signed.is_signed_by(stranger)

    run(whole)


def test_a_long_answer_is_asked_for_in_parts(scene: Scene) -> None:
    """A range of an answer returns as such; a range outside is refused."""

    async def whole() -> None:
        await scene.board.leadership.renew()
        path = b"/checkpoint"
        complete = (await scene.inside(get(path))).content
        part = await scene.inside(get(path, (b"range", b"bytes=10-19")))
        assert (part.status, part.content) == (206, complete[10:20])
        assert dict(part.headers)[b"content-range"] == b"bytes 10-19/%d" % len(complete)
        rest = await scene.inside(get(path, (b"range", b"bytes=100-999")))
        assert rest.content == complete[100:]
        assert (await scene.inside(get(path, (b"range", b"bytes=500-600")))).status == 422
        await scene.board.leadership.end()

    run(whole)


def test_a_client_levels_the_sizes_of_a_round(scene: Scene) -> None:
    """Requests and answers have the size that the longest document of the round needs."""
    sizes: list[tuple[int, int]] = []

    class Measured(Relayed):
        async def exchange(
            self, method: str, url: str, body: bytes = b"", **more: Any
        ) -> HttpAnswer:
            answer = await super().exchange(method, url, body, **more)
            sizes.append((len(body), len(answer.body)))
            return answer

    async def whole() -> None:
        await scene.board.leadership.renew()
        key = scene.board.keyring.current.signing.public_raw
        person = Measured(scene, Trust(board=frozenset((key,))))
        scene.now = time.time()
        for size in (100, 3_000, 4_000, 10_000, 500_000):
            person.client.pad_for(size)
            await person.client.get(f"{BOARD}/checkpoint")
        await scene.board.leadership.end()

    run(whole)
    assert sizes[1:] == [(SIZES[n], SIZES[n]) for n in (0, 0, 1, 1, 2)]


def test_the_relay_has_one_answer_for_each_fault(scene: Scene) -> None:
    """Unknown gateways, wrong media, long bodies, failed gateways: the answers reveal nothing."""
    where = "/gateways/127.0.0.1:7"

    async def whole() -> None:
        good = (await scene.sealed(get(b"/checkpoint"))).raw
        assert (await ask(scene.relay, "POST", where, good, SEALED)).status == 200
        cases = [
            ("/gateways/127.0.0.1:8", good, SEALED, 404),
            ("/gateways/UPPER", good, SEALED, 422),
            (where, good, {"content-type": "text/plain"}, 400),
            (where, bytes(SIZES[-1] + 1), SEALED, 413),
            (where, b"short", SEALED, 400),
            (where, good[:-1], SEALED, 400),
        ]
        for path, body, headers, status in cases:
            response = await ask(scene.relay, "POST", path, body, headers)
            assert response.status == status, path
        for strange in (
            HttpAnswer(200, {"content-type": "text/html"}, b"hello"),
            HttpAnswer(302, {"location": "http://elsewhere"}, b""),
            HttpAnswer(500, {}, b"secret words"),
        ):
            scene.answer = strange
            response = await ask(scene.relay, "POST", where, good, SEALED)
            assert response.status == 503
            assert strange.body not in response.body or not strange.body
        scene.away = True
        assert (await ask(scene.relay, "POST", where, good, SEALED)).status == 503
        scene.relay.settings = RelaySettings(name="relay", gateways=(BOARD,), waiting=1)
        scene.relay._in_progress = 1
        assert (await ask(scene.relay, "POST", where, good, SEALED)).status == 429

    run(whole)


def test_the_relay_gives_all_clients_the_same_keys(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay fetches keys once, and again when the gateway says that it has others."""
    now = [50.0]
    monkeypatch.setattr("coatcheck.services.relay.time.monotonic", lambda: now[0])
    where = "/gateways/127.0.0.1:7"

    async def whole() -> None:
        lists = [await ask(scene.relay, "GET", where) for _ in range(3)]
        assert len({one.body for one in lists}) == 1
        assert scene.fetched == ["GET"]
        old = await scene.sealed(get(b"/checkpoint"))
        now[0] += 0.5
        rubbish = old.raw[:-1] + bytes((old.raw[-1] ^ 1,))
        assert (await ask(scene.relay, "POST", where, rubbish, SEALED)).status == 400
        assert (await ask(scene.relay, "GET", where)).body == lists[0].body
        assert scene.fetched == ["GET", "POST"]  # not again for each rubbish request
        scene.now += 3 * scene.board.settings.gateway_period
        now[0] += 30
        assert (await ask(scene.relay, "GET", where)).body == lists[0].body
        assert (await ask(scene.relay, "POST", where, old.raw, SEALED)).status == 400
        assert (await ask(scene.relay, "GET", where)).body != lists[0].body
        scene.away = True
        now[0] += 1_000
        assert (await ask(scene.relay, "GET", where)).status == 503

    run(whole)


def test_simultaneous_requests_get_the_same_keys(scene: Scene) -> None:
    """A gateway that makes a key per request is asked once."""

    class Own(Scene):
        async def exchange(self, *given: Any, **more: Any) -> HttpAnswer:
            self.board.gateway._renewal = 0.0
            await asyncio.sleep(0.01)
            return await super().exchange(*given, **more)

    scene.__class__ = Own

    async def whole() -> None:
        asked = (ask(scene.relay, "GET", "/gateways/127.0.0.1:7") for _ in range(10))
        found = await asyncio.gather(*asked)
        assert [one.status for one in found] == [200] * 10
        assert len({one.body for one in found}) == 1
        assert scene.fetched == ["GET"]

    run(whole)


def test_a_finished_request_frees_its_place(scene: Scene) -> None:
    """A relay with room for one request accepts one after the other, whatever their results."""
    where = "/gateways/127.0.0.1:7"
    scene.relay.settings = RelaySettings(name="relay", gateways=(BOARD,), waiting=1)

    async def whole() -> None:
        good = (await scene.sealed(get(b"/checkpoint"))).raw
        for body, status in (
            (good, 200),
            (bytes(SIZES[-1] + 1), 413),
            (b"short", 400),
            (good, 200),
        ):
            assert (await ask(scene.relay, "POST", where, body, SEALED)).status == status

    run(whole)
