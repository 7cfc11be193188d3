"""Cases outside the promise: answers that choose people by their reports, enumerated in full."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from click.testing import CliRunner

from coatcheck.accounting.amplification import amplify, delta_curve
from coatcheck.accounting.guarantee import Disclosure
from coatcheck.accounting.laws import grid
from coatcheck.cli import main
from coatcheck.cli.output import hint_caveat
from coatcheck.domains import Box
from coatcheck.planning import Group, plan
from coatcheck.tasks import load
from support.crowds import Array, grid_caps, two_level

View = tuple[tuple[int, ...], tuple[int, ...]]


def views(channel: Array, values: tuple[int, ...], *, exposed: int) -> Counter[View]:
    """Return the chances of all views: how many reports in each cell, and some owners of cell 1.

    The answers name up to `exposed` owners of reports in cell 1, drawn fairly among them; person
    0 is the one in question.
    """
    chances: Counter[View] = Counter()
    cells = range(channel.shape[1])
    for reports in itertools.product(cells, repeat=len(values)):
        chance = math.prod(channel[x, y] for x, y in zip(values, reports, strict=True))
        counts = tuple(reports.count(cell) for cell in cells)
        owners = [who for who, cell in enumerate(reports) if cell == 1]
        told = list(itertools.combinations(owners, min(exposed, len(owners))))
        for some in told:
            chances[counts, some] += chance / len(told)
    return chances


def deltas(channel: Array, crowd: int, *, exposed: int, epsilon: float) -> Iterator[list[float]]:
    """For each data set and direction, give what every view adds to δ, person 0 named or not."""
    e = math.exp(epsilon)
    for other in range(len(channel)):
        one, two = (
            views(channel, (mine, *[other] * (crowd - 1)), exposed=exposed) for mine in (0, 1)
        )
        for p, q in ((one, two), (two, one)):
            yield [
                sum(max(0.0, p[view] - e * q[view]) for view in p if 0 not in view[1]),
                sum(max(0.0, p[view] - e * q[view]) for view in p if 0 in view[1]),
            ]


def test_the_smallest_counterexample_to_counting_the_exposed_out() -> None:
    """3-ary response, 5 people, one owner in a cell told: δ is 0.4608, n - exposed gives 0.3136."""
    epsilon, crowd, exposed, central = 2.0, 5, 1, 1.0
    caps, cells = grid_caps(3)
    channel = two_level(caps, cells, epsilon)
    law = grid(epsilon, cells=cells)
    (claim,) = delta_curve(law, epsilons=[central], crowd=crowd - exposed)
    found = list(deltas(channel, crowd, exposed=exposed, epsilon=central))
    assert claim == pytest.approx(0.3136, abs=1e-4)
    assert max(map(sum, found)) == pytest.approx(0.4608, abs=1e-4)
    # Leaving out every view that names the person does not save it.
    assert max(kept for kept, _ in found) == pytest.approx(0.4042, abs=1e-4)
    # What holds for certain: all reports with their owners are ε-LDP, and a view is made of them.
    certain = deltas(channel, crowd, exposed=exposed, epsilon=epsilon)
    assert max(map(sum, certain)) == pytest.approx(0.0, abs=1e-12)


def test_a_crowd_of_a_thousand_can_be_worth_nothing() -> None:
    """100 cells, 32 of 1000 told: ε = 0.773 at 1e-6 is claimed, one event alone has δ = 0.341.

    The others are elsewhere; the event is that the answers name the person in the cell of x1.
    """
    epsilon, cells, crowd, exposed = 4.0, 100, 1000, 32
    law = grid(epsilon, cells=cells)
    claim = amplify(law, crowd=crowd, exposed=exposed, delta=1e-6)
    assert claim.epsilon == pytest.approx(0.773, abs=1e-3)
    p, hit = math.exp(epsilon), law.cap
    named = sum(
        math.comb(crowd - 1, k)
        * hit**k
        * (1 - hit) ** (crowd - 1 - k)
        * min(1.0, exposed / (k + 1))
        for k in range(200)
    )
    assert named * hit * (p - math.exp(claim.epsilon)) >= 0.341
    # The guarantee that carries this ε says so itself, wherever it is read.
    assert "only the local ε = 4 is proven for certain" in str(claim)


def informed(
    channel: Array, mine: int, *, questions: tuple[tuple[int, ...], ...]
) -> Counter[tuple[tuple[int, ...], tuple[bool, ...]]]:
    """Return the chances of what a server sees that works with corrupted candidates.

    It sees the reports of three people by cell, and then asks person 0, candidate by candidate, if
    the true cell is one of three. The first question depends on the reports, each next one also on
    the answers before.
    """
    chances: Counter[tuple[tuple[int, ...], tuple[bool, ...]]] = Counter()
    for (counts, _), chance in views(channel, (mine, 0, 0), exposed=0).items():
        answers: list[bool] = []
        for asked in questions:
            center = asked[(counts.index(max(counts)) + sum(answers)) % len(asked)]
            answers.append(abs(mine - center) <= 1)
        chances[counts, tuple(answers)] += chance
    return chances


@pytest.mark.parametrize("questions", [((1, 4),), ((1, 4, 2), (0, 3)), ((0, 2, 4), (1, 3), (4, 0))])
def test_answers_by_letter_are_beside_the_promise(questions: tuple[tuple[int, ...], ...]) -> None:
    """No ε covers an answer to a candidate; with equal answers the promise of the round holds.

    With every answer the chance to guess the cell doubles at most.
    """
    epsilon, central = 1.0, 0.7
    caps, cells = grid_caps(6)
    channel = two_level(caps, cells, epsilon)
    (delta,) = delta_curve(grid(epsilon, cells=cells), epsilons=[central], crowd=3)
    seen = [informed(channel, mine, questions=questions) for mine in range(cells)]
    told_apart = 0
    for one, two in itertools.permutations(seen, 2):
        told_apart += any(not two[view] for view in one)
        both = [view for view in one if two[view]]
        assert sum(max(0.0, one[view] - math.exp(central) * two[view]) for view in both) <= delta
        assert all(one[view] <= math.exp(epsilon) * two[view] * (1 + 1e-12) for view in both)
    assert told_apart > 0
    every = set().union(*seen)
    guessed = sum(max(chances[view] for chances in seen) for view in every) / cells
    alone = [views(channel, (mine, 0, 0), exposed=0) for mine in range(cells)]
    before = sum(max(chances[view] for chances in alone) for view in set().union(*alone)) / cells
    assert before < guessed <= before * 2 ** len(questions)


def test_a_promise_with_letters_says_what_it_does_not_cover() -> None:
    """Sentence and JSON tell how many candidates learn what, and which ε is left."""
    law = grid(3.0, cells=9)
    plain = amplify(law, crowd=5000, delta=1e-6)
    assert plain.disclosure == ""
    assert "Letters" not in str(plain)
    letters = Disclosure(candidates=10, cells=69)
    guarantee = replace(plain, letters=letters)
    assert str(guarantee).endswith(guarantee.disclosure)
    assert guarantee.disclosure.startswith("Letters: if you settle, each of at most 10 candidates")
    assert "whether your cell is one of 69 cells" in guarantee.disclosure
    assert "local ε = 3 against candidates" in guarantee.disclosure
    assert letters.bits == 10
    rings = Disclosure(candidates=20, cells=81, rings=4, chooses=True)
    assert "in which of 4 rings your cell is, or in none" in str(rings)
    assert "how you choose" in str(rings)
    assert rings.bits == pytest.approx(20 * math.log2(5))
    assert "candidates who learn an answer" in guarantee._repr_html_()


def test_a_promise_with_exposed_people_says_what_it_assumes() -> None:
    """Sentence, assumptions and JSON state it; without exposed people nothing is added."""
    law = grid(3.0, cells=9)
    guarantee = amplify(law, crowd=5000, exposed=30, delta=1e-6)
    assert any("does not depend on what anybody reported" in text for text in guarantee.assumptions)
    assert "only the local ε = 3 is proven for certain" in guarantee.caveat
    assert str(guarantee).endswith(guarantee.caveat)
    plain = amplify(law, crowd=5000, delta=1e-6)
    assert plain.caveat == ""
    assert not any("does not depend" in text for text in plain.assumptions)
    common = ["amplify", "--local-epsilon", "3", "--crowd", "900", "--delta", "1e-6", "--json"]
    shown = json.loads(CliRunner().invoke(main, [*common, "--exposed", "9"]).stdout)
    assert "proven for certain" in shown["caveat"]
    assert json.loads(CliRunner().invoke(main, common).stdout)["caveat"] == ""


def test_people_are_warned_before_joining(capsys: pytest.CaptureFixture[str]) -> None:
    """`join` and `take-part` warn before anything is sent, if answers may expose a person."""
    law = grid(3.0, cells=9)
    hint_caveat(amplify(law, crowd=900, delta=1e-6))
    assert capsys.readouterr().err == ""
    hint_caveat(amplify(law, crowd=900, exposed=9, delta=1e-6))
    told = capsys.readouterr().err
    assert told.startswith("coatcheck: the reports decide answers")
    assert told.endswith("only the local ε = 3 is proven for certain\n")


def test_a_plan_for_a_matching_says_it_too() -> None:
    """A plan with corrupted people prints the caveat with the group whose members are named."""
    square = Box((-1.0, -1.0), (1.0, 1.0))
    match = load("least-cost-matching")()
    riders, drivers = match.groups
    groups = {riders: Group(square, crowd=900, corrupted=9), drivers: Group(square, crowd=900)}
    found = str(plan(groups, epsilon=2.0, delta=1e-6, task=match))
    assert found.count("proven for certain") == 1
