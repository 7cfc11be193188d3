"""Vectors of the records on their way, and in the answers."""

import hashlib
import struct

from coatcheck.entropy import seeded
from coatcheck.protocol.envelope import Purpose, binding
from coatcheck.protocol.keys import KeyPairs, decoy_seed
from coatcheck.protocol.terms import Round
from coatcheck.protocol.ticket import Receipt, issue_receipts
from coatcheck.protocol.wire.batches import PART, Batch, Manifest, Part
from coatcheck.protocol.wire.messages import Answer, Partner, encode_report
from coatcheck.protocol.wire.uploads import Tally, Upload
from support.plain_server import encode_answer
from vectors import kinds
from vectors.kinds import ALICE, BOB, SERVER, SHUFFLER, Case, pairs
from vectors.writing import case, flip, seal, wrong


def report(number: int, group: int) -> bytes:
    """Return the bytes of a person's report."""
    note = bytes(kinds.the_round().terms.groups[group].note_size)
    return encode_report(
        kinds.the_round(),
        group=group,
        contact=pairs(number).contact_raw,
        payload=bytes([number] * 6),
        note=note,
    )


def item(number: int, group: int) -> bytes:
    """Seal a person's report to the server."""
    bound = binding(Purpose.REPORT, digest=kinds.the_round().digest, group=group)
    return seal(report(number, group), to=SERVER, bound=bound, number=100 + number)


def upload(number: int, group: int) -> bytes:
    """Wrap a person's report for the shuffler."""
    digest, name = kinds.the_round().digest, bytes([number]) * 16
    bound = binding(Purpose.LAYER, digest=digest, group=group, upload=name)
    body = seal(item(number, group), to=SHUFFLER, bound=bound, number=150 + number)
    return Upload(group, digest, name, body).encode(kinds.the_round())


def uploads() -> list[Case]:
    """An upload, its altered copies and its receipt."""
    raw = upload(ALICE, 0)
    fields = {
        "group": 0,
        "id": (bytes([ALICE]) * 16).hex(),
        "item": item(ALICE, 0).hex(),
        "report": report(ALICE, 0).hex(),
    }
    changes = [
        ("a byte short", raw[:-1], "malformed"),
        ("a byte more", raw + b"\0", "malformed"),
        ("nothing", b"", "malformed"),
        ("another version", flip(raw, 0), "malformed"),
        ("another suite", flip(raw, 1), "malformed"),
        ("a group that is not there", raw[:2] + b"\2" + raw[3:], "malformed"),
        ("the spare byte", flip(raw, 3), "malformed"),
        ("other terms", flip(raw, 4), "malformed"),
        ("another id", flip(raw, 36), "unsealable"),
        ("an altered key share", flip(raw, 52), "unsealable"),
        ("an altered tag", flip(raw, len(raw) - 1), "unsealable"),
    ]
    bodies = [
        Receipt.of(sent, Upload.decode(sent, kinds.the_round())).body()
        for sent in (raw, upload(BOB, 1), upload(12, 0))
    ]
    sign = pairs(SHUFFLER).signing.sign
    signed, *_ = issue_receipts(bodies, sign, entropy=seeded(1))
    (alone,) = issue_receipts(bodies[:1], sign, entropy=seeded(2))
    held = {
        "digest": kinds.the_round().digest.hex(),
        "id": (bytes([ALICE]) * 16).hex(),
        "content": hashlib.sha256(raw).hexdigest(),
    }
    torn = [
        ("another content", flip(signed, 60), "bad-signature"),
        ("another side", flip(signed, 85), "bad-signature"),
        ("another hash on the path", flip(signed, 86), "bad-signature"),
        ("a place that the tree has not", signed[:84] + b"\4" + signed[85:], "malformed"),
        ("an altered signature", flip(signed, len(signed) - 1), "bad-signature"),
        ("a byte short", signed[:-1], "malformed"),
        ("another version", flip(signed, 0), "malformed"),
    ]
    return [
        case("Alice's upload", "upload", raw.hex(), fields=fields),
        *wrong("upload", "upload", *changes),
        case("its receipt", "receipt", signed.hex(), fields=held),
        case("its receipt from another commit", "receipt", alone.hex(), fields=held),
        *wrong("receipt", "receipt", *torn),
        *uploads_with_decoys(),
    ]


