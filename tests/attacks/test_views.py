"""What each coalition sees is the same when two honest people swap their reports.

The model of docs/explanation/simulation.md: the shipped roles run rounds of two, three or four
people with ideal seals, all orders of the honest shuffler and all reports are enumerated, and the
views of a coalition are compared as collections. So "the same" means: with exactly the same
chances. Where THREATS says that a coalition learns whose report is whose, the model must find the
difference. Each mistake at the end of this file is one that a programmer could make, and the model
must find it, too.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest

from coatcheck.entropy import Entropy
from coatcheck.protocol import client
from coatcheck.protocol import shuffler as shuffler_file
from coatcheck.protocol.shuffler import RANK_SIZE, Peeler, Shuffler, Sifted
from coatcheck.protocol.wire.uploads import ID_SIZE, Tally, content_id
from coatcheck.randomizers import GridResponse
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours
from coatcheck.tasks.standing import Standing
from support import views
from support.ideal_seals import IdealSeals, coin
from support.views import CELLS, PLACES, READER, Stage, Step, View, swapped

NEAR = Neighbours(radius=1.0, limit=1)
REPORTS = {"ada": 0, "ben": 2, "cem": 1}
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


def of(stage: Stage) -> dict[str, int]:
    """Return the reports of the people of a stage."""
    return {person: REPORTS[person] for person in stage.people}


def others(stage: Stage) -> set[str]:
    """Return everybody but the people and the honest shuffler."""
    return EVERYBODY | {f"shuffler {hop}" for hop in range(stage.hops) if hop != stage.honest}


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
    pair = stage.coupled(of(stage), [*orders[0], *mixed(stage)])
    for order in orders:
        steps = [*order, *mixed(stage)]
        assert_same(stage, steps, only=pair)


def assert_same(stage: Stage, steps: Sequence[Step], *, only: Sequence[bytes] = ()) -> None:
    """Compare the views of all but the honest shuffler before and after a swap."""
    reports = of(stage)
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
    """Any party may end the round at any time: nothing sent before or after shows more."""
    steps = whole(stage)
    pair = stage.coupled(of(stage), steps)
    for place, end in itertools.product(range(len(steps)), ENDS):
        assert_same(stage, [*steps[:place], *end, *steps[place:]], only=pair)


def test_a_report_that_is_withheld_ends_the_round() -> None:
    """The first shuffler and the network drop one person; the second counts, and nothing leaves."""
    steps = withheld()
    assert_same(LOST, steps)
    play = LOST.play(LOST.held(REPORTS)).taken(steps)
    assert not play.answers


LOST = Stage(people=THREE, task=NEAR, hops=2, minimum=1, honest=1)
LENIENT = Stage(people=THREE, task=NEAR, hops=2, minimum=1, honest=1, traps=0.45)
"""A cascade that goes on although a trap of three is missing."""
ACTIONS = ("", "drop", "repeat", "alter")


@pytest.mark.parametrize("trap", ACTIONS)
@pytest.mark.parametrize("report", ACTIONS)
def test_a_first_shuffler_that_tampers_learns_nothing_of_the_others(report: str, trap: str) -> None:
    """It may drop, repeat or alter what Cem sends, repeat what Ada sends, and add a forgery."""
    own = [
        [("tamper", action, "cem", kind)] if action else []
        for action, kind in ((report, "report"), (trap, "trap"))
    ]
    forged, repeated = [("tamper", "forge")], [("tamper", "repeat", "ada", "report")]
    for extra in ([], forged, repeated):
        assert_same_after([*own[0], *own[1], *extra])


def assert_same_after(tampering: Sequence[Step]) -> None:
    """Compare the views of the cheats around an honest second shuffler; it must go on."""
    steps = whole(LENIENT)
    place = steps.index(("accept", "1"))
    steps[place:place] = tampering
    assert_same(LENIENT, steps, only=LENIENT.coupled(REPORTS, steps))
    assert LENIENT.play(LENIENT.held(REPORTS)).taken(steps).answers


def test_dropping_a_report_of_the_two_shows_whose_it_was() -> None:
    """What stays in the crowd hides; what a cheat takes out of it does not, so crowds are counted.

    The model can tell the difference: an item that is missing is missing from one person's report.
    """
    steps = whole(LENIENT)
    place = steps.index(("accept", "1"))
    steps[place:place] = [("tamper", "drop", "cem", "report")]
    assert not finds(LENIENT, steps, others(LENIENT))
    steps[place] = ("tamper", "drop", "ada", "report")
    assert finds(LENIENT, steps, others(LENIENT))


def withheld() -> list[Step]:
    """Let all three register, and only two of them reach the first shuffler."""
    join = [step for step in joined(LOST, list(THREE)) if step != ("upload", "ada")]
    return [*join, *mixed(LOST), ("expire", "1")]


# -- coalition by coalition, as THREATS lists them


class Learns(Enum):
    """What a coalition can learn of the honest people's reports."""

    NOTHING = "its view is the same whatever they report"
    CROWD = "its view is the same when two of them swap their reports"
    OWNERS = "it can tell whose report is whose"


