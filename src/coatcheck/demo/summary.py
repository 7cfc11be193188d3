"""The summary of a run: what each side saw, as one plain document.

It says what two of the people kept, sent and got, what the server saw, and what everybody can see
on the board. The command prints this document; `--json` gives it as it is.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coatcheck.demo import city, scenarios
from coatcheck.demo.events import Person
from coatcheck.demo.scenarios import measured, share_among
from coatcheck.demo.trilateration import trilateration
from coatcheck.domains import Box, Floats
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.server import one_by_one
from coatcheck.randomizers.choice import misses
from coatcheck.randomizers.composed import spoken_reports, without_coin
from coatcheck.simulation.quality import measure, named_alone
from coatcheck.simulation.trial import describe_group

if TYPE_CHECKING:
    from coatcheck.demo.run import Run
    from coatcheck.demo.scenarios import Scenario
    from coatcheck.randomizers import Decode

_SHOWN = 4
_HEROES = ("Ada", "Bo", "Cy")


def summarize(run: "Run", lessons: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Write down what happened in a run that is complete; of several rounds, in the last one."""
    estimates = _estimates(run)
    document: dict[str, Any] = {
        "demo": run.scenario.name,
        "people": run.scenario.people,
        "epsilon_asked": run.scenario.epsilon,
        "besides": run.scenario.besides,
        "groups": [
            describe_group(draft, run.guarantees[group, 0])
            for group, draft in enumerate(run.scenario.drafts)
        ],
        "heroes": _heroes(run, estimates),
        "letters": {"posted": run.posted, "read": len(run.letters)},
        "server": _server(run, estimates),
        "board": _board(run),
        "steps": run.steps,
        "seconds": 0.0,
    }
    if run.scenario.insight is not None:
        document["learning"] = _learning(run, run.scenario.insight, lessons)
    elif run.scenario.box is None:
        document["standing"] = _standing(run)
    else:
        document["service"] = service_of(run)
    if run.scenario.trilaterator is not None:
        told = run.answers[run.scenario.trilaterator]
        document["trilateration"] = {
            **trilateration(run.scenario),
            "this_round": {
                "candidates": len(told.partners),
                "near": len(run.partners(run.scenario.trilaterator)),
            },
        }
    return document


def _estimates(run: "Run") -> list[Floats]:
    """Return what the server made of each report, as it saw them; silence is not a number."""
    found = []
    for draft, opened in zip(run.scenario.drafts, run.seen, strict=True):
        part = without_coin(draft.randomizer)
        who, said = spoken_reports(draft.randomizer, opened.reports)
        rows = np.full((len(opened.reports), part.domain.dimension), np.nan)
        rows[who] = part.estimate(said, cast("Decode", draft.decode))
        found.append(rows)
    return found


def _told(row: Floats, digits: int = 15) -> list[float] | None:
    """Return a row of numbers, or nothing for silence."""
    return None if np.isnan(row).any() else np.round(row, digits).tolist()


def _heroes(run: "Run", estimates: Sequence[Floats]) -> list[dict[str, Any]]:
    """Tell of the first person and of whom they meet; of two who do meet, if nobody is near."""
    met = [(0, 1)] if run.scenario.box is None else run.known_partners((0, 0))[:1]
    chosen = zip(_HEROES, [(0, 0), *(met or _pair(run))], strict=False)
    return [_hero(run, name, who, estimates) for name, who in chosen]


def _pair(run: "Run") -> list[Person]:
    """Find two people who meet, if any do."""
    for who in run.answers:
        if who[0] == 0 and (met := run.known_partners(who)):
            return [who, met[0]]
    return []


def _hero(run: "Run", name: str, who: Person, estimates: Sequence[Floats]) -> dict[str, Any]:
    group, row = who
    ticket, answer = run.tickets[who], run.answers[who]
    seen = one_by_one(run.seen[group].addresses).index(ticket.keys.address)
    mine, thought = run.scenario.values[group][row], estimates[group][seen]
    found: dict[str, Any] = {
        "name": name,
        "group": run.scenario.drafts[group].name,
        "address": ticket.keys.address.hex(),
        "kept": mine.tolist(),
        "server_thinks": _told(thought),
        "sent_bytes": len(ticket.upload),
        "place_in_batch": seen,
        "got_letters": [one.body for one in run.letters if one.reader == who],
        "wrote_letters": [one.body for one in run.letters if one.sender == who],
    }
    if run.scenario.name == "standing":
        share, bar, above = answer.values
        own = share_among(float(mine[0]), answer.shared)
        return {**found, "share": share, "error_bar": bar, "above_median": above, "own_share": own}
    if answer.values:
        return {**found, "reward": answer.values[0], "error_bar": answer.values[1]}
    box, partners = _box(run.scenario), run.known_partners(who)
    there = [run.scenario.values[g][r] for g, r in partners]
    apart = [float(misses(box, mine[None], one[None])[0]) for one in there]
    return {
        **found,
        "quarter": city.quarter(mine) if box == city.CITY else None,
        "error_m": float(misses(box, thought[None], mine[None])[0]),
        "partners": [run.tickets[one].keys.address.hex() for one in partners],
        "distances_m": apart,
    }


