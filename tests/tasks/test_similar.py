"""Similar people: against a direct computation over numbers and labels."""

import numpy as np
import pytest

from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.tasks import References, answer
from coatcheck.tasks.neighbours import Similar


def test_the_most_alike_are_named_in_order() -> None:
    """Numbers count by their distance, labels by whether they differ, each by its weight."""
    entropy = seeded(3)
    numbers = entropy.uniforms(160).reshape(80, 2)
    labels = entropy.below(4, 80)
    people = np.column_stack([numbers, labels])
    weights = np.array([2.0, 0.5, 0.7])
    task = Similar(limit=4, weights=tuple(weights), labels=(0, 0, 4))
    (told,) = answer(task, [people])
    assert isinstance(told, References)
    squares = (((people[:, None] - people)[..., :2] * weights[:2]) ** 2).sum(axis=2)
    squares += (labels[:, None] != labels) * weights[2] ** 2
    np.fill_diagonal(squares, np.inf)
    for person in range(80):
        assert told.of(person).tolist() == np.argsort(squares[person])[:4].tolist()


def test_mutual_lists_name_each_other() -> None:
    """With `mutual`, a named person names the other back."""
    people = seeded(4).uniforms(120).reshape(60, 2)
    (told,) = answer(Similar(limit=3, mutual=True), [people])
    assert isinstance(told, References)
    pairs = set(zip(told.owners().tolist(), told.indices.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs}


def test_widths_that_do_not_fit_are_refused() -> None:
    """There must be as many weights and labels as a report has numbers."""
    with pytest.raises(Misuse, match="2 numbers"):
        Similar(weights=(1.0, 1.0, 1.0))([np.zeros((3, 2))])
    with pytest.raises(Misuse, match="`limit` must be at least 1"):
        Similar(limit=0)
    with pytest.raises(Misuse, match="0 for a quantity"):
        Similar(labels=(-1,))
