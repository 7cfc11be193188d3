"""`coatcheck simulate` and `coatcheck check-task`: what can be tried before there is a round.

`simulate` runs a whole round in memory on places from files. `check-task` searches for a crowd
that shows that a task's answers depend on the order of the reports.
"""

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
from coatcheck.planning.settled_rounds import has_letters
from coatcheck.protocol.drafting import usual_settling
from coatcheck.randomizers import Prior
from coatcheck.simulation import trial
from coatcheck.tasks import Task, load
from coatcheck.tasks.equivariance import Verdict, check_equivariance

if TYPE_CHECKING:
    from rich.table import Table

    from coatcheck.randomizers import Decode

_LEAST_GAIN = 1.1  # warn about a crowd that lowers ε by a smaller factor
_ERRORS = ("error expected", "error here")
_GROUPS = ("group", "people", "local ε", "ε", "δ", *_ERRORS, "randomizer")
_BOX = numbers("31.0,121.2,31.4,121.7", count=4)
_MANY = "must be a number, or one per group such as 5,5"
_HELPERS = Reader(lambda text: [int(part) for part in text.split(",")], _MANY, name="numbers")


@command(doing="the round is planned and simulated")
def simulate(
    files: tuple[str, ...],
    *,
    task: Annotated[str, "The task: what to compute."] = "least-cost-matching",
    epsilon: Annotated[float, POSITIVE, "The ε promised to everybody."] = 1.0,
    delta: Annotated[
        float | None, "The δ of the promise; by default 1 in 100 times the crowd, or less."
    ] = None,
    columns: Annotated[str | None, "The two columns that hold a place, such as lat,lon."] = None,
    group_by: Annotated[str | None, "The column or property that names a row's group."] = None,
    radius: Annotated[float | None, "The task's radius, in metres or in the columns' unit."] = None,
    limit: Annotated[int | None, "The most neighbours, or candidates, in an answer."] = None,
    candidates: Annotated[
        int | None, "Number of candidates per person, who settle by letter."
    ] = None,
    settle: Annotated[bool, "Let people find out by letter which candidates are near."] = False,
    box: Annotated[Sequence[float], _BOX, "The box of the terms: south,west,north,east."] = (),
    clamp: Annotated[bool, "Move places outside the box to its edge."] = False,
    corrupted: Annotated[
        Sequence[int], _HELPERS, "Number of people who help the server, per group."
    ] = (0,),
    prior: Annotated[Path | None, "CSV or GeoJSON of public places; never private ones."] = None,
    seed: Annotated[int, "Seed; the same seed gives the same round."] = 7,
    as_json: Json = False,
) -> None:
    """Simulate a round in memory on your own places: how useful it is, and what it promises.

    FILES are CSV files with a header, or GeoJSON points. Give one file per group, whose name is the
    file's or that of NAME=FILE, or give one file and `--group-by`.

    \b
    coatcheck simulate riders.csv drivers.csv --epsilon 1
    coatcheck simulate day.geojson --group-by role --task maximum-matching --radius 800
    coatcheck simulate riders.csv drivers.csv --candidates 8 --settle
    coatcheck simulate members.csv --task neighbours --radius 500 --settle
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
    alone = None
    if settle and work.name == "neighbours":
        work, alone = trial.by_letter(work, stated=limit is not None)
    if settle and not has_letters(work):
        raise Misuse("`--settle` needs candidates; give also `--candidates 8`")
    if len(corrupted) not in {1, len(groups)}:
        raise Misuse(
            f"`--corrupted` {_MANY}, got {len(corrupted)} numbers for {len(groups)} groups"
        )
    start = time.perf_counter()
    try:
        result = trial.run_trial(
            groups,
            task=work,
            box=around,
            epsilon=epsilon,
            delta=delta,
            corrupted=corrupted if len(corrupted) > 1 else [*corrupted] * len(groups),
            entropy=seed,
            clamp=clamp,
            prior=_prior(prior, columns=names),
            settle=usual_settling(work, around) if settle else None,
            alone=alone,
        )
    except OutsideDomain as error:
        raise Misuse(str(error).replace("pass clamp=True", "give `--clamp`")) from None
    seconds = time.perf_counter() - start
    document = {**describe_trial(result), "seed": seed, "seconds": seconds}
    show(document, as_json=as_json, text=lambda: trial_text(document, stated=bool(box)))


def _groups(
    files: Sequence[str], *, columns: Sequence[str], group_by: str | None
) -> tuple[dict[str, Floats], bool]:
    """Return the groups, and whether their values are in degrees."""
    if group_by and len(files) > 1:
        raise Misuse("`--group-by` needs a single file; of several files each is a group")
    groups: dict[str, Floats] = {}
    kinds = set()
    for file in files:
        name, _, path = file.rpartition("=")
        table = read_places(Path(path), columns=columns, group_by=group_by)
        kinds.add(table.degrees)
        added = {group_name(name): table.values} if name else table.groups()
        if set(added) & set(groups):
            raise Misuse(
                f"two files are both group {next(iter(added))!r}; name one of them by NAME=FILE"
            )
        groups |= added
    if len(kinds) > 1:
        raise Misuse("some files are in degrees and some are not; use the same columns in all")
    return groups, kinds.pop()


def _prior(path: Path | None, *, columns: Sequence[str]) -> Prior | None:
    if path is None:
        return None
    return Prior.from_file(path, columns=columns if path.suffix.lower() == ".csv" else ())


def describe_trial(result: trial.Trial) -> dict[str, Any]:
    """Return a simulated round as plain data."""
    task, outcome = result.outcome.round.terms.task, result.outcome
    groups = []
    for group, promise, errors in zip(
        outcome.groups, outcome.guarantees, result.errors, strict=True
    ):
        expected = group.randomizer.expected_error(cast("Decode", group.decode))
        measured = {"expected_error": expected, "mean_error": float(errors.mean())}
        groups.append({**trial.describe_group(group, promise), **measured})
    return {
        "warnings": _warnings(result),
        "simulation": True,
        "task": {"name": task.name, **task.params},
        "unit": result.box.unit,
        "box": {"lo": result.box.lo, "hi": result.box.hi},
        "groups": groups,
        **(service := asdict(result.service)),
        "service": service,
    }


def _warnings(result: trial.Trial) -> list[str]:
    """Return the warnings that a reader must not miss."""
    warnings = []
    for guarantee, group in zip(result.outcome.guarantees, result.outcome.groups, strict=True):
        if guarantee.local_epsilon < _LEAST_GAIN * guarantee.epsilon:
            warnings.append(
                f"the crowd of {group.name} is too small to help: its ε is hardly below the local"
                " ε; find more people"
            )
    warnings += [
        f"group {name} is too small to learn from its reports where people are: each report was"
        " decoded by itself, or with the prior"
        for name in result.unlearned
    ]
    service = result.service
    private = (service.settled or service.private).mean_distance
    chance = service.at_random.mean_distance
    if private - service.without_noise.mean_distance > chance - private:
        warnings.append(
            "partners are nearer to chance than to what true places would give; find more people,"
            " or choose a larger ε"
        )
    return warnings


def trial_text(document: dict[str, Any], *, stated: bool) -> "Iterator[str | Table]":
    """Yield the text of a simulated round; `stated` if the user stated its box."""
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
        yield "The box was drawn around the data, which a real round must not do; give `--box`."
    for group in groups:
        yield f"\n[bold]{group['name']}[/]: {group['guarantee']}"
    for warning in document["warnings"]:
        yield f"\n[bold]warning[/]: {warning}"


_VERDICT = ("task", "equivariant", "equal", "tied", "reason", "cured", "counterexample")
_TASK_MEMBERS = ("name", "groups", "__call__", "exposed", "answer_size", "params")


@command(doing="trying crowds")
def check_task(
    task: str,
    *,
    trials: Annotated[int, "Number of crowds to try."] = 120,
    seed: Annotated[int, "Seed; the same seed tries the same crowds."] = 0,
    as_json: Json = False,
) -> None:
    """Check that the answers of TASK do not depend on the order of the reports.

    TASK is module:Name, or the name of a task in terms.

    The exit code is 0 if no counterexample was found and 1 if one was.
    """
    verdict = check_equivariance(_load_task(task), trials=trials, entropy=seed)
    show(_verdict_document(verdict), as_json=as_json, text=str(verdict))
    click.get_current_context().exit(0 if verdict.equivariant else 1)


def _load_task(name: str) -> Task:
    """Load a task; make one of a class by its `example()`, or without arguments."""
    module, colon, attribute = name.partition(":")
    task: object = load(name) if not colon else _load_attribute(module, attribute)
    if isclass(task):
        task = task.example() if hasattr(task, "example") else task()
    missing = [member for member in _TASK_MEMBERS if not hasattr(task, member)]
    if missing:
        raise Misuse(f"{name} is not a task: it has no {', '.join(missing)}")
    return cast("Task", task)


def _load_attribute(module: str, attribute: str) -> object:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise Misuse(f"cannot load {module}:{attribute}: {error}") from error


def _verdict_document(verdict: Verdict) -> dict[str, object]:
    document = {name: getattr(verdict, name) for name in _VERDICT}
    if verdict.counterexample is not None:
        reports, orders = verdict.counterexample.estimates, verdict.counterexample.orders
        document["counterexample"] = {
            "reports": [group.tolist() for group in reports],
            "orders": [order.tolist() for order in orders],
        }
    return document
