"""Vectors of what comes before any record: terms, keys, bindings, payloads and trees."""

import hashlib
from typing import Any

import msgspec

from coatcheck.protocol.agreement import SignedTerms, countersign, propose
from coatcheck.protocol.keys import KeyPairs, decoy_seed
from coatcheck.protocol.log.merkle import Tree
from coatcheck.protocol.terms import (
    CLASSICAL,
    HYBRID,
    GroupTerms,
    Notary,
    Party,
    Promise,
    ShufflerParty,
    Terms,
    Tokens,
    Work,
)
from vectors import kinds
from vectors.kinds import ALICE, BOARD, SERVER, SHUFFLER, Case, pairs
from vectors.writing import case

BAD_ADDRESSES = (
    "http://board.example",
    "https://board.example/",
    "https://board.example/path",
    "https://Board.example",
    "https://board.example:443",
    "https://board.example:0443",
    "https://board.example:65536",
    "https://person@board.example",
    "https://board.example?a=b",
    "https://board.example#a",
    "https://",
    "https://-board.example",
    "http://localhost:80",
    "http://127.0.0.2:8000",
    "ftp://localhost",
    f"https://{'a' * 249}",
)
"""Texts that are no address of a role."""


def terms() -> list[Case]:
    """Sign a round of two groups."""

    def known(name: str, number: int) -> dict[str, str]:
        key = pairs(number).signing.public_raw.hex()
        return {"name": name, "verifying": key, "url": f"https://{name}.example"}

    def opener(name: str, number: int) -> dict[str, str]:
        return {**known(name, number), "sealing": pairs(number).opening.public_raw.hex()}

    # The randomizer's parameters are opaque to everything that these vectors test.
    groups = tuple(
        GroupTerms(
            name=name,
            randomizer={"name": "grid", "note": "opaque here"},
            decode="project",
            minimum=2,
            payload_size=6,
            answer_size=128,
            promise=Promise(1.0, 1e-6, 0, 0),
            note_size=note,
        )
        for name, note in (("riders", 0), ("drivers", 4))
    )
    made = Terms(
        round="vectors",
        groups=groups,
        task=Work("least-cost-matching"),
        server=Party(**opener("server", SERVER)),
        shufflers=(ShufflerParty(**opener("shuffler", SHUFFLER), admission=Tokens()),),
        board=Notary(**known("board", BOARD)),
        opens=1_000,
        closes=2_000,
        expires=3_000,
        letter_size=32,
    )
    signed = propose(made, keys=pairs(SERVER))
    signed = countersign(signed, keys=pairs(SHUFFLER), pledged={})

    def plain(signed: SignedTerms, **changes: object) -> Case:
        listed = {"document": signed.document, "server": signed.server}
        return {**listed, "shufflers": list(signed.shufflers), **changes}

    document = signed.document
    fields = {
        "digest": hashlib.sha256(document.encode()).hexdigest(),
        "upload_sizes": [52 + 2 + 64 + 6 + 96, 52 + 2 + 64 + 6 + 4 + 96],
        "entry_sizes": [192, 192],
        "letter_size": 75 + 64 + 32 + 48,
    }
    bad = "bad-signature"
    swapped = document.replace('"minimum": 2', '"minimum": 1')
    twice = document.replace('"opens": 1000', '"opens": 1000,\n "opens": 1000')
    unknown = document.replace('"opens": 1000', '"opens": 1000,\n "surprise": 0')
    malformed = {
        f"the address {url}": document.replace("https://board.example", url)
        for url in BAD_ADDRESSES
    }
    malformed["two roles at one address"] = document.replace("board.example", "server.example")
    for window in (0, 86_401, 1.5):
        named = f'"window": {window},\n "opens": 1000'
        malformed[f"a window of {window} seconds"] = document.replace('"opens": 1000', named)
    malformed["an unknown admission"] = document.replace('"tokens"', '"guests"')
    malformed["an admission with more"] = document.replace('"tokens"', '"tokens", "list": 1')
    for decoys in (9, -1, 1.5):
        named = document.replace('"decoys": 0', f'"decoys": {decoys}', 1)
        malformed[f"{decoys} decoys"] = named
    malformed["decoys beside a note"] = '"decoys": 1'.join(document.rsplit('"decoys": 0', 1))
    slow = propose(msgspec.structs.replace(made, round="slow", window=60), keys=pairs(SERVER))
    slow = countersign(slow, keys=pairs(SHUFFLER), pledged={})
    of_slow = {**fields, "digest": hashlib.sha256(slow.document.encode()).hexdigest()}
    riders = msgspec.structs.replace(made.groups[0], decoys=2)
    many = msgspec.structs.replace(made, round="decoys", groups=(riders, made.groups[1]))
    hiding = countersign(propose(many, keys=pairs(SERVER)), keys=pairs(SHUFFLER), pledged={})
    of_hiding = {
        **fields,
        "digest": hashlib.sha256(hiding.document.encode()).hexdigest(),
        "upload_sizes": [52 + 3 * (2 + 64 + 6 + 96), 52 + 2 + 64 + 6 + 4 + 96],
    }
    return [
        case("signed by all", "terms", plain(signed), fields=fields),
        case("with a window", "terms", plain(slow), fields=of_slow),
        case("with decoys", "terms", plain(hiding), fields=of_hiding),
        case("another number", "terms", plain(signed, document=swapped), bad),
        case("a space more", "terms", plain(signed, document=document + " "), bad),
        case("not counter-signed", "terms", plain(signed, shufflers=[None]), bad),
        case("signed by the wrong one", "terms", plain(signed, shufflers=[signed.server]), bad),
        case("a field twice", "terms", plain(signed, document=twice), "malformed"),
        case("an unknown field", "terms", plain(signed, document=unknown), "malformed"),
        case("no JSON", "terms", plain(signed, document="round"), "malformed"),
        *(
            case(name, "terms", plain(signed, document=text), "malformed")
            for name, text in malformed.items()
        ),
    ]


