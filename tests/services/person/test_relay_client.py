"""A client behind a relay: which gateway keys it accepts, and which addresses it refuses."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.oblivious_http import UNTIL, Request, Response, message_size
from coatcheck.services.documents import NUMBERS
from coatcheck.services.person.relay_client import RelayedClient
from coatcheck.services.relay import RelayService
from coatcheck.services.settings import RelaySettings
from coatcheck.services.web.client import BULK, HttpAnswer, check_apart, origin_of
from support.relay_scene import BOARD, Relayed, Scene, run


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Provide a fresh scene."""
    made = Scene(tmp_path)
    yield made
    made.board.store.close()


def test_a_client_takes_keys_of_the_right_role_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys signed by an untrusted key or by the wrong role are refused before anything is sent."""
    monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
    key = scene.board.keyring.current.signing.public_raw
    url = f"{BOARD}/checkpoint"

    async def whole() -> None:
        await scene.board.leadership.renew()
        person = Relayed(scene, Trust(board=frozenset((key,))))
        assert await person.client.get(url) == scene.board.seen.checkpoint
        for trusted in (
            Trust(),
            Trust(server=frozenset((key,))),
            Trust(shufflers=(frozenset((key,)),)),
        ):
            person = Relayed(scene, trusted)
            with pytest.raises(Refused, match="nothing was sent"):
                await person.client.get(url)
            assert len(person.asked) == 1
        # Keys change under a client: it fetches them again, and asks once more.
        person = Relayed(scene, Trust(board=frozenset((key,))))
        assert await person.client.get(url)
        scene.now += 1.5 * scene.board.settings.gateway_period
        scene.relay._keys.clear()
        scene.board.gateway._keys.clear()
        assert await person.client.get(url)
        # A relay that hands out yesterday's keys for ever is told as such.
        scene.now += 5 * scene.board.settings.gateway_period
        with pytest.raises(Unavailable, match="expired"):
            await person.client.get(url)
        assert all(one.startswith("http://127.0.0.1:9/gateways/") for one in person.asked)
        await scene.board.leadership.end()

    run(whole)


@pytest.mark.parametrize(
    ("relay", "role", "together"),
    [
        ("https://relay.a.org", "https://board.a.org", True),
        ("https://a.org", "https://board.a.org:8443", True),
        ("https://relay.a.co.uk", "https://board.a.co.uk", True),
        ("https://a.co.uk", "https://b.co.uk", False),
        ("https://relay.foo.io", "https://board.foo.io", True),
        ("https://ab.de", "https://board.ab.de", True),
        ("https://relay.org", "https://board.org", False),
        ("https://relay.b.org", "https://board.a.org", False),
        ("https://10.0.0.1", "https://10.0.0.1:8443", True),
        ("https://10.0.0.1", "https://10.0.0.2", False),
        ("http://127.0.0.1:1", "http://127.0.0.1:2", False),
        ("http://localhost", "http://localhost", False),
    ],
)
def test_a_relay_serves_no_role_of_its_own_operator(
    relay: str, role: str, *, together: bool
) -> None:
    """The relay at its start, and the client, refuse addresses in the relay's own domain."""
    if not together:
        check_apart(relay, role)
        RelayService(RelaySettings(name="relay", url=relay, gateways=(role,)))
        return
    with pytest.raises(Misuse, match="one operator"):
        RelayService(RelaySettings(name="relay", url=relay, gateways=(role,)))

    async def whole() -> None:
        client = RelayedClient(relay, first=role, trusted=Trust())
        with pytest.raises(Misuse, match="one operator"):
            await client.get(f"{role}/checkpoint")
        await client.close()

    run(whole)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://a", "http://", "http://a:b", "http://u@a"])
def test_a_malformed_relay_address_is_explained(url: str) -> None:
    """The error says what address to give."""
    with pytest.raises(Misuse, match="give https://HOST"):
        origin_of(url)
    with pytest.raises(Misuse, match="give https://HOST"):
        RelayedClient(url, first=BOARD, trusted=Trust())
    with pytest.raises(Misuse, match="without a path"):
        RelayedClient("https://a/b", first=BOARD, trusted=Trust())


class Answering(Relayed):
    """A client whose board answers as the test says, correctly sealed."""

    def __init__(self, scene: Scene, reply: Callable[[bytes], Response]) -> None:
        scene.now = time.time()
        key = scene.board.keyring.current.signing.public_raw
        super().__init__(scene, Trust(board=frozenset((key,))))
        self.reply = reply
        self.until: str | None = None

    async def exchange(self, method: str, url: str, body: bytes = b"", **more: Any) -> HttpAnswer:
        """Answer as the relay, or as the board behind it."""
        if method == "GET":
            found = await super().exchange(method, url, body, **more)
            told = {} if self.until is None else {UNTIL: self.until}
            return HttpAnswer(found.status, {**found.headers, **told}, found.body)
        self.asked.append(url)
        assert len(self.asked) < 50, "it asks for ever"
        opened = self.scene.board.gateway.open(body)
        text = self.reply(Request.decode(opened.text).path).encode()
        size = message_size(len(text), overhead=opened.overhead)
        return HttpAnswer(200, {}, opened.answer(text.ljust(size, b"\0")))


@pytest.mark.parametrize("until", ["-1", str(1 << 64), "9" * 5000, "1_000", "\u0663", " 1", ""])
def test_an_end_of_keys_that_is_no_time_is_refused(until: str, scene: Scene) -> None:
    """An expiry of keys that is no valid time is refused."""

    async def whole() -> None:
        person = Answering(scene, lambda _: Response(200))
        person.until = until
        with pytest.raises(Refused, match="not signed"):
            await person.client.get(f"{BOARD}/checkpoint")

    run(whole)


@pytest.mark.parametrize("total", [b"1000000", b"9" * 12])
def test_a_board_whose_pieces_are_empty_is_not_asked_for_ever(total: bytes, scene: Scene) -> None:
    """The client stops when pieces are empty, or when the board claims more than the limit."""
    place = (b"content-range", b"bytes 0-0/" + total)

    async def whole() -> None:
        person = Answering(scene, lambda _: Response(206, (place,), b""))
        with pytest.raises(Refused, match="without end"):
            await person.client.get(f"{BOARD}/bulletin", most=BULK)

    run(whole)


def test_strange_answers_are_refused_or_read_but_break_nothing(scene: Scene) -> None:
    """A length of 5,000 digits, a header that is not UTF-8 and deep nesting do no harm."""

    async def whole() -> None:
        place = (b"content-range", b"bytes 0-0/" + b"9" * 5000)
        person = Answering(scene, lambda _: Response(206, (place,), b"x"))
        assert await person.client.get(f"{BOARD}/bulletin", most=BULK) == b"x"
        person.reply = lambda _: Response(200, ((NUMBERS.encode(), b"\xff"),), b"x")
        assert await person.client.page(f"{BOARD}/letters") == (b"x", {NUMBERS: "\xff"})
        deep = b'{"detail":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        person.reply = lambda _: Response(400, (), deep)
        with pytest.raises(Refused, match="status 400"):
            await person.client.get(f"{BOARD}/checkpoint")

    run(whole)
