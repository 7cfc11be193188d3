"""The stage: shuffler, server and board as three real processes on loopback, for one demo.

Each has its own key and its own SQLite store in a temporary folder and speaks HTTP. The demo is
their operator, and afterwards opens the server's store to show what that chair saw.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec

from coatcheck.demo.performance import Watcher
from coatcheck.demo.plays import Play
from coatcheck.demo.processes import Company, ended_by_term, folder
from coatcheck.entropy import system
from coatcheck.errors import Refused
from coatcheck.keyfiles import SecretKeys, document, read_keys, write_bytes
from coatcheck.parcels import Batch
from coatcheck.server import Opened, Server
from coatcheck.services.peers import told
from coatcheck.shuffler import Shuffler, fresh_state
from coatcheck.terms import Round

ROLES: Final = ("board", "server", "shuffler")
_START: Final = 60.0
_GLANCE: Final = 0.05
_EXPIRES: Final = 3600  # the page may be paused

_SETTINGS: Final = """\
[shuffler]
name = "shuffler"
address_file = "shuffler.address"
store = "sqlite:shuffler.db"
keys = ["shuffler.key"]
trusted = ["server.pub", "board.pub"]
admin_token = "operator.token"
next = "@server.address"
board = "@board.address"
tick = 0.1
workers = 1

[server]
name = "server"
address_file = "server.address"
store = "sqlite:server.db"
keys = ["server.key"]
trusted = ["shuffler.pub", "board.pub"]
admin_token = "operator.token"
shufflers = ["@shuffler.address"]
board = "@board.address"
tick = 0.1
workers = 1

[board]
name = "board"
address_file = "board.address"
store = "sqlite:board.db"
keys = ["board.key"]
trusted = ["server.pub", "shuffler.pub"]
admin_token = "operator.token"
tick = 0.1
"""


@dataclass
class Scene:
    """The three processes, as their operator and as the people see them."""

    folder: Path
    company: Company
    http: httpx2.Client
    addresses: dict[str, str] = field(default_factory=dict)
    started_in: float = 0.0
    _digest: str = ""

    # -- the operator's side

    def start(self, watcher: Watcher) -> None:
        """Make keys and settings, start every role, and wait until each one answers."""
        begun = time.perf_counter()
        watcher.begin("shuffler, server and board start", len(ROLES))
        for role in ROLES:
            keys = SecretKeys(name=role, suite="x25519", seed=system().token(32).hex())
            write_bytes(self.folder / f"{role}.key", document(keys), secret=True)
            write_bytes(self.folder / f"{role}.pub", document(keys.public))
        token = system().token(16).hex().encode()
        write_bytes(self.folder / "operator.token", token, secret=True)
        settings = self.folder / "coatcheck.toml"
        write_bytes(settings, _SETTINGS.encode())
        for role in ROLES:
            self.company.start(role, [role, str(settings)], log=self.folder / f"{role}.log")
        until = time.monotonic() + _START
        for role in ROLES:
            self._await(role, until)
            watcher.advance()
        self.started_in = time.perf_counter() - begun

    def _await(self, role: str, until: float) -> None:
        """Wait until a role has written its address and leads its store."""
        address = self.folder / f"{role}.address"
        while time.monotonic() < until:
            self.company.check()
            if address.exists():
                self.addresses[role] = address.read_text(encoding="utf-8").strip()
                answer = self.http.get(f"{self.addresses[role]}/healthz")
                if answer.is_success and answer.json()["leads"]:
                    return
            time.sleep(_GLANCE)
        raise Refused(f"the {role} did not answer within {_START:g} s: use --keep, read its log")

    @property
    def trusted(self) -> Collection[bytes]:
        """The verifying keys that people know from elsewhere."""
        return frozenset(
            read_keys(self.folder / f"{role}.key").pairs.signing.public_raw for role in ROLES
        )

    def open(self, play: Play) -> str:
        """Have the server propose, the shuffler counter-sign, and the round opened."""
        if play.insight is not None:
            known = {play.task.name: {"direction": play.insight.direction.tolist()}}
            write_bytes(self.folder / "insight.json", msgspec.json.encode(known), secret=True)
        token = (self.folder / "operator.token").read_text(encoding="utf-8")
        # Everybody is the minimum, so the round closes when the last one has joined.
        plan = {"draft": _draft(play), "opens": 0, "closes": 1, "expires": _EXPIRES}
        answer = self.http.post(
            f"{self.addresses['server']}/rounds",
            json=plan,
            headers={"authorization": f"Bearer {token}"},
        )
        if not answer.is_success:
            raise Refused(f"the server refused to open the round: {told(answer)}")
        self._digest = answer.json()["digest"]
        return f"{self.addresses['shuffler']}/rounds/{self._digest}"

    def check(self) -> None:
        """Refuse to go on if a role has ended."""
        self.company.check()

    def published(self) -> bool:
        """Tell whether the round's answers are on the board."""
        answer = self.http.get(f"{self.addresses['server']}/rounds/{self._digest}")
        if not answer.is_success:
            raise Refused(f"the server does not know its round any more: {told(answer)}")
        return bool(answer.json()["phase"] == "published")

    # -- the server's chair

    def seen(self, uploads: Sequence[bytes], round_: Round, play: Play) -> Sequence[Opened]:
        """Open the uploads with both keys, as only whoever holds the two files can.

        The server has deleted its batch and the shuffler its order, so the uploads are shuffled
        once more: as good an order as the one that is forgotten.
        """
        keys = {role: read_keys(self.folder / f"{role}.key").pairs for role in ROLES}
        shuffler = Shuffler(round_, keys=keys["shuffler"], state=fresh_state(round_, system()))
        for upload in uploads:
            shuffler.receive(upload, now=round_.terms.opens)
        batch = Batch.decode(shuffler.release(now=round_.terms.closes), round_)
        server = Server(round_, keys=keys["server"], task=play.task)
        return [server.open_group(group, batch) for group in range(len(batch.items))]


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
        httpx2.Client(timeout=30.0, trust_env=False) as http,
    ):
        scene = Scene(place, Company(), http)
        try:
            scene.start(watcher)
            yield scene
        finally:
            scene.company.end()
