"""The summary of a demo as text: what each side saw, how well people were served, the attack."""

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
from coatcheck.demo.in_memory import INSTALL, attack, missing, rehearse
from coatcheck.demo.scenarios import Scenario, make_scenario, next_lesson, with_places
from coatcheck.domains import Floats
from coatcheck.domains.tables import read_places
from coatcheck.errors import Misuse

if TYPE_CHECKING:
    from rich.table import Table

    from coatcheck.demo.events import Event
    from coatcheck.demo.people import Crowd
    from coatcheck.demo.run import Run

_WIDTH = 96  # of a paragraph, within what the widest table needs


def told(document: dict[str, Any]) -> Iterator["str | Table"]:
    """Tell a summary: first what people got, then what everybody else saw of them."""
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
        yield f"\nkept in {document['kept']}"


def rehearsed(document: dict[str, Any]) -> Iterator["str | Table"]:
    """Tell a round that ran in memory."""
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
    yield "\n[bold]The promise[/]" + _season(document)
    for one in document["groups"]:
        said = plain_promise(epsilon=one["epsilon"], delta=one["delta"], also=document["besides"])
        yield from wrap(f"  to {one['name']}: {said}", _WIDTH, subsequent_indent="    ")
    yield "  (--json has it in full, with its assumptions)"


def _trilateration(found: dict[str, Any]) -> Iterator[str]:
    """Tell the attack, in an app that rounds distances and here."""
    app, here, ledger = found["app"], found["coatcheck"], found["ledger"]
    now, rounds = found["this_round"], len(here["rounds"])
    step, others = f"{app['step_m']:.0f} m", now["candidates"] - now["near"]
    within, found_, most = f"{here['within_m']:.0f} m", here["found"], here["bound"]
    spent = len(ledger["spent"])
    yield "\n[bold]A trilaterator, who says false places, looks for Ada[/]"
    for label, words in (
        (
            f"an app that rounds to {step}",
            f"{len(app['asked'])} questions: Ada is found, {app['error_m']:.1f} m off",
        ),
        (
            "coatcheck, this round",
            f"{now['near']} one-time addresses near, {others} not near; nothing says whose",
        ),
        (
            f"coatcheck, {rounds} rounds",
            f"{length(here['error_m'], 'm')} off; within {within} of {found_:.1%} of the crowd",
        ),
        ("the most any guess can get", f"{most:.1%}, that is the crowd at its densest"),
        ("if Ada signs with her name", f"one yes or no per round: {here['bound_if_named']:.0%}"),
        (
            "Ada's ledger stops it",
            f"{spent} rounds are within her limit, ε = {ledger['limit']:g}; the next is refused",
        ),
    ):
        yield f"  {label:<28} {words}"


def _server(document: dict[str, Any]) -> Iterator[str]:
    server = document["server"]
    yield "\n[bold]The server's side[/]"
    names = [group["name"] for group in document["groups"]]
    counts = zip(server["reports"], names, strict=True)
    saw = " and ".join(f"{count:,} {name}" for count, name in counts)
    yield f"  saw {saw}, in an order that says nothing; {server['group']} look like this:"
    for row in server["first_rows"]:
        noisy = "silent" if row["noisy"] is None else _numbers(row["noisy"], ".5f")
        yield f"    {_short(row['address'])}   {noisy}"
    hero = document["heroes"][0]
    off = f", {length(hero['error_m'], 'm')} off" if "error_m" in hero else ""
    row = f"{hero['name']} is row {hero['place_in_batch'] + 1:,}{off}"
    yield f"  {row}; only this demo, which holds her ticket, can say so"


def _board(board: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]Everybody's side: the board[/]"
    sizes = " or ".join(str(size) for size in dict.fromkeys(board["entry_bytes"]))
    yield (
        f"  {board['entries']:,} sealed answers of {sizes} bytes and {board['letters']:,} sealed"
        f" letters; {board['bytes'] / 1e3:,.0f} kB that everyone downloads whole"
    )


def _hero(hero: dict[str, Any]) -> Iterator[str]:
    learns, stands = "reward" in hero, "share" in hero
    kept = _numbers(hero["kept"], ".2f" if stands else ".5g" if learns else ".5f")
    what = "a gradient of my own" if learns else "what I earn per hour" if stands else "where I am"
    near = f", near the {hero['quarter']}" if hero.get("quarter") else ""
    yield f"  kept to myself   {what}: {kept}{near}"
    yield f"  sent             {hero['sent_bytes']} sealed bytes under {_short(hero['address'])}"
    if learns:
        reward = f"{hero['reward']:+.4f} ± {hero['error_bar']:.4f}"
        spoke = "" if hero["server_thinks"] else " (silent this time: no reward)"
        yield f"  got              a reward of {reward}{spoke}, and the mean gradient"
    elif stands:
        place = f"{hero['share']:.0%} ± {hero['error_bar']:.0%} earn less, as the server tells it"
        yield f"  got              {place}, and the crowd's deciles"
        yield f"  found            among the deciles: {hero['own_share']:.0%} earn less"
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
    every = [*right, *wrong]
    low, high = min(every), max(every)
    for name, some in (("right labels", right), (f"wrong labels ({figures['misled']})", wrong)):
        mean = sum(some) / max(len(some), 1)
        yield f"  {name:<18} {mean:+.4f} on average  {_spread(some, low, high)}"
    noise = f"± {figures['error_bar']:.4f} by noise at most"
    yield f"  {'':<18} from {low:+.4f} to {high:+.4f}, {noise}"


def _standing(figures: dict[str, Any]) -> Iterator[str]:
    yield "\n[bold]How well people know where they stand[/]"
    for name, error in figures["mean_error"].items():
        yield f"  {name:<40} {100 * error:5.1f} points off on average"
    yield "\n[bold]Wages per hour that each tenth of the crowd is below[/]"
    for name, numbers in (("told", figures["deciles"]), ("true", figures["true_deciles"])):
        yield f"  {name:<6}" + "".join(f"{number:7.2f}" for number in numbers)


def _season(document: dict[str, Any]) -> str:
    """Say what all rounds together promise, if there are several."""
    if "learning" not in document:
        return ""
    rounds = len(document["learning"]["accuracy"])
    asked = f"all {rounds} together keep ε = {document['epsilon_asked']:g}"
    return f" of one round; {asked}"


def _bar(share: float, width: int) -> str:
    return "█" * round(share * width)


def _spread(values: list[float], low: float, high: float) -> str:
    """Draw how often values fall into each of 30 parts of a range."""
    counts = [0] * 30
    for value in values:
        counts[min(29, int(30 * (value - low) / max(high - low, 1e-300)))] += 1
    most = max(counts)
    return "".join(" ▁▂▃▄▅▆▇█"[-(-8 * count // max(most, 1))] for count in counts)


def _numbers(numbers: list[float], form: str) -> str:
    return ", ".join(f"{number:{form}}" for number in numbers)


def _short(address: str) -> str:
    return f"{address[:8]}…{address[-4:]}"


# HOUSE-DOC cli.demo: '`coatcheck demo`: a whole round of real processes on this machine, from both sides.'
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
        from coatcheck.demo.people import People, spread_over_cores

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
    from coatcheck.demo.run import Run, demo_cluster
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
    from coatcheck.demo.page.app import serve_page  # noqa: PLC0415 - needs an extra
    from coatcheck.demo.run import demo_cluster  # noqa: PLC0415 - needs an extra
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
