"""`coatcheck compare`: what one report is worth, mechanism by mechanism, beside the paper."""

import json
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from coatcheck.cli.numbers import numbers
from coatcheck.errors import Misuse
from coatcheck.planning.comparison import DOMAINS, OURS, Row
from coatcheck.planning.comparison import compare as measure

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_WIDTH = 100  # columns that seven budgets need

Lines = dict[tuple[str, str], dict[float, Row]]


@click.command()
@click.option("--epsilon", default="0.5,1,2,3,5,8,10", show_default=True, help="Values of ε.")
@click.option("--domain", default="square", show_default=True, help=" | ".join(DOMAINS))
@click.option("--samples", default=200_000, show_default=True, help="Uniform values per figure.")
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same errors.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.option("--plot", type=click.Path(path_type=Path), help="Also draw errors into this file.")
def compare(
    *, epsilon: str, domain: str, samples: int, seed: int, as_json: bool, plot: Path | None
) -> None:
    """Compare the error of every randomizer: a simulation on uniform values.

    For each way to read a report: the mean l2 distance between value and estimate, the paper's
    figure where it has one, and the time per report.
    """
    if domain not in DOMAINS:
        raise Misuse(f"--domain is one of {' | '.join(DOMAINS)}, got {domain!r}")
    budgets = numbers(epsilon, "--epsilon", example="0.5,1,2")
    if len(set(budgets)) != len(budgets):
        raise Misuse(f"--epsilon names a budget twice: {epsilon}")
    if plot is not None:
        from coatcheck.planning.charts import check_file, draw_errors  # noqa: PLC0415 - needs an extra

        check_file(plot)
    rows = measure(epsilons=budgets, domain=DOMAINS[domain], samples=samples, seed=seed)
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        _print(rows, domain, samples)
    if plot is not None:
        draw_errors(rows, plot)
        click.echo(f"coatcheck: drew {plot}", err=True)


def _print(rows: list[Row], domain: str, samples: int) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where a table is printed

    console = Console(highlight=False)
    # A narrower terminal breaks lines, which is better than a figure cut short.
    console.width = max(console.width, _WIDTH)
    console.print(_table(rows))
    axes = DOMAINS[domain].dimension
    where = "[-1, 1]" if axes == 1 else f"[-1, 1]^{axes}"
    console.print(
        f"\nMean l2 error of one report over {samples:,} values uniform on {where}; "
        "ours in [bold]bold[/] where least.",
        markup=True,
    )
    if any(row.paper is not None for row in rows):
        console.print("[dim]Dim[/]: the paper's figure (Table errortime, 1,000 repetitions).")
    console.print("✓ exact: only integers between value and report. µs: time per report, in bulk.")


def _table(rows: list[Row]) -> "Table":
    """Return one line per mechanism and decode, one column per budget."""
    from rich import box  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415 - only where a table is printed

    lines = _lines(rows)
    budgets = list(dict.fromkeys(row.epsilon for row in rows))
    best = {b: min(row.mean_error for row in rows if row.epsilon == b) for b in budgets}
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for heading in ("", *(f"ε = {budget:g}" for budget in budgets)):
        table.add_column(heading, no_wrap=True)
    table.add_column("µs", justify="right", no_wrap=True)
    seen: set[str] = set()
    for (mechanism, decode), line in lines.items():
        alone = sum(name == mechanism for name, _ in lines) == 1
        if mechanism not in seen and not alone:
            table.add_row(_label(line, mechanism))
        seen.add(mechanism)
        cells = [_cell(line[budget], least=best[budget]) for budget in budgets]
        spent = statistics.median(row.microseconds for row in line.values())
        label = _label(line, mechanism) if alone else f"  {decode}"
        table.add_row(label, *cells, f"{spent:.2f}", end_section=mechanism == "minkowski-paper")
    return table


def _lines(rows: list[Row]) -> Lines:
    """Return rows by mechanism and decode; what `choose` picks is one line."""
    lines: Lines = {}
    for row in rows:
        key = (row.mechanism, "" if row.mechanism == "choose" else row.decode)
        lines.setdefault(key, {})[row.epsilon] = row
    return lines


def _label(line: dict[float, Row], mechanism: str) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - only where a table is printed

    exact = all(row.exact for row in line.values())
    return Text.assemble(mechanism, (" ✓" if exact else "", "green"))


def _cell(row: Row, *, least: float) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - only where a table is printed

    ours = row.mechanism in OURS and row.mean_error <= least
    paper = "" if row.paper is None else f" {_printed(row.paper)}"
    return Text.assemble((f"{_figure(row.mean_error):<4}", "bold" if ours else ""), (paper, "dim"))


def _figure(number: float) -> str:
    """Return three digits that count, without a leading zero, as the paper's columns are narrow."""
    digits = 1 if number >= 10 else 2 if number >= 1 else 3 if number >= 0.1 else 4
    return f"{number:.{digits}f}".removeprefix("0")


def _printed(number: float) -> str:
    """Return a figure as the paper prints it, but for the leading zero."""
    return f"{number:.{2 if number >= 0.1 else 3}f}".removeprefix("0")
