"""Tables errortime, timecomm and mpec: what one report, one round and one promise cost.

Times are CPU time of one core of the machine that the report names; the paper's are of an
i5-8250U, so only their order can agree. Steps of the protocol are those of the objects that
ship. Paper, appendices on spatial crowdsourcing and on permutation-equivariant computation.
"""

import itertools
import math
import resource
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from coatcheck import (
    Box,
    Group,
    GroupPlan,
    LeastCostMatching,
    Limit,
    MaximumMatching,
    choose,
    plan,
    seeded,
)
from coatcheck.entropy import system
from coatcheck.protocol.agreement import SettledTerms, settle
from coatcheck.protocol.board import Board
from coatcheck.protocol.client import collect, examine, read, write
from coatcheck.protocol.keys import VerifyingKey
from coatcheck.protocol.manifest import Batch
from coatcheck.protocol.server import Server
from coatcheck.protocol.shuffler import Shuffler, fresh_state
from coatcheck.protocol.suites import suite_named
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Ticket
from coatcheck.protocol.verification import verify_bulletin
from coatcheck.simulation.round import CLOSES, OPENS, RoleKeys
from coatcheck.tasks import Task
from coatcheck.tasks.pairs import agreement
from study import datasets
from study.conventions import (
    LEFT,
    MECHANISMS,
    PUBLISHED,
    SERVING_RADIUS,
    SQUARE,
    Design,
    delta,
    design,
    location_mechanism,
)
from study.sheets import Cell, Row, Sheet

Floats = NDArray[np.float64]

PRINTED_BUDGETS: Final = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)


def cpu(action: Callable[[], object], *, times: int = 1, turns: int = 3) -> float:
    """Return the least CPU seconds of one call, over some turns of some calls."""
    least = math.inf
    for _ in range(turns):
        start = time.process_time()
        for _ in range(times):
            action()
        least = min(least, (time.process_time() - start) / times)
    return least


# -- Table errortime


def errortime_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List mechanism by budget."""
    size = 20_000 if quick else 400_000
    return [
        {"mechanism": name, "epsilon": epsilon, "samples": size}
        for name in (*MECHANISMS, "best")
        for epsilon in PRINTED_BUDGETS
    ]


def measure_errortime(cell: Cell) -> Row:
    """Draw values evenly from the square, report each once, and time it both ways."""
    epsilon, size = float(cell["epsilon"]), int(cell["samples"])
    made = _errortime_design(str(cell["mechanism"]), epsilon)
    values = seeded(7).uniforms(2 * size).reshape(size, 2) * 2 - 1
    entropy = seeded(8)
    randomizer = made.randomizer
    misses = randomizer.estimate(randomizer.randomize(values, entropy), made.how) - values
    lengths = np.linalg.norm(misses, axis=1)
    some, one = values[:20_000], tuple(values[0].tolist())
    bulk = cpu(lambda: randomizer.randomize(some, entropy)) / len(some)
    alone = cpu(lambda: randomizer.randomize_one(one, entropy), times=200)
    return {
        "randomizer": randomizer.name,
        "error": float(lengths.mean()),
        "spread": float(lengths.std()),
        "bulk_us": 1e6 * bulk,
        "one_us": 1e6 * alone,
    }


def _errortime_design(name: str, epsilon: float) -> Design:
    if name != "best":
        return location_mechanism(name, epsilon)
    chosen = choose(epsilon=epsilon, domain=SQUARE)
    return Design(chosen.randomizer, chosen.how)


# -- Table timecomm


def timecomm_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by task."""
    names = ("GMission",) if quick else tuple(datasets.CROWDSOURCING)
    return [
        {"dataset": name, "task": task, "epsilon": 1.0}
        for name in names
        for task in ("least-cost-matching", "maximum-matching")
    ]


