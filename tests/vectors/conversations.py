"""Vectors of settling: what one person hears, step by step, and every byte they then write."""

from typing import Any

from coatcheck.protocol.settling.blinded_sets import Factor, hash_to_point, read_point
from coatcheck.protocol.settling.exchange import prf
from coatcheck.protocol.settling.rings import Rings, cell_of, cell_of_nobody
from coatcheck.protocol.settling.rules import Progress, Settling, schedule

Case = dict[str, Any]


def cell(case: Case) -> Case:
    """Round a place."""
    given = case["input"]
    return {"cell": list(cell_of(given["place"], scale=given["scale"], side=given["side"]))}


def rings(case: Case) -> Case:
    """Give the ring of every offset, or refuse the radii."""
    rings = rings_of(case["input"])
    around = [[*offset, ring] for offset, ring in rings.around.items()]
    return {"width": rings.width, "around": around, "table_size": rings.table_size}


def rings_of(given: Case) -> Rings:
    """Return the rings of a case."""
    return Rings(given["radii"], side=given["side"], axes=given["axes"])


def nobody(case: Case) -> Case:
    """Draw the cell of an address behind which is nobody."""
    given = case["input"]
    return {"cell": list(cell_of_nobody(bytes.fromhex(given["secret"]), given["axes"]))}


def point(case: Case) -> Case:
    """Hash a text to a point, or take one as it is written, and multiply it."""
    given = case["input"]
    raw = bytes.fromhex(given.get("point", ""))
    point = read_point(raw) if raw else hash_to_point(bytes.fromhex(given["text"]))
    factor = Factor(bytes.fromhex(given["secret"]))
    return {
        "point": point.encoded().hex(),
        "multiple": factor.times(point).encoded().hex(),
        "factor": factor.point.encoded().hex(),
    }


def machine_of(given: Case) -> Settling:
    """Return the person that a conversation is about."""
    rings = given["rings"]
    return Settling(
        Progress(cell=tuple(given["cell"])),
        address=bytes.fromhex(given["address"]),
        asks=given["side"],
        lists=[[bytes.fromhex(who) for who in names] for names in given["lists"]],
        secret=bytes.fromhex(given["secret"]),
        steps=schedule(given["asks"]),
        digest=bytes.fromhex(given["digest"]),
        rings=rings_of({**rings, "axes": len(given["cell"])}),
        letter_size=given["letter_size"],
    )


def conversation(case: Case) -> Case:
    """Let a person hear and speak, and give what they write, find and drop."""
    given, written, ready = case["input"], list[Any](), list[bool]()
    machine = machine_of(given)
    for event in given["events"]:
        if event["do"] == "speak":
            ready.append(machine.ready())
            letters = machine.speak(bytes.fromhex(event["words"]))
            written.append([[to.hex(), body.hex()] for to, body in letters])
        else:
            hear = machine.notice if event["do"] == "notice" else machine.receive
            hear(bytes.fromhex(event["sender"]), bytes.fromhex(event["body"]))
    return {
        "written": written,
        "ready": ready,
        "partners": [who.hex() for who in machine.partners],
        "words": {who: text.hex() for who, text in machine.progress.words.items()},
        "dropped": machine.progress.dropped,
    }


def secret_of(number: int) -> bytes:
    """Return the secret of a person in these vectors."""
    return prf(bytes([number]) * 32, b"secret")
