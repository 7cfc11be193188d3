"""`coatcheck simulate`: a whole round in memory, on places from files."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coatcheck.cli.files import show
from coatcheck.cli.numbers import length, numbers, only_positive
from coatcheck.cli.options import JSON
from coatcheck.errors import Misuse, OutsideDomain

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from coatcheck.domains import Box
    from coatcheck.simulation.places import Floats
    from coatcheck.simulation.trial import Trial

_WIDTH = 100  # columns that the widest table needs
_HELP = 1.1  # warn about a crowd that lowers ε by less than this factor
_ERRORS = ("error expected", "error here")
_GROUP_HEADINGS = ("group", "people", "local ε", "ε", "δ", *_ERRORS, "randomizer")
_SERVICE_HEADINGS = ("", "served", "pairs", "mean distance", "median", "within radius")
STAMP = "SIMULATION: one process saw every place, and the seed repeats; it protected nobody"


@click.command()
@click.argument("files", nargs=-1, required=True)
@click.option("--task", default="least-cost-matching", show_default=True, help="What to compute.")
@click.option("--epsilon", default=1.0, show_default=True, help="The ε promised to everybody.")
@click.option("--delta", type=float, help="The δ; by default 1 in 100 times the crowd, or less.")
@click.option("--columns", help="The two columns of a place, such as lat,lon.")
@click.option("--group-by", help="The column (or GeoJSON property) that names a row's group.")
@click.option("--radius", type=float, help="In metres, or in the columns' unit.")
@click.option("--limit", type=int, help="The most neighbours in an answer.")
@click.option("--box", "corners", help="The box that terms would state: south,west,north,east.")
@click.option("--clamp", is_flag=True, help="Move places outside the box to its edge.")
@click.option(
    "--corrupted", default="0", show_default=True, help="The server's helpers, per group."
)
@click.option("--seed", default=7, show_default=True, help="The same seed gives the same round.")
@JSON
def simulate(
    *,
    files: tuple[str, ...],
    task: str,
    epsilon: float,
    delta: float | None,
    columns: str | None,
    group_by: str | None,
    radius: float | None,
    limit: int | None,
    corners: str | None,
    clamp: bool,
    corrupted: str,
    seed: int,
    as_json: bool,
) -> None:
    """Run a whole round in memory on your own places: how useful it is, and what it promises.

    FILES are CSV (with a header) or GeoJSON points. Give one file per group, named after the file
    or as NAME=FILE, or one file with --group-by.

    \b
    coatcheck simulate riders.csv drivers.csv --epsilon 1
    coatcheck simulate day.geojson --group-by role --task maximum-matching --radius 800
    coatcheck simulate members.csv --task neighbours --radius 500 --limit 8 --json
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from coatcheck.simulation import trial  # noqa: PLC0415 - loads scipy, unlike --help

    only_positive(epsilon, "--epsilon")
    groups, degrees = _groups(files, columns=columns, group_by=group_by)
    box = _box(corners, degrees=degrees) or trial.box_around(groups, degrees=degrees)
    work = trial.make_task(task, names=tuple(groups), box=box, radius=radius, limit=limit)
    sizes = [len(places) for places in groups.values()]
    started = time.perf_counter()
    try:
        found = trial.run_trial(
            groups,
            task=work,
            box=box,
            epsilon=epsilon,
            delta=trial.usual_delta(sizes) if delta is None else delta,
            corrupted=_helpers(corrupted, sizes),
            seed=seed,
            clamp=clamp,
        )
    except OutsideDomain as error:
        raise Misuse(str(error).replace("ask for clamp=True", "give --clamp")) from None
    document = {**_document(found), "seed": seed, "seconds": time.perf_counter() - started}
    if as_json:
        show(document, as_json=True)
    else:
        _print(found, document, stated=corners is not None)


def _groups(
    files: Sequence[str], *, columns: str | None, group_by: str | None
) -> "tuple[dict[str, Floats], bool]":
    from coatcheck.simulation.places import group_name, read_places  # noqa: PLC0415 - loads numpy

    names = tuple(name.strip() for name in columns.split(",")) if columns else ()
    if group_by and len(files) > 1:
        raise Misuse("--group-by is for one file; with several, each file is a group")
    groups: dict[str, Floats] = {}
    kinds = set()
    for file in files:
        given, _, path = file.rpartition("=")
        table = read_places(Path(path), columns=names, group_by=group_by)
        kinds.add(table.degrees)
        found = table.groups()
        if given:
            found = {group_name(given): table.values}
        if set(found) & set(groups):
            raise Misuse(f"two files are both group {next(iter(found))!r}: name them by NAME=FILE")
        groups |= found
    if len(kinds) > 1:
        raise Misuse("some files are in degrees and some are not: use the same columns in all")
    return groups, kinds.pop()


