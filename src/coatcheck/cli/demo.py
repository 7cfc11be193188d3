"""`coatcheck demo`: a whole round on this machine, and its summary as text.

The round is run by real processes, or in memory where the services' packages are missing. The text
tells what each side saw, how well people were served, and what the attack brought.
"""

import asyncio
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click

from coatcheck.cli.files import memory_folder
from coatcheck.cli.options import POSITIVE, Json, command
from coatcheck.cli.output import STAMP, at_work, hint, length, service_table, show
from coatcheck.cli.simulate import describe_trial
from coatcheck.demo.events import plain_promise
from coatcheck.demo.in_memory import INSTALL, attack, missing_packages, run_in_memory
from coatcheck.demo.scenarios import Scenario, make_scenario, next_lesson, with_places
from coatcheck.domains import Floats
from coatcheck.domains.tables import read_places
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from rich.table import Table

    from coatcheck.demo.events import Event
    from coatcheck.demo.people import Crowd
    from coatcheck.demo.run import Run

T = TypeVar("T")
_SEED = 7  # of a round in memory


@command()
def demo(
    name: Annotated[str, {"metavar": "[nearby|taxi|friends|standing|learning]"}] = "nearby",
    *,
    people: Annotated[int, "Number of people."] = 400,
    epsilon: Annotated[float, POSITIVE, "The ε promised to everybody."] = 1.0,
    data: Annotated[
        Path | None, "File with the places of the people, instead of made-up ones."
    ] = None,
    candidates: Annotated[int | None, "Number of drivers per rider, who settle by letter."] = None,
    settle: Annotated[bool, "Candidates settle by letter."] = False,
    group_by: Annotated[
        str | None, "Column of the file that says who is a rider and who a driver."
    ] = None,
    as_json: Json = False,
    page: Annotated[bool, "Show the round live on a web page, until Ctrl-C."] = False,
    port: Annotated[int, "Port of the page; 0 picks a free port."] = 0,
    speed: Annotated[float, POSITIVE, "How fast people join on the page."] = 1.0,
    tiles: Annotated[str, "Map tiles for the page: a URL with {z}, {x} and {y}."] = "",
    keep: Annotated[bool, "Keep keys, stores and logs, and print their folder."] = False,
) -> None:
    """Run a round with real processes on this machine and show it from both sides.

    The demo starts a shuffler, a server, a board, a relay and a witness on loopback, with their
    stores in a temporary folder, and a crowd takes part through the relay. With `--keep` the folder
    stays. Without the services' packages the round runs in memory.

    \b
    coatcheck demo                       who is near, and what a trilaterator learns
    coatcheck demo --page                watch it live, from both sides
    coatcheck demo taxi                  riders are matched to drivers
    coatcheck demo taxi --candidates 5   riders settle with one of five drivers
    coatcheck demo friends --people 300  who seems near, from noisy places alone
    coatcheck demo standing              what share earns less than I do; no wage is revealed
    coatcheck demo learning --json       a crowd teaches a model and is rewarded
    """  # noqa: D301 - \b is click's mark for lines that stay as they are
    start, absent = time.perf_counter(), missing_packages()
    if absent and (page or keep):
        raise Misuse(f"`--page` and `--keep` need the services' packages: {INSTALL}")
    scenario = make_scenario(
        name,
        people=people,
        epsilon=epsilon,
        data=_data(data, group_by),
        candidates=candidates,
        settle=settle,
        planning=lambda: hint("planning the round"),
    )
    if absent:
        hint(f"{', '.join(absent)} not installed, so the round runs in memory, in one process")
        hint(f"for real processes, and for `--page`: {INSTALL}")
        document = _in_memory(scenario)
        document["seconds"] = time.perf_counter() - start
        show(document, as_json=as_json, text=lambda: _in_memory_text(document))
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
            _run_to_the_end(
                _serve_page(scenario, Path(folder), port=port, speed=speed, tiles=tiles)
            )
            return
        from coatcheck.demo.people import People, spread_over_cores  # noqa: PLC0415 - needs an extra

        document = _run_to_the_end(_run(scenario, Path(folder), crowd=spread_over_cores(People)))
    document["seconds"] = time.perf_counter() - start
    if keep:
        document["kept"] = folder
    show(document, as_json=as_json, text=lambda: _summary_text(document))


