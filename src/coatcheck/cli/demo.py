"""`coatcheck demo`: a whole round of real processes on this machine, from both sides."""

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from coatcheck.cli.numbers import length, only_positive
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from types import ModuleType

    from rich.console import Console
    from rich.progress import Progress, TaskID

    from coatcheck.demo.events import Event
    from coatcheck.demo.run import Run
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.simulation.places import Floats

T = TypeVar("T")
_WIDTH = 100  # columns that the widest line needs


@click.command()
@click.argument("name", metavar="taxi|friends|learning")
@click.option("--people", default=400, show_default=True, help="How many take part.")
@click.option("--epsilon", default=1.0, show_default=True, help="The ε promised to everybody.")
@click.option("--data", type=click.Path(path_type=Path), help="People at the places of a file.")
@click.option("--group-by", help="The column of the file that says who is rider and driver.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead.")
@click.option("--page", is_flag=True, help="Show the round live on a page, until Ctrl-C.")
@click.option("--port", default=0, help="Of the page; any free one by default.")
@click.option("--speed", default=1.0, show_default=True, help="How fast people come on the page.")
@click.option("--keep", is_flag=True, help="Leave keys, stores and logs, and say where.")
def demo(
    *,
    name: str,
    people: int,
    epsilon: float,
    data: Path | None,
    group_by: str | None,
    as_json: bool,
    page: bool,
    port: int,
    speed: float,
    keep: bool,
) -> None:
    """Run a round of real processes on this machine and show it from both sides.

    Starts a shuffler, a server and a board on loopback with their own stores in a temporary
    folder; a crowd takes part over HTTP. Nothing is left behind unless --keep.

    \b
    coatcheck demo taxi                  riders are matched to drivers
    coatcheck demo friends --people 300  who is near
    coatcheck demo learning --json       a crowd teaches a model and is rewarded
    coatcheck demo taxi --page           watch it live, from both sides
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    from coatcheck.demo.scenarios import make_scenario, with_places  # noqa: PLC0415 - loads the roles

    only_positive(epsilon, "--epsilon")
    begun = time.perf_counter()
    scenario = make_scenario(name, people=people, epsilon=epsilon, data=_data(data, group_by))
    if page:
        only_positive(speed, "--speed")
        scenario = with_places(scenario)
        _to_the_end(_page(scenario, keep=keep, port=port, speed=speed))
        return
    document = _to_the_end(_run(scenario, keep=keep))
    document["seconds"] = time.perf_counter() - begun
    if as_json:
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _print(document)


async def _run(scenario: "Scenario", *, keep: bool) -> dict[str, Any]:
    run, summary = _load("run"), _load("summary")
    with _folder(keep=keep) as folder, _Bars() as bars:
        cluster = run.demo_cluster(folder)
        async with run.started(scenario, cluster, observer=bars) as live:
            await live.complete()
            return {**summary.summarize(live), **({"kept": str(folder)} if keep else {})}


async def _page(scenario: "Scenario", *, keep: bool, port: int, speed: float) -> None:
    run, app = _load("run"), _load("page.app")

    def announce(address: str, _: "Run") -> None:
        click.echo(address)
        click.echo("coatcheck: the page is at this address until Ctrl-C", err=True)

    with _folder(keep=keep) as folder:
        cluster = run.demo_cluster(folder)
        await app.serve_page(scenario, cluster, announce=announce, port=port, speed=speed)


def _load(name: str) -> "ModuleType":
    """Load a part of the demo, or say which extra it needs."""
    try:
        return import_module(f"coatcheck.demo.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("coatcheck"):
            raise
        raise Misuse(
            f"the demo runs real services, which need {error.name}: pip install 'coatcheck[serve]'"
        ) from None


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    """Make a folder for this demo alone, and remove it unless it is to be kept."""
    made = Path(tempfile.mkdtemp(prefix="coatcheck-demo-"))
    try:
        yield made
    finally:
        if not keep:
            shutil.rmtree(made, ignore_errors=True)


def _to_the_end(whole: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; SIGTERM ends it as Ctrl-C does, with everything cleared away.

    Neither signal interrupts it between two lines: both cancel it where it waits.
    """

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        if task is not None:
            cancel = task.cancel
            signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(cancel))
        return await whole

    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _data(path: Path | None, group_by: str | None) -> "dict[str, Floats] | None":
    from coatcheck.simulation.places import read_places  # noqa: PLC0415 - loads numpy

    if path is None:
        if group_by is not None:
            raise Misuse("--group-by names a column of a file: give the file by --data")
        return None
    table = read_places(path, group_by=group_by)
    if not table.degrees:
        raise Misuse(f"{path.name} has no latitudes and longitudes: name the columns lat and lon")
    return table.groups()