def _box(text: str | None, *, degrees: bool) -> "Box | None":
    from coatcheck.domains import Box  # noqa: PLC0415 - loads numpy

    if text is None:
        return None
    edges = numbers(text, "--box", how_many=4, example="31.0,121.2,31.4,121.7")
    if degrees:
        return Box.geographic(south=edges[0], west=edges[1], north=edges[2], east=edges[3])
    return Box((edges[0], edges[1]), (edges[2], edges[3]))


def _helpers(text: str, sizes: Sequence[int]) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts) or len(parts) not in {1, len(sizes)}:
        raise Misuse(f"--corrupted is a number, or one per group such as 5,5; got {text!r}")
    found = tuple(int(part) for part in parts)
    return found * len(sizes) if len(found) == 1 else found


def _document(found: "Trial") -> dict[str, Any]:
    terms, outcome = found.outcome.round.terms, found.outcome
    groups = []
    for of, made, errors, promise in zip(
        terms.groups, outcome.groups, found.errors, outcome.guarantees, strict=True
    ):
        groups.append(
            {
                "name": of.name,
                "people": made.minimum,
                "randomizer": of.randomizer["name"],
                "decode": of.decode,
                "local_epsilon": made.randomizer.epsilon,
                "epsilon": promise.epsilon,
                "delta": promise.delta,
                "anonymous": promise.anonymous,
                "expected_error": made.randomizer.expected_error(made.decode),  # type: ignore[arg-type] # the terms' decode is one of the randomizer's
                "mean_error": float(errors.mean()),
                "guarantee": str(promise),
            }
        )
    return {
        "warnings": _warnings(found),
        "simulation": True,
        "task": {"name": terms.task.name, **terms.task.params},
        "unit": found.box.unit,
        "box": {"lo": found.box.lo, "hi": found.box.hi},
        "groups": groups,
        "private": asdict(found.private),
        "without_noise": asdict(found.plain),
        "at_random": asdict(found.random),
    }


def _warnings(found: "Trial") -> list[str]:
    """Return what a reader must not miss."""
    told = []
    for guarantee, group in zip(found.outcome.guarantees, found.outcome.groups, strict=True):
        if guarantee.local_epsilon < _HELP * guarantee.epsilon:
            told.append(
                f"the crowd of {group.name} is too small to help: ε is hardly less than the local"
                " one; find more people"
            )
    private, plain, chance = (
        service.mean_distance for service in (found.private, found.plain, found.random)
    )
    if private - plain > chance - private:
        told.append(
            "partners are nearer to chance than to what true places would give: find more people,"
            " or ask for a larger ε"
        )
    return told


def _print(found: "Trial", document: dict[str, Any], *, stated: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where a table is printed

    console = Console(highlight=False)
    # A narrower terminal breaks lines, which is better than a figure cut short.
    console.width = max(console.width, _WIDTH)
    unit = found.box.unit
    people = sum(group["people"] for group in document["groups"])
    console.print(f"[bold]{STAMP}[/]\n")
    console.print(_table(_GROUP_HEADINGS, _group_rows(document, unit)))
    console.print()
    console.print(_table(_SERVICE_HEADINGS, _service_rows(document, unit)))
    console.print(
        f"\nThe round of {people:,} people took {document['seconds']:.1f} s in this process."
    )
    if not stated:
        console.print(
            "The box was drawn around the data, which a real round must not do: give --box."
        )
    for group in document["groups"]:
        console.print(f"\n[bold]{group['name']}[/]: {group['guarantee']}")
    for warning in document["warnings"]:
        console.print(f"\n[bold]warning[/]: {warning}")


def _group_rows(document: dict[str, Any], unit: str) -> list[tuple[str, ...]]:
    return [
        (
            group["name"],
            f"{group['people']:,}",
            f"{group['local_epsilon']:.2f}",
            f"{group['epsilon']:.3f}",
            f"{group['delta']:.0e}",
            length(group["expected_error"], unit),
            length(group["mean_error"], unit),
            f"{group['randomizer']}, {group['decode']}",
        )
        for group in document["groups"]
    ]


def _service_rows(document: dict[str, Any], unit: str) -> list[tuple[str, ...]]:
    return [
        (
            label,
            f"{row['served']:,}",
            f"{row['pairs']:,}",
            length(row["mean_distance"], unit),
            length(row["median_distance"], unit),
            "" if math.isnan(row["within"]) else f"{row['within']:.1%}",
        )
        for label, row in (
            ("private", document["private"]),
            ("without noise", document["without_noise"]),
            ("partners at random", document["at_random"]),
        )
    ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> "RichTable":
    from rich import box  # noqa: PLC0415 - only where a table is printed
    from rich.table import Table  # noqa: PLC0415 - only where a table is printed

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        words = heading in {"", "group", "randomizer"}
        table.add_column(heading, justify="left" if words else "right")
    for row in rows:
        table.add_row(*row)
    return table