def uploads_with_decoys() -> list[Case]:
    """An upload of three reports under Alice's keys and her decoys', and altered copies."""
    round_, name = kinds.the_round("with decoys"), bytes([ALICE]) * 16
    inner = binding(Purpose.REPORT, digest=round_.digest, group=0)
    outer = binding(Purpose.LAYER, digest=round_.digest, group=0, upload=name)
    own = kinds.seed(ALICE)
    seeds = [decoy_seed(own, 2), own, decoy_seed(own, 1)]  # their order is random
    texts = [
        encode_report(
            round_,
            group=0,
            contact=KeyPairs(round_.suite, seed).contact_raw,
            payload=bytes([40 + place] * 6),
            note=b"",
        )
        for place, seed in enumerate(seeds)
    ]
    items = [seal(text, to=SERVER, bound=inner, number=200 + n) for n, text in enumerate(texts)]
    body = b"".join(
        seal(item, to=SHUFFLER, bound=outer, number=210 + n) for n, item in enumerate(items)
    )
    raw = Upload(0, round_.digest, name, body).encode(round_)
    ids = [name + bytes([place]) for place in range(3)]
    ranks = [
        hashlib.blake2b(
            b"\0" + round_.digest + id_,
            key=bytes(range(32)),
            digest_size=16,
            person=b"coatcheck order",
        ).digest()
        for id_ in ids
    ]
    by_rank = sorted(range(3), key=ranks.__getitem__)
    fields = {
        "ids": [id_.hex() for id_ in ids],
        "ranks": [rank.hex() for rank in ranks],
        "reports_by_rank": [texts[n].hex() for n in by_rank],
    }
    return [
        case("a report between two decoys", "decoys", raw.hex(), fields=fields),
        *wrong(
            "decoys",
            "decoys",
            ("a report too few", raw[: len(raw) - len(body) // 3], "malformed"),
            ("a report too many", raw + body[: len(body) // 3], "malformed"),
        ),
    ]


def batches() -> list[Case]:
    """A batch of two groups, and the order of three ids."""
    round_ = kinds.the_round()
    people = ((ALICE, 12), (BOB, 13, 14))
    listed = tuple(tuple(item(n, group) for n in row) for group, row in enumerate(people))
    tallies = (Tally(3).drop("unpeeled"), Tally(3))
    batch = Batch.compose([[group] for group in listed], tallies, digest=round_.digest)
    raw = batch.sign(pairs(SHUFFLER).signing.sign)
    fields = {
        "hop": 0,
        "received": [3, 3],
        "dropped": [[1, 0, 0, 0, 0, 0, 0, 0], [0] * 8],
        "root": batch.roots[0].hex(),
        "items": [[one.hex() for one in group] for group in listed],
    }
    changes = [
        ("a byte short", raw[:-1], "malformed"),
        ("a byte more", raw + b"\0", "malformed"),
        ("another count", raw[:39] + b"\4" + raw[40:], "malformed"),
        ("drops more than came in", raw[:36] + struct.pack(">II", 1, 3) + raw[44:], "malformed"),
        ("a hop that is not there", raw[:1] + b"\1" + raw[2:], "malformed"),
        ("an altered count of a partition", flip(raw, 36 + 2 * 36 + 3), "malformed"),
        ("an altered hash", flip(raw, 36 + 2 * 36 + 4), "malformed"),
        ("an altered signature", flip(raw, 36 + 4 * 36), "bad-signature"),
        ("an altered item", flip(raw, len(raw) - 1), "malformed"),
    ]
    ids = [bytes([n]) * 16 for n in (1, 2, 3)]
    secret = bytes(range(32))
    ranks = {
        name: hashlib.blake2b(
            b"\1" + round_.digest + name, key=secret, digest_size=16, person=b"coatcheck order"
        ).digest()
        for name in ids
    }
    order = {
        "ranks": [ranks[name].hex() for name in ids],
        "order": [name.hex() for name in sorted(ids, key=ranks.__getitem__)],
    }
    given = [name.hex() for name in ids]
    return [
        case("two groups", "batch", raw.hex(), fields=fields),
        *wrong("batch", "batch", *changes),
        *manifests(round_),
        case("three ids", "order", given, secret=secret.hex(), group=1, fields=order),
    ]


def manifests(round_: Round) -> list[Case]:
    """A manifest of five partitions: four of group 0, one of group 1; and how many there are."""
    sizes = ((PART, 5, 0, PART - 9), (3,))
    tallies = (Tally(2 * PART + 1).drop("unpeeled", 5), Tally(3))
    parts = [[Part(n, hashlib.sha256(bytes([n % 256])).digest()) for n in row] for row in sizes]
    manifest = Manifest.compose(parts, tallies, digest=round_.digest)
    sign = pairs(SHUFFLER).signing.sign
    raw = manifest.sign(sign)
    fields = {
        "received": [2 * PART + 1, 3],
        "partitions": [list(row) for row in sizes],
        "hashes": [[part.content.hex() for part in row] for row in parts],
        "root": manifest.root.hex(),
    }
    crowded = [[Part(n, bytes(32)) for n in row] for row in ((2 * PART + 1, 1, 1, 1), (3,))]
    large = Manifest.compose(crowded, (Tally(2 * PART + 4), Tally(3)), digest=round_.digest)
    changes = [
        ("a byte short", raw[:-1], "malformed"),
        ("a byte more", raw + b"\0", "malformed"),
        ("an altered hash", flip(raw, 36 + 2 * 36 + 4), "bad-signature"),
        ("a partition with an item more", flip(raw, 36 + 3 * 36 + 3), "malformed"),
        ("a partition of too many", large.sign(sign), "malformed"),
    ]
    counts = [0, 1, PART, PART + 1, 2 * PART, 2 * PART + 1, 10**6, 2**20, 2**20 + 1, 2**21 + 1]
    sized = [(count, 100) for count in [*counts, 2**22 + 1, 10**7, 2**32 - 1]]
    # Items of 2,048 bytes leave room for one bit more, and larger ones for none.
    sized += [(10**7, size) for size in (1024, 1025, 2048, 2049, 4096, 4097, 2**15)]
    small = [1, 1, 1, 2, 2, 4, 64, 64, 64, 128, 128, 256, 2**13]
    shares = {"partitions": [*small, 256, 512, 512, 1024, 1024, 1024, 1024]}
    return [
        case("five partitions", "manifest", raw.hex(), fields=fields),
        *wrong("manifest", "manifest", *changes),
        case("of so many items", "partitions", sized, fields=shares),
    ]


def answers() -> list[Case]:
    """Answers of each form, and what is none."""
    values = encode_answer(Answer((1.5, -2.0), (0.25,)), size=128)
    bare = encode_answer(Answer(partners=(Partner(1, pairs(BOB).contact_raw),)), size=128)
    placed = Partner(1, pairs(BOB).contact_raw, bytes(range(6)))
    located = encode_answer(Answer(partners=(placed,)), size=128)
    empty = encode_answer(Answer(), size=128)
    two = Answer(
        partners=(Partner(1, pairs(BOB).contact_raw),),
        second=(Partner(1, pairs(ALICE).contact_raw),),
    )
    listed = encode_answer(two, size=160)
    none: Case = {"values": [], "shared": [], "partners": [], "second": []}
    contact = pairs(BOB).contact_raw.hex()
    changes = [
        ("another version", flip(values, 0), "malformed"),
        ("an unknown form", values[:1] + b"\4" + values[2:], "malformed"),
        ("more numbers than fit", values[:2] + b"\1\0" + values[4:], "malformed"),
        ("dirt in the padding", flip(values, 127), "malformed"),
        ("dirt in the head", flip(values, 7), "malformed"),
        ("a group that is not there", located[:8] + b"\2" + located[9:], "malformed"),
        ("two partners where one is", located[:3] + b"\2" + located[4:], "malformed"),
        ("no partner", located[:3] + b"\0" + located[4:], "malformed"),
        ("more for a second pass than partners", located[:5] + b"\2" + located[6:], "malformed"),
    ]
    told = {**none, "values": [1.5, -2.0], "shared": [0.25]}
    return [
        case("nothing", "answer", empty.hex(), fields=none),
        case("numbers", "answer", values.hex(), fields=told),
        case("a partner", "answer", bare.hex(), fields={**none, "partners": [[1, contact, ""]]}),
        case(
            "a partner and a place",
            "answer",
            located.hex(),
            fields={**none, "partners": [[1, contact, bytes(range(6)).hex()]]},
        ),
        case(
            "a candidate for each pass",
            "answer",
            listed.hex(),
            fields={
                **none,
                "partners": [[1, contact, ""]],
                "second": [[1, pairs(ALICE).contact_raw.hex(), ""]],
            },
        ),
        *wrong("answer", "answer", *changes),
    ]