def _box(scenario: "Scenario") -> Box:
    if scenario.box is None:
        raise Misuse(f"the scenario {scenario.name} has no places")
    return scenario.box


def _server(run: "Run", estimates: Sequence[Floats]) -> dict[str, Any]:
    """Show the first rows of the batch as the server opened it: addresses and noisy values."""
    shown = one_by_one(run.seen[0].addresses[:_SHOWN])
    rows = [
        {"address": address.hex(), "noisy": _told(value, 5)}
        for address, value in zip(shown, estimates[0], strict=False)
    ]
    return {
        "reports": [len(opened) for opened in run.seen],
        "dropped": [opened.tally.received - opened.tally.kept for opened in run.seen],
        "group": run.scenario.drafts[0].name,
        "first_rows": rows,
    }


def _board(run: "Run") -> dict[str, Any]:
    groups = range(len(run.scenario.drafts))
    if run.bulletin is None:
        raise Misuse("the round is not on the board yet: complete the run first")
    return {
        "entries": sum(run.bulletin.heading.sizes),
        "entry_bytes": [run.round.entry_size(group) for group in groups],
        "bytes": len(run.bulletin.encode()),
        "letters": run.posted,
    }


def service_of(run: "Run") -> dict[str, Any]:
    """Measure how well people were served, beside true places and beside chance.

    Whoever came from a browser is left out: nobody here knows where they are.
    """
    scenario, estimates = run.scenario, _estimates(run)
    first = [row for group, row in run.answers if group == 0]
    told = [(row, other) for row in first for _, other in run.known_partners((0, row))]
    task, box = scenario.task, _box(scenario)
    settled = told if scenario.settle is not None else None
    if scenario.settle is not None and scenario.alone is not None:
        owners = [_owners(run, group) for group in range(len(run.seen))]
        told = [pair for pair in named_alone(scenario.alone, estimates, owners) if min(pair) >= 0]
        task = scenario.alone if task.name == "neighbours" else task
    found = measure(told, scenario.values, task=task, box=box, entropy=seeded(0), settled=settled)
    return asdict(found)


def _owners(run: "Run", group: int) -> list[int]:
    """Tell whose each row of the batch is."""
    found = (run.person_at(address) for address in one_by_one(run.seen[group].addresses))
    return [-1 if who is None else who[1] for who in found]


def _standing(run: "Run") -> dict[str, Any]:
    """Tell how well people know their place, beside true numbers and beside chance."""
    (values,) = run.scenario.values
    told = np.array([run.answers[0, row].values[0] for row in range(len(values))])
    return measured(values, told, run.answers[0, 0].shared)


def lesson(run: "Run") -> dict[str, Any]:
    """Measure what one round taught: how often the next model is right, and who was rewarded."""
    known = run.scenario.insight
    if known is None:
        raise Misuse(f"nobody learns in the scenario {run.scenario.name}")
    shared = np.array(run.answers[0, 0].shared)
    truth = known.gradients.mean(axis=0)
    lengths = float(np.linalg.norm(shared) * np.linalg.norm(truth))
    who, _ = spoken_reports(run.scenario.drafts[0].randomizer, run.seen[0].reports)
    return {
        "accuracy": known.accuracy(known.after(shared).model.parameters),
        "cosine_to_true_mean": float(shared @ truth) / lengths if lengths else 0.0,
        "spoke": len(who),
        "mean": shared.tolist(),
        "rewards": [run.answers[0, row].values[0] for row in range(len(known.misled))],
        "error_bar": max(answer.values[1] for answer in run.answers.values()),
    }


def _learning(
    run: "Run", known: scenarios.Lesson, lessons: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Tell what the crowd taught the model, and whether wrong labels cost rewards."""
    rewards = np.sum([one["rewards"] for one in lessons], axis=0)
    quiet = scenarios.lesson(run.scenario.people, entropy=scenarios.SEED)
    without = []
    for _ in lessons:
        quiet = quiet.after(quiet.gradients.mean(axis=0))
        without.append(quiet.accuracy(quiet.model.parameters))
    return {
        "accuracy_before": known.accuracy(np.zeros(scenarios.PARAMETERS)),
        "accuracy": [one["accuracy"] for one in lessons],
        "accuracy_without_noise": without,
        "cosine_to_true_mean": [one["cosine_to_true_mean"] for one in lessons],
        "spoke": [one["spoke"] for one in lessons],
        "rewards_right_labels": rewards[~known.misled].tolist(),
        "rewards_wrong_labels": rewards[known.misled].tolist(),
        "error_bar": float(np.sqrt(np.sum([one["error_bar"] ** 2 for one in lessons]))),
        "misled": int(known.misled.sum()),
    }
