"""The roles as the page meets them: what a live round asks for, and the demo's processes as such.

`Loopback` speaks plain HTTP to the three processes that the demo started, the same requests that
a person's client sends. It holds no key; what the server saw is opened by the demo, which does.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self

import msgspec

from coatcheck.demo.plays import Play
from coatcheck.demo.stage import Scene
from coatcheck.errors import Refused
from coatcheck.protocol.agreement import SignedTerms, read_signed, settle
from coatcheck.protocol.notices import Checkpoint, posting_size
from coatcheck.protocol.server import Opened
from coatcheck.protocol.terms import Round
from coatcheck.protocol.trust import Trust
from coatcheck.services.http.client import BULK, Blocking
from coatcheck.services.http.routes import OCTETS

_GLANCE: Final = 0.05
_PATIENCE: Final = 120.0
_AGAIN: Final = 4.0


@dataclass(frozen=True)
class Proof:
    """A checkpoint, the place of the bulletin's heading with its path, and one from before."""

    checkpoint: str
    place: int
    path: list[str]
    since: list[str]


class Stage(Protocol):
    """What a live round needs of the roles."""

    @property
    def trusted(self) -> Trust:
        """The verifying keys that people know from elsewhere."""

    def open(self, play: Play) -> SignedTerms:
        """Have a round proposed, counter-signed and opened."""

    def upload(self, raw: bytes) -> bytes:
        """Hand in an upload and return the receipt."""

    def close(self) -> None:
        """Wait until the round's answers are on the board."""

    def bulletin(self) -> bytes:
        """Fetch the whole bulletin."""

    def post(self, posting: bytes) -> None:
        """Post a letter."""

    def letters(self) -> Sequence[bytes]:
        """Fetch every letter of the round."""

    def proof(self, *, since: int = 0) -> Proof:
        """Fetch the board's word that it shows the bulletin to everybody, and only grew."""

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Return what the server saw of each group, which only whoever holds its key can."""


class Loopback:
    """A stage of real processes."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._http = Blocking()
        self._round: Round | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @property
    def trusted(self) -> Trust:
        """The verifying keys that people know from elsewhere."""
        return self._scene.trusted

    def open(self, play: Play) -> SignedTerms:
        """Have a round opened, and fetch its signed terms from the shuffler."""
        offer = msgspec.json.decode(self._get(self._scene.open(play)))
        signed = read_signed(msgspec.json.encode(offer["signed"]))
        self._round = settle(signed)
        return signed

    def upload(self, raw: bytes) -> bytes:
        """Hand in an upload and return the receipt."""
        return self._post(self._at("shuffler", "uploads"), raw)

    def close(self) -> None:
        """Wait until the answers are on the board: the round closes with its last person."""
        until = time.monotonic() + _PATIENCE
        while not self._scene.published():
            self._scene.check()
            if time.monotonic() > until:
                raise Refused(f"the round was not answered within {_PATIENCE:g} s: read the logs")
            time.sleep(_GLANCE)

    def bulletin(self) -> bytes:
        """Fetch the whole bulletin."""
        return self._get(self._at("board", "bulletin"))

    def post(self, posting: bytes) -> None:
        """Post a letter."""
        self._post(self._at("board", "letters"), posting)

    def letters(self) -> Sequence[bytes]:
        """Fetch every letter: asking for one's own would tell whose they are."""
        size, found = posting_size(self._opened()), list[bytes]()
        where = self._at("board", "letters")
        while raw := self._get(f"{where}?since={len(found)}"):
            found += [raw[at : at + size] for at in range(0, len(raw), size)]
        return found

    def proof(self, *, since: int = 0) -> Proof:
        """Fetch checkpoint and paths as any witness does."""
        board = self._scene.addresses["board"]
        checkpoint = self._get(f"{board}/checkpoint")
        size = Checkpoint.decode(checkpoint).size
        place = msgspec.json.decode(self._get(self._at("board", "place")), type=int)
        path = self._path(f"{board}/proofs/inclusion?place={place}&size={size}")
        kept = since and self._path(f"{board}/proofs/consistency?old={since}&new={size}")
        return Proof(checkpoint.hex(), place, path, kept or [])

    def _path(self, url: str) -> list[str]:
        return list(msgspec.json.decode(self._get(url))["path"])

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Ask the demo, which holds the server's key."""
        return self._scene.seen(uploads, round_, play)

    def _opened(self) -> Round:
        if self._round is None:
            raise Refused("no round is open on this stage")
        return self._round

    def _at(self, role: str, what: str) -> str:
        return f"{self._scene.addresses[role]}/rounds/{self._opened().digest.hex()}/{what}"

    def _get(self, url: str) -> bytes:
        return self._http.wait(lambda peers: peers.get(url, most=BULK), patience=_AGAIN)

    def _post(self, url: str, body: bytes) -> bytes:
        headers = {"content-type": OCTETS}
        return self._http.wait(
            lambda peers: peers.send(url, body, headers=headers), patience=_AGAIN
        )
