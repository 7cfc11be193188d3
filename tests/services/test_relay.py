"""The gateway and the relay separately: key changes, and one answer to each fault."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.oblivious_http import (
    GATEWAY_PATH,
    SIZES,
    SLACK,
    GatewayKey,
    Request,
    Response,
    SealedRequest,
    SignedKeys,
    read_keys,
    seal_request,
    write_keys,
)
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.bulletins import PERIOD, KeyList
from coatcheck.services.clock import Clock
from coatcheck.services.local_cluster import Cluster
from coatcheck.services.relay import RelayService
from coatcheck.services.settings import Keyring
from coatcheck.services.web.client import HttpAnswer, Origin
from coatcheck.services.web.gateway import LATE, Gateway
from coatcheck.services.web.routing import MEDIA, OHTTP_KEY
from coatcheck.stores.round_keys import RoundKeys
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


def test_a_key_is_for_one_day_and_opens_late_requests(scene: Scene) -> None:
    """A new key begins at each midnight (UTC); the old one opens for two hours more."""
    scene.now = 20_000 * PERIOD - 1.0
    secrets = scene.board.store.round_keys

    async def status(sealed: SealedRequest) -> int:
        return (await ask(scene.board, "POST", GATEWAY_PATH, sealed.raw, SEALED)).status

    async def whole() -> None:
        first = await scene.keys()
        assert first.until == 20_000 * PERIOD
        old = await scene.sealed(get(b"/checkpoint"))
        scene.now += 2
        second = await scene.keys()
        assert (second.until, second.keys != first.keys) == (20_001 * PERIOD, True)
        new = await scene.sealed(get(b"/checkpoint"))
        scene.now += LATE - 2
        assert [await status(one) for one in (old, new)] == [200, 200]
        assert await erased() == [19_999, 20_000]
        scene.now += 2
        assert [await status(one) for one in (old, new)] == [400, 200]
        assert await erased() == [20_000]
        scene.now += PERIOD
        assert [await status(one) for one in (old, new)] == [400, 400]
        assert await erased() == [20_001]

    async def erased() -> list[int]:
        task = asyncio.create_task(scene.board.gateway.run())
        await asyncio.sleep(0.05)
        task.cancel()
        return secrets.gateway_periods()

    run(whole)


def test_a_gateway_has_one_key_per_day_whatever_stops(tmp_path: Path) -> None:
    """A restart and a second process of the role show the same key, and erased ones stay erased."""
    now = 20_000.5 * PERIOD
    clock = Clock(wall=lambda: now, steady=lambda: now)
    Cluster(tmp_path)
    ring, folder = Keyring([tmp_path / "board.key"]), tmp_path / "rounds"

    def started() -> SignedKeys:
        return Gateway(ring, RoundKeys(folder), clock=clock).signed()

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda _: started(), range(32)))
    assert len(set(together)) == 1
    secret = folder / "gateway.20000"
    assert (secret.stat().st_mode & 0o777, len(secret.read_bytes())) == (0o600, 32)
    os.link(secret, tmp_path / "other")
    RoundKeys(folder).forget_gateway_secret(20_000)
    assert (tmp_path / "other").read_bytes() == bytes(32)
    assert started().keys != together[0].keys


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
        scene.relay.settings = scene.relay_settings(waiting=1)
        scene.relay._in_progress = 1
        assert (await ask(scene.relay, "POST", where, good, SEALED)).status == 429

    run(whole)


WHERE = "/gateways/127.0.0.1:7"


class KeyPerPerson(Scene):
    """A gateway that signs a fresh key whenever the relay asks, and then denies the one before."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made = 0
        self.ends = (int(self.now) // PERIOD + 1) * PERIOD

    def fresh_key(self) -> SignedKeys:
        """Sign another key for today."""
        self.made += 1
        keys = write_keys([GatewayKey(self.made, bytes([self.made] * 32))])
        signatures = self.board.keyring.sign_by_all(KeyList.signed_part(keys, self.ends))
        return SignedKeys(keys, self.ends, tuple(signatures))

    async def exchange(
        self, method: str, origin: Origin, path: str, body: bytes, *, headers: dict[str, str]
    ) -> HttpAnswer:
        """Answer as the gateway of the attack."""
        del origin, path, body, headers
        self.fetched.append(method)
        if method == "GET":
            signed = self.fresh_key()
            return HttpAnswer(200, signed.headers, signed.keys)
        return HttpAnswer(400, {"content-type": MEDIA}, b'{"type":"%b"}' % OHTTP_KEY.encode())


@pytest.fixture
def cheat(tmp_path: Path) -> Iterator[KeyPerPerson]:
    """Provide a scene whose gateway gives each person a key."""
    made = KeyPerPerson(tmp_path)
    yield made
    made.board.store.close()


def test_a_gateway_cannot_give_each_person_a_key(cheat: KeyPerPerson) -> None:
    """Three people get one list, whatever the gateway says about its keys, and after restarts."""

    async def person() -> bytes:
        listed = await ask(cheat.relay, "GET", WHERE)
        assert listed.status == 200
        refused = await ask(cheat.relay, "POST", WHERE, b"sealed to it".ljust(4096), SEALED)
        assert json.loads(refused.body)["type"] == OHTTP_KEY
        return listed.body

    async def whole() -> None:
        lists = []
        for _ in range(3):
            lists.append(await person())
            cheat.now += 3_000  # longer than any cache of less than a day
        assert len(set(lists)) == 1
        clock, cheat.relay = cheat.relay.clock, RelayService(cheat.relay_settings())
        cheat.relay.clock, cheat.relay._pool = clock, cheat  # type: ignore[assignment]
        assert await person() == lists[0]
        assert cheat.fetched.count("GET") == 1
        # The day ends: the gateway may announce another key, but not a second one for that day.
        cheat.now = cheat.ends + 1.0
        assert await person() == lists[0]  # within the slack, as the gateway has none for today
        cheat.now += SLACK
        assert (await ask(cheat.relay, "GET", WHERE)).status == 503
        cheat.ends += PERIOD
        assert await person() not in lists

    run(whole)
    assert len(list(Path(cheat.lists).iterdir())) == 2


def test_a_day_of_the_relay_ends_with_the_list(scene: Scene) -> None:
    """After midnight the relay fetches the next list; while it cannot, the old one serves."""
    scene.now = 20_000 * PERIOD - 10.0

    async def whole() -> None:
        first = await ask(scene.relay, "GET", WHERE)
        scene.now += 20
        scene.away = True
        assert (await ask(scene.relay, "GET", WHERE)).body == first.body
        asked = len(scene.fetched)
        for _ in range(20):
            assert (await ask(scene.relay, "GET", WHERE)).body == first.body
        assert len(scene.fetched) <= asked + 1  # not once per request
        scene.away, scene.relay._fetched = False, {}
        assert (await ask(scene.relay, "GET", WHERE)).body != first.body
        scene.away = True
        scene.now += PERIOD + SLACK
        assert (await ask(scene.relay, "GET", WHERE)).status == 503

    run(whole)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"keys":1}'])
def test_a_damaged_key_list_is_not_replaced(scene: Scene, damage: bytes) -> None:
    """A relay that cannot read what it gave out gives out nothing else for that day."""

    async def status() -> int:
        return (await ask(scene.relay, "GET", WHERE)).status

    assert asyncio.run(status()) == 200
    (path,) = Path(scene.lists).iterdir()
    path.write_bytes(damage)
    scene.relay._keys.clear()
    assert asyncio.run(status()) == 503
    assert path.read_bytes() == damage


def test_simultaneous_requests_get_the_same_keys(cheat: KeyPerPerson) -> None:
    """A gateway that makes a key per request is asked once."""

    async def whole() -> None:
        answers = await asyncio.gather(*(ask(cheat.relay, "GET", WHERE) for _ in range(10)))
        assert [one.status for one in answers] == [200] * 10
        assert len({one.body for one in answers}) == 1
        assert cheat.fetched == ["GET"]

    run(whole)


def test_a_finished_request_frees_its_place(scene: Scene) -> None:
    """A relay with room for one request accepts one after the other, whatever their results."""
    where = "/gateways/127.0.0.1:7"
    scene.relay.settings = scene.relay_settings(waiting=1)

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
