"""`coatcheck compare`: what one report is worth, mechanism by mechanism, beside the paper."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from coatcheck.cli.options import Json, command, numbers, one_of
from coatcheck.cli.output import hint, show, table
from coatcheck.errors import Misuse
from coatcheck.planning.charts import check_file, draw_errors
from coatcheck.planning.comparison import DOMAINS, OURS, Row
from coatcheck.planning.comparison import compare as measure

if TYPE_CHECKING:
    from rich.table import Table

_BUDGETS = (0.5, 1, 2, 3, 5, 8, 10)


@command(doing="mechanisms are measured")
def compare(
    *,
    epsilon: Annotated[Sequence[float], numbers("0.5,1,2"), "Values of ε."] = _BUDGETS,
    domain: Annotated[str, one_of(DOMAINS), " | ".join(DOMAINS)] = "square",
    samples: Annotated[int, "Uniform values per figure."] = 200_000,
    seed: Annotated[int, "The same seed gives the same errors."] = 7,
    as_json: Json = False,
    plot: Annotated[Path | None, "Also draw errors into this file."] = None,
) -> None:
    """Compare the error of every randomizer: a simulation on uniform values.

    For each way to read a report: the mean l2 distance between value and estimate, the paper's
    figure where it has one, and the time per report.
    """
    if len(set(epsilon)) != len(epsilon):
        raise Misuse(f"--epsilon names a budget twice: {','.join(map(str, epsilon))}")
    if plot is not None:
        check_file(plot)
    rows = measure(epsilons=epsilon, domain=DOMAINS[domain], samples=samples, entropy=seed)
    document = [asdict(row) for row in rows]
    show(document, as_json=as_json, text=lambda: _text(rows, domain, samples))
    if plot is not None:
        draw_errors(rows, plot)
        hint(f"drew {plot}")


def _text(rows: list[Row], domain: str, samples: int) -> Iterator["str | Table"]:
    budgets = list(dict.fromkeys(row.epsilon for row in rows))
    headings = ("", *(f"ε = {budget:g}" for budget in budgets), "µs")
    yield table(headings, _lines(rows, budgets), right=("µs",), padding=0)
    axes = DOMAINS[domain].dimension
    where = "[-1, 1]" if axes == 1 else f"[-1, 1]^{axes}"
    yield (
        f"\nMean l2 error of one report over {samples:,} values uniform on {where}; "
        "ours in [bold]bold[/] where least."
    )
    if any(row.paper is not None for row in rows):
        yield "[dim]Dim[/]: the paper's figure (Table errortime, 1,000 repetitions)."
    yield "✓ exact: only integers between value and report. µs: time per report, in bulk."


def _lines(rows: list[Row], budgets: Sequence[float]) -> Iterator[list[str]]:
    """Yield one line per mechanism and way to read it; what `choose` picks is one line."""
    least = {b: min(row.mean_error for row in rows if row.epsilon == b) for b in budgets}
    readings: dict[str, dict[str, dict[float, Row]]] = {}
    for row in rows:
        way = "" if row.mechanism == "choose" else row.decode
        readings.setdefault(row.mechanism, {}).setdefault(way, {})[row.epsilon] = row
    for mechanism, ways in readings.items():
        exact = all(row.exact for line in ways.values() for row in line.values())
        label = mechanism + (" [green]✓[/]" if exact else "")
        if len(ways) > 1:
            yield [label]
        for how, line in ways.items():
            cells = [_cell(line[budget], least[budget]) for budget in budgets]
            spent = statistics.median(row.microseconds for row in line.values())
            yield [f"  {how}" if len(ways) > 1 else label, *cells, f"{spent:.2f}"]
        if mechanism == "minkowski-paper":
            yield []  # baselines follow


def _cell(row: Row, least: float) -> str:
    """Write three digits that count, and the paper's figure as it prints it, without a zero."""
    error, paper = row.mean_error, ""
    digits = 1 if error >= 10 else 2 if error >= 1 else 3 if error >= 0.1 else 4
    figure = f"{error:.{digits}f}".removeprefix("0")
    if row.paper is not None:
        paper = f"{row.paper:.{2 if row.paper >= 0.1 else 3}f}".removeprefix("0")
    style = "bold" if row.mechanism in OURS and error <= least else "default"
    return f"[{style}]{figure:<4}[/] [dim]{paper}[/]"
