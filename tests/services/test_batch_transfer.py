"""Batches pass from role to role in partitions, despite crashes, and only if signed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.agreement import read_signed
from coatcheck.protocol.wire import batches as manifests
from coatcheck.protocol.wire.batches import Manifest
from coatcheck.services.batch_transfer import OUT, delivery_headers, hand_on, part_name
from coatcheck.services.server.routes import ServerService
from coatcheck.services.server.store import ServerRound
from coatcheck.services.settings import ServerSettings, read_settings
from coatcheck.services.web.client import HttpAnswer, HttpClient, body_of
from coatcheck.services.web.connections import Message
from support.shufflers import LoneShuffler, lone_shuffler


class Wire(HttpClient):
    """The connection from the shuffler to the server, without a socket; a test may cut it.

    Attributes:
        sent: the paths asked for, with their methods.
        left: how many requests go through before the way is cut.
    """

    def __init__(self, service: ServerService) -> None:
        self.service = service
        self.sent: list[tuple[str, str]] = []
        self.left = 10**6

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    async def send(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> bytes:
        """Send a request to the server unless the connection is cut."""
        if not self.left:
            raise Unavailable("the way is cut")
        self.left -= 1
        path = "/" + url.partition("//")[2].partition("/")[2]
        self.sent.append((method, path.rpartition("/")[2]))
        lines = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
        lines.append((b"content-length", b"%d" % len(body)))
        scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": lines}
        scope["query_string"] = b""
        said: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def reply(message: Message) -> None:
            said.append(message)

        await self.service({**scope, "client": ("127.0.0.1", 1)}, receive, reply)
        raw = b"".join(message.get("body", b"") for message in said)
        return body_of(url, HttpAnswer(said[0]["status"], {}, raw))


class Scene:
    """A shuffler with a batch of 16 partitions, and the server that is to receive it."""

    def __init__(self, lone: LoneShuffler, folder: Path, **settings: Any) -> None:
        self.lone = lone
        config = read_settings(folder / "server.toml", role="server", kind=ServerSettings)
        plain = {name: getattr(config, name) for name in config.__struct_fields__}
        self.server = ServerService(ServerSettings(**{**plain, "store": "memory:", **settings}))
        self.wire = Wire(self.server)
        self.digest = lone.round.digest

    async def begin(self) -> None:
        """Let the server await the batch."""
        await self.server.leadership.renew()
        signed = self.lone.signed
        fresh = ServerRound(self.digest, read_signed(signed).document[:20], signed)
        await self.server.write(self.server.store.begin, fresh)
        await self.server.write(self.server.store.agree, self.digest, signed)
        await self.server.refresh()
        self.lone.service.peers = self.wire

    async def hand_on(self) -> None:
        """Let the shuffler send its batch to the server."""
        mine = self.lone.round.terms.shufflers[0].verifying
        to = self.lone.round.terms.server.url
        await hand_on(self.lone.service, self.lone.live, to=to, signer=mine)

    async def send(self, where: str, raw: bytes, *, method: str = "POST") -> bytes:
        """Send bytes as the shuffler would."""
        mine = self.lone.round.terms.shufflers[0].verifying
        signing = self.lone.service.keyring.of(mine).signing
        headers = delivery_headers(raw, digest=self.digest, signing=signing)
        url = f"{self.lone.round.terms.server.url}/rounds/{self.digest.hex()}/{where}"
        return await self.wire.send(url, raw, headers=headers, method=method)

    def manifest(self) -> Manifest:
        """Return the manifest that the shuffler signed."""
        return Manifest.decode(self.raw(), self.lone.round)

    def raw(self) -> bytes:
        """Return the bytes that the shuffler signed."""
        return self.lone.service.store.blob(self.digest, "batch")

    def part(self, number: int) -> bytes:
        """Return a partition."""
        return self.lone.service.store.files(self.digest).get(part_name(OUT, number), use="batch")

    @property
    def phase(self) -> str:
        """Return the round's phase at the server."""
        return self.server.store.round(self.digest).phase.value


