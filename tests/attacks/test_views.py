"""What each coalition sees is the same when two honest people swap their reports.

The model of docs/explanation/simulation.md: the shipped roles run rounds of two, three or four
people with ideal seals, all orders of the honest shuffler and all reports are enumerated, and the
views of a coalition are compared as collections. So "the same" means: with exactly the same
chances. Where THREATS says that a coalition learns whose report is whose, the model must find the
difference.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pytest

from coatcheck.protocol.shuffler import Peeler, Shuffler
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from support.views import CELLS, READER, Stage, Step, View

NEAR = Neighbours(radius=1.0, limit=1)
PAIR, THREE = {"ada": 0, "ben": 0}, {"ada": 0, "ben": 0, "cem": 0}
FOUR = {"ada": 0, "ben": 0, "cyd": 1, "dee": 1}
RIDES = LeastCostMatching(groups=("riders", "drivers"))
EVERYBODY = {"network", "board", "server"}
TWO_SHUFFLERS = {"shuffler 0", "shuffler 1"}


def joined(stage: Stage, people: Sequence[str]) -> list[Step]:
    """Let people register and upload, one after the other."""
    hops = range(1, stage.hops)
    return [
        step
        for person in people
        for step in (*(("register", person, str(hop)) for hop in hops), ("upload", person))
    ]


def mixed(stage: Stage) -> list[Step]:
    """Take a round from the complete crowd to the board."""
    moves = ("accept", "release", "forget")
    releases = [(name, str(hop)) for hop in range(stage.hops) for name in moves]
    return [("close",), *releases[1:], ("answer",), ("publish",)]


def whole(stage: Stage) -> list[Step]:
    """Take a whole round without letters."""
    collected = [("collect", person) for person in stage.people]
    return [*joined(stage, list(stage.people)), *mixed(stage), *collected]


def others(stage: Stage) -> set[str]:
    """Return everybody but the people and the honest shuffler."""
    return EVERYBODY | {f"shuffler {hop}" for hop in range(stage.hops) if hop != stage.honest}


def swapped(reports: dict[str, int]) -> dict[str, int]:
    """Let Ada and Ben swap their reports."""
    return {**reports, "ada": reports["ben"], "ben": reports["ada"]}


# -- every coalition without an honest way to link


ONE = Stage(people=PAIR, task=NEAR)
CASCADES = [
    Stage(people=PAIR, task=NEAR, hops=hops, minimum=1, honest=honest)
    for hops, honest in ((2, 0), (2, 1), (3, 2))
]


@pytest.mark.parametrize("stage", [ONE, *CASCADES], ids=lambda s: f"{s.hops} hops, {s.honest}")
def test_all_but_one_shuffler_cannot_tell_two_people_apart(stage: Stage) -> None:
    """Network, board, server and all other shufflers together see the same after a swap.

    For every pair of reports, so whatever the noise does.
    """
    for cells in itertools.combinations(range(CELLS), 2):
        reports = dict(zip(PAIR, cells, strict=True))
        (before,) = stage.views(reports, whole(stage), [others(stage)])
        (after,) = stage.views(swapped(reports), whole(stage), [others(stage)])
        assert before == after
        assert len(before) > 1  # the orders do look different


@pytest.mark.parametrize("honest", [0, 1])
def test_messages_may_come_in_any_order(honest: int) -> None:
    """Whichever way the messages of two people interleave."""
    stage = replace(CASCADES[0], honest=honest)
    orders = [
        order
        for order in itertools.permutations(joined(stage, list(PAIR)))
        if all(order.index(("register", p, "1")) < order.index(("upload", p)) for p in PAIR)
    ]
    assert len(orders) == 6
    pair = coupled(stage)
    for order in orders:
        steps = [*order, *mixed(stage)]
        assert_same(stage, steps, only=pair)


def coupled(stage: Stage) -> list[bytes]:
    """Return two secrets: what one shows before the swap, the other shows after it."""
    steps, coalition = [*joined(stage, list(PAIR)), *mixed(stage)], others(stage)
    reports = {"ada": 0, "ben": 2}
    play = stage.play(stage.held(reports)).taken(
        steps[: steps.index(("release", str(stage.honest)))]
    )
    first, *rest = stage.orders(play)
    shown = stage.play(stage.held(reports), first).taken(steps).view(coalition)
    second = next(
        secret
        for secret in rest
        if stage.play(stage.held(swapped(reports)), secret).taken(steps).view(coalition) == shown
    )
    return [first, second]


def assert_same(stage: Stage, steps: Sequence[Step], *, only: Sequence[bytes] = ()) -> None:
    """Compare the views of all but the honest shuffler before and after a swap."""
    cells = {"ada": 0, "ben": 2, "cem": 1}
    reports = {person: cells[person] for person in stage.people}
    before = stage.views(reports, steps, [others(stage)], only=only)
    assert before == stage.views(swapped(reports), steps, [others(stage)], only=only)


ENDS: list[list[Step]] = [
    [("abandon", "0")],
    [("abandon", "1")],
    [("expire", "0")],
    [("expire", "1")],
    [("give_up",)],
    [("reopen",), ("close",)],
]


@pytest.mark.parametrize("stage", CASCADES[:2], ids=["first", "second"])
def test_every_role_may_stop_at_every_step(stage: Stage) -> None:
    """Whoever ends the round, and when: what was sent before and is sent after shows nothing."""
    steps, pair = whole(stage)[:-1], coupled(stage)
    for place, end in itertools.product(range(len(steps)), ENDS):
        assert_same(stage, [*steps[:place], *end, *steps[place:]], only=pair)


def test_a_report_that_is_withheld_ends_the_round() -> None:
    """The first shuffler and the network drop one person; the second counts, and nothing leaves."""
    steps = withheld()
    assert_same(LOST, steps)
    play = LOST.play(LOST.held({"ada": 0, "ben": 2, "cem": 1})).taken(steps)
    assert not play.answers


LOST = Stage(people=THREE, task=NEAR, hops=2, minimum=1, honest=1)


def withheld() -> list[Step]:
    """Let all three register, and only two of them reach the first shuffler."""
    join = [step for step in joined(LOST, list(THREE)) if step != ("upload", "ada")]
    return [*join, *mixed(LOST), ("expire", "1")]


# -- coalition by coalition, as THREATS lists them


@dataclass(frozen=True)
class Case:
    """A coalition of THREATS.

    Attributes:
        place: the heading of docs/explanation/simulation.md that its row points to.
        same: whether the coalition sees the same after a swap.
    """

    place: str
    coalition: Collection[str]
    same: bool = True


@dataclass(frozen=True)
class Scene:
    """Runs that several coalitions see: orders of steps, each as likely as the others."""

    stage: Stage
    runs: Sequence[Sequence[Step]]
    cases: Sequence[Case]

    def views(self, reports: dict[str, int]) -> list[Counter[View]]:
        """Count what each coalition sees."""
        coalitions = [case.coalition for case in self.cases]
        runs = [
            self.stage.views(reports, steps, coalitions, deals=deals(self.stage))
            for steps in self.runs
        ]
        return [sum(found, Counter()) for found in zip(*runs, strict=True)]


def deals(stage: Stage) -> list[list[int]]:
    """Return all ways to deal one-time keys within each group; in a single group none are dealt.

    Without dealing, a coalition may know all one-time addresses beforehand, which only helps it.
    """
    if len(stage.task.groups) == 1:
        return [list(range(len(stage.people)))]
    return [
        [*a, *b] for a in itertools.permutations((0, 1)) for b in itertools.permutations((2, 3))
    ]


RIDE, RELAYED = Stage(people=FOUR, task=RIDES), Stage(people=FOUR, task=RIDES, relayed=True)
MEET = Stage(people=THREE, task=NEAR, minimum=2)


def written(stage: Stage, *after: str) -> list[list[Step]]:
    """Let the riders write to their drivers, in both orders, and more happen after that."""
    collected = [*joined(stage, list(FOUR)), *mixed(stage), *(("collect", p) for p in FOUR)]
    return [
        [*collected, *(("write", p) for p in order), *((step, p) for step in after for p in order)]
        for order in itertools.permutations(("ada", "ben"))
    ]


def read(runs: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """Let a driver read at the end."""
    return [[*steps, ("read", "cyd")] for steps in runs]


ALL_ROLES = {"board", "server", "shuffler 0"}
SCENES = {
    "letters": Scene(
        RIDE,
        read(written(RIDE)),
        [
            Case("an-observer-of-the-network", {"network"}),
            Case("a-reader-of-the-board", {READER}),
            Case("the-server", {"server"}),
            Case("the-operator-of-the-board", {"board"}),
            Case("the-server-and-the-board", {"server", "board"}, same=False),
            Case("a-matched-partner", {"cyd"}),
            Case("a-matched-partner", {"cyd", "board"}, same=False),
        ],
    ),
    "no letters": Scene(
        MEET,
        [whole(MEET)],
        [
            Case("the-server", {"server"}),
            Case("the-server-and-people", {"server", "cem"}),
            Case("the-server-and-the-board", {"server", "board", "network"}),
        ],
    ),
    "names": Scene(
        MEET,
        [[*whole(MEET), ("meet_partner", "cem")]],
        [
            Case("the-server-and-people", {"server", "cem"}),
            Case("the-server-and-people-who-learn-names", {"server", "cem", "names"}, same=False),
        ],
    ),
    "an honest server": Scene(
        replace(MEET, honest=1),
        [whole(MEET)],
        [
            Case("one-shuffler", {"shuffler 0"}),
            Case("shufflers-and-people", {"shuffler 0", "cem", "network", "board"}),
        ],
    ),
    "an honest server behind two": Scene(
        replace(CASCADES[0], honest=2),
        [whole(CASCADES[0])],
        [
            Case("one-shuffler", {"shuffler 0"}),
            Case("one-shuffler", {"shuffler 1"}),
            Case("shufflers-and-people", {"shuffler 0", "shuffler 1", "network", "board"}),
        ],
    ),
    "no honest shuffler": Scene(
        ONE,
        [whole(ONE)],
        [Case("the-server-and-all-shufflers", {"server", "shuffler 0"}, same=False)],
    ),
    "no honest shuffler of two": Scene(
        CASCADES[0],
        [whole(CASCADES[0])],
        [
            Case("the-server-and-all-shufflers", {"server", "shuffler 1"}),
            Case("the-server-and-all-shufflers", {"server", *TWO_SHUFFLERS}, same=False),
        ],
    ),
    "relayed letters": Scene(
        RELAYED,
        read(written(RELAYED, "ask")),
        [
            Case("the-relay-alone", {"relay", "network"}),
            Case("a-role-behind-the-relay", {"board"}),
            Case("the-relay-and-the-board", {"relay", "board"}),
            Case("the-server-and-the-board", {"server", "board"}),
            Case("a-matched-partner", {"cyd", "board"}),
            # The log shows letters in the order in which the relay forwarded them.
            Case("the-relay-and-the-server", {"relay", "server"}, same=False),
            Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}, same=False),
        ],
    ),
    "relayed, no letters": Scene(
        RELAYED,
        [whole(RELAYED)],
        [
            Case("the-relay-and-the-server", {"relay", "server"}),
            Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}),
            Case("the-relay-and-all-roles", {"relay", *ALL_ROLES}, same=False),
        ],
    ),
    "relayed, own entries": Scene(
        RELAYED,
        [[*whole(RELAYED), ("ask", "ada"), ("ask", "ben")]],
        [Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}, same=False)],
    ),
    "relayed, an honest server": Scene(
        replace(RELAYED, honest=1),
        [whole(RELAYED)],
        [
            Case("a-role-behind-the-relay", {"shuffler 0"}),
            Case("the-relay-and-a-shuffler", {"relay", "shuffler 0"}),
        ],
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_coalition_sees_what_threats_says(scene: str) -> None:
    """A swap changes the view of no coalition but of those that THREATS says can link."""
    cells = {"ada": 0, "ben": 2, "cem": 2, "cyd": 0, "dee": 2}
    reports = {person: cells[person] for person in SCENES[scene].stage.people}
    pairs = zip(SCENES[scene].views(reports), SCENES[scene].views(swapped(reports)), strict=True)
    for case, (before, after) in zip(SCENES[scene].cases, pairs, strict=True):
        assert (before == after) is case.same, f"{case.place}: {sorted(case.coalition)}"


def test_the_last_honest_person_has_the_local_promise_only() -> None:
    """The server and all other people see which report is Ada's, whoever shuffles."""
    views = [
        ONE.views({"ada": cell, "ben": 1}, whole(ONE), [{"server", "ben"}])[0] for cell in (0, 2)
    ]
    assert not views[0].keys() & views[1].keys()