class _Bars:
    """An observer that shows progress on standard error: for each step a bar, or a line."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        from rich.console import Console  # noqa: PLC0415 - loaded when something is drawn
        from rich.progress import (  # noqa: PLC0415 - loaded when something is drawn
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True)
        if console.is_terminal:
            columns = (
                TextColumn("{task.description:<42}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._progress = Progress(*columns, console=console)
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, _: "Run", event: "Event") -> None:
        """Begin a bar with a step; every other event is a part of it."""
        if self._progress is None:
            if event.step:
                click.echo(f"coatcheck: {event.step}", err=True)
        elif event.step:
            self._bar = self._progress.add_task(event.step, total=event.parts)
        elif self._bar is not None:
            self._progress.advance(self._bar)


def _print(document: dict[str, Any]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where something is printed

    console = Console(highlight=False)
    # A narrower terminal breaks lines, which is better than a figure cut short.
    console.width = max(console.width, _WIDTH)
    for hero in document["heroes"]:
        _print_hero(console, hero)
    _print_server(console, document)
    _print_board(console, document)
    if "learning" in document:
        _print_learning(console, document["learning"])
    else:
        _print_service(console, document["service"])
    _title(console, "The promise")
    for group in document["groups"]:
        console.print(f"  [bold]{group['name']}[/]: {group['guarantee']}")
    _title(console, "Time")
    for step in document["steps"]:
        rate = f"  ({step['people'] / step['seconds']:,.0f} per second)" if step["people"] else ""
        console.print(f"  {step['seconds']:7.2f} s  {step['name']}{rate}")
    console.print(f"  {document['seconds']:7.2f} s  all of it")
    if "kept" in document:
        console.print(f"\nkept in {document['kept']}")


def _title(console: "Console", text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def _print_hero(console: "Console", hero: dict[str, Any]) -> None:
    _title(console, f"{hero['name']}'s side ({hero['group']})")
    kept = ", ".join(
        f"{number:.5g}" if "reward" in hero else f"{number:.5f}" for number in hero["kept"]
    )
    near = f", near the {hero['quarter']}" if hero.get("quarter") else ""
    what = "a gradient of my own" if "reward" in hero else "where I am"
    console.print(f"  kept to myself   {what}: {kept}{near}")
    console.print(
        f"  sent             {hero['sent_bytes']} sealed bytes under {_short(hero['address'])}"
    )
    if "reward" in hero:
        console.print(
            f"  got              a reward of {hero['reward']:+.4f}, and the mean gradient"
        )
        return
    if not hero["partners"]:
        console.print("  got              nobody within reach")
        return
    nearest = length(hero["distances_m"][0], "m")
    others = f" and {len(hero['partners']) - 1} more" if len(hero["partners"]) > 1 else ""
    console.print(
        f"  got              the one-time address {_short(hero['partners'][0])}{others}; in truth"
        f" {nearest} away"
    )
    for verb, bodies in (("wrote", hero["wrote_letters"]), ("read", hero["got_letters"])):
        for body, times in Counter(bodies).items():
            often = f", {times} times" if times > 1 else ""
            console.print(f"  {verb:<15}  “{body}”{often}")


def _print_server(console: "Console", document: dict[str, Any]) -> None:
    server = document["server"]
    _title(console, "The server's side")
    counts = " and ".join(
        f"{count:,} {group['name']}"
        for count, group in zip(server["reports"], document["groups"], strict=True)
    )
    console.print(
        f"  saw {counts}, in an order that says nothing; {server['group']} look like this:"
    )
    for row in server["first_rows"]:
        noisy = ", ".join(f"{number:.5f}" for number in row["noisy"])
        console.print(f"    {_short(row['address'])}   {noisy}")
    hero = document["heroes"][0]
    told = f", {length(hero['error_m'], 'm')} off" if "error_m" in hero else ""
    console.print(
        f"  {hero['name']} is row {hero['place_in_batch'] + 1:,}{told}; only this demo, which holds"
        " her ticket, can say so"
    )


def _print_board(console: "Console", document: dict[str, Any]) -> None:
    board = document["board"]
    _title(console, "Everybody's side: the board")
    sizes = " or ".join(str(size) for size in dict.fromkeys(board["entry_bytes"]))
    console.print(
        f"  {board['entries']:,} sealed answers of {sizes} bytes and {board['letters']:,} sealed"
        f" letters; {board['bytes'] / 1e3:,.0f} kB that everyone downloads whole"
    )


def _print_service(console: "Console", service: dict[str, Any]) -> None:
    _title(console, "How well people were served")
    for label, key in (
        ("privately", "private"),
        ("if the server saw true places", "without_noise"),
        ("with partners at random", "at_random"),
    ):
        row = service[key]
        apart = "-" if row["mean_distance"] is None else length(row["mean_distance"], "m")
        within = "" if row["within"] is None else f", {row['within']:.0%} within the radius"
        console.print(
            f"  {label:<30} {row['served']:,} served, {row['pairs']:,} pairs, {apart} apart on"
            f" average{within}"
        )

    console.print(
        "  more people or a larger ε bring partners nearer: --people 1000, --epsilon 3; for"
        " thousands `coatcheck simulate`"
    )


def _print_learning(console: "Console", figures: dict[str, Any]) -> None:
    _title(console, "What the crowd taught")
    console.print(
        f"  accuracy {figures['accuracy_before']:.1%} before, {figures['accuracy_after']:.1%} after"
        f" one private step, {figures['accuracy_after_without_noise']:.1%} without noise; cosine to"
        f" the true mean gradient {figures['cosine_to_true_mean']:.3f}"
    )
    console.print(
        f"  mean reward {figures['mean_reward_right_labels']:+.4f} for right labels,"
        f" {figures['mean_reward_wrong_labels']:+.4f} for the {figures['misled']} people with wrong"
        " ones"
    )


def _short(address: str) -> str:
    return f"{address[:8]}…{address[-4:]}"
