"""Table timecomm: the time and the bytes of every step of a round, with the shipped roles.

Times are CPU time of one core. The paper's come from an i5-8250U, so they are shown without a
verdict. Verdicts compare with a baseline of the same run on the same machine: the bare library call
behind a step, or scipy's solver for a matching. Source: the paper's appendix on spatial
crowdsourcing.
"""

import itertools
import time
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM
from cryptography.hazmat.primitives.hpke import Suite as Hpke
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from coatcheck import GroupPlan, LeastCostMatching, Limit, MaximumMatching
from coatcheck.entropy import system
from coatcheck.protocol.agreement import AgreedTerms, verify_signatures
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import collect, examine, read, write
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.log.verification import verify_bulletin
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.terms import Round, suite_named
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.wire.batches import Batch
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys
from coatcheck.tasks import Task
from study import datasets
from study.conventions import SERVING_RADIUS, Design, delta, design
from study.sheets import Cell, Row, Sheet
from study.timing import Floats, cpu

_MESSAGE: Final = bytes(64)


def cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - every sheet has this signature
    """List data set by task."""
    names = ("GMission",) if quick else tuple(datasets.CROWDSOURCING)
    return [
        {"dataset": name, "task": task, "epsilon": 1.0}
        for name in names
        for task in ("least-cost-matching", "maximum-matching")
    ]


def measure(cell: Cell) -> Row:
    """Run a whole round of the real roles on real places, and time each step."""
    groups = datasets.crowdsourcing(str(cell["dataset"]))
    task: Task = LeastCostMatching()
    if cell["task"] == "maximum-matching":
        task = MaximumMatching(radius=SERVING_RADIUS)
    designs = [
        design(
            "best", model="pic", epsilon=float(cell["epsilon"]), crowd=len(g), anonymous=len(g) - 1
        )
        for g in groups
    ]
    return _round(groups, designs, task)


def _round(groups: tuple[Floats, Floats], designs: list[Design], task: Task) -> Row:
    suite = suite_named("x25519")
    cast = RoleKeys.draw(suite=suite, shufflers=1, entropy=system())
    drafts = [
        GroupPlan(
            name=name,
            randomizer=design.randomizer,
            minimum=len(values),
            delta=delta(len(values)),
            decode=design.how,
        )
        for name, design, values in zip(task.groups, designs, groups, strict=True)
    ]
    signed = cast.agree(drafts, task=task, name="timecomm", suite=suite)
    round_ = verify_signatures(signed)
    limit = Limit(epsilon=2.0, delta=1e-3)
    invitations = [
        examine(signed, group=name, trusted=cast.trusted, limit=limit, now=OPENS)
        for name in task.groups
    ]
    start = time.process_time()
    tickets = [
        [invitation.join(tuple(value), ledger=None) for value in values.tolist()]
        for invitation, values in zip(invitations, groups, strict=True)
    ]
    joining = (time.process_time() - start) / sum(map(len, groups))
    one, entropy = tuple(groups[0][0].tolist()), system()
    alone = cpu(lambda: designs[0].randomizer.randomize_one(one, entropy), times=500)
    computed, notice = _compute(cast, round_, tickets, designs=designs, task=task)
    return {
        "people": sum(map(len, groups)),
        "randomize_us": 1e6 * alone,
        **_bare(),
        "join_us": 1e6 * joining,
        **computed,
        **_fetch(cast, round_, tickets, notice=notice),
        "upload_bytes": len(tickets[0][0].upload),
        "entry_bytes": round_.entry_size(0),
        "board_bytes": len(notice),
    }


