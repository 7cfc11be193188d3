"""`coatcheck check-task`: search for a crowd that shows a task is not permutation-equivariant."""

import sys
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Annotated, cast

import click

from coatcheck.cli.options import Json, command
from coatcheck.cli.output import show
from coatcheck.errors import Misuse
from coatcheck.tasks import Task, load
from coatcheck.tasks.equivariance import Verdict, check_equivariance

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
