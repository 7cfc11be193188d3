"""`coatcheck simulate`: a whole round in memory, on places from files."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import click

from coatcheck.cli.options import POSITIVE, Json, Reader, command, numbers
from coatcheck.cli.output import STAMP, length, service_table, show, table
from coatcheck.domains import Floats
from coatcheck.domains.tables import group_name, read_places
from coatcheck.errors import Misuse, OutsideDomain
from coatcheck.randomizers import Prior
from coatcheck.simulation import trial
from coatcheck.simulation.quality import names_many
from coatcheck.simulation.settling import usual_cell
from coatcheck.tasks import Task, load
from coatcheck.tasks.equivariance import Verdict, check_equivariance

if TYPE_CHECKING:
    from rich.table import Table

    from coatcheck.randomizers import Decode

_HELP = 1.1  # warn about a crowd that lowers ε by less than this factor
_ERRORS = ("error expected", "error here")
_GROUPS = ("group", "people", "local ε", "ε", "δ", *_ERRORS, "randomizer")
_BOX = numbers("31.0,121.2,31.4,121.7", count=4)
_MANY = "is a number, or one per group such as 5,5"
_HELPERS = Reader(lambda text: [int(part) for part in text.split(",")], _MANY, name="numbers")


@command(doing="the round is planned and simulated")
def simulate(
    files: tuple[str, ...],
    *,
    task: Annotated[str, "What to compute."] = "least-cost-matching",
    epsilon: Annotated[float, POSITIVE, "The ε promised to everybody."] = 1.0,
    delta: Annotated[float | None, "The δ; by default 1 in 100 times the crowd, or less."] = None,
    columns: Annotated[str | None, "The two columns of a place, such as lat,lon."] = None,
    group_by: Annotated[str | None, "The column or property that names a row's group."] = None,
    radius: Annotated[float | None, "In metres, or in the columns' unit."] = None,
    limit: Annotated[int | None, "The most neighbours in an answer."] = None,
    candidates: Annotated[int | None, "Possible partners per person, who settle by letter."] = None,
    settle: Annotated[bool, "Let candidates settle."] = False,
    box: Annotated[Sequence[float], _BOX, "The box of the terms: south,west,north,east."] = (),
    clamp: Annotated[bool, "Move places outside the box to its edge."] = False,
    corrupted: Annotated[Sequence[int], _HELPERS, "The server's helpers, per group."] = (0,),
    prior: Annotated[Path | None, "CSV or GeoJSON of public places; never private ones."] = None,
    seed: Annotated[int, "The same seed gives the same round."] = 7,
    as_json: Json = False,
) -> None:
    """Run a whole round in memory on your own places: how useful it is, and what it promises.

    FILES are CSV (with a header) or GeoJSON points. Give one file per group, named after the file
    or as NAME=FILE, or one file with --group-by.

    \b
    coatcheck simulate riders.csv drivers.csv --epsilon 1
    coatcheck simulate day.geojson --group-by role --task maximum-matching --radius 800
    coatcheck simulate riders.csv drivers.csv --candidates 5 --settle
    coatcheck simulate members.csv --task neighbours --radius 500 --limit 8 --json
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    names = [name.strip() for name in columns.split(",")] if columns else []
    groups, degrees = _groups(files, columns=names, group_by=group_by)
    around = (
        trial.make_box(box[:2], box[2:], degrees=degrees)
        if box
        else trial.box_around(groups, degrees=degrees)
    )
    work = trial.make_task(
        task, names=tuple(groups), box=around, radius=radius, limit=limit, candidates=candidates
    )
    if settle and not names_many(work):
        raise Misuse("--settle is for candidates: give --candidates 5")
    if len(corrupted) not in {1, len(groups)}:
        raise Misuse(f"--corrupted {_MANY}, got {len(corrupted)} numbers")
    started = time.perf_counter()
    try:
        found = trial.run_trial(
            groups,
            task=work,
            box=around,
            epsilon=epsilon,
            delta=delta,
            corrupted=corrupted if len(corrupted) > 1 else [*corrupted] * len(groups),
            entropy=seed,
            clamp=clamp,
            prior=_prior(prior, columns=names),
            settle=usual_cell(around) if settle else None,
        )
    except OutsideDomain as error:
        raise Misuse(str(error).replace("pass clamp=True", "give --clamp")) from None
    document = {**describe_trial(found), "seed": seed, "seconds": time.perf_counter() - started}
    show(document, as_json=as_json, text=lambda: trial_text(document, stated=bool(box)))


def _groups(
    files: Sequence[str], *, columns: Sequence[str], group_by: str | None
) -> tuple[dict[str, Floats], bool]:
    """Read each file as a group, or one file as several, and say whether they are in degrees."""
    if group_by and len(files) > 1:
        raise Misuse("--group-by is for one file; with several, each file is a group")
    groups: dict[str, Floats] = {}
    kinds = set()
    for file in files:
        given, _, path = file.rpartition("=")
        table = read_places(Path(path), columns=columns, group_by=group_by)
        kinds.add(table.degrees)
        found = {group_name(given): table.values} if given else table.groups()
        if set(found) & set(groups):
            raise Misuse(f"two files are both group {next(iter(found))!r}: name them by NAME=FILE")
        groups |= found
    if len(kinds) > 1:
        raise Misuse("some files are in degrees and some are not: use the same columns in all")
    return groups, kinds.pop()