def _compute(
    cast: RoleKeys, round_: Round, tickets: list[list[Ticket]], *, designs: list[Design], task: Task
) -> tuple[Row, bytes]:
    """Time the shuffler and the server, and return what the server publishes."""
    people = sum(map(len, tickets))
    shuffler = Shuffler(round_, keys=cast.shufflers[0], state=fresh_state(system()))
    start = time.process_time()
    for ticket in itertools.chain(*tickets):
        shuffler.receive(ticket.upload, now=OPENS)
    shuffler.close(now=CLOSES)
    raw = shuffler.release()
    shuffling = (time.process_time() - start) / people
    server = Server(round_, keys=cast.server, task=task)
    batch = Batch.decode(raw, round_)
    start = time.process_time()
    opened = server.open(batch)
    opening = (time.process_time() - start) / people
    estimates = [
        m.randomizer.estimate(o.reports, m.how) for m, o in zip(designs, opened, strict=True)
    ]
    task(estimates)  # loops are compiled at the first call, once
    solving = cpu(lambda: task(estimates))
    start = time.process_time()
    notice = server.answer(raw)
    answering = time.process_time() - start
    row: Row = {
        "shuffle_us": 1e6 * shuffling,
        "open_us": 1e6 * opening,
        "task_ms": 1e3 * solving,
        "scipy_ms": 1e3 * cpu(lambda: _by_scipy(task, estimates)),
        "answer_us": 1e6 * (answering - solving) / people,
    }
    return row, notice


def _fetch(
    cast: RoleKeys, round_: AgreedTerms, tickets: list[list[Ticket]], *, notice: bytes
) -> Row:
    """Time the search for an answer, and a letter from one person to their match."""
    board = Board(sign=cast.board.signing.sign, check=_check)
    board.log_terms(round_)
    board.publish(notice, round_)
    bulletin = verify_bulletin(board.bulletin(round_.digest), round_)
    collecting = cpu(lambda: collect(tickets[1][0], bulletin), times=50)
    answers = [collect(ticket, bulletin) for ticket in tickets[1]]
    worker = next(n for n, answer in enumerate(answers) if answer.partners)
    contact, words = answers[worker].partners[0].contact, b"where do we meet?"
    posting, _ = write(tickets[1][worker], words, to=contact, round_=round_)
    writing = cpu(lambda: write(tickets[1][worker], words, to=contact, round_=round_), times=50)
    board.post(posting, round_)
    letters = board.letters(round_.digest)
    inboxes = [read(ticket, letters, round_) for ticket in tickets[0]]
    partner = next(n for n, inbox in enumerate(inboxes) if inbox.letters)
    reading = cpu(lambda: read(tickets[0][partner], letters, round_), times=50)
    return {
        "collect_us": 1e6 * collecting,
        "write_us": 1e6 * writing,
        "read_us": 1e6 * reading,
        "letter_bytes": len(posting),
    }


def _check(key: bytes, signature: bytes, message: bytes) -> None:
    VerifyingKey(key).check(signature, message)


def _bare() -> Row:
    """Time the baselines: numpy's draw of two numbers, a bare seal and its opening.

    An upload has two seals, one for the shuffler and one for the server; a letter has one.
    """
    library = Hpke(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)
    key, numbers = X25519PrivateKey.generate(), np.random.default_rng(0)
    sealed = library.encrypt(_MESSAGE, key.public_key(), b"")
    return {
        "laplace_us": 1e6 * cpu(lambda: numbers.laplace(size=2), times=500),
        "seal_us": 1e6 * cpu(lambda: library.encrypt(_MESSAGE, key.public_key(), b""), times=200),
        "unseal_us": 1e6 * cpu(lambda: library.decrypt(sealed, key, b""), times=200),
    }


def _by_scipy(task: Task, estimates: list[Floats]) -> object:
    """Solve the same matching by scipy: all distances, or all pairs within the radius."""
    ours, theirs = estimates
    if not isinstance(task, MaximumMatching):
        return linear_sum_assignment(cdist(ours, theirs))
    near = cKDTree(ours).sparse_distance_matrix(cKDTree(theirs), task.radius).tocsr()
    return maximum_bipartite_matching(near)


SHEET: Final = Sheet("timecomm", cells, measure)
