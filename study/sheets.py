"""Sheets: measurements, one row per cell, stored as CSV so that a stopped study can continue.

A sheet is a list of cells (what to measure) and a function that measures one cell. Each row is
written as soon as it is measured, with the digest of the code that measured it. A cell is not
measured again if its row on file has the digest of this tree. A row of other code is shown until a
new one replaces it. Tables and figures are views of sheets. This module knows nothing of privacy.
"""

import csv
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import coatcheck
from study.digests import digest

Value = str | int | float
Cell = dict[str, Value]
Row = dict[str, Value]

HERE: Final = Path(__file__).parent
_PACKAGES: Final = ("numpy", "scipy", "numba", "cryptography")


@dataclass(frozen=True)
class Sheet:
    """Cells that are measured together.

    Attributes:
        cells: returns all cells, or those of the quick study.
        measure: returns the row of one cell, as named numbers.
    """

    name: str
    cells: Callable[[bool], list[Cell]]
    measure: Callable[[Cell], Row]


def folder(*, quick: bool) -> Path:
    """Return the folder of the results; the quick study has its own, which is never committed."""
    results = HERE / "results" / "quick" if quick else HERE / "results"
    results.mkdir(parents=True, exist_ok=True)
    return results


def read(name: str, *, quick: bool) -> list[Row]:
    """Return the rows of a sheet that are on file."""
    return _read(folder(quick=quick) / f"{name}.csv")


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        whole = [row for row in csv.DictReader(file) if None not in row.values()]
    return [{key: _value(text) for key, text in row.items()} for row in whole]


def rows(sheet: Sheet, *, quick: bool) -> list[Row]:
    """Return the rows of a sheet that belong to its cells, in their order, without leftovers."""
    wanted = sheet.cells(quick)
    names = list(wanted[0])
    measured = {key(row, names): row for row in read(sheet.name, quick=quick) if {*names} <= {*row}}
    return [measured[one] for one in (key(cell, names) for cell in wanted) if one in measured]


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def key(cell: Cell, names: Iterable[str]) -> tuple[str, ...]:
    """Return the key of a cell."""
    return tuple(
        f"{cell[name]:g}" if isinstance(cell[name], float) else str(cell[name]) for name in names
    )


def cells(sheet: Sheet, *, quick: bool) -> list[Cell]:
    """Return all cells of a sheet."""
    return sheet.cells(quick)


def missing(sheet: Sheet, *, quick: bool) -> list[Cell]:
    """Return the cells that have no row by the code of this tree."""
    wanted = sheet.cells(quick)
    names = list(wanted[0])
    now = code(sheet)
    measured = {key(row, names) for row in rows(sheet, quick=quick) if row["code"] == now}
    return [cell for cell in wanted if key(cell, names) not in measured]


def fill(
    sheet: Sheet,
    *,
    quick: bool,
    jobs: int,
    say: Callable[[str], None],
    only: Callable[[Cell], bool] = lambda _: True,
) -> None:
    """Measure the missing rows of a sheet, or some of them, and write each immediately."""
    todo = [cell for cell in missing(sheet, quick=quick) if only(cell)]
    every = len(sheet.cells(quick))
    say(f"{sheet.name}: {len(todo)} of {every} cells to measure")
    start = time.monotonic()
    for done, row in enumerate(_rows(sheet, todo, jobs), start=1):
        _append(folder(quick=quick) / f"{sheet.name}.csv", row)
        passed = time.monotonic() - start
        left = passed / done * (len(todo) - done)
        say(f"{sheet.name}: {done} of {len(todo)}, about {left:.0f} s left")
    if todo:  # a run that measured nothing leaves the record of the run that did
        took = {
            "rows measured by it": len(todo),
            "minutes": round((time.monotonic() - start) / 60, 1),
        }
        _settle(sheet, took, quick=quick)


def _rows(sheet: Sheet, todo: list[Cell], jobs: int) -> Iterator[Row]:
    if jobs == 1:
        for cell in todo:
            yield _timed(sheet, cell)
        return
    with ProcessPoolExecutor(jobs) as pool:
        futures: list[Future[Row]] = [pool.submit(_timed, sheet, cell) for cell in todo]
        for future in as_completed(futures):
            yield future.result()


def _timed(sheet: Sheet, cell: Cell) -> Row:
    start = time.process_time()
    row = sheet.measure(cell)
    return {**cell, **row, "seconds": round(time.process_time() - start, 3), "code": code(sheet)}


def _append(path: Path, row: Row) -> None:
    """Append a row; rewrite the file if it has other columns or ends in the middle of a line."""
    head = ",".join(row) + "\n"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    if not (old.startswith(head) and old.endswith("\n")):
        return _write(path, [*_read(path), row])
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.DictWriter(file, list(row), lineterminator="\n").writerow(_texts(row))
    return None


def _write(path: Path, table: Sequence[Row]) -> None:
    """Write rows with the columns of the last one, atomically: a crash leaves the old file."""
    whole = path.with_suffix(".new")
    with whole.open("w", newline="", encoding="utf-8") as file:
        names = list(table[-1])
        writer = csv.DictWriter(file, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_texts(row) for row in table)
    whole.replace(path)


def _texts(row: Row) -> dict[str, str]:
    return {name: _text(value) for name, value in row.items()}


def _text(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _settle(sheet: Sheet, took: dict[str, float], *, quick: bool) -> None:
    """Put rows in the order of the cells, and record how they were measured."""
    stored = rows(sheet, quick=quick)
    path = folder(quick=quick) / f"{sheet.name}.csv"
    if stored:
        _write(path, stored)
    origin = {
        "command": "python -m study " + " ".join(sys.argv[1:]),
        "cells": len(stored),
        **took,
        "cpu seconds": round(sum(float(row["seconds"]) for row in stored)),
        "code": sorted({str(row["code"]) for row in stored}),
        "machine": machine(),
        "versions": versions(),
    }
    text = json.dumps(origin, indent=2, ensure_ascii=False) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")


def code(sheet: Sheet) -> str:
    """Return a digest of the code that measures a sheet, to tell rows of different code apart."""
    return digest(sheet.measure.__module__)


def machine() -> str:
    """Return the name of the machine on which times are measured."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores of {names[0] if names else platform.machine()}"


def versions() -> dict[str, str]:
    """Return the versions of the software that computes the figures."""
    packages = {"coatcheck": coatcheck.__version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            packages[package] = version(package)
        except PackageNotFoundError:
            packages[package] = "absent"
    return packages


def one_thread() -> None:
    """Keep linear algebra on one core: jobs are processes, and barriers cost more than threads."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")
