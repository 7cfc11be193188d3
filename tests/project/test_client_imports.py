"""The modules that a person's client loads: few of ours, and SciPy for the accountant only.

A member of a group with a grid and one of a group with Minkowski caps examine terms, hand in and
collect in processes of their own; the rest of the round runs here.
"""

import json
import subprocess
import sys
from pathlib import Path

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.protocol.agreement import verify_signatures, write_signed
from coatcheck.protocol.client import Limit, examine
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.ticket import read_ticket
from coatcheck.randomizers import GridResponse, MinkowskiResponse, Randomizer
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys
from coatcheck.tasks.matching import LeastCostMatching

MOST = 70
CROWD = 30
SQUARE = Box(lo=(0.0, 0.0), hi=(1.0, 1.0))
HEAD = """
import json, sys
from pathlib import Path
from coatcheck.services.person.session import Session
from coatcheck.entropy import seeded
from coatcheck.protocol import client
from coatcheck.protocol.agreement import Trust, read_signed, verify_signatures
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.ticket import read_ticket, write_ticket
folder, group, limited = Path(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
signed = read_signed((folder / "terms").read_bytes())
before = list(sys.modules)
"""
JOIN = f"""
keys = json.loads((folder / "trusted").read_text())
trusted = Trust.of((role, [bytes.fromhex(key)]) for role, key in keys.items())
limit = client.Limit(epsilon=10.0, delta=1e-3)
invitation = client.examine(
    signed, group=group, trusted=trusted, limit=limit, now={OPENS}, simulated=True
)
ledger = None
if limited:
    from coatcheck.accounting.ledger import Ledger
    ledger = Ledger.open(folder / f"ledger-{{group}}", epsilon=20.0, delta=1e-2)
ticket = invitation.join((0.25, 0.5), ledger=ledger, entropy=seeded(len(group)))
(folder / group).write_bytes(write_ticket(ticket))
"""
COLLECT = """
bulletin = verify_bulletin((folder / "bulletin").read_bytes(), verify_signatures(signed))
answer = client.collect(read_ticket((folder / group).read_bytes()), bulletin)
assert len(answer.partners) == 1
"""
TAIL = """
print(json.dumps([before, list(sys.modules)]))
"""


def modules(step: str, *words: str) -> tuple[set[str], set[str]]:
    """Run a step in a separate process; return the modules loaded before and after it."""
    done = subprocess.run(  # noqa: S603 - the interpreter of this test
        [sys.executable, "-c", HEAD + step + TAIL, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    return set(before), set(after)


def ours(names: set[str]) -> set[str]:
    """Select the modules of this package."""
    return {name for name in names if name.split(".")[0] == "coatcheck"}


def scipy(names: set[str]) -> set[str]:
    """Select the public parts of SciPy."""
    parts = {name.split(".")[1] for name in names if name.startswith("scipy.")}
    return {part for part in parts if not part.startswith("_")}


class Organizer:
    """All of a round except the two people of this test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entropy = seeded(7)
        self.task = LeastCostMatching()
        self.roles = RoleKeys.draw(suite=CLASSICAL, shufflers=1, entropy=self.entropy)
        mechanisms: tuple[Randomizer, Randomizer] = (
            GridResponse(domain=SQUARE, epsilon=2.0, cells=(4, 4)),
            MinkowskiResponse(domain=SQUARE, epsilon=2.0, radius=0.5),
        )
        plans = [
            GroupPlan(name=name, randomizer=mechanism, minimum=CROWD, delta=1e-3, corrupted=1)
            for name, mechanism in zip(self.task.groups, mechanisms, strict=True)
        ]
        self.signed = self.roles.agree(plans, task=self.task, name="imports", suite=CLASSICAL)
        (folder / "terms").write_bytes(write_signed(self.signed))
        keys = {
            "server": self.roles.server,
            "board": self.roles.board,
            "shuffler": self.roles.shufflers[0],
        }
        trusted = {role: pairs.signing.public_raw.hex() for role, pairs in keys.items()}
        (folder / "trusted").write_text(json.dumps(trusted))

    def publish(self) -> None:
        """Let all other people join, and answer the round."""
        round_ = verify_signatures(self.signed)
        state = fresh_state(self.entropy, simulated=True)
        shuffler = Shuffler(round_, keys=self.roles.shufflers[0], state=state)
        limit = Limit(epsilon=10.0, delta=1e-3)
        for group in self.task.groups:
            shuffler.receive(read_ticket((self.folder / group).read_bytes()).upload, now=OPENS)
            invitation = examine(
                self.signed,
                group=group,
                trusted=self.roles.trusted,
                limit=limit,
                now=OPENS,
                simulated=True,
            )
            for _ in range(CROWD - 1):
                ticket = invitation.join((0.5, 0.5), ledger=None, entropy=self.entropy)
                shuffler.receive(ticket.upload, now=OPENS)
        shuffler.close(now=CLOSES)
        bulletin = Server(round_, keys=self.roles.server).answer(shuffler.release())
        (self.folder / "bulletin").write_bytes(bulletin)


def test_what_a_client_loads(tmp_path: Path) -> None:
    """At most 70 modules of ours for all steps; SciPy only for the tails of binomials."""
    organizer = Organizer(tmp_path)
    started, joined, collected = set[str](), set[str](), set[str]()
    for group in organizer.task.groups:
        before, after = modules(JOIN, str(tmp_path), group)
        started, joined = started | before, joined | after
    organizer.publish()
    for group in organizer.task.groups:
        collected |= modules(COLLECT, str(tmp_path), group)[1]
    everything = ours(started | joined | collected)
    assert len(everything) <= MOST, sorted(everything)
    assert not scipy(started | collected)
    # `amplify` takes tails of binomials from `scipy.special`: its digits are those of promises.
    assert scipy(joined) <= {"special", "version"}


def test_what_a_ledger_adds(tmp_path: Path) -> None:
    """A ledger stays within the same number."""
    organizer = Organizer(tmp_path)
    for group in organizer.task.groups:
        _, after = modules(JOIN, str(tmp_path), group, "limited")
        assert len(ours(after)) <= MOST, sorted(ours(after))
