"""A client behind a relay: which gateway keys it accepts, and which addresses it refuses."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Equivocation, Misuse, Refused, Unavailable
from coatcheck.protocol.agreement import Trust
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.oblivious_http import (
    UNTIL,
    GatewayKey,
    Request,
    Response,
    SignedKeys,
    message_size,
    write_keys,
)
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.bulletins import PERIOD, KeyList
from coatcheck.services.documents import NUMBERS
from coatcheck.services.person.relay_client import RelayedClient, SeenKeys
from coatcheck.services.relay import RelayService
from coatcheck.services.settings import RelaySettings
from coatcheck.services.web.client import BULK, HttpAnswer, check_apart, origin_of
from support.asking import ask
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
        # A day ends under a client: it fetches the next list, once.
        person = Relayed(scene, Trust(board=frozenset((key,))))
        assert await person.client.get(url)
        assert await person.client.get(url)
        scene.now += PERIOD
        assert await person.client.get(url)
        assert len(person.asked) == 5
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
    relay: str, role: str, tmp_path: Path, *, together: bool
) -> None:
    """The relay at its start, and the client, refuse addresses in the relay's own domain."""
    if not together:
        check_apart(relay, role)
        RelayService(
            RelaySettings(name="relay", url=relay, gateways=(role,), key_lists=str(tmp_path))
        )
        return
    with pytest.raises(Misuse, match="one operator"):
        RelayService(
            RelaySettings(name="relay", url=relay, gateways=(role,), key_lists=str(tmp_path))
        )

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


class Listing(Relayed):
    """A client whose relay gives the lists that the test says, one after the other."""

    def __init__(self, scene: Scene, lists: list[SignedKeys], *, seen: Path | None = None) -> None:
        key = scene.board.keyring.current.signing.public_raw
        super().__init__(scene, Trust(board=frozenset((key,))), seen=seen)
        self.lists = lists

    async def exchange(self, method: str, url: str, body: bytes = b"", **more: Any) -> HttpAnswer:
        """Answer as the relay; the board behind it opens what is sealed to the key of today."""
        if method != "GET":
            return await super().exchange(method, url, body, **more)
        self.asked.append(url)
        signed = self.lists.pop(0)
        return HttpAnswer(200, signed.headers, signed.keys)


def list_of(scene: Scene, number: int, period: int) -> SignedKeys:
    """Return a list with a key of its own, signed by the board for a period."""
    keys, until = write_keys([GatewayKey(number, bytes([number] * 32))]), (period + 1) * PERIOD
    return SignedKeys(
        keys, until, tuple(scene.board.keyring.sign_by_all(KeyList.signed_part(keys, until)))
    )


