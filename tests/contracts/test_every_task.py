"""The contract of every task, built in or installed: registering a task tests it."""

import json

import numpy as np
import pytest

from coatcheck.entropy import seeded
from coatcheck.tasks import (
    Optimizes,
    ReadsNotes,
    References,
    Score,
    Scored,
    Task,
    answer,
    from_params,
    load,
    names,
)
from coatcheck.tasks.equivariance import check_equivariance


def example(name: str) -> Task:
    """Return an instance to test: the class's own example, or the class without arguments."""
    found = load(name)
    task: Task = found.example() if hasattr(found, "example") else found()
    return task


def crowd(task: Task, sizes: list[int]) -> tuple[list[np.ndarray], list[np.ndarray] | None]:
    """Return reports, and notes if the task reads them."""
    entropy = seeded(3)
    dimensions = getattr(task, "dimensions", (2,) * len(sizes))
    places = [
        entropy.uniforms(n * d).reshape(n, d) * 2 - 1
        for n, d in zip(sizes, dimensions, strict=True)
    ]
    if not isinstance(task, ReadsNotes):
        return places, None
    size = task.note_size
    return places, [
        np.frombuffer(entropy.token(n * size), np.uint8).reshape(n, size) for n in sizes
    ]


@pytest.fixture(params=names())
def task(request: pytest.FixtureRequest) -> Task:
    """Provide every registered task."""
    return example(request.param)


def test_is_equivariant(task: Task) -> None:
    """The checker finds no counterexample."""
    verdict = check_equivariance(task, trials=150, entropy=11)
    assert verdict.equivariant, str(verdict)


def test_keeps_its_stated_exposure_and_size(task: Task) -> None:
    """Answers refer to no more people than stated, for crowds from nobody to some hundreds."""
    for size in (0, 1, 2, 17, 200):
        sizes = [size + 3 * g for g in range(len(task.groups))]
        places, notes = crowd(task, sizes)
        exposed = task.exposed(sizes)
        limits = task.answer_size([group.shape[1] for group in places])
        assert all(0 <= count <= sizes[h] for row in exposed for h, count in enumerate(row))
        for g, told in enumerate(answer(task, places, notes=notes)):
            assert len(told) == sizes[g]
            if isinstance(told, References):
                others = told.indices[told.owners() != told.indices]
                most = told.counts().max(initial=0)
                assert most <= limits[g].references
                assert len(others) <= sizes[g] * max(exposed[g][told.group], 1)
            else:
                assert told.data.shape[1] + len(told.shared) <= limits[g].numbers


def test_parameters_are_plain_and_rebuild_the_task(task: Task) -> None:
    """Through JSON and back, the task has the same parameters and gives the same answers."""
    plain = json.loads(json.dumps(task.params()))
    assert plain["name"] == task.name
    assert from_params(plain).params() == task.params()


@pytest.mark.parametrize("name", [n for n in names() if isinstance(example(n), Scored)])
def test_scores_prefer_the_truth(name: str) -> None:
    """A round on the true values never scores below one on values moved at random."""
    task = example(name)
    assert isinstance(task, Scored)
    truth, _ = crowd(task, [60 + 20 * g for g in range(len(task.groups))])
    entropy = seeded(4)
    moved = [t + entropy.uniforms(t.size).reshape(t.shape) - 0.5 for t in truth]
    best, worse = task.score(truth, estimates=truth), task.score(truth, estimates=moved)
    assert isinstance(best, Score)
    assert best.better_than(worse)
    assert not worse.better_than(best)


@pytest.mark.parametrize("name", [n for n in names() if isinstance(example(n), Optimizes)])
def test_objectives_are_shared_by_the_canonical_order(name: str) -> None:
    """Sorting the reports first changes which optimum is found, never its objective."""
    task = example(name)
    assert isinstance(task, Optimizes)
    places, _ = crowd(task, [50 + 10 * g for g in range(len(task.groups))])
    sides = [task.objective(places, answer(task, places, canonical=c)) for c in (True, False)]
    assert sides[0] == pytest.approx(sides[1], rel=1e-12)
