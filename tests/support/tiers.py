"""Selection of a matrix's cases: `make test` runs some, `make slow` runs all."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def mostly_slow(cases: Iterable[Any], *, quick: Callable[[Any], bool]) -> list[Any]:
    """Mark every case `slow` that is not listed as quick; a case is a value or a tuple."""
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        found.append(case if quick(case) else pytest.param(*values, marks=pytest.mark.slow))
    return found


def some_slow(cases: Iterable[Any], *, every: int) -> list[Any]:
    """Keep the first case and every n-th after it; mark the others `slow`."""
    listed = list(enumerate(cases))
    quick = {number for number, _ in listed if number % every == 0}
    return [
        case
        if number in quick
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
        for number, case in listed
    ]