def measure_timecomm(cell: Cell) -> Row:
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
            randomizer=made.randomizer,
            minimum=len(values),
            delta=delta(len(values)),
            decode=made.how,
        )
        for name, made, values in zip(task.groups, designs, groups, strict=True)
    ]
    signed = cast.agree(drafts, task=task, name="timecomm", suite=suite)
    round_ = settle(signed)
    limit = Limit(epsilon=2.0, delta=1e-3)
    asked = [
        examine(signed, group=name, trusted=cast.trusted, limit=limit, now=OPENS)
        for name in task.groups
    ]
    start = time.process_time()
    tickets = [
        [invitation.join(tuple(value), ledger=None) for value in values.tolist()]
        for invitation, values in zip(asked, groups, strict=True)
    ]
    joining = (time.process_time() - start) / sum(map(len, groups))
    one, entropy = tuple(groups[0][0].tolist()), system()
    alone = cpu(lambda: designs[0].randomizer.randomize_one(one, entropy), times=500)
    computed, notice = _compute(cast, round_, tickets, designs=designs, task=task)
    return {
        "people": sum(map(len, groups)),
        "randomize_us": 1e6 * alone,
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
    told: Row = {
        "shuffle_us": 1e6 * shuffling,
        "open_us": 1e6 * opening,
        "task_ms": 1e3 * solving,
        "answer_us": 1e6 * (answering - solving) / people,
    }
    return told, notice


def _fetch(
    cast: RoleKeys, round_: SettledTerms, tickets: list[list[Ticket]], *, notice: bytes
) -> Row:
    """Time how people find their answers, and a letter from one to the match."""
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


# -- Table mpec


def mpec_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List dimension by crowd; the promise is ε = 1 at δ = 1e-9, a single one to compare n."""
    dimensions, crowds = (
        ((2,), (10**4, 10**5)) if quick else ((1, 2, 3, 6), tuple(10**k for k in range(3, 10)))
    )
    return [{"dimension": d, "crowd": n, "epsilon": 1.0} for d in dimensions for n in crowds]


def measure_mpec(cell: Cell) -> Row:
    """Plan for a crowd, and compare the squared error of a report with that of one alone."""
    d, crowd, epsilon = int(cell["dimension"]), int(cell["crowd"]), float(cell["epsilon"])
    cube = Box((-1,) * d, (1,) * d)
    best = plan({"people": Group(cube, crowd=crowd)}, epsilon=epsilon, delta=1e-9, goal="unbiased")
    made = best["people"].best.randomizer
    alone = choose(epsilon=epsilon, domain=cube, goal="unbiased")
    return {
        "randomizer": made.name,
        "local_epsilon": made.epsilon,
        "squared_error": made.worst_error("unbiased", power=2),
        "alone_squared_error": alone.error**2,
        "report_bits": made.report_bits,
    }


# -- the exact F1 of all check-ins


def scale_cells(quick: bool) -> list[Cell]:  # noqa: FBT001 - as every sheet is asked
    """List data set by radius."""
    size = 5_000 if quick else 0
    return [
        {"dataset": name, "size": size, "radius": radius}
        for name in datasets.SOCIAL
        for radius in LEFT
    ]


def measure_scale(cell: Cell) -> Row:
    """Count every true, reported and common pair of neighbours, and the memory that it took."""
    places = datasets.social(str(cell["dataset"]), size=int(cell["size"]) or None)
    made = location_mechanism(PUBLISHED, 8.0)
    estimates = made.randomizer.estimate(made.randomizer.randomize(places, seeded(0)), made.how)
    start = time.process_time()
    found = agreement(places, estimates, radius=float(cell["radius"]))
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000  # kilobytes on Linux
    return {
        "check_ins": len(places),
        "true_pairs": found.true,
        "reported_pairs": found.noisy,
        "common_pairs": found.both,
        "f1": found.f1,
        "count_seconds": spent,
        "peak_megabytes": peak,
    }


SCALE: Final = Sheet("scale", scale_cells, measure_scale)
ERRORTIME: Final = Sheet("errortime", errortime_cells, measure_errortime)
TIMECOMM: Final = Sheet("timecomm", timecomm_cells, measure_timecomm)
MPEC: Final = Sheet("mpec", mpec_cells, measure_mpec)