def test_a_client_refuses_a_second_list_of_a_day(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another key for the same day is refused with both lists as proof, also by the next program.

    Of the list that was seen first the client goes on to make use, so that nobody can move it to a
    key of its own.
    """
    monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
    scene.now, today = 20_000.5 * PERIOD, 20_000
    seen, url = tmp_path / "person" / "boards.gateways", f"{BOARD}/checkpoint"

    async def whole() -> None:
        await scene.board.leadership.renew()
        true = await scene.keys()
        false = list_of(scene, 9, today)
        person = Listing(scene, [true], seen=seen)
        assert await person.client.get(url)
        # A relay that lies about the gateway makes the client ask again; the second list shows.
        monkeypatch.setattr(scene.board.gateway, "_keys", {})
        monkeypatch.setattr(scene.board.gateway, "signed", lambda: false)
        person.lists = [false, true]
        with pytest.raises(Equivocation, match="two key lists for one day"):
            await person.client.get(url)
        with pytest.raises(Unavailable, match="at the latest tomorrow"):
            await person.client.get(url)  # the relay shows the first list again
        monkeypatch.undo()
        monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
        later = Listing(scene, [], seen=seen)  # a restart: the seen list is used, none is fetched
        scene.board.gateway._keys = {}
        assert await later.client.get(url)
        assert len(later.asked) == 1
        # Two programs of one person that get different lists at the same time.
        other = Listing(scene, [false], seen=tmp_path / "person" / "boards.gateways")
        other.client._seen._lists["x"] = true
        monkeypatch.setattr(other.client._seen, "get", lambda _: None)
        with pytest.raises(Equivocation):
            await other.client.get(url)
        assert len(other.asked) == 1
        await scene.board.leadership.end()

    run(whole)
    first, second = (json.loads(path.read_bytes()) for path in (seen, Path(f"{seen}.second")))
    assert first["127.0.0.1:7"]["until"] == second["127.0.0.1:7"]["until"] == 20_001 * PERIOD
    assert first != second


@pytest.mark.parametrize(
    ("period", "error"),
    [(19_999, "not for today"), (20_001, "not for today"), (10, "not for today")],
)
def test_a_list_of_another_day_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, period: int, error: str
) -> None:
    """A list that has ended or not begun is refused; near midnight a clock may be an hour off."""
    monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
    scene.now = 20_000.5 * PERIOD

    async def whole() -> None:
        person = Listing(scene, [list_of(scene, 1, period)])
        with pytest.raises(Unavailable, match=error):
            await person.client.get(f"{BOARD}/checkpoint")
        assert len(person.asked) == 1

    run(whole)
    edges = [list_of(scene, 1, 20_000).covers(20_000 * PERIOD + at) for at in (-3601, -3600)]
    ends = [list_of(scene, 1, 20_000).covers(20_001 * PERIOD + at) for at in (3599, 3600)]
    assert (edges, ends) == ([False, True], [True, False])


def test_a_relay_that_helps_cannot_give_each_person_a_key_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board's log has one list of a day, and a client uses no other one, even a signed one."""
    monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
    scene.now = 20_000.5 * PERIOD
    signer = scene.board.keyring.current.signing.public_raw
    places: list[int] = []

    async def person(signed: SignedKeys) -> Listing:
        """Take part through a relay that has a list for this person."""
        each = Listing(scene, [signed])

        async def logged(keys: KeyList, peers: RelayedClient) -> None:
            logged = json.loads(await peers.send(f"{BOARD}/gateways", keys.encode()))
            places.append(logged["place"])

        each.client.check_lists(logged, signers={BOARD: signer.hex()})
        number = signed.keys[2]
        scene.board.gateway._keys[20_000] = GatewayKey(number, bytes([number] * 32))
        assert await each.client.get(f"{BOARD}/checkpoint")
        return each

    async def whole() -> None:
        await scene.board.leadership.renew()
        writing = asyncio.create_task(scene.board.commits.run())
        scene.board.gateway.signed()
        await person(list_of(scene, 1, 20_000))
        await person(list_of(scene, 1, 20_000))
        for number in (2, 3):
            with pytest.raises(Refused, match="another key list of this role and day"):
                await person(list_of(scene, number, 20_000))
        writing.cancel()
        await scene.board.leadership.end()

    run(whole)
    assert places == [0, 0]


def test_the_board_logs_lists_of_roles_that_it_knows(scene: Scene) -> None:
    """A stranger's list, a forged one and one of another day have an error each, and no place."""
    scene.now = 20_000.5 * PERIOD

    async def status(signed: SignedKeys, verifying: bytes) -> int:
        signature = signed.signatures[0]
        raw = KeyList(verifying, signed.until, signature, signed.keys).encode()
        return (await ask(scene.board, "POST", "/gateways", raw)).status

    async def whole() -> None:
        await scene.board.leadership.renew()
        writing = asyncio.create_task(scene.board.commits.run())
        own = scene.board.keyring.current.signing.public_raw
        stranger = KeyPairs(CLASSICAL, bytes(32)).signing.public_raw
        other = next(iter(scene.board.trusted))
        today = list_of(scene, 1, 20_000)
        assert await status(today, stranger) == 403
        assert await status(today, other) == 403
        assert await status(list_of(scene, 1, 19_998), own) == 409
        assert await status(list_of(scene, 1, 20_002), own) == 409
        assert (await ask(scene.board, "POST", "/gateways", b"x")).status == 400
        assert len(scene.board.read_snapshot(lambda log: log.leaves(0, 9))) == 0
        assert await status(today, own) == 201
        writing.cancel()
        await scene.board.leadership.end()

    run(whole)


def test_an_older_list_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has seen the list of a new day does not go back, however wrong its clock is."""
    monkeypatch.setattr("coatcheck.services.person.relay_client.time.time", lambda: scene.now)
    seen = SeenKeys()
    seen.keep("a", list_of(scene, 1, 20_001))
    with pytest.raises(Refused, match="older"):
        seen.keep("a", list_of(scene, 2, 20_000))
    resigned = list_of(scene, 1, 20_001)
    seen.keep("a", SignedKeys(resigned.keys, resigned.until, (b"by another key",)))


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


@pytest.mark.parametrize(
    "until", ["-1", str(1 << 64), "86401", "9" * 5000, "1_000", "\u0663", " 1", ""]
)
def test_an_end_of_keys_that_is_no_time_is_refused(until: str, scene: Scene) -> None:
    """An expiry of keys that is no valid time is refused."""

    async def whole() -> None:
        person = Answering(scene, lambda _: Response(200))
        person.until = until
        with pytest.raises(Refused, match=r"not signed|not for a day"):
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
