"""The stage: shuffler, server and board as three real processes on loopback, for one demo.

Each has its own key and its own SQLite store in a temporary folder and speaks HTTP. The demo is
their operator, and afterwards opens the uploads with their keys to show what the server saw.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from coatcheck.demo.performance import Watcher
from coatcheck.demo.plays import Play
from coatcheck.demo.processes import Company, ended_by_term, folder
from coatcheck.entropy import system
from coatcheck.errors import Refused, Unavailable
from coatcheck.protocol.keyfiles import read_keys, write_bytes
from coatcheck.protocol.parcels import Batch
from coatcheck.protocol.server import Opened, Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import Round
from coatcheck.protocol.trust import Trust
from coatcheck.services.cluster import Local
from coatcheck.services.http.client import Blocking

_START: Final = 60.0
_GLANCE: Final = 0.05
_EXPIRES: Final = 3600  # a page that shows the round may be paused
_INSIGHT: Final = "insight.json"


@dataclass
class Scene:
    """The three processes, as their operator and as the people see them."""

    folder: Path
    company: Company
    http: Blocking
    local: Local
    started_in: float = 0.0
    _digest: str = ""

    # -- the operator's side

    def start(self, watcher: Watcher) -> None:
        """Start every role, and wait until each one answers."""
        begun = time.perf_counter()
        names = self.local.names
        watcher.begin("shuffler, server and board start", len(names))
        server = self.folder / "server.toml"
        write_bytes(self.folder / _INSIGHT, b"{}", secret=True)
        write_bytes(
            server, server.read_bytes() + f'insight = "{_INSIGHT}"\n'.encode(), replace=True
        )
        for name in names:
            arguments = [self.local.role(name), str(self.folder / f"{name}.toml")]
            self.company.start(name, arguments, log=self.folder / f"{name}.log")
        until = time.monotonic() + _START
        for name in names:
            self._await(name, until)
            watcher.advance()
        self.started_in = time.perf_counter() - begun

    def _await(self, name: str, until: float) -> None:
        """Wait until a role has written its address and leads its store."""
        address = self.folder / f"{name}.address"
        while time.monotonic() < until:
            self.company.check()
            if address.exists():
                with suppress(Unavailable):
                    if self._read(name, "healthz")["leads"]:
                        return
            time.sleep(_GLANCE)
        raise Refused(f"the {name} did not answer within {_START:g} s: use --keep, read its log")

    @property
    def addresses(self) -> dict[str, str]:
        """Where each role answers, by the role's name."""
        return {self.local.role(name): self.local.url(name) for name in self.local.names}

    @property
    def trusted(self) -> Trust:
        """The verifying keys that people know from elsewhere."""
        return self.local.trusted

    def open(self, play: Play) -> str:
        """Have the server propose, the shuffler counter-sign, and the round opened."""
        if play.insight is not None:
            known = {play.task.name: {"direction": play.insight.direction.tolist()}}
            path = self.folder / _INSIGHT
            write_bytes(path, msgspec.json.encode(known), secret=True, replace=True)
        # Everybody is the minimum, so the round closes when the last one has joined.
        url = self.local.open_round(_draft(play), closes=1, expires=_EXPIRES)
        self._digest = url.rpartition("/")[2]
        return url

    def check(self) -> None:
        """Refuse to go on if a role has ended."""
        self.company.check()

    def published(self) -> bool:
        """Tell whether the round's answers are on the board."""
        return bool(self._read("server", f"rounds/{self._digest}")["phase"] == "published")

    def _read(self, name: str, what: str) -> Any:
        url = f"{self.local.url(name)}/{what}"
        return msgspec.json.decode(self.http.wait(lambda peers: peers.get(url)))

    # -- the server's chair

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Open the uploads with both keys, as only whoever holds the two files can.

        The server has deleted its batch and the shuffler its order, so the uploads are shuffled
        once more: as good an order as the one that is forgotten.
        """
        first, *_ = self.local.shufflers
        mixing, opening = (
            read_keys(self.folder / f"{name}.key").pairs for name in (first, "server")
        )
        shuffler = Shuffler(round_, keys=mixing, state=fresh_state(system()))
        for upload in uploads:
            shuffler.receive(upload, now=round_.terms.opens)
        shuffler.close(now=round_.terms.closes)
        batch = Batch.decode(shuffler.release(), round_)
        server = Server(round_, keys=opening, task=play.task)
        return server.open(batch)


def _draft(play: Play) -> dict[str, Any]:
    """Write a play as the draft that its organizer hands to the server."""
    return {
        "round": f"demo {play.name}",
        "task": play.task.params(),
        "groups": [
            {
                "name": draft.name,
                "randomizer": draft.randomizer.params(),
                "minimum": draft.minimum,
                "delta": draft.delta,
                "decode": draft.decode,
            }
            for draft in play.drafts
        ],
    }


@contextmanager
def opened(*, watcher: Watcher, keep: bool) -> Iterator[Scene]:
    """Start the roles in a folder of their own; end them and remove it, however it goes."""
    with (
        ended_by_term(),
        folder(keep=keep) as place,
        Blocking() as http,
    ):
        # One worker: a demo's crowd is too small for more to pay.
        scene = Scene(place, Company(), http, Local(place, extra={"tick": 0.1, "workers": 1}))
        try:
            scene.start(watcher)
            yield scene
        finally:
            scene.company.end()