def test_a_role_behind_the_relay_sees_nobody() -> None:
    """No name of a person is in what a shuffler or the board sees through a relay."""
    (steps, *_), reports = written(RELAYED, "ask"), {"ada": 0, "ben": 2, "cyd": 0, "dee": 2}
    play = RELAYED.play(RELAYED.held(reports)).taken(steps)
    for role in ("shuffler 0", "board"):
        seen, _ = play.view({role})
        assert not [name for name in FOUR if f"'{name}'" in repr(seen)]
    assert "'ada'" in repr(RIDE.play(RIDE.held(reports)).taken(steps).view({"board"}))


# -- the model finds mistakes


def test_an_order_without_a_secret_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the order of a batch is that of the upload ids, the server and the network link people."""
    monkeypatch.setattr(Peeler, "rank", lambda _, group, name: bytes((group,)) + name[:15])
    reports, coalition = {"ada": 0, "ben": 2}, [{"server", "network"}]
    before = ONE.views(reports, whole(ONE), coalition, only=[bytes(range(32))])
    assert before != ONE.views(swapped(reports), whole(ONE), coalition, only=[bytes(range(32))])


def test_a_crowd_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second shuffler did not count traps, a withheld report would show in the rest."""
    monkeypatch.setattr(Shuffler, "check_people", lambda *_: None)
    reports = {"ada": 0, "ben": 2, "cem": 1}
    before, after = (
        LOST.views(held, withheld(), [others(LOST)], only=[bytes(range(32))])
        for held in (reports, swapped(reports))
    )
    assert before != after


# -- three people in a cascade: hundreds of orders


@pytest.mark.slow
@pytest.mark.parametrize("honest", [0, 1])
def test_three_people_in_a_cascade(honest: int) -> None:
    """All 720 orders of six items, with a corrupted third person."""
    stage = Stage(people=THREE, task=NEAR, hops=2, minimum=2, honest=honest)
    steps, coalition = whole(stage), [others(stage) | {"cem"}]
    reports = {"ada": 0, "ben": 2, "cem": 1}
    (before,) = stage.views(reports, steps, coalition)
    assert before.total() == 720
    assert [before] == stage.views(swapped(reports), steps, coalition)
