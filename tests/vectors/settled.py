"""Makes the vectors of settling: a few people in memory, and one of them written down."""

from collections.abc import Sequence
from typing import Any

from vectors.conversations import machine_of, secret_of
from vectors.kinds import KINDS, Case
from vectors.writing import case

NAMES = [bytes([number]) * 16 for number in range(1, 8)]
CELLS = [(0, 0), (3, 2), (2, -3), (1, 1), (3, 1), (-2, 2), (2, 2)]
RADII = [1.2, 2.3, 3.4, 4.5]

FIRST = [[3, 4], [4, 5], [3, 5]]
SECOND = [[5, 6], [6, 3], [6, 4]]


def cases() -> list[Case]:
    """Return every vector of settling and of nearness."""
    return [*_cells(), *_rings(), *_points(), *_settled(), *_near()]


def _made(name: str, kind: str, given: Case) -> Case:
    """Write a case down with what it gives: both clients must give the same."""
    return case(name, kind, given, fields=KINDS[kind]({"input": given}))


def _cells() -> list[Case]:
    places: list[tuple[list[float], list[float], float]] = [
        ([0.05, -0.05], [], 0.1),
        ([0.3, 0.7], [1.0, 1.0], 0.1),
        ([31.23, 121.47], [111_195.0, 95_000.0], 100.0),
        ([-1e-12, 1e-12], [], 1.0),
    ]
    return [
        _made(f"cell {number}", "cell", {"place": place, "scale": scale, "side": side})
        for number, (place, scale, side) in enumerate(places)
    ]


def _rings() -> list[Case]:
    stated: list[Case] = [
        {"radii": RADII, "side": 1.0, "axes": 2},
        {"radii": [540.0], "side": 120.0, "axes": 2},
        {"radii": [1.0, 2.0], "side": 1.0, "axes": 1},
        {"radii": [0.3, 0.5, 1.1], "side": 0.5, "axes": 3},
        {"radii": [0.5], "side": 1.0, "axes": 40},
        {"radii": [6.0], "side": 1.0, "axes": 2},
    ]
    wrong: list[Case] = [
        {"radii": [18.5], "side": 0.5, "axes": 2},
        {"radii": [1.0], "side": 1.0, "axes": 40},
        {"radii": [1e300], "side": 1e-300, "axes": 1},
        {"radii": [2.0, 1.0], "side": 1.0, "axes": 2},
        {"radii": [1.0, 1.0], "side": 1.0, "axes": 2},
    ]
    return [
        *(_made(f"rings {n}", "rings", given) for n, given in enumerate(stated)),
        *(case(f"bad rings {n}", "rings", given, "misuse") for n, given in enumerate(wrong)),
        *(
            _made(f"nobody {n}", "nobody", {"secret": secret_of(n).hex(), "axes": n})
            for n in (1, 2, 3)
        ),
    ]


def _points() -> list[Case]:
    secret = secret_of(0).hex()
    texts = [
        _made(f"point {n}", "point", {"text": bytes([n]).hex(), "secret": secret_of(n).hex()})
        for n in range(6)
    ]
    wrong = {
        "too short": "02" * 32,
        "too long": "02" * 34,
        "uncompressed": "04" + "00" * 32,
        "no point has this x": "02" + (1).to_bytes(32, "big").hex(),
        "beyond the field": "03" + "ff" * 32,
        "at infinity": "00" * 33,
    }
    return texts + [
        case(f"point: {what}", "point", {"point": raw, "secret": secret}, "bad-key")
        for what, raw in wrong.items()
    ]


def _told(who: int, lists: Sequence[Sequence[int]], **more: Any) -> Case:
    return {
        "address": NAMES[who].hex(),
        "secret": secret_of(who).hex(),
        "cell": list(CELLS[who]),
        "digest": bytes(range(32)).hex(),
        "letter_size": 256,
        "lists": [[NAMES[other].hex() for other in names] for names in lists],
        **more,
        "events": [],
    }


def _talked(people: list[Case], *, hostile: int) -> list[Case]:
    """Let all speak step by step, and write down what each hears; one also hears nonsense."""
    machines = {person["address"]: machine_of(person) for person in people}
    for _ in range(len(next(iter(machines.values())).steps)):
        posted = []
        for person in people:
            event = {"do": "speak", "words": f"I am {person['address'][:2]}".encode().hex()}
            person["events"].append(event)
            machine = machines[person["address"]]
            posted += [
                (machine.address, *one) for one in machine.speak(bytes.fromhex(event["words"]))
            ]
        for sender, to, body in posted:
            for number, person in enumerate(people):
                mine, own = bytes.fromhex(person["address"]), sender == to
                listed = any(sender.hex() in names for names in person["lists"])
                if to != mine and not (own and (listed or sender == mine)):
                    continue
                heard = [("notice" if own else "letter", body)]
                if number == hostile and not own:
                    heard += [("letter", bad) for bad in (body, body[:-1], body + b"\0", body[:1])]
                    heard += [("notice", body)]
                for kind, text in heard:
                    event = {"do": kind, "sender": sender.hex(), "body": text.hex()}
                    person["events"].append(event)
                    machine = machines[person["address"]]
                    (machine.notice if kind == "notice" else machine.receive)(sender, text)
    stranger = {"do": "letter", "sender": bytes(16).hex(), "body": "0000"}
    people[hostile]["events"].append(stranger)
    return people


def _settled() -> list[Case]:
    more: Case = {"asks": [2, 1], "rings": {"radii": RADII, "side": 1.0}}
    people = [_told(who, (FIRST[who], SECOND[who]), side=True, **more) for who in range(3)]
    for other in range(3, 7):
        lists = [[who for who in range(3) if other in one[who]] for one in (FIRST, SECOND)]
        people.append(_told(other, lists, side=False, **more))
    talked = _talked(people, hostile=1)
    return [_made(f"settling {n}", "conversation", talked[n]) for n in (0, 1, 3, 6)]


def _near() -> list[Case]:
    more: Case = {"asks": [], "side": False, "rings": {"radii": [1.5], "side": 1.0}}
    everybody = [1, 3, 4, 6]
    people = [_told(who, [[o for o in everybody if o != who]], **more) for who in everybody]
    talked = _talked(people, hostile=2)
    return [_made(f"nearness {n}", "conversation", talked[n]) for n in (0, 2)]
