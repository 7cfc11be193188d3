"""What commands tell of terms, bulletins, answers and letters, as JSON documents.

No document holds a secret.
"""

from typing import Any

from coatcheck.protocol import client
from coatcheck.protocol.client import Inbox
from coatcheck.protocol.outcomes import OUTCOMES, outcome_text
from coatcheck.protocol.terms import Round
from coatcheck.protocol.wire.bulletins import Heading, heading_size
from coatcheck.protocol.wire.messages import Answer, PayloadFormat
from coatcheck.protocol.wire.uploads import REASONS
from coatcheck.randomizers import from_params


def terms_document(round_: Round) -> dict[str, Any]:
    """Return what the terms of a round state."""
    terms = round_.terms
    parties = (terms.server, *terms.shufflers, terms.board)
    return {
        "round": terms.round,
        "digest": round_.digest.hex(),
        "suite": terms.suite,
        "task": terms.task.name,
        "opens": terms.opens,
        "closes": terms.closes,
        "expires": terms.expires,
        "where": {party.name: party.url for party in parties},
        "admission": [party.admission.__struct_config__.tag for party in terms.shufflers],
        "groups": {
            group.name: {
                "mechanism": _mechanism_name(group.randomizer),
                "minimum": group.minimum,
                "decoys": group.decoys,
                "epsilon": group.promise.epsilon,
                "delta": group.promise.delta,
                "corrupted": group.promise.corrupted,
                "exposed": group.promise.exposed,
                "upload_size": round_.upload_sizes[number],
                "entry_size": round_.entry_size(number),
            }
            for number, group in enumerate(terms.groups)
        },
    }


def _mechanism_name(params: dict[str, Any]) -> str:
    """Name a mechanism; of a participation coin also its rate and the mechanism behind it."""
    part = params.get("part")
    if not isinstance(part, dict):
        return str(params.get("name"))
    return f"{params.get('name')} of rate {params.get('rate')} before {part.get('name')}"


def bulletin_document(raw: bytes, round_: Round) -> dict[str, Any]:
    """Return a bulletin's outcome, and its counts by group and reason."""
    terms = round_.terms
    heading = Heading.decode(raw[: heading_size(len(terms.groups), len(terms.shufflers))])
    groups = {}
    for group, tally in zip(terms.groups, heading.tallies, strict=True):
        counts = zip(REASONS, tally.dropped, strict=True)
        dropped = {reason: count for reason, count in counts if count}
        groups[group.name] = {"received": tally.received, "dropped": dropped, "kept": tally.kept}
    outcome = OUTCOMES[heading.outcome]
    return {"outcome": outcome, "why": outcome_text(heading, round_), "groups": groups}


def answer_document(answer: Answer, round_: Round) -> dict[str, Any]:
    """Return an answer, with each partner's value as the server decoded it."""
    document: dict[str, Any] = {}
    if answer.values or not answer.partners + answer.second:
        document["values"] = list(answer.values)
    if answer.shared:
        document["shared"] = list(answer.shared)
    for name, partners in (("partners", answer.partners), ("second", answer.second)):
        if partners:
            document[name] = [
                {
                    "group": round_.terms.groups[partner.group].name,
                    "address": client.address(partner, round_).hex(),
                    "estimate": _estimate(partner.group, partner.payload, round_),
                    "contact": partner.contact.hex(),
                }
                for partner in partners
            ]
    return document


def _estimate(group: int, payload: bytes, round_: Round) -> Any:
    """Return a partner's value as the server decodes it: numbers, a label, or both by field."""
    if not payload:
        return None
    import numpy as np  # noqa: PLC0415 - only for a partner's value

    terms = round_.terms.groups[group]
    randomizer = from_params(terms.randomizer)
    payload_format = PayloadFormat.between(randomizer.low, randomizer.high)
    reports, _ = payload_format.decode(np.frombuffer(payload, dtype=np.uint8).reshape(1, -1))
    decode: Any = terms.decode
    estimate = randomizer.estimate(reports, decode)
    if isinstance(estimate, dict):
        return {name: np.asarray(part)[0].tolist() for name, part in estimate.items()}
    return np.asarray(estimate)[0].tolist()


def letters_document(inbox: Inbox) -> dict[str, Any]:
    """Return the letters that were opened, and how many were rejected and why."""
    letters = [
        {
            "from": letter.sender.address.hex(),
            "contact": letter.sender.raw.hex(),
            "counter": letter.counter,
            "text": letter.body.decode(errors="replace"),
        }
        for letter in inbox.letters
    ]
    return {"letters": letters, "refused": inbox.refused}