def _in_memory(scenario: Scenario) -> dict[str, Any]:
    document: dict[str, Any] = {"demo": scenario.name, "besides": scenario.besides}
    with at_work("running the round in memory"):
        trial = run_in_memory(scenario, entropy=_SEED)
        document |= describe_trial(trial)
        if scenario.trilaterator is not None:
            document["trilateration"] = attack(scenario, trial)
    return document


async def _run(scenario: Scenario, folder: Path, *, crowd: "Crowd") -> dict[str, Any]:
    from coatcheck.demo.run import Run, demo_cluster  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.summary import lesson, summarize  # noqa: PLC0415 - needs an extra

    with _bars() as bars:
        async with Run(scenario, demo_cluster(folder), observer=bars, crowd=crowd) as live:
            await live.complete()
            if scenario.lesson is None:
                return summarize(live)
            lessons = [lesson(live)]
            while len(lessons) < scenario.lesson.model.descent.rounds:
                await live.again(next_lesson(live.scenario, lessons[-1]["mean"]))
                await live.complete()
                lessons.append(lesson(live))
            return summarize(live, lessons)


async def _serve_page(scenario: Scenario, folder: Path, **shown: Any) -> None:
    from coatcheck.demo.page.app import serve_page  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.run import demo_cluster  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.summary import service_of  # noqa: PLC0415 - needs an extra

    def announce(address: str, _: "Run") -> None:
        click.echo(address)
        hint("open this address in a browser; the round waits there for you, until Ctrl-C")

    cluster = demo_cluster(folder)
    await serve_page(scenario, cluster, announce=announce, served=service_of, **shown)


