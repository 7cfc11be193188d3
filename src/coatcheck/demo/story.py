"""The story of a performance: what each chair saw, as one plain document.

Two people tell what they kept, sent and got; the server tells what it saw; the board, what
everybody can see. The command prints this document, `--json` gives it as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coatcheck import tasks
from coatcheck.demo import city, gradients
from coatcheck.demo.performance import Performance
from coatcheck.errors import Misuse
from coatcheck.simulation.trial import Floats, Pairs, distances, measure

if TYPE_CHECKING:
    from coatcheck.randomizers import Decode

_SHOWN = 4


def tell(show: Performance, *, asked: float, seconds: float) -> dict[str, Any]:
    """Write the story down."""
    estimates = _estimates(show)
    document: dict[str, Any] = {
        "demo": show.play.name,
        "people": show.play.people,
        "epsilon_asked": asked,
        "groups": _groups(show),
        "heroes": _heroes(show, estimates),
        "letters": {"posted": show.posted, "read": len(show.letters)},
        "server": _server(show, estimates),
        "board": _board(show),
        "steps": [asdict(step) for step in show.steps],
        "seconds": seconds,
    }
    if show.play.insight is not None:
        document["learning"] = _learning(show, show.play.insight)
    else:
        document["service"] = _service(show)
    return document


def _estimates(show: Performance) -> list[Floats]:
    """Return what the server made of each report, in the order in which it saw them."""
    return [
        draft.randomizer.estimate(opened.reports, cast("Decode", draft.decode))
        for draft, opened in zip(show.play.drafts, show.seen, strict=True)
    ]


def _groups(show: Performance) -> list[dict[str, Any]]:
    return [
        {
            "name": draft.name,
            "people": len(values),
            "randomizer": draft.randomizer.name,
            "local_epsilon": draft.randomizer.epsilon,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "guarantee": str(guarantee),
        }
        for draft, values, guarantee in zip(
            show.play.drafts, show.play.values, show.guarantees, strict=True
        )
    ]


def _heroes(show: Performance, estimates: Sequence[Floats]) -> list[dict[str, Any]]:
    """Let the first person of the first group and whom they meet speak."""
    told = show.partners(0)[0]
    other = told[0] if told else ((0, 1) if show.play.insight is not None else None)
    places = [(0, 0)] if other is None else [(0, 0), other]
    speakers = zip(show.play.heroes, places, strict=False)
    return [_hero(show, name, place, estimates) for name, place in speakers]


def _hero(
    show: Performance, name: str, place: tuple[int, int], estimates: Sequence[Floats]
) -> dict[str, Any]:
    group, row = place
    ticket, answer = show.tickets[group][row], show.answers[group][row]
    seen = [contact.address for contact in show.seen[group].contacts].index(ticket.keys.address)
    mine, thought = show.play.values[group][row], estimates[group][seen]
    story: dict[str, Any] = {
        "name": name,
        "group": show.play.drafts[group].name,
        "address": ticket.keys.address.hex(),
        "kept": mine.tolist(),
        "server_thinks": thought.tolist(),
        "sent_bytes": len(ticket.upload),
        "place_in_batch": seen,
        "got_letters": [one.body for one in show.letters if one.reader == place],
        "wrote_letters": [one.body for one in show.letters if one.sender == place],
    }
    if answer.values:
        return {**story, "reward": answer.values[0]}
    box = show.play.box
    if box is None:
        raise Misuse(f"the play {show.play.name} answers with partners and has no places")
    partners = show.partners(group)[row]
    there = [show.play.values[g][r] for g, r in partners]
    apart = [float(distances(mine[None], one[None], box)[0]) for one in there]
    return {
        **story,
        "quarter": city.quarter(mine) if box == city.CITY else None,
        "error_m": float(distances(mine[None], thought[None], box)[0]),
        "partners": [show.tickets[g][r].keys.address.hex() for g, r in partners],
        "distances_m": apart,
    }


def _server(show: Performance, estimates: Sequence[Floats]) -> dict[str, Any]:
    """Show the first rows of the batch as the server opened it: addresses and noisy values."""
    rows = [
        {"address": contact.address.hex(), "noisy": np.round(value, 5).tolist()}
        for contact, value in zip(show.seen[0].contacts[:_SHOWN], estimates[0], strict=False)
    ]
    return {
        "reports": [len(opened.contacts) for opened in show.seen],
        "dropped": [opened.tally.received - opened.tally.kept for opened in show.seen],
        "group": show.play.drafts[0].name,
        "first_rows": rows,
    }


def _board(show: Performance) -> dict[str, Any]:
    groups = range(len(show.play.drafts))
    return {
        "entries": sum(show.bulletin.heading.sizes),
        "entry_bytes": [show.round.entry_size(group) for group in groups],
        "bytes": len(show.bulletin.encode()),
        "letters": show.posted,
    }


def _service(show: Performance) -> dict[str, Any]:
    """Measure how well people were served, beside true places and beside chance."""
    play = show.play
    if play.box is None:
        raise Misuse(f"the play {play.name} has no places")
    found = [(row, other) for row, told in enumerate(show.partners(0)) for _, other in told]
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    told: Pairs = (pairs[:, 0], pairs[:, 1])
    truly = tasks.answer(play.task, list(play.values))[0]
    if not isinstance(truly, tasks.References):
        raise Misuse(f"task {play.task.name} has no partners")
    chance: Pairs = (told[0], np.arange(len(told[0])) * 7919 % len(play.values[-1]))
    return {
        name: _numbers(asdict(measure(one, play.values, task=play.task, box=play.box)))
        for name, one in (
            ("private", told),
            ("without_noise", (truly.owners(), truly.indices)),
            ("at_random", chance),
        )
    }


def _learning(show: Performance, known: gradients.Lesson) -> dict[str, Any]:
    """Measure what the crowd taught the model, and whether wrong labels cost rewards."""
    shared = np.array(show.answers[0][0].shared)
    truth = known.gradients.mean(axis=0)
    rewards = np.array([answer.values[0] for answer in show.answers[0]])
    cosine = shared @ truth / (np.linalg.norm(shared) * np.linalg.norm(truth))
    return {
        "accuracy_before": known.accuracy(np.zeros(gradients.PARAMETERS)),
        "accuracy_after": known.accuracy(gradients.step(shared)),
        "accuracy_after_without_noise": known.accuracy(gradients.step(truth)),
        "cosine_to_true_mean": float(cosine),
        "mean_reward_right_labels": float(rewards[~known.misled].mean()),
        "mean_reward_wrong_labels": float(rewards[known.misled].mean()),
        "misled": int(known.misled.sum()),
    }


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and math.isnan(value) else value
        for key, value in row.items()
    }
