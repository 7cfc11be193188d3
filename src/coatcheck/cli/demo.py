"""`coatcheck demo`: a whole round of real processes on this machine, from both sides."""

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click

from coatcheck.cli.files import memory_folder
from coatcheck.cli.options import POSITIVE, Json, command
from coatcheck.cli.output import hint, show
from coatcheck.cli.sides import rehearsed, told
from coatcheck.cli.silence import at_work
from coatcheck.cli.simulate import describe_trial
from coatcheck.demo.in_memory import INSTALL, attack, missing, rehearse
from coatcheck.demo.scenarios import Scenario, make_scenario, next_lesson, with_places
from coatcheck.domains import Floats
from coatcheck.domains.places import read_places
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from coatcheck.demo.crowd import Crowd
    from coatcheck.demo.events import Event
    from coatcheck.demo.run import Run

T = TypeVar("T")
_SEED = 7


@command()
def demo(
    name: Annotated[str, {"metavar": "[nearby|taxi|friends|standing|learning]"}] = "nearby",
    *,
    people: Annotated[int, "How many take part."] = 400,
    epsilon: Annotated[float, POSITIVE, "The ε promised to everybody."] = 1.0,
    data: Annotated[Path | None, "People at the places of a file."] = None,
    candidates: Annotated[int | None, "Drivers per rider, who settle by letter."] = None,
    settle: Annotated[bool, "Candidates settle by letter."] = False,
    group_by: Annotated[str | None, "The file's column that says who is rider and driver."] = None,
    as_json: Json = False,
    page: Annotated[bool, "Show the round live on a page, until Ctrl-C."] = False,
    port: Annotated[int, "Of the page; any free one by default."] = 0,
    speed: Annotated[float, POSITIVE, "How fast people come on the page."] = 1.0,
    tiles: Annotated[str, "Map tiles for the page: an address with {z}, {x} and {y}."] = "",
    keep: Annotated[bool, "Leave keys, stores and logs, and say where."] = False,
) -> None:
    """Run a round of real processes on this machine and show it from both sides.

    Starts a shuffler, a server, a board, a relay and a witness on loopback with their own stores
    in a temporary folder; a crowd takes part through the relay. Nothing is left unless --keep.
    Without the services' packages the round runs in memory, and says so.

    \b
    coatcheck demo                       who is near, and what a trilaterator gets
    coatcheck demo --page                watch it live, from both sides
    coatcheck demo taxi                  riders are matched to drivers
    coatcheck demo taxi --candidates 5   riders settle with one of five drivers
    coatcheck demo friends --people 300  who seems near, from noisy places alone
    coatcheck demo standing              who earns less than I do, and nobody says what they earn
    coatcheck demo learning --json       a crowd teaches a model and is rewarded
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    begun, absent = time.perf_counter(), missing()
    if absent and (page or keep):
        raise Misuse(f"--page and --keep need the services' packages: {INSTALL}")
    scenario = make_scenario(
        name,
        people=people,
        epsilon=epsilon,
        data=_data(data, group_by),
        candidates=candidates,
        settle=settle,
        planning=lambda: hint("a round is planned"),
    )
    if absent:
        hint(f"no {', '.join(absent)} here, so this round runs in memory, in one process")
        hint(f"for real processes, and for --page: {INSTALL}")
        document = _in_memory(scenario)
        document["seconds"] = time.perf_counter() - begun
        show(document, as_json=as_json, text=lambda: rehearsed(document))
        return
    if page:
        scenario = with_places(scenario)
    prefix = "coatcheck-demo-"
    with (
        nullcontext(tempfile.mkdtemp(prefix=prefix))
        if keep
        else tempfile.TemporaryDirectory(
            prefix=prefix, dir=memory_folder(), ignore_cleanup_errors=True
        )
    ) as folder:
        if page:
            _to_the_end(_page(scenario, Path(folder), port=port, speed=speed, tiles=tiles))
            return
        from coatcheck.demo.crowd import spread_over_cores  # noqa: PLC0415 - needs an extra
        from coatcheck.demo.people import People  # noqa: PLC0415 - needs an extra

        document = _to_the_end(_run(scenario, Path(folder), crowd=spread_over_cores(People)))
    document["seconds"] = time.perf_counter() - begun
    if keep:
        document["kept"] = folder
    show(document, as_json=as_json, text=lambda: told(document))


def _in_memory(scenario: Scenario) -> dict[str, Any]:
    with at_work("the round runs in memory"):
        trial = rehearse(scenario, entropy=_SEED)
        story = {} if scenario.trilaterator is None else {"trilateration": attack(scenario, trial)}
    told = {"demo": scenario.name, "besides": scenario.besides}
    return {**told, **describe_trial(trial), **story}


async def _run(scenario: Scenario, folder: Path, *, crowd: "Crowd") -> dict[str, Any]:
    from coatcheck.demo.cluster import demo_cluster  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.run import Run  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.summary import lesson, summarize  # noqa: PLC0415 - needs an extra

    with _bars() as bars:
        async with Run(scenario, demo_cluster(folder), observer=bars, crowd=crowd) as live:
            await live.complete()
            if scenario.insight is None:
                return summarize(live)
            lessons = [lesson(live)]
            while len(lessons) < scenario.insight.model.descent.rounds:
                await live.again(next_lesson(live.scenario, lessons[-1]["mean"]))
                await live.complete()
                lessons.append(lesson(live))
            return summarize(live, lessons)


async def _page(scenario: Scenario, folder: Path, **shown: Any) -> None:
    from coatcheck.demo.cluster import demo_cluster  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.page.app import serve_page  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.summary import service_of  # noqa: PLC0415 - needs an extra

    def announce(address: str, _: "Run") -> None:
        click.echo(address)
        hint("open this address in a browser: the round waits there for you, until Ctrl-C")

    cluster = demo_cluster(folder)
    await serve_page(scenario, cluster, announce=announce, served=service_of, **shown)


def _to_the_end(whole: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; SIGTERM ends it as Ctrl-C does, with everything cleared away.

    Neither signal interrupts it between two lines: both cancel it where it waits.
    """

    async def cancellable() -> T:
        task = asyncio.ensure_future(whole)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


def _data(path: Path | None, group_by: str | None) -> dict[str, Floats] | None:
    if path is None:
        if group_by is not None:
            raise Misuse("--group-by names a column of a file: give the file by --data")
        return None
    table = read_places(path, group_by=group_by)
    if not table.degrees:
        raise Misuse(f"{path.name} has no latitudes and longitudes: name the columns lat and lon")
    return table.groups()


@contextmanager
def _bars() -> Iterator[Callable[["Run", "Event"], None]]:
    """Yield an observer that shows progress on standard error: for each step a bar, or a line."""
    from rich.console import Console  # noqa: PLC0415 - loaded when something is drawn
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn  # noqa: PLC0415 - as above

    console = Console(stderr=True)
    columns = ("{task.description:<42}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def observe(_: "Run", event: "Event") -> None:
            if event.step:
                progress.add_task(event.step, total=event.parts)
                if progress.disable:
                    hint(event.step)
            elif progress.task_ids:
                progress.advance(progress.task_ids[-1])

        def standing() -> str:
            if not progress.tasks:
                return "services start"
            task = progress.tasks[-1]
            return f"{task.description}: {task.completed:.0f} of {task.total:.0f} done"

        with at_work(standing) if progress.disable else nullcontext():
            yield observe