@dataclass(frozen=True)
class Case:
    """A coalition of THREATS, and the heading of simulation.md that its row points to."""

    place: str
    coalition: Collection[str]
    learns: Learns = Learns.CROWD


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
DECOYS = Stage(people=PAIR, task=NEAR, decoys=1)
"""The two reports are swapped; each person's decoy stays that person's."""


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
            Case("an-observer-of-the-network", {"network"}, Learns.NOTHING),
            Case("a-reader-of-the-board", {READER}, Learns.NOTHING),
            Case("the-server", {"server"}),
            Case("the-operator-of-the-board", {"board"}, Learns.NOTHING),
            Case("the-server-and-the-board", {"server", "board"}, Learns.OWNERS),
            Case("the-server-and-the-board", {"server", "network"}, Learns.OWNERS),
            Case("a-matched-partner", {"cyd"}),
            Case("a-matched-partner", {"cyd", "board"}, Learns.OWNERS),
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
            Case(
                "the-server-and-people-who-learn-names", {"server", "cem", "names"}, Learns.OWNERS
            ),
        ],
    ),
    "an honest server": Scene(
        replace(MEET, task=Standing(), honest=1),
        [whole(MEET)],
        [
            Case("one-shuffler", {"shuffler 0"}, Learns.NOTHING),
            Case("shufflers-and-people", {"shuffler 0", "cem", "network", "board"}),
        ],
    ),
    "an honest server behind two": Scene(
        replace(CASCADES[0], honest=2),
        [whole(CASCADES[0])],
        [
            Case("one-shuffler", {"shuffler 0"}, Learns.NOTHING),
            Case("one-shuffler", {"shuffler 1"}, Learns.NOTHING),
            Case("one-shuffler", {*TWO_SHUFFLERS, "network", "board"}, Learns.NOTHING),
        ],
    ),
    "nobody to hide among": Scene(
        ONE,
        [whole(ONE)],
        [
            Case("the-server-and-all-shufflers", {"server", "shuffler 0"}, Learns.OWNERS),
            Case("the-server-and-all-other-people", {"server", "ben"}, Learns.OWNERS),
        ],
    ),
    "decoys": Scene(
        DECOYS,
        [whole(DECOYS)],
        [
            Case("the-server", {"server"}),
            Case("the-server-and-the-board", {"server", "board", "network"}),
        ],
    ),
    "decoys, an honest server": Scene(
        replace(DECOYS, honest=1),
        [whole(DECOYS)],
        [
            Case("one-shuffler", {"shuffler 0", "network", "board"}, Learns.NOTHING),
        ],
    ),
    "decoys without an honest shuffler": Scene(
        DECOYS,
        [whole(DECOYS)],
        [Case("the-server-and-all-shufflers", {"server", "shuffler 0"}, Learns.OWNERS)],
    ),
    "no honest shuffler of two": Scene(
        CASCADES[0],
        [whole(CASCADES[0])],
        [
            Case("the-server", {"server", "shuffler 1"}),
            Case("the-server-and-all-shufflers", {"server", *TWO_SHUFFLERS}, Learns.OWNERS),
        ],
    ),
    "relayed letters": Scene(
        RELAYED,
        read(written(RELAYED, "ask")),
        [
            Case("the-relay-alone", {"relay", "network"}, Learns.NOTHING),
            Case("a-role-behind-the-relay", {"board"}, Learns.NOTHING),
            Case("the-relay-and-the-board", {"relay", "board"}, Learns.NOTHING),
            Case("the-server-and-the-board", {"server", "board"}),
            Case("a-matched-partner", {"cyd", "board"}),
            # The log shows letters in the order in which the relay forwarded them.
            Case("the-relay-and-the-server", {"relay", "server"}, Learns.OWNERS),
            Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}, Learns.OWNERS),
        ],
    ),
    "relayed, no letters": Scene(
        RELAYED,
        [whole(RELAYED)],
        [
            Case("the-relay-and-the-server", {"relay", "server"}),
            Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}),
            Case("the-relay-and-all-roles", {"relay", *ALL_ROLES}, Learns.OWNERS),
        ],
    ),
    "relayed, own entries": Scene(
        RELAYED,
        [[*whole(RELAYED), ("ask", "ada"), ("ask", "ben")]],
        [Case("the-relay-the-board-and-the-server", {"relay", "board", "server"}, Learns.OWNERS)],
    ),
    "relayed, an honest server": Scene(
        replace(RELAYED, honest=1),
        [whole(RELAYED)],
        [
            Case("a-role-behind-the-relay", {"shuffler 0"}, Learns.NOTHING),
            Case("the-relay-and-a-shuffler", {"relay", "shuffler 0"}, Learns.NOTHING),
        ],
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_a_coalition_sees_what_threats_says(scene: str) -> None:
    """A swap changes the view of no coalition but of those that THREATS says can link.

    Those that learn nothing of reports see the same whatever the two people report.
    """
    cells = {**REPORTS, "cem": 2, "cyd": 0, "dee": 2}
    reports = {person: cells[person] for person in SCENES[scene].stage.people}
    others = [swapped(reports), {**reports, "ada": 1, "ben": 1}, {**reports, "ada": 2, "ben": 2}]
    before, *after = map(SCENES[scene].views, [reports, *others])
    for number, case in enumerate(SCENES[scene].cases):
        is_same = [views[number] == before[number] for views in after]
        where = f"{case.place}: {sorted(case.coalition)}"
        assert is_same[0] is (case.learns is not Learns.OWNERS), where
        assert all(is_same) is (case.learns is Learns.NOTHING), where


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


# -- the model finds mistakes: each is found, and without it nothing is


def finds(stage: Stage, steps: Sequence[Step], coalition: Collection[str]) -> bool:
    """Return whether a coalition sees a swap, over all orders; people join anew."""
    before, after = (
        replace(stage).views(held, steps, [coalition]) for held in (of(stage), swapped(of(stage)))
    )
    return before != after


LINKERS = {"server", "network"}
COUNTED = CASCADES[1]


class FixedId(Entropy):
    """The randomness of a person, but for the id of the upload."""

    secure = False

    def __init__(self, source: Entropy, name: object) -> None:
        super().__init__()
        self._source, self._name = source, name

    def _stream(self, size: int) -> bytes:
        return self.token(size)

    def token(self, size: int) -> bytes:
        """Return the next coin, or the id."""
        return coin(self._name, size) if size == ID_SIZE else self._source.token(size)


def test_an_order_without_a_secret_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the order of a batch is that of the upload ids, the server and the network link people."""
    assert not finds(ONE, whole(ONE), LINKERS)
    monkeypatch.setattr(Peeler, "rank", lambda _, group, name: bytes((group,)) + name[:15])
    reports, only = {"ada": 0, "ben": 2}, [bytes(32)]
    before = ONE.views(reports, whole(ONE), [LINKERS], only=only)
    assert before != ONE.views(swapped(reports), whole(ONE), [LINKERS], only=only)


def test_a_crowd_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second shuffler did not count traps, a withheld report would show in the rest."""
    assert not finds(LOST, withheld(), others(LOST))
    monkeypatch.setattr(Shuffler, "check_people", lambda *_: None)
    assert finds(LOST, withheld(), others(LOST))


def test_a_rank_in_a_log_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the shuffler logs which place an upload gets, whoever reads the log links people."""
    rank = Peeler.rank

    def talkative(peeler: Peeler, group: int, name: bytes) -> bytes:
        place = rank(peeler, group, name)
        logging.getLogger("shuffler").debug("upload %s is at %s", name.hex(), place.hex())
        return place

    monkeypatch.setattr(Peeler, "rank", talkative)
    # The same coins give the other order after a swap, so the rank must not be in the log.
    pair = ONE.coupled(of(ONE), whole(ONE))
    before, after = (
        ONE.views(held, whole(ONE), [LINKERS], only=pair) for held in (of(ONE), swapped(of(ONE)))
    )
    assert before != after


def test_a_layer_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the layer of the honest shuffler hides nothing, the server knows each report again."""
    encrypt = IdealSeals.encrypt

    def open_layer(seals: IdealSeals, text: bytes, key: Any, bound: bytes) -> bytes:
        sealed = encrypt(seals, text, key, bound)
        if not bound.startswith(b"coatcheck/v1/layer"):
            return sealed
        plain = text + bytes(len(sealed) - len(text))
        seals.table[plain] = seals.table.pop(sealed)
        return plain

    monkeypatch.setattr(IdealSeals, "encrypt", open_layer)
    assert finds(ONE, whole(ONE), LINKERS)


def test_an_id_made_of_the_report_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If an upload's id is a hash of the report, the server finds the upload of each report."""
    plain = client.wrap

    def wrap(
        reports: Sequence[bytes], round_: Any, *, group: int, entropy: Entropy
    ) -> client.SealedUpload:
        return plain(reports, round_, group=group, entropy=FixedId(entropy, *reports))

    monkeypatch.setattr(client, "wrap", wrap)
    assert finds(ONE, whole(ONE), LINKERS)


def test_a_repeated_item_that_is_mixed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second shuffler mixed copies, the first one would mark a person's report by them."""
    steps = whole(COUNTED)
    place = steps.index(("accept", "1"))
    steps[place:place] = [("tamper", "repeat", "ada", "report")]
    assert not finds(COUNTED, steps, others(COUNTED))
    numbers = itertools.cycle(range(5))  # each of the five items that arrive gets its own id

    def numbered(item: bytes) -> bytes:
        return content_id(item + bytes((next(numbers),)))

    def careless(tally: Tally, ranked: Iterable[Any], *, traps: Any) -> Sifted:
        rows = np.concatenate(list(ranked))
        registered = {trap.tobytes() for trap in traps}
        are_traps = np.array([row[RANK_SIZE:].tobytes() in registered for row in rows])
        return Sifted(tally.drop("trap", int(are_traps.sum())), rows[are_traps, :RANK_SIZE])

    monkeypatch.setattr(shuffler_file, "sift", careless)
    for module in (shuffler_file, views):
        monkeypatch.setattr(module, "content_id", numbered)
    assert finds(COUNTED, steps, others(COUNTED))


def test_a_decoy_under_the_key_of_the_report_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If decoys and report have one address, the server sees which of them are one person's."""
    assert not finds(DECOYS, whole(DECOYS), LINKERS)
    monkeypatch.setattr(IdealSeals, "decoy_seed", lambda _, seed, *__: seed)
    assert finds(DECOYS, whole(DECOYS), LINKERS)


ALL = {"network", "board", "server", "shuffler 0", "shuffler 1"}


def same_for_other_values() -> bool:
    """Return whether all roles together see the same if people with other values report the same.

    So what a person sends depends on the value through the report alone.
    """
    here = replace(COUNTED, values=PLACES)
    there = replace(COUNTED, values={"ada": 0.7, "ben": 0.3})
    before, after = (
        stage.views(of(stage), whole(stage), [ALL], only=[bytes(range(32))])
        for stage in (here, there)
    )
    return before == after


def test_nothing_but_the_report_depends_on_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """All roles together see a report; an id made of the value would show them more."""
    assert same_for_other_values()
    plain, randomize, values = client.wrap, GridResponse.randomize_one, list[float]()

    def randomize_one(mechanism: GridResponse, value: Any, entropy: Entropy) -> tuple[int, ...]:
        values.append(value[0])
        return randomize(mechanism, value, entropy)

    def wrap(
        reports: Sequence[bytes], round_: Any, *, group: int, entropy: Entropy
    ) -> client.SealedUpload:
        return plain(reports, round_, group=group, entropy=FixedId(entropy, values[-1]))

    monkeypatch.setattr(GridResponse, "randomize_one", randomize_one)
    monkeypatch.setattr(client, "wrap", wrap)
    assert not same_for_other_values()


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