def _prior(path: Path | None, *, columns: Sequence[str]) -> Prior | None:
    if path is None:
        return None
    return Prior.from_file(path, columns=columns if path.suffix.lower() == ".csv" else ())


def describe_trial(found: trial.Trial) -> dict[str, Any]:
    """Write a simulated round as plain data."""
    task, outcome = found.outcome.round.terms.task, found.outcome
    groups = []
    for made, promise, errors in zip(outcome.groups, outcome.guarantees, found.errors, strict=True):
        expected = made.randomizer.expected_error(cast("Decode", made.decode))
        measured = {"expected_error": expected, "mean_error": float(errors.mean())}
        groups.append({**trial.describe_group(made, promise), **measured})
    return {
        "warnings": _warnings(found),
        "simulation": True,
        "task": {"name": task.name, **task.params},
        "unit": found.box.unit,
        "box": {"lo": found.box.lo, "hi": found.box.hi},
        "groups": groups,
        **(service := asdict(found.service)),
        "service": service,
    }


def _warnings(found: trial.Trial) -> list[str]:
    """Return what a reader must not miss."""
    told = []
    for guarantee, group in zip(found.outcome.guarantees, found.outcome.groups, strict=True):
        if guarantee.local_epsilon < _HELP * guarantee.epsilon:
            told.append(
                f"the crowd of {group.name} is too small to help: ε is hardly less than the local"
                " one; find more people"
            )
    told += [
        f"{name} are too few to learn from their reports where people are: each report was read by"
        " itself, or by the prior"
        for name in found.unlearned
    ]
    service = found.service
    private = (service.settled or service.private).mean_distance
    chance = service.at_random.mean_distance
    if private - service.without_noise.mean_distance > chance - private:
        told.append(
            "partners are nearer to chance than to what true places would give: find more people,"
            " or ask for a larger ε"
        )
    return told


def trial_text(document: dict[str, Any], *, stated: bool) -> "Iterator[str | Table]":
    """Tell a simulated round to a reader; `stated` if its box was decided before."""
    unit, groups = document["unit"], document["groups"]
    yield f"[bold]{STAMP}[/]\n"
    rows = [
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
        for group in groups
    ]
    yield table(_GROUPS, rows, right=_GROUPS[1:-1])
    yield ""
    yield service_table(document, unit)
    people = sum(group["people"] for group in groups)
    yield f"\nThe round of {people:,} people took {document['seconds']:.1f} s in this process."
    if not stated:
        yield "The box was drawn around the data, which a real round must not do: give --box."
    for group in groups:
        yield f"\n[bold]{group['name']}[/]: {group['guarantee']}"
    for warning in document["warnings"]:
        yield f"\n[bold]warning[/]: {warning}"


# HOUSE-DOC cli.check_task: '`coatcheck check-task`: search for a crowd that shows a task is not permutation-equivariant.'
_TOLD = ("task", "equivariant", "equal", "tied", "reason", "cured", "counterexample")
_NEEDED = ("name", "groups", "__call__", "exposed", "answer_size", "params")


@command(doing="crowds are tried")
def check_task(
    task: str,
    *,
    trials: Annotated[int, "How many crowds to try."] = 120,
    seed: Annotated[int, "The same seed tries the same crowds."] = 0,
    as_json: Json = False,
) -> None:
    """Check that the answers of TASK do not depend on the order of the reports.

    TASK is module:Name, or a name as in terms.

    Exit code 0 if no counterexample was found, 1 if one was.
    """
    verdict = check_equivariance(_found(task), trials=trials, entropy=seed)
    show(_plain(verdict), as_json=as_json, text=str(verdict))
    click.get_current_context().exit(0 if verdict.equivariant else 1)


def _found(where: str) -> Task:
    """Load the task; a class is made by its `example()`, or without arguments."""
    module, colon, attribute = where.partition(":")
    found: object = load(where) if not colon else _imported(module, attribute)
    if isclass(found):
        found = found.example() if hasattr(found, "example") else found()
    missing = [name for name in _NEEDED if not hasattr(found, name)]
    if missing:
        raise Misuse(f"{where} is not a task: it lacks {', '.join(missing)}")
    return cast("Task", found)


def _imported(module: str, attribute: str) -> object:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Misuse(f"cannot load {module}:{attribute}: {error}") from error


def _plain(verdict: Verdict) -> dict[str, object]:
    found = {name: getattr(verdict, name) for name in _TOLD}
    if verdict.counterexample is not None:
        reports, orders = verdict.counterexample.estimates, verdict.counterexample.orders
        found["counterexample"] = {
            "reports": [group.tolist() for group in reports],
            "orders": [order.tolist() for order in orders],
        }
    return found
