"""A person's client behind a relay: whose keys it takes, and which addresses it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coatcheck.errors import Misuse, Refused, Unavailable
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.origins import apart, origin_of
from coatcheck.services.person.relayed import RelayedClient
from coatcheck.services.relay.service import RelayService
from coatcheck.services.settings import RelaySettings
from relay_scene import BOARD, Relayed, Scene, run


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A fresh scene."""
    made = Scene(tmp_path)
    yield made
    made.board.store.close()


def test_a_client_takes_keys_of_the_right_role_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that nobody trusted signed, or the wrong role, are refused before anything is sent."""
    monkeypatch.setattr("coatcheck.services.person.relayed.time.time", lambda: scene.now)
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
        scene.relay._kept.clear()
        scene.board.gateway._keys.clear()
        assert await person.client.get(url)
        # A relay that hands out yesterday's keys for ever is told as such.
        scene.now += 5 * scene.board.settings.gateway_period
        with pytest.raises(Unavailable, match="yesterday"):
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
    """By domain, at the relay's start and at the client."""
    if not together:
        apart(relay, role)
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
def test_an_address_that_is_none_gets_a_sentence(url: str) -> None:
    """One sentence says what to give."""
    with pytest.raises(Misuse, match="give https://HOST"):
        origin_of(url)
    with pytest.raises(Misuse, match="give https://HOST"):
        RelayedClient(url, first=BOARD, trusted=Trust())
    with pytest.raises(Misuse, match="without a path"):
        RelayedClient("https://a/b", first=BOARD, trusted=Trust())
