"""The summary of a demo as text: what each side saw, how well people were served, the attack."""

from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from coatcheck.cli.output import STAMP, length, service_table
from coatcheck.demo.words import plain_promise

if TYPE_CHECKING:
    from rich.table import Table

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
