"""`coatcheck check-task`: search for a crowd that shows a task is not permutation-equivariant."""

import json
import sys
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import cast

import click

from coatcheck.cli.options import JSON
from coatcheck.errors import Misuse
from coatcheck.tasks import Task, load
from coatcheck.tasks.equivariance import Verdict, check_equivariance

_NEEDED = ("name", "groups", "__call__", "exposed", "answer_size", "params")


@click.command("check-task")
@click.argument("task")
@click.option("--trials", default=120, show_default=True, help="How many crowds to try.")
@click.option("--seed", default=0, show_default=True, help="The same seed tries the same crowds.")
@JSON
def check_task(*, task: str, trials: int, seed: int, as_json: bool) -> None:
    """Check that the answers of TASK do not depend on the order of the reports.

    TASK is module:Name, or a name as in terms.

    Exit code 0 if no counterexample was found, 1 if one was.
    """
    verdict = check_equivariance(_found(task), trials=trials, seed=seed)
    click.echo(json.dumps(_plain(verdict)) if as_json else str(verdict))
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
    smallest = verdict.counterexample
    return {
        "task": verdict.task,
        "equivariant": verdict.equivariant,
        "equal": verdict.equal,
        "tied": verdict.tied,
        "reason": verdict.reason,
        "cured": verdict.cured,
        "counterexample": None
        if smallest is None
        else {
            "reports": [group.tolist() for group in smallest.estimates],
            "orders": [order.tolist() for order in smallest.orders],
        },
    }