def _run_to_the_end(run: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; SIGTERM ends it as Ctrl-C does, and everything is cleaned up.

    Neither signal interrupts it between two lines: both cancel it where it waits.
    """

    async def cancellable() -> T:
        task = asyncio.ensure_future(run)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        raise SystemExit(128 + signal.SIGTERM) from None


def _data(path: Path | None, group_by: str | None) -> dict[str, Floats] | None:
    if path is None:
        if group_by is not None:
            raise Misuse("`--group-by` names a column of a file; give the file by `--data`")
        return None
    table = read_places(path, group_by=group_by)
    if not table.degrees:
        raise Misuse(f"{path.name} has no latitudes and longitudes; name the columns lat and lon")
    return table.groups()


@contextmanager
def _bars() -> Iterator[Callable[["Run", "Event"], None]]:
    """Yield an observer that shows each step on standard error: as a progress bar, or as a line."""
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
            elif progress.task_ids and event.kind != "done":
                progress.advance(progress.task_ids[-1])

        def current_step() -> str:
            if not progress.tasks:
                return "starting the services"
            task = progress.tasks[-1]
            return f"{task.description}: {task.completed:.0f} of {task.total:.0f} done"

        with at_work(current_step) if progress.disable else nullcontext():
            yield observe


# -- the text of a summary

_WIDTH = 96  # columns of a paragraph, fewer than the widest table has


def _summary_text(document: dict[str, Any]) -> Iterator["str | Table"]:
    """Yield the text of a summary: first what people got, then what the others saw of them."""
    for hero in document["heroes"]:
        yield f"\n[bold]{hero['name']}'s side ({hero['group']})[/]"
        yield from _hero(hero)
    if "learning" in document:
        yield from _learning(document["learning"])
    elif "standing" in document:
        yield from _standing(document["standing"])
    else:
        yield "\n[bold]How well people were served[/]\n"
        yield service_table(document["service"], "m")
    if "trilateration" in document:
        yield from _trilateration(document["trilateration"])
    yield from _server(document)
    yield from _board(document["board"])
    yield from _promise(document)
    yield "\n[bold]Time[/]"
    for step in document["steps"]:
        rate = f"  ({step['people'] / step['seconds']:,.0f} per second)" if step["people"] else ""
        yield f"  {step['seconds']:7.2f} s  {step['name']}{rate}"
    yield f"  {document['seconds']:7.2f} s  all of it"
    if "kept" in document:
        yield f"\nfiles kept in {document['kept']}"


def _in_memory_text(document: dict[str, Any]) -> Iterator["str | Table"]:
    """Yield the text of a round that ran in memory."""
    yield f"[bold]{STAMP}[/]"
    people = sum(group["people"] for group in document["groups"])
    yield f"\n[bold]How well {people:,} people were served[/]\n"
    yield service_table(document["service"], document["unit"])
    if "trilateration" in document:
        yield from _trilateration(document["trilateration"])
    yield from _promise(document)
    for warning in document["warnings"]:
        yield f"\n[bold]warning[/]: {warning}"
    yield f"\n{document['seconds']:.1f} s, all of it in this process"


def _promise(document: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]The promise[/]" + _all_rounds(document)
    for group in document["groups"]:
        promise = plain_promise(
            epsilon=group["epsilon"], delta=group["delta"], also=document["besides"]
        )
        yield from wrap(f"  to {group['name']}: {promise}", _WIDTH, subsequent_indent="    ")
    yield "  (`--json` prints it in full, with its assumptions)"


def _trilateration(attack: dict[str, Any]) -> Iterator[str]:
    """Yield the result of the attack on an app that rounds distances, and on coatcheck."""
    app, ours, ledger = attack["app"], attack["coatcheck"], attack["ledger"]
    current, rounds = attack["this_round"], len(ours["rounds"])
    step, others = f"{app['step_m']:.0f} m", current["candidates"] - current["near"]
    within, share, bound = f"{ours['within_m']:.0f} m", ours["found"], ours["bound"]
    spent = len(ledger["spent"])
    yield "\n[bold]A trilaterator, which claims false places, looks for Ada[/]"
    for label, words in (
        (
            f"an app that rounds to {step}",
            f"{len(app['asked'])} questions locate Ada, {app['error_m']:.1f} m off",
        ),
        (
            "coatcheck, this round",
            f"{current['near']} one-time addresses near, {others} not near; nothing says whose",
        ),
        (
            f"coatcheck, {rounds} rounds",
            f"{length(ours['error_m'], 'm')} off; within {within} of {share:.1%} of the crowd",
        ),
        (
            "the best chance of any guess",
            f"{bound:.1%}, the share of the crowd in its densest spot",
        ),
        ("if Ada signs with her name", f"one yes or no per round: {ours['bound_if_named']:.0%}"),
        (
            "Ada's ledger stops it",
            f"{spent} rounds fit into her limit, ε = {ledger['limit']:g}; the next is refused",
        ),
    ):
        yield f"  {label:<28} {words}"


def _server(document: dict[str, Any]) -> Iterator[str]:
    server = document["server"]
    yield "\n[bold]The server's side[/]"
    names = [group["name"] for group in document["groups"]]
    counts = zip(server["reports"], names, strict=True)
    saw = " and ".join(f"{count:,} {name}" for count, name in counts)
    yield f"  saw {saw}, in random order; {server['group']} look like this:"
    for row in server["first_rows"]:
        noisy = "silent" if row["noisy"] is None else _numbers(row["noisy"], ".5f")
        yield f"    {_short(row['address'])}   {noisy}"
    hero = document["heroes"][0]
    off = f", {length(hero['error_m'], 'm')} off" if "error_m" in hero else ""
    row = f"{hero['name']} is row {hero['place_in_batch'] + 1:,}{off}"
    yield f"  {row}; only this demo can tell, because it holds her ticket"


def _board(board: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]Everybody's side: the board[/]"
    sizes = " or ".join(str(size) for size in dict.fromkeys(board["entry_bytes"]))
    yield (
        f"  {board['entries']:,} sealed answers of {sizes} bytes and {board['letters']:,} sealed"
        f" letters; {board['bytes'] / 1e3:,.0f} kB, which everybody downloads whole"
    )


def _hero(hero: dict[str, Any]) -> Iterator[str]:
    learns, stands = "reward" in hero, "share" in hero
    value = _numbers(hero["kept"], ".2f" if stands else ".5g" if learns else ".5f")
    what = "a gradient of my own" if learns else "what I earn per hour" if stands else "where I am"
    near = f", near the {hero['quarter']}" if hero.get("quarter") else ""
    yield f"  kept to myself   {what}: {value}{near}"
    yield f"  sent             {hero['sent_bytes']} sealed bytes under {_short(hero['address'])}"
    if learns:
        reward = f"{hero['reward']:+.4f} ± {hero['error_bar']:.4f}"
        spoke = "" if hero["server_thinks"] else " (silent this time: no reward)"
        yield f"  got              a reward of {reward}{spoke}, and the mean gradient"
    elif stands:
        place = f"{hero['share']:.0%} ± {hero['error_bar']:.0%} earn less, says the server"
        yield f"  got              {place}, and the crowd's deciles"
        yield f"  worked out       from the deciles: {hero['own_share']:.0%} earn less"
    elif not hero["partners"]:
        yield "  got              nobody within reach"
    else:
        partner, *others = hero["partners"]
        more = f" and {len(others)} more" if others else ""
        away = f"in truth {length(hero['distances_m'][0], 'm')} away"
        yield f"  got              the one-time address {_short(partner)}{more}; {away}"
    for verb, bodies in (("wrote", hero["wrote_letters"]), ("read", hero["got_letters"])):
        for body, times in Counter(bodies).items():
            yield f"  {verb:<15}  “{body}”" + (f", {times} times" if times > 1 else "")


def _learning(figures: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]What the crowd taught, round by round[/]"
    rows = [("before", figures["accuracy_before"], "")]
    rounds = zip(
        figures["accuracy"], figures["accuracy_without_noise"], figures["spoke"], strict=True
    )
    for number, (share, quiet, spoke) in enumerate(rounds, start=1):
        rows.append((f"round {number}", share, f"{quiet:.1%} without noise; {spoke} spoke"))
    for name, share, more in rows:
        yield f"  {name:<8} {share:6.1%} {_bar(share, 40)} {more}".rstrip()
    yield "\n[bold]Rewards of all rounds together[/]"
    right, wrong = figures["rewards_right_labels"], figures["rewards_wrong_labels"]
    low, high = min(*right, *wrong), max(*right, *wrong)
    for name, rewards in (("right labels", right), (f"wrong labels ({figures['misled']})", wrong)):
        mean = sum(rewards) / max(len(rewards), 1)
        yield f"  {name:<18} {mean:+.4f} on average  {_histogram(rewards, low, high)}"
    noise = f"± {figures['error_bar']:.4f} at most by noise"
    yield f"  {'':<18} from {low:+.4f} to {high:+.4f}, {noise}"


def _standing(figures: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]How well people know where they stand[/]"
    for name, error in figures["mean_error"].items():
        yield f"  {name:<40} {100 * error:5.1f} points off on average"
    yield "\n[bold]The deciles of wages per hour[/]"
    for name, numbers in (("answer", figures["deciles"]), ("true", figures["true_deciles"])):
        yield f"  {name:<6}" + "".join(f"{number:7.2f}" for number in numbers)


def _all_rounds(document: dict[str, Any]) -> str:
    """Return what all rounds together promise, if there are several."""
    if "learning" not in document:
        return ""
    rounds = len(document["learning"]["accuracy"])
    return f" of one round; all {rounds} together keep ε = {document['epsilon_asked']:g}"


def _bar(share: float, width: int) -> str:
    return "█" * round(share * width)


def _histogram(values: list[float], low: float, high: float) -> str:
    """Draw a histogram of 30 bars over a range."""
    counts = [0] * 30
    for value in values:
        counts[min(29, int(30 * (value - low) / max(high - low, 1e-300)))] += 1
    most = max(counts)
    return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * count // max(most, 1))] for count in counts)


def _numbers(numbers: list[float], form: str) -> str:
    return ", ".join(f"{number:{form}}" for number in numbers)


def _short(address: str) -> str:
    return f"{address[:8]}…{address[-4:]}"
