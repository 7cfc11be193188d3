"""Vectors of settling: what one person hears, step by step, and every byte they then write."""

from typing import Any

from coatcheck.protocol.settling.nearness import Blind, Nearness, hash_to_point, offsets
from coatcheck.protocol.settling.rules import Progress, Settling, cell_of, prf, schedule

Case = dict[str, Any]


def cell(case: Case) -> Case:
    """Round a place."""
    given = case["input"]
    return {"cell": list(cell_of(given["place"], scale=given["scale"], side=given["side"]))}


def point(case: Case) -> Case:
    """Hash a text to a point, or take one by its x; blind it and undo it."""
    given = case["input"]
    raw = bytes.fromhex(given.get("x", ""))
    found = raw or hash_to_point(bytes.fromhex(given["text"]))
    blind = Blind(bytes.fromhex(given["secret"]))
    blinded = blind.blind(found)
    assert blind.unblind(blinded) == found
    return {"point": found.hex(), "blinded": blinded.hex()}


def machine_of(given: Case) -> Settling | Nearness:
    """Make the person that a conversation is about."""
    lists = [[bytes.fromhex(who) for who in names] for names in given["lists"]]
    progress = Progress(cell=tuple(given["cell"]))
    address, secret = bytes.fromhex(given["address"]), bytes.fromhex(given["secret"])
    if given["asks"]:
        steps = schedule(given["asks"])
        return Settling(
            progress, address=address, asks=given["side"], lists=lists, secret=secret, steps=steps
        )
    around = offsets(given["radius"], side=given["cell_side"], axes=len(progress.cell))
    digest = bytes.fromhex(given["digest"])
    return Nearness(
        progress,
        address=address,
        candidates=lists[0],
        secret=secret,
        around=around,
        digest=digest,
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
    """Return the secret of somebody in these vectors."""
    return prf(bytes([number]) * 32, b"secret")
