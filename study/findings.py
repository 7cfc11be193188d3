"""Findings: a statement of the paper, ours beside it, and whether they agree.

The paper's side is in `expected/*.json`. Comparisons over settings use the standard errors over
seeds. Nothing here is written by hand: every number comes from a sheet.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from study.conventions import BASELINES, PUBLISHED
from study.sheets import HERE, Row

YES: Final = "holds"
NO: Final = "does not hold"
PARTLY: Final = "in part"
BETTER: Final = "better"
NOT_YET: Final = "not measured yet"
LEAST: Final = 0.5  # from this budget on, ours in the crowd has to be ahead everywhere


@dataclass(frozen=True)
class Finding:
    """One statement: the paper's, ours under its conventions, ours at our best."""

    what: str
    paper: str
    ours: str
    best: str = ""
    verdict: str = ""
    reason: str = ""


def expected(name: str) -> dict[str, Any]:
    """Return the paper's side of an item."""
    text = (HERE / "expected" / f"{name}.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document


def number(row: Row, name: str) -> float:
    """Return a number of a row; NaN if it was not measured."""
    value = row.get(name, math.nan)
    return float(value) if value != "" else math.nan


def only(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


@dataclass(frozen=True)
class Count:
    """The settings in which one side was ahead, within two standard errors, or behind, counted."""

    ahead: int = 0
    tied: int = 0
    behind: int = 0
    where: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Return the number of settings."""
        return self.ahead + self.tied + self.behind

    @property
    def verdict(self) -> str:
        """Return whether the statement holds everywhere, more often than not, or not."""
        if not self.total:
            return NOT_YET
        if self.ahead == self.total:
            return YES
        return PARTLY if self.ahead > self.behind else NO

    @property
    def most(self) -> str:
        """Return whether the statement holds in most settings."""
        return (YES if 2 * self.ahead > self.total else NO) if self.total else NOT_YET

    def __str__(self) -> str:
        if not self.total:
            return NOT_YET
        text = f"ahead in {self.ahead} of {self.total} settings"
        if self.tied:
            text += f", within two standard errors in {self.tied}"
        return text + (f", behind in {self.behind}" if self.behind else "")

    @property
    def exceptions(self) -> str:
        """Return the settings in which the first side was not ahead."""
        return "" if not self.where else "not ahead at " + "; ".join(self.where)


def graded(right: int, total: int) -> str:
    """Return a verdict: all comparisons right, more than half of them, or fewer."""
    if not total:
        return NOT_YET
    return YES if right == total else PARTLY if 2 * right > total else NO


def _setting(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in ("dataset", "size", "radius", "epsilon"))


def _gain_text(row: Row, ours: float, theirs: float, who: str) -> str:
    size = {0: " (all)"}.get(int(row["size"]), f" ({row['size']})") if "size" in row else ""
    return f"{row['dataset']}{size} ε {row['epsilon']:g}: {ours:.3g} against {theirs:.3g} ({who})"


def _count(gains: list[tuple[float, float, str]], *, higher: bool) -> Count:
    """Count the gains that exceed two of their standard errors, and the losses that do."""
    sign = 1 if higher else -1
    ahead = sum(sign * gain > 2 * error for gain, error, _ in gains)
    behind = sum(sign * gain < -2 * error for gain, error, _ in gains)
    where = tuple(text for gain, error, text in gains if not sign * gain > 2 * error)
    return Count(ahead, len(gains) - ahead - behind, behind, where)


def _gain(candidate: Row, other: Row, measure: str) -> tuple[float, float, str]:
    errors = [number(row, f"{measure}_se") for row in (candidate, other)]
    # A single seed has no standard error, so no side can be ahead by it.
    joint = math.hypot(*(math.inf if math.isnan(error) else error for error in errors))
    a, b = number(candidate, measure), number(other, measure)
    return a - b, joint, _gain_text(candidate, a, b, str(other["mechanism"]))


def published_first(rows: list[Row], measure: str, *, higher: bool) -> Count:
    """Count where the paper's Minkowski response beats the best of the other mechanisms."""
    counts = []
    for candidate in only(rows, mechanism=PUBLISHED):
        others = [
            r for r in rows if r["mechanism"] in BASELINES and _setting(r) == _setting(candidate)
        ]
        if others:
            pick = max if higher else min
            other = pick(others, key=lambda row: number(row, measure))
            counts.append(_gain(candidate, other, measure))
    return _count(counts, higher=higher)


def best_first(rows: list[Row], measure: str, *, higher: bool, ours: str = "best") -> Count:
    """Count where ours, planned for the mean or for the task, beats the paper's Minkowski."""
    theirs = {_setting(row): row for row in only(rows, mechanism=PUBLISHED)}
    gains = [
        _gain(candidate, theirs[_setting(candidate)], measure)
        for candidate in only(rows, mechanism=ours)
        if _setting(candidate) in theirs
    ]
    return _count(gains, higher=higher)


def against_nothing(rows: list[Row], measure: str, *, higher: bool, ours: str) -> Count:
    """Count where a mechanism beats the best answer without any report."""
    names = ("dataset", "size", "radius")
    blind = {tuple(r.get(n) for n in names): r for r in only(rows, mechanism="blind")}
    keyed = [
        (candidate, tuple(candidate.get(n) for n in names))
        for candidate in only(rows, mechanism=ours)
    ]
    gains = [_gain(candidate, blind[key], measure) for candidate, key in keyed if key in blind]
    return _count(gains, higher=higher)


def ranges(rows: list[Row], measure: str, **wanted: object) -> str:
    """Return the smallest and the largest value of a measure, as text."""
    values = [number(row, measure) for row in only(rows, **wanted)]
    return f"{min(values):.3g} to {max(values):.3g}" if values else "not measured"
