"""When two lists of answers say the same: to everybody, or to equal reports taken together.

Equal reports are interchangeable: it does not matter which of two people at one place gets which
answer, nor which of two people at one place an answer refers to. So answers are also compared by
content: references are read as the reports they point to. Knows no keys.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from coatcheck.tasks.answers import Answers, Floats, Notes, Positions, References, Values

_CLOSE = 1e-9


def same_answers(left: Sequence[Answers], right: Sequence[Answers]) -> bool:
    """Whether everybody is told the same, numbers up to rounding."""
    return all(_same(a, b) for a, b in zip(left, right, strict=True))


def same_by_content(
    estimates: Sequence[Floats],
    notes: Sequence[Notes] | None,
    left: Sequence[Answers],
    right: Sequence[Answers],
) -> bool:
    """Whether equal reports, taken together, are told the same of equal reports."""
    kinds = [
        _kinds(group, notes[g] if notes is not None else None) for g, group in enumerate(estimates)
    ]
    return all(
        _same_in_kind(kinds, own, a, b) for own, a, b in zip(kinds, left, right, strict=True)
    )


def _same(left: Answers, right: Answers) -> bool:
    if isinstance(left, Values) and isinstance(right, Values):
        return _near(left.data, right.data) and _near(left.shared, right.shared)
    if not (isinstance(left, References) and isinstance(right, References)):
        return False
    if left.group != right.group or not np.array_equal(left.indptr, right.indptr):
        return False
    sides = [_rows(found, found.indices) for found in (left, right)]
    return sides[0] == sides[1]


def _same_in_kind(kinds: list[Positions], own: Positions, left: Answers, right: Answers) -> bool:
    order = np.argsort(own, kind="stable")
    bounds = np.flatnonzero(np.diff(own[order], prepend=-1, append=-1))
    if isinstance(left, Values) and isinstance(right, Values):
        if not _near(left.shared, right.shared) or left.data.shape != right.data.shape:
            return False
        sides = [_sorted_within(found.data[order], bounds) for found in (left, right)]
        return _near(*sides)
    if not (isinstance(left, References) and isinstance(right, References)):
        return False
    if left.group != right.group:
        return False
    read = [_rows(found, kinds[found.group][found.indices]) for found in (left, right)]
    return all(
        sorted(read[0][i] for i in order[a:b]) == sorted(read[1][i] for i in order[a:b])
        for a, b in pairwise(bounds)
    )


def _near(left: Floats, right: Floats) -> bool:
    if left.shape != right.shape:
        return False
    scale = float(np.abs(left).max(initial=0.0))
    return bool(np.allclose(left, right, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True))


def _rows(found: References, named: Positions) -> list[tuple[int, ...]]:
    """Each report's references under these names, sorted unless their order means something."""
    rows = [named[a:b].tolist() for a, b in pairwise(found.indptr)]
    return [tuple(row) if found.ordered else tuple(sorted(row)) for row in rows]


def _sorted_within(data: Floats, bounds: Positions) -> Floats:
    """Rows sorted within each run of equal reports."""
    parts = [data[a:b][np.lexsort(data[a:b].round(9).T[::-1])] for a, b in pairwise(bounds)]
    return np.concatenate([data[:0], *parts]) if data.shape[1] else data


def _kinds(estimates: Floats, notes: Notes | None) -> Positions:
    """A number for each report, equal for equal reports."""
    content = estimates if notes is None else np.concatenate([estimates, notes], axis=1)
    if not len(content):
        return np.empty(0, dtype=np.int64)
    kinds = np.unique(content, axis=0, return_inverse=True)[1]
    return np.asarray(kinds, dtype=np.int64).reshape(-1)