@asynccontextmanager
async def scene(
    folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> AsyncIterator[Scene]:
    """Provide a batch released in many partitions."""
    monkeypatch.setattr(manifests, "_BITS", 1)
    async with lone_shuffler(folder) as lone:
        await lone.upload(9)
        assert await lone.wait(200) == "released"
        made = Scene(lone, folder, **settings)
        await made.begin()
        yield made
        made.server.workers.close()


def test_only_what_is_missing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection fails after each request: every partition arrives once, then the batch."""

    async def whole() -> None:
        async with scene(tmp_path, monkeypatch) as made:
            count = sum(map(len, made.manifest().parts))
            assert count == 16
            for _ in range(count):
                made.wire.left = 2
                with pytest.raises(Unavailable, match="cut"):
                    await made.hand_on()
                assert made.phase == "awaiting"
            made.wire.left = 2
            await made.hand_on()
            assert made.phase == "batched"
            puts = [name for method, name in made.wire.sent if method == "PUT"]
            assert sorted(puts, key=int) == [str(number) for number in range(count)]
            # Again, nothing changes, and nothing is sent but the manifest.
            del made.wire.sent[:]
            await made.hand_on()
            assert made.wire.sent == [("POST", "batch")]

    asyncio.run(whole())


def test_no_other_partition_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is early, beyond the manifest, misnumbered or altered is refused."""

    async def whole() -> None:
        async with scene(tmp_path, monkeypatch) as made:
            sizes = [place.size for place in made.manifest().places(made.lone.round)]
            full = next(n for n, size in enumerate(sizes) if size)
            with pytest.raises(Refused, match="manifest first"):
                await made.send(f"batch/{full}", made.part(full), method="PUT")
            await made.send("batch", made.raw())
            with pytest.raises(Refused, match="no such partition"):
                await made.send(f"batch/{len(sizes)}", b"", method="PUT")
            raw = made.part(full)
            with pytest.raises(Refused, match=f"send partition {full} again"):
                await made.send(f"batch/{full}", raw[:-1] + bytes([raw[-1] ^ 1]), method="PUT")
            with pytest.raises(Refused, match="at most"):
                await made.send(f"batch/{full}", raw + b"x", method="PUT")
            assert not made.server.store.blobs.names((made.digest, "round"))
            await made.hand_on()
            assert made.phase == "batched"

    asyncio.run(whole())


def test_the_first_manifest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second manifest of the same shuffler is refused, before and after the batch is complete."""

    async def whole() -> None:
        async with scene(tmp_path, monkeypatch) as made:
            keys = made.lone.service.keyring.of(made.lone.round.terms.shufflers[0].verifying)
            first = made.manifest()
            parts = [[*reversed(group)] for group in first.parts]
            other = Manifest.compose(parts, first.tallies, digest=first.digest)
            second = other.sign(keys.signing.sign)
            assert second != made.raw()
            await made.send("batch", made.raw())
            with pytest.raises(Refused, match="has another batch of this round already"):
                await made.send("batch", second)
            await made.hand_on()
            with pytest.raises(Refused, match="has another batch of this round already"):
                await made.send("batch", second)

    asyncio.run(whole())


def test_a_batch_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest alone shows the batch's size: nothing is stored."""

    async def whole() -> None:
        async with scene(tmp_path, monkeypatch, batch_limit=2000) as made:
            with pytest.raises(Refused, match="at most 2000 bytes"):
                await made.hand_on()
            assert not made.server.store.round_keys.listed()

    asyncio.run(whole())


def test_a_manifest_whose_key_is_gone_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that lost the key of an awaited batch deletes its files and accepts it anew."""

    async def whole() -> None:
        async with scene(tmp_path, monkeypatch) as made:
            made.wire.left = 4
            with pytest.raises(Unavailable):
                await made.hand_on()
            made.server.store.round_keys.destroy(made.digest, "round")
            made.wire.left = 10**6
            await made.hand_on()
            assert made.phase == "batched"
            puts = [name for method, name in made.wire.sent if method == "PUT"]
            assert len(puts) == 16 + 3

    asyncio.run(whole())
