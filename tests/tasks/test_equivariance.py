"""The checker detects faulty tasks, describes the fault, and allows ties."""

import json
from collections.abc import Sequence
from itertools import count

import numpy as np
import pytest
from click.testing import CliRunner

from coatcheck.cli import main
from coatcheck.entropy import Entropy
from coatcheck.errors import Misuse
from coatcheck.tasks import Answers, Floats, References, Task, Values
from coatcheck.tasks.equivariance import check_equivariance
from coatcheck.tasks.neighbours import Neighbours
from support.wrong_tasks import (
    ChangesInput,
    FailsAlone,
    FirstCome,
    Numbers,
    SeededDraw,
    TellsTooMuch,
    Tickets,
    TooShort,
)


@pytest.mark.parametrize(
    ("task", "smallest"), [(FirstCome(), [2, 1]), (Tickets(), [2]), (SeededDraw(), [2])]
)
def test_the_three_wrong_tasks_are_caught(task: Task, smallest: list[int]) -> None:
    """First come first served, answers by position, a draw seeded by order: all refuted, shrunk."""
    verdict = check_equivariance(task)
    assert not verdict.equivariant
    assert verdict.counterexample is not None
    assert [len(group) for group in verdict.counterexample.estimates] == smallest
    assert "another order" in verdict.reason
    assert verdict.cured
    assert "canonical order" in str(verdict)


@pytest.mark.parametrize(
    ("task", "told"),
    [
        (ChangesInput(), "changes the reports"),
        (TooShort(), "answers to"),
        (FailsAlone(), "raises ValueError"),
        (TellsTooMuch(), "stated 0"),
    ],
)
def test_other_faults_are_named(task: Task, told: str) -> None:
    """A task that damages, forgets, fails or reveals too much is refuted with that reason."""
    verdict = check_equivariance(task)
    assert told in verdict.reason


def test_a_task_that_draws_anew_is_caught() -> None:
    """Answers that differ when asked twice are refuted even if the order is kept."""
    calls = count()

    class Fresh(Numbers):
        def __call__(self, estimates: Sequence[Floats]) -> list[Answers]:
            return [Values(estimates[0][:, :1] + next(calls))]

    verdict = check_equivariance(Fresh())
    assert "the second time" in verdict.reason
    assert not verdict.cured
    assert "cannot mend" in str(verdict)


def test_equal_reports_may_swap_their_answers() -> None:
    """Ties by equal places are excused, and counted apart."""
    verdict = check_equivariance(Neighbours(radius=0.6, limit=2), trials=200)
    assert verdict.equivariant
    assert verdict.tied > 0
    assert "up to ties" in str(verdict)


def test_a_user_may_draw_the_reports() -> None:
    """Tasks in other units are checked on suitable reports."""
    seen: list[Floats] = []

    def metres(entropy: Entropy, sizes: Sequence[int]) -> list[Floats]:
        drawn = [entropy.uniforms(2 * n).reshape(n, 2) * 1e5 for n in sizes]
        seen.extend(drawn)
        return drawn

    assert check_equivariance(Neighbours(radius=2e4), trials=20, draw=metres).equivariant
    assert max(group.max(initial=0) for group in seen) > 1e4
    with pytest.raises(Misuse, match="trial"):
        check_equivariance(Numbers(), trials=0)


def test_check_task_on_the_command_line() -> None:
    """Exit code 0 and a sentence for a right task, 1 and the counterexample for a wrong one."""
    runner = CliRunner()
    right = runner.invoke(main, ["check-task", "neighbours", "--trials", "30"])
    assert right.exit_code == 0
    assert "equivariant in 30 trials" in right.output
    wrong = runner.invoke(main, ["check-task", "support.wrong_tasks:FirstCome", "--json"])
    assert wrong.exit_code == 1
    told = json.loads(wrong.output)
    assert [len(group) for group in told["counterexample"]["reports"]] == [2, 1]
    in_words = runner.invoke(main, ["check-task", "support.wrong_tasks:FirstCome"])
    assert "not equivariant" in in_words.output
    assert "users: (" in in_words.output
    for lost in ["support.wrong_tasks:Nobody", "no_such_module:Task", "numpy:pi", "nothing"]:
        assert runner.invoke(main, ["check-task", lost]).exit_code == 2


def test_counterexamples_are_honest() -> None:
    """The shrunken counterexample still shows the fault."""
    smallest = check_equivariance(FirstCome()).counterexample
    assert smallest is not None
    users, workers = smallest.estimates
    order = smallest.orders[0]
    before, after = FirstCome()([users, workers])[0], FirstCome()([users[order], workers])[0]
    assert isinstance(before, References)
    assert isinstance(after, References)
    served = np.flatnonzero(np.diff(before.indptr))[0]
    assert order[np.flatnonzero(np.diff(after.indptr))[0]] != served
