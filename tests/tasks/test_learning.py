"""Shapley values against enumeration, the mean against the truth, notes that cannot do harm."""

from itertools import permutations as all_orders

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.tasks import Floats, Values, answer
from coatcheck.tasks.learning import Learning
from coatcheck.tasks.shapley import Game, exact, mean_field, owen, rewards


def utility(gradients: Floats, direction: Floats) -> float:
    """The cosine game, straight from the paper."""
    summed = gradients.sum(axis=0)
    length = np.linalg.norm(summed)
    return float(direction @ summed / np.linalg.norm(direction) / length) if length > 1e-9 else 0.0


def by_orders(gradients: Floats, direction: Floats) -> Floats:
    """Shapley values by definition: the mean marginal over all orders."""
    n = len(gradients)
    values = np.zeros(n)
    orders = list(all_orders(range(n)))
    for order in orders:
        for k, i in enumerate(order):
            after = utility(gradients[list(order[: k + 1])], direction)
            values[i] += after - utility(gradients[list(order[:k])], direction)
    return values / len(orders)


def sparse_game(n: int, width: int, dimension: int, seed: int = 1) -> Game:
    """Gradients on a few coordinates with a common drift, as in the paper's experiment."""
    entropy = seeded(seed)
    where = Learning(dimension=dimension, sampled=width).draw_coordinates(n, entropy=entropy)
    direction = entropy.uniforms(dimension) - 0.5
    noise = entropy.uniforms(n * width).reshape(n, width) - 0.5
    return Game(coordinates=where, values=0.3 * direction[where] + noise, direction=direction)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_enumeration_equals_the_definition(
    seed: int,
    n: int,
    d: int,
    lattice: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Coalitions with weight 1/C(n-1, k-1) equal the mean over all orders; zero sums included."""
    drawn = seeded(seed).uniforms(n * d).reshape(n, d) * 2 - 1
    gradients = np.rint(drawn) if lattice else drawn
    direction = seeded(seed + 1).uniforms(d) + 0.1
    found = exact(Game.dense(gradients, direction)).values
    assert found == pytest.approx(by_orders(gradients, direction), abs=1e-9)
    assert found.sum() == pytest.approx(utility(gradients, direction), abs=1e-9)


def test_sampling_agrees_with_enumeration_within_its_standard_error() -> None:
    """Owen sampling: every value within five standard errors of the exact.

    False alarms: 12 values at 5 standard errors, about 7e-6 if normal; the seed is fixed.
    """
    game = sparse_game(12, 4, 30)
    truth = exact(game).values
    found = owen(game, entropy=seeded(1), sets=4000)
    off = np.abs(found.values - truth)
    assert np.all(off <= 5 * found.standard_error + 1e-12)
    assert np.sqrt(np.mean(off**2)) / truth.std() < 0.05
    assert found.values.sum() == pytest.approx(game.total(), abs=1e-9)


def test_the_mean_field_form_is_close_for_many() -> None:
    """At 2,000 sparse gradients the closed form is within 1 % of long Owen sampling."""
    game = sparse_game(2000, 6, 1500)
    truth = owen(game, entropy=seeded(3), sets=1500).values
    found = mean_field(game)
    assert np.sqrt(np.mean((found.values - truth) ** 2)) / truth.std() < 0.01
    assert found.values.sum() == pytest.approx(game.total(), rel=1e-9)
    assert np.all(np.isnan(found.standard_error))


def test_few_are_enumerated_and_many_are_not() -> None:
    """The method follows the crowd; enumeration beyond 15 is misuse."""
    assert rewards(sparse_game(15, 2, 9)).method == "exact"
    assert rewards(sparse_game(16, 2, 9)).method == "mean-field"
    assert mean_field(sparse_game(2, 2, 9)).method == "exact"
    assert len(rewards(sparse_game(0, 2, 9)).values) == 0
    with pytest.raises(Misuse, match="coalitions"):
        exact(sparse_game(16, 2, 9))


def test_a_gradient_of_nothing_earns_what_it_changes() -> None:
    """Zero gradients are worth nothing, by enumeration, by sampling and in the closed form."""
    gradients = np.array([[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]])
    game = Game.dense(gradients, np.array([1.0, 1.0]))
    assert exact(game).values[0] == pytest.approx(0.0)
    assert owen(game, entropy=seeded(1), sets=50).values[0] == pytest.approx(0.0)
    many = Game.dense(np.tile(gradients, (10, 1)), np.array([1.0, 1.0]))
    assert mean_field(many).values[::3] == pytest.approx(np.zeros(10))
    with pytest.raises(Misuse, match="zero"):
        Game.dense(gradients, np.zeros(2))


def test_gradients_that_cancel_are_no_trouble() -> None:
    """Twenty gradients that sum to zero: every method gives finite values that add up to zero."""
    half = seeded(9).uniforms(60).reshape(10, 6) - 0.5
    game = Game.dense(np.concatenate([half, -half]), np.ones(6))
    for found in (mean_field(game), owen(game, entropy=seeded(1), sets=300)):
        assert np.all(np.isfinite(found.values))
        assert found.values.sum() == pytest.approx(0.0, abs=1e-9)


def test_a_coordinate_named_twice_counts_once_with_its_sum() -> None:
    """Repeats in a note are the gradient with the values added, not two people."""
    direction = np.array([1.0, 2.0, 3.0])
    twice = Game(
        coordinates=np.array([[1, 1], [0, 2]]),
        values=np.array([[0.5, 0.25], [1.0, -1.0]]),
        direction=direction,
    )
    once = Game.dense(np.array([[0.0, 0.75, 0.0], [1.0, 0.0, -1.0]]), direction)
    assert exact(twice).values == pytest.approx(exact(once).values)
    assert twice.squares() == pytest.approx(once.squares())


def test_the_mean_is_unbiased_under_sampling() -> None:
    """Sampling 2 of 6 coordinates and scaling up recovers the mean gradient.

    20,000 people, standard error below 0.011 a coordinate; the bound is five of them (false alarm
    3e-6 over 6 coordinates), and the seed is fixed.
    """
    task = Learning(dimension=6, sampled=2)
    entropy = seeded(5)
    where = task.draw_coordinates(20_000, entropy=entropy)
    assert np.all(np.diff(where, axis=1) > 0)
    gradient = np.array([0.5, -0.25, 0.0, 1.0, 0.1, -1.0])
    found = task.mean(gradient[where], task.notes(where))
    assert np.all(np.abs(found - gradient) < 0.055)


def test_rewards_go_to_their_owners_with_the_mean_shared() -> None:
    """Notes name coordinates (a wallet behind them is left alone); answers follow the reports."""
    task = Learning(dimension=50, sampled=3, wallet=8, share_mean=True).judged_by(np.ones(50))
    entropy = seeded(6)
    where = task.draw_coordinates(40, entropy=entropy)
    wallets = np.frombuffer(entropy.token(320), np.uint8).reshape(40, 8)
    notes = task.notes(where, wallets)
    assert notes.shape == (40, task.note_size) == (40, 20)
    assert np.array_equal(task.coordinates(notes), where)
    values = entropy.uniforms(120).reshape(40, 3) - 0.4
    (told,) = answer(task, [values], notes=[notes])
    assert isinstance(told, Values)
    game = Game(coordinates=where, values=values, direction=np.ones(50))
    assert told.data[:, 0] == pytest.approx(rewards(game).values)
    assert told.shared == pytest.approx(task.mean(values, notes))
    assert "direction" not in task.params()


def test_whole_gradients_need_no_notes() -> None:
    """Without sampling, a report is the gradient."""
    task = Learning(dimension=3).judged_by(np.array([1.0, 0.0, 0.0]))
    gradients = np.array([[1.0, 0.0, 0.0], [-1.0, 0.5, 0.0]])
    (told,) = answer(task, [gradients])
    assert isinstance(told, Values)
    assert told.data[0, 0] > 0 > told.data[1, 0]
    assert task.mean(gradients) == pytest.approx([0.0, 0.25, 0.0])


def test_missing_input_is_refused() -> None:
    """No direction, no notes, notes of another size, reports of another width."""
    sampled = Learning(dimension=4, sampled=2)
    values, notes = np.ones((3, 2)), np.zeros((3, 8), np.uint8)
    for task, estimates, note, told in [
        (sampled, values, [notes], "direction"),
        (sampled.judged_by(np.ones(4)), values, None, "notes"),
        (sampled.judged_by(np.ones(4)), values, [notes[:, :4]], "bytes"),
        (sampled.judged_by(np.ones(4)), np.ones((3, 5)), [notes], "2 numbers"),
    ]:
        with pytest.raises(Misuse, match=told):
            answer(task, [estimates], notes=note)
    with pytest.raises(Misuse, match="4 numbers"):
        sampled.judged_by(np.ones(5))


def test_the_closed_form_says_when_gradients_cancel() -> None:
    """Gradients that add up to much less than independent ones make it doubtful."""
    drawn = seeded(5).uniforms(40 * 6).reshape(40, 6) - 0.5
    direction = np.ones(6)
    assert not mean_field(Game.dense(drawn, direction)).doubtful
    cancelling = np.concatenate([drawn, -0.99 * drawn])
    assert mean_field(Game.dense(cancelling, direction)).doubtful
    task = Learning(dimension=6).judged_by(direction)
    for gradients, more in ((drawn, 1.0), (cancelling, 1.25)):
        (told,) = task([gradients])
        assert isinstance(told, Values)
        assert told.data[:, 1] == pytest.approx(more * told.data[:, 0].std(ddof=1))


def test_rewards_come_with_the_spread_of_all() -> None:
    """The error bar is the deviation of all rewards; one person alone has none."""
    gradients = seeded(4).uniforms(60).reshape(20, 3) - 0.2
    (told,) = Learning(dimension=3).judged_by(np.ones(3))([gradients])
    assert isinstance(told, Values)
    assert told.data[:, 1] == pytest.approx(told.data[:, 0].std(ddof=1))
    (one,) = Learning(dimension=3).judged_by(np.ones(3))([gradients[:1]])
    assert isinstance(one, Values)
    assert one.data[0, 1] == 0


def test_progress_is_each_one_s_own_part() -> None:
    """The Shapley value of a sum; a single number needs no direction."""
    gradients = seeded(5).uniforms(40).reshape(20, 2) - 0.3
    task = Learning(dimension=2, game="progress").judged_by(np.array([0.0, 3.0]))
    (told,) = task([gradients])
    assert isinstance(told, Values)
    assert told.data[:, 0] == pytest.approx(gradients[:, 1] / 20)
    (line,) = Learning(dimension=1, game="progress")([gradients[:, :1]])
    assert isinstance(line, Values)
    assert line.data[:, 0] == pytest.approx(gradients[:, 0] / 20)
    with pytest.raises(Misuse, match="cosine or progress"):
        Learning(dimension=1, game="poker")  # type: ignore[arg-type]


def test_without_rewards_only_the_mean_is_answered() -> None:
    """The server then needs no direction; without both there is nothing to answer."""
    gradients = seeded(6).uniforms(40).reshape(20, 2)
    (told,) = Learning(dimension=2, rewards=False, share_mean=True)([gradients])
    assert isinstance(told, Values)
    assert told.data.shape == (20, 0)
    assert told.shared == pytest.approx(gradients.mean(axis=0))
    with pytest.raises(Misuse, match="`rewards`, `share_mean` or both"):
        Learning(dimension=2, rewards=False)