def keys() -> list[Case]:
    """Derive pairs and addresses; refuse hostile public keys."""
    made = []
    for suite in (CLASSICAL, HYBRID):
        own = KeyPairs(suite, kinds.seed(ALICE))
        fields = {"contact": own.contact_raw.hex(), "address": own.address.hex()}
        given = kinds.seed(ALICE).hex()
        made.append(case(f"a seed in {suite.name}", "keys", given, suite=suite.name, fields=fields))
        for number in (1, 8):
            decoy = KeyPairs(suite, decoy_seed(kinds.seed(ALICE), number))
            fields = {"contact": decoy.contact_raw.hex(), "address": decoy.address.hex()}
            name = f"decoy {number} of a seed in {suite.name}"
            made.append(case(name, "keys", given, suite=suite.name, decoy=number, fields=fields))
    contact = pairs(ALICE).contact_raw
    prime = 2**255 - 19
    hostile = {
        "X25519 zero": (0).to_bytes(32, "little") + contact[32:],
        "X25519 one": (1).to_bytes(32, "little") + contact[32:],
        "X25519 minus one": (prime - 1).to_bytes(32, "little") + contact[32:],
        "X25519 order eight": bytes.fromhex(
            "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
        )
        + contact[32:],
        "X25519 not canonical": (prime + 9).to_bytes(32, "little") + contact[32:],
        "X25519 top bit": contact[:31] + bytes([contact[31] | 0x80]) + contact[32:],
        "Ed25519 identity": contact[:32] + (1).to_bytes(32, "little"),
        "Ed25519 order two": contact[:32] + (prime - 1).to_bytes(32, "little"),
        "Ed25519 order eight": contact[:32]
        + bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
        "Ed25519 not canonical": contact[:32] + (prime + 3).to_bytes(32, "little"),
        "a byte short": contact[:-1],
        "a byte more": contact + b"\0",
    }
    good = {"address": pairs(ALICE).address.hex()}
    made.append(case("a contact", "contact", contact.hex(), suite="x25519", fields=good))
    made += [
        case(name, "contact", raw.hex(), "bad-key", suite="x25519") for name, raw in hostile.items()
    ]
    return made


def bindings() -> list[Case]:
    """Spell out HPKE's info for each purpose."""
    digest, upload = bytes(range(32)), bytes(range(16))
    made = []
    for purpose, letters in (
        ("REPORT", b"report\0PS"),
        ("LAYER", b"layer\0PM"),
        ("ANSWER", b"answer\0SP"),
        ("LETTER", b"letter\0PP"),
    ):
        info = b"coatcheck/v1/" + letters + b"\2\1" + digest + upload
        given = {
            "purpose": purpose,
            "digest": digest.hex(),
            "group": 1,
            "hop": 2,
            "upload": upload.hex(),
        }
        made.append(case(purpose.lower(), "binding", given, fields={"info": info.hex()}))
    return made


def payloads() -> list[Case]:
    """Write coordinates as offsets."""
    low, high = [-1000, 0, 5], [1000, 70_000, 5]
    bounds: Any = {"low": low, "high": high}
    good = {
        "least": ([-1000, 0, 5], "000000000000"),
        "most": ([1000, 70_000, 5], "07d001117000"),
        "between": ([0, 256, 5], "03e800010000"),
    }
    made = [
        case(name, "payload", raw, **bounds, fields={"report": report})
        for name, (report, raw) in good.items()
    ]
    beyond = {
        "first too large": "07d100000000",
        "second too large": "000001117100",
        "third": "000000000001",
    }
    return made + [case(name, "payload", raw, "refused", **bounds) for name, raw in beyond.items()]


def merkle() -> list[Case]:
    """Roots and proofs of a small tree."""
    leaves = [bytes([n]) * n for n in range(7)]
    tree = Tree(leaves)
    made = [
        case(
            f"{size} leaves",
            "root",
            [leaf.hex() for leaf in leaves[:size]],
            fields={"root": tree.root(size).hex()},
        )
        for size in (0, 1, 2, 3, 7)
    ]
    for place in (0, 3, 6):
        path = [step.hex() for step in tree.inclusion(place)]
        given = {"leaf": leaves[place].hex(), "place": place, "size": 7, "root": tree.root().hex()}
        made.append(case(f"leaf {place}", "inclusion", {**given, "path": path}, fields={}))
        other = {**given, "path": path, "leaf": "ff"}
        made.append(case(f"not leaf {place}", "inclusion", other, "equivocation"))
    for old in (1, 3, 4, 6, 7):
        given = {
            "old": old,
            "old_root": tree.root(old).hex(),
            "new": 7,
            "new_root": tree.root().hex(),
        }
        path = [step.hex() for step in tree.consistency(old)]
        made.append(case(f"{old} grew to 7", "consistency", {**given, "path": path}, fields={}))
        other = {**given, "path": path, "old_root": bytes(32).hex()}
        made.append(case(f"{old} rewritten", "consistency", other, "equivocation"))
    return made
