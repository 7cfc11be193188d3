"""What the protocol costs relative to its elliptic curves: ratios of CPU time in one run.

The unit is one X25519 exchange (DH). Classical suite, one shuffler, two groups of a thousand
people, reports in the plane. The steps are measured in turns, several times, and medians are
compared, so that other work on the machine affects all of them alike.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from bench import Figure, show
from coatcheck.domains import Box
from coatcheck.entropy import system
from coatcheck.protocol.agreement import verify_signatures
from coatcheck.protocol.client import Invitation, Limit, examine
from coatcheck.protocol.drafting import GroupPlan
from coatcheck.protocol.envelope import Purpose, binding, seal, unseal
from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import CLASSICAL
from coatcheck.protocol.wire.batches import Batch
from coatcheck.protocol.wire.bulletins import ANSWERED, Bulletin
from coatcheck.protocol.wire.uploads import Upload
from coatcheck.randomizers import MinkowskiResponse
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys
from coatcheck.tasks import Answers, AnswerSize, Floats, Values

PEOPLE: Final = 1_000
TURNS: Final = 7


@dataclass(frozen=True)
class Echo:
    """The smallest possible task, so that the protocol is what is measured."""

    groups: tuple[str, ...] = ("riders", "drivers")
    name: str = "echo"

    def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
        """Answer each report with its estimate."""
        return [Values(np.array(group)) for group in estimates]

    def exposed(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return that nobody is exposed."""
        return ((0,) * len(sizes),) * len(sizes)

    def answer_size(self, dimensions: Sequence[int]) -> tuple[AnswerSize, ...]:
        """Return as many numbers as an estimate has."""
        return tuple(AnswerSize(numbers=dimension) for dimension in dimensions)

    def params(self) -> dict[str, object]:
        """Return the name."""
        return {"name": self.name}


def main() -> int:
    """Measure and print; return 1 if a target is missed."""
    bench = _Round()
    spent = bench.measure()
    dh, opening, sealing = spent["dh"], spent["open"], spent["seal"]
    size = bench.round.upload_sizes[0]
    entry = bench.round.entry_size(0)
    for name, seconds in spent.items():
        print(f"  {name:<8} {1e6 * seconds:7.1f} µs, {seconds / dh:5.2f} DH")
    print(f"  upload {size} B, board entry {entry} B (the paper: 1.3 KB and 1.8 KB)")
    work = opening + sealing
    return show(
        [
            Figure(
                what="HPKE open (0.5 of the bare rate)", value=opening / dh, unit="DH", target=2
            ),
            Figure(
                what="server a report / (open + seal)",
                value=spent["server"] / work,
                unit="x",
                target=1.3,
            ),
            Figure(
                what="shuffling / peeling",
                value=spent["order"] / spent["peel"],
                unit="x",
                target=0.1,
            ),
            Figure(
                what="board build / sealing", value=spent["board"] / sealing, unit="x", target=0.1
            ),
            Figure(
                what="client, value to sealed bytes",
                value=spent["client"] / dh,
                unit="DH",
                target=12,
            ),
            Figure(what="upload, without note", value=size, unit="B", target=300),
            Figure(what="board entry, answer of 128 B", value=entry, unit="B", target=200),
        ]
    )


class _Round:
    """A round whose steps can be repeated and timed."""

    def __init__(self) -> None:
        entropy = system()
        self.cast = RoleKeys.draw(suite=CLASSICAL, shufflers=1, entropy=entropy)
        square = MinkowskiResponse(domain=Box((0, 0), (1, 1)), epsilon=3.0, radius=0.4)
        drafts = [
            GroupPlan(name=name, randomizer=square, minimum=PEOPLE, delta=1e-6)
            for name in Echo().groups
        ]
        signed = self.cast.agree(drafts, task=Echo(), name="bench", suite=CLASSICAL)
        self.round = verify_signatures(signed)
        limit = Limit(epsilon=3.0, delta=1e-6)
        self.invitations: list[Invitation] = [
            examine(signed, group=name, trusted=self.cast.trusted, limit=limit, now=OPENS)
            for name in Echo().groups
        ]
        self.uploads = [
            invitation.join((0.3, 0.7), ledger=None).upload
            for invitation in self.invitations
            for _ in range(PEOPLE)
        ]
        shuffler = self._shuffler()
        for raw in self.uploads:
            shuffler.receive(raw, now=OPENS)
        shuffler.close(now=CLOSES)
        self.batch = shuffler.release()
        raw = Server(self.round, keys=self.cast.server, task=Echo()).answer(self.batch)
        self.bulletin = Bulletin.decode(raw, self.round)

    def _shuffler(self) -> Shuffler:
        state = fresh_state(system())
        return Shuffler(self.round, keys=self.cast.shufflers[0], state=state)

    def measure(self) -> dict[str, float]:
        """Return the median CPU seconds of each step, for one person."""
        steps = self._steps()
        spent: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(TURNS):
            for name, (step, people) in steps.items():
                start = time.process_time()
                step()
                spent[name].append((time.process_time() - start) / people)
        return {name: statistics.median(times) for name, times in spent.items()}

    def _steps(self) -> dict[str, tuple[Callable[[], object], int]]:
        people = 2 * PEOPLE
        one, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
        keys = KeyPairs(CLASSICAL, system().token(32))
        bound = binding(Purpose.ANSWER, digest=self.round.digest, group=0)
        text, to = bytes(128), keys.opening.public
        sealed = seal(text, to=to, bound=bound)
        names = [Upload.decode(raw, self.round) for raw in self.uploads]
        held = [{u.id: u.body for u in names if u.group == group} for group in (0, 1)]
        peeler, opening = self._shuffler().peeler, self.cast.shufflers[0].opening
        entries = [list(reversed(group)) for group in self.bulletin.entries]
        tallies = Batch.decode(self.batch, self.round).tallies

        def order() -> None:
            for group in (0, 1):
                sorted(held[group], key=partial(peeler.rank, group))

        def peel() -> None:
            for upload in names:
                place = {"digest": self.round.digest, "group": upload.group, "upload": upload.id}
                bound = binding(Purpose.LAYER, **place)  # type: ignore[arg-type] # as named
                unseal(upload.body, key=opening, bound=bound)

        def board() -> None:
            Bulletin.compose(
                entries, ANSWERED, self.round.digest, tallies, roots=[bytes(32)]
            ).encode()

        def server() -> None:
            Server(self.round, keys=self.cast.server, task=Echo()).answer(self.batch)

        def client() -> None:
            for _ in range(PEOPLE):
                self.invitations[0].join((0.3, 0.7), ledger=None)

        def repeat(call: Callable[[], object]) -> Callable[[], object]:
            return lambda: [call() for _ in range(people)]

        return {
            "dh": (repeat(lambda: one.exchange(other)), people),
            "open": (repeat(lambda: unseal(sealed, key=keys.opening, bound=bound)), people),
            "seal": (repeat(lambda: seal(text, to=to, bound=bound)), people),
            "server": (server, people),
            "order": (order, people),
            "peel": (peel, people),
            "board": (board, people),
            "client": (client, PEOPLE),
        }
