"""Precision, recall and how many were served, against numbers by hand."""

import math

import numpy as np
import pytest

from coatcheck.domains import Box
from coatcheck.entropy import seeded
from coatcheck.simulation.quality import measure
from coatcheck.tasks.matching import LeastCostMatching
from coatcheck.tasks.neighbours import Neighbours

BOX = Box((0.0,), (10.0,))
PEOPLE = np.array([[0.0], [0.5], [0.8], [1.0], [9.0]])


def test_recall_counts_no_more_than_an_answer_names() -> None:
    """Many found by one person do not make up for nobody found by another."""
    task = Neighbours(radius=1.0, limit=2)
    named = [(0, 1), (0, 2), (0, 3), (1, 0), (4, 3)]
    service = measure(named, [PEOPLE], task=task, box=BOX, entropy=seeded(1))
    private = service.private
    assert (private.served, private.pairs) == (3, 5)
    assert private.within == pytest.approx(4 / 5)
    assert private.recall == pytest.approx(3 / 8)  # four people have two near, one has nobody
    assert service.without_noise.recall == 1
    assert service.without_noise.within == 1
    assert service.at_random.recall < 1


def test_recall_of_a_matching_is_by_near_pairs() -> None:
    """Candidates without a radius: near is within a fifth of the shorter side."""
    task = LeastCostMatching(candidates=2)
    groups = [np.array([[0.0], [4.0]]), np.array([[1.0], [5.0], [9.0]])]
    service = measure([(0, 0), (1, 2)], groups, task=task, box=BOX, entropy=seeded(1))
    assert service.private.within == pytest.approx(1 / 2)
    assert service.private.recall == pytest.approx(1 / 2)
    assert service.without_noise.recall == 1


def test_without_a_radius_nothing_is_near() -> None:
    """A matching by cost alone has neither precision nor recall."""
    groups = [np.array([[0.0], [4.0]]), np.array([[1.0], [5.0]])]
    service = measure([(0, 0)], groups, task=LeastCostMatching(), box=BOX, entropy=seeded(1))
    assert math.isnan(service.private.within)
    assert math.isnan(service.private.recall)
