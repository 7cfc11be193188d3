"""The summary of a run: what each side saw, as one document.

It tells what two of the people kept private, sent and got, what the server saw, and what everybody
can see on the board. The command prints this document as text, or as it is with `--json`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coatcheck.demo import city, scenarios
from coatcheck.demo.events import Person
from coatcheck.demo.scenarios import measure_shares, share_among
from coatcheck.demo.trilateration import trilateration
from coatcheck.domains import Box, Floats
from coatcheck.entropy import seeded
from coatcheck.errors import Misuse
from coatcheck.protocol.server import split_rows
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
    """Return what happened in a complete run; of several rounds, in the last one."""
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
    if run.scenario.lesson is not None:
        document["learning"] = _learning(run, run.scenario.lesson, lessons)
    elif run.scenario.box is None:
        document["standing"] = _standing(run)
    else:
        document["service"] = service_of(run)
    if run.scenario.trilaterator is not None:
        attacker = run.scenario.trilaterator
        document["trilateration"] = {
            **trilateration(run.scenario),
            "this_round": {
                "candidates": len(run.answers[attacker].partners),
                "near": len(run.partners(attacker)),
            },
        }
    return document


def _estimates(run: "Run") -> list[Floats]:
    """Return the server's estimate of each report, in the server's order; NaN for silence."""
    estimates = []
    for draft, opened in zip(run.scenario.drafts, run.seen, strict=True):
        part = without_coin(draft.randomizer)
        speakers, reports = spoken_reports(draft.randomizer, opened.reports)
        rows = np.full((len(opened.reports), part.domain.dimension), np.nan)
        rows[speakers] = part.estimate(reports, cast("Decode", draft.decode))
        estimates.append(rows)
    return estimates


def _numbers(row: Floats, digits: int = 15) -> list[float] | None:
    """Return a row as a list, or None for silence."""
    return None if np.isnan(row).any() else np.round(row, digits).tolist()


def _heroes(run: "Run", estimates: Sequence[Floats]) -> list[dict[str, Any]]:
    """Describe the first person and their partner; without one, also two people who meet."""
    met = [(0, 1)] if run.scenario.box is None else run.known_partners((0, 0))[:1]
    chosen = zip(_HEROES, [(0, 0), *(met or _pair(run))], strict=False)
    return [_hero(run, name, person, estimates) for name, person in chosen]


def _pair(run: "Run") -> list[Person]:
    """Return two people who meet, if there are any."""
    for person in run.answers:
        if person[0] == 0 and (met := run.known_partners(person)):
            return [person, met[0]]
    return []


def _hero(run: "Run", name: str, person: Person, estimates: Sequence[Floats]) -> dict[str, Any]:
    group, row = person
    ticket, answer = run.tickets[person], run.answers[person]
    seen = split_rows(run.seen[group].addresses).index(ticket.keys.address)
    value, estimate = run.scenario.values[group][row], estimates[group][seen]
    hero: dict[str, Any] = {
        "name": name,
        "group": run.scenario.drafts[group].name,
        "address": ticket.keys.address.hex(),
        "kept": value.tolist(),
        "server_thinks": _numbers(estimate),
        "sent_bytes": len(ticket.upload),
        "place_in_batch": seen,
        "got_letters": [letter.body for letter in run.letters if letter.reader == person],
        "wrote_letters": [letter.body for letter in run.letters if letter.sender == person],
    }
    if run.scenario.name == "standing":
        share, bar, above = answer.values
        own = share_among(float(value[0]), answer.shared)
        return {**hero, "share": share, "error_bar": bar, "above_median": above, "own_share": own}
    if answer.values:
        return {**hero, "reward": answer.values[0], "error_bar": answer.values[1]}
    box, partners = _box(run.scenario), run.known_partners(person)
    places = [run.scenario.values[g][r] for g, r in partners]
    return {
        **hero,
        "quarter": city.quarter(value) if box == city.CITY else None,
        "error_m": float(misses(box, estimate[None], value[None])[0]),
        "partners": [run.tickets[partner].keys.address.hex() for partner in partners],
        "distances_m": [float(misses(box, value[None], place[None])[0]) for place in places],
    }


def _box(scenario: "Scenario") -> Box:
    if scenario.box is None:
        raise Misuse(f"the scenario {scenario.name} has no places")
    return scenario.box


def _server(run: "Run", estimates: Sequence[Floats]) -> dict[str, Any]:
    """Return the first rows of the batch as the server opened it: addresses and noisy values."""
    shown = split_rows(run.seen[0].addresses[:_SHOWN])
    rows = [
        {"address": address.hex(), "noisy": _numbers(value, 5)}
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
        raise Misuse("the round is not on the board yet; complete the run first")
    return {
        "entries": sum(run.bulletin.heading.sizes),
        "entry_bytes": [run.round.entry_size(group) for group in groups],
        "bytes": len(run.bulletin.encode()),
        "letters": run.posted,
    }


def service_of(run: "Run") -> dict[str, Any]:
    """Measure how well people were served, beside true places and beside chance.

    People in browsers are left out, because the demo does not know where they are.
    """
    scenario, estimates = run.scenario, _estimates(run)
    first = [row for group, row in run.answers if group == 0]
    pairs = [(row, other) for row in first for _, other in run.known_partners((0, row))]
    task, box = scenario.task, _box(scenario)
    settled = pairs if scenario.settle is not None else None
    if scenario.settle is not None and scenario.alone is not None:
        owners = [_owners(run, group) for group in range(len(run.seen))]
        pairs = [pair for pair in named_alone(scenario.alone, estimates, owners) if min(pair) >= 0]
        task = scenario.alone if task.name == "neighbours" else task
    return asdict(
        measure(pairs, scenario.values, task=task, box=box, entropy=seeded(0), settled=settled)
    )


def _owners(run: "Run", group: int) -> list[int]:
    """Return the person behind each row of the batch, by row of the scenario; -1 if unknown."""
    people = (run.person_at(address) for address in split_rows(run.seen[group].addresses))
    return [-1 if person is None else person[1] for person in people]


def _standing(run: "Run") -> dict[str, Any]:
    """Return how well people know where they stand, beside true numbers and beside chance."""
    (values,) = run.scenario.values
    shares = np.array([run.answers[0, row].values[0] for row in range(len(values))])
    return measure_shares(values, shares, run.answers[0, 0].shared)


def lesson(run: "Run") -> dict[str, Any]:
    """Measure one round of learning: the accuracy of the next model, and the rewards."""
    data = run.scenario.lesson
    if data is None:
        raise Misuse(f"the scenario {run.scenario.name} does not learn")
    shared = np.array(run.answers[0, 0].shared)
    truth = data.gradients.mean(axis=0)
    lengths = float(np.linalg.norm(shared) * np.linalg.norm(truth))
    speakers, _ = spoken_reports(run.scenario.drafts[0].randomizer, run.seen[0].reports)
    return {
        "accuracy": data.accuracy(data.after(shared).model.parameters),
        "cosine_to_true_mean": float(shared @ truth) / lengths if lengths else 0.0,
        "spoke": len(speakers),
        "mean": shared.tolist(),
        "rewards": [run.answers[0, row].values[0] for row in range(len(data.misled))],
        "error_bar": max(answer.values[1] for answer in run.answers.values()),
    }


def _learning(
    run: "Run", data: scenarios.Lesson, lessons: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what the crowd taught the model, and whether wrong labels cost rewards."""
    rewards = np.sum([lesson["rewards"] for lesson in lessons], axis=0)
    quiet = scenarios.lesson(run.scenario.people, entropy=scenarios.SEED)
    without = []
    for _ in lessons:
        quiet = quiet.after(quiet.gradients.mean(axis=0))
        without.append(quiet.accuracy(quiet.model.parameters))
    return {
        "accuracy_before": data.accuracy(np.zeros(scenarios.PARAMETERS)),
        "accuracy": [lesson["accuracy"] for lesson in lessons],
        "accuracy_without_noise": without,
        "cosine_to_true_mean": [lesson["cosine_to_true_mean"] for lesson in lessons],
        "spoke": [lesson["spoke"] for lesson in lessons],
        "rewards_right_labels": rewards[~data.misled].tolist(),
        "rewards_wrong_labels": rewards[data.misled].tolist(),
        "error_bar": float(np.sqrt(np.sum([lesson["error_bar"] ** 2 for lesson in lessons]))),
        "misled": int(data.misled.sum()),
    }
