"""How each kind of vector is read: bytes in, the fields that SPEC gives it out, or a refusal."""

import hashlib
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from coatcheck.errors import (
    BadKey,
    BadSignature,
    Equivocation,
    Malformed,
    Misuse,
    Refused,
    Unavailable,
    Unsealable,
)
from coatcheck.protocol import oblivious_http, privacy_pass
from coatcheck.protocol.agreement import AgreedTerms, SignedTerms, verify_signatures
from coatcheck.protocol.envelope import Purpose, binding, unseal
from coatcheck.protocol.keys import Contact, KeyPairs, VerifyingKey, check_signed, decoy_seed
from coatcheck.protocol.log.verification import check_logged, follow, follow_watched
from coatcheck.protocol.log.witness_policy import Quorum
from coatcheck.protocol.outcomes import inconsistency, signer_of
from coatcheck.protocol.shuffler import RANK_SIZE, Shuffler, ShufflerState
from coatcheck.protocol.terms import CLASSICAL, SUITES, read_terms
from coatcheck.protocol.ticket import Receipt
from coatcheck.protocol.wire import uploads
from coatcheck.protocol.wire.batches import Batch, Manifest, bits_of
from coatcheck.protocol.wire.bulletins import (
    KEYS_LEAF,
    Bulletin,
    Checkpoint,
    KeyList,
    Posting,
)
from coatcheck.protocol.wire.messages import PayloadFormat, decode_answer, decode_letter
from coatcheck.protocol.wire.uploads import Registration, Upload
from vectors import conversations, examining, noises, trees

HERE = Path(__file__).parent
OUTCOMES: dict[type[Exception], str] = {
    Malformed: "malformed",
    BadKey: "bad-key",
    BadSignature: "bad-signature",
    Unsealable: "unsealable",
    Equivocation: "equivocation",
    Misuse: "misuse",
    Refused: "refused",
    Unavailable: "unavailable",
}
Case = dict[str, Any]


def seed(number: int) -> bytes:
    """Return the seed of the party or person with this number."""
    return bytes([number]) * 32


SERVER, SHUFFLER, BOARD, ALICE, BOB = 1, 2, 4, 10, 11


@cache
def pairs(number: int) -> KeyPairs:
    """Return the classical keys of the party or person with this number."""
    return KeyPairs(CLASSICAL, seed(number))


@cache
def the_round(name: str = "signed by all") -> AgreedTerms:
    """Return the round of a case of the terms; all records belong to the first, unless they say."""
    cases = json.loads((HERE / "terms.json").read_text())["cases"]
    (signed,) = [case["input"] for case in cases if case["name"] == name]
    return verify_signatures(_signed(signed))


def _signed(plain: Case) -> SignedTerms:
    return SignedTerms(plain["document"], plain["server"], tuple(plain["shufflers"]))


def _terms(case: Case) -> Case:
    round_ = verify_signatures(_signed(case["input"]))
    sizes = range(len(round_.terms.groups))
    return {
        "digest": round_.digest.hex(),
        "upload_sizes": list(round_.upload_sizes),
        "entry_sizes": [round_.entry_size(group) for group in sizes],
        "letter_size": round_.letter_size(),
    }


def _keys(case: Case) -> Case:
    own = bytes.fromhex(case["input"])
    if "decoy" in case:
        own = decoy_seed(own, case["decoy"])
    made = KeyPairs(SUITES[case["suite"]], own)
    return {"contact": made.contact_raw.hex(), "address": made.address.hex()}


def _contact(case: Case) -> Case:
    raw = bytes.fromhex(case["input"])
    return {"address": Contact.decode(SUITES[case["suite"]], raw).address.hex()}


def _binding(case: Case) -> Case:
    given = case["input"]
    made = binding(
        Purpose[given["purpose"]],
        digest=bytes.fromhex(given["digest"]),
        group=given["group"],
        hop=given["hop"],
        upload=bytes.fromhex(given["upload"]),
    )
    return {"info": made.hex()}


def _payload(case: Case) -> Case:
    format_ = PayloadFormat(tuple(case["low"]), tuple(case["high"]))
    raw = np.frombuffer(bytes.fromhex(case["input"]), dtype=np.uint8).reshape(1, -1)
    reports, good = format_.decode(raw)
    if not good[0]:
        raise Refused("out of domain")
    return {"report": reports[0].tolist()}


def _upload(case: Case) -> Case:
    """Peel the shuffler's layer and the server's: everything that is in an upload."""
    round_ = the_round()
    upload = Upload.decode(bytes.fromhex(case["input"]), round_)
    outer = binding(Purpose.LAYER, digest=round_.digest, group=upload.group, upload=upload.id)
    item = unseal(upload.body, key=pairs(SHUFFLER).opening, bound=outer)
    inner = binding(Purpose.REPORT, digest=round_.digest, group=upload.group)
    text = unseal(item, key=pairs(SERVER).opening, bound=inner)
    return {"group": upload.group, "id": upload.id.hex(), "item": item.hex(), "report": text.hex()}


def _decoys(case: Case) -> Case:
    """Peel all items of an upload, and rank them in the shuffler's order."""
    round_ = the_round("with decoys")
    upload = Upload.decode(bytes.fromhex(case["input"]), round_)
    items = upload.items(round_)
    state = ShufflerState(bytearray(range(32)))
    peeler = Shuffler(round_, keys=pairs(SHUFFLER), state=state).peeler
    peeled = peeler.peel(upload.group, items)
    bound = binding(Purpose.REPORT, digest=round_.digest, group=upload.group)
    sealed = [row[RANK_SIZE:].tobytes() for row in peeled.items]
    texts = [unseal(item, key=pairs(SERVER).opening, bound=bound) for item in sealed]
    return {
        "ids": [name.hex() for name in items],
        "ranks": [peeler.rank(upload.group, name).hex() for name in items],
        "reports_by_rank": [text.hex() for text in texts],
    }


def _receipt(case: Case) -> Case:
    receipt = Receipt.decode(bytes.fromhex(case["input"]))
    receipt.check(pairs(SHUFFLER).signing.public)
    return {
        "digest": receipt.digest.hex(),
        "id": receipt.id.hex(),
        "content": receipt.content.hex(),
    }


def _batch(case: Case) -> Case:
    batch = Batch.decode(bytes.fromhex(case["input"]), the_round())
    manifest = batch.manifest
    pairs(SHUFFLER).signing.public.check(manifest.signature, manifest.signed_part())
    return {
        "hop": manifest.hop,
        "received": [tally.received for tally in batch.tallies],
        "dropped": [list(tally.dropped) for tally in batch.tallies],
        "root": batch.roots[-1].hex(),
        "items": [[item.hex() for item in group] for group in batch.items],
    }


def _manifest(case: Case) -> Case:
    manifest = Manifest.decode(bytes.fromhex(case["input"]), the_round())
    pairs(SHUFFLER).signing.public.check(manifest.signature, manifest.signed_part())
    return {
        "received": [tally.received for tally in manifest.tallies],
        "partitions": [[part.items for part in group] for group in manifest.parts],
        "hashes": [[part.content.hex() for part in group] for group in manifest.parts],
        "root": manifest.root.hex(),
    }


def _partitions(case: Case) -> Case:
    return {"partitions": [1 << bits_of(count, size) for count, size in case["input"]]}


def _commitment(case: Case) -> Case:
    given = case["input"]
    trap, digest = (bytes.fromhex(given[name]) for name in ("trap", "digest"))
    found = uploads.commitment(trap, digest=digest, group=given["group"], hop=given["hop"])
    return {"commitment": found.hex()}


def _registration(case: Case) -> Case:
    found = Registration.decode(bytes.fromhex(case["input"]), the_round(), hop=case["hop"])
    held = found.held
    return {"group": held.group, "id": held.id.hex(), "commitment": held.body.hex()}


def _slack(case: Case) -> Case:
    lost, delta, *reports = case["input"]
    return {"slack": uploads.slack(lost, delta, reports=reports[0] if reports else 1)}


def _order(case: Case) -> Case:
    state = ShufflerState(bytearray(bytes.fromhex(case["secret"])))
    shuffler = Shuffler(the_round(), keys=pairs(SHUFFLER), state=state)
    ids = [bytes.fromhex(text) for text in case["input"]]
    ranks = {name: shuffler.peeler.rank(case["group"], name) for name in ids}
    return {
        "ranks": [ranks[name].hex() for name in ids],
        "order": [name.hex() for name in sorted(ids, key=ranks.__getitem__)],
    }


def _answer(case: Case) -> Case:
    answer = decode_answer(bytes.fromhex(case["input"]), the_round())
    return {
        "values": list(answer.values),
        "shared": list(answer.shared),
        "partners": [[p.group, p.contact.hex(), p.payload.hex()] for p in answer.partners],
        "second": [[p.group, p.contact.hex(), p.payload.hex()] for p in answer.second],
    }


def _bulletin(case: Case) -> Case:
    """Check the whole and open Alice's entry."""
    round_ = the_round()
    bulletin = Bulletin.decode(bytes.fromhex(case["input"]), round_)
    check_signed(bulletin.heading, signer_of(bulletin.heading, round_).verifying)
    place = bulletin.find(pairs(ALICE).address, 0)
    bound = binding(Purpose.ANSWER, digest=round_.digest, group=0)
    opened = "" if place is None else bulletin.entries[0][place][16:]
    text = unseal(opened, key=pairs(ALICE).opening, bound=bound) if opened else b""  # type: ignore[arg-type] # bytes if any
    return {
        "outcome": bulletin.heading.outcome,
        "reason": bulletin.heading.reason,
        "who": bulletin.heading.signer,
        "flawless": not inconsistency(bulletin.heading, round_),
        "root": bulletin.heading.root.hex(),
        "answer": text.hex(),
    }


def _posting(case: Case) -> Case:
    """Read a posted letter as Bob."""
    round_ = the_round()
    posting = Posting.decode(bytes.fromhex(case["input"]), round_)
    bound = binding(Purpose.LETTER, digest=round_.digest, group=0)
    text = unseal(posting.sealed, key=pairs(BOB).opening, bound=bound)
    letter = decode_letter(text, round_, recipient=pairs(BOB).address)
    return {
        "sender": letter.sender.address.hex(),
        "counter": letter.counter,
        "body": letter.body.hex(),
    }


def _checkpoint(case: Case) -> Case:
    point = Checkpoint.decode(bytes.fromhex(case["input"]))
    VerifyingKey(pairs(BOARD).signing.public_raw).check(point.signature, point.signed_part())
    return {"size": point.size, "root": point.root.hex()}


def _logged(case: Case) -> Case:
    given = case["input"]
    raw = bytes.fromhex(given["checkpoint"])
    point = follow(raw, board=pairs(BOARD).signing.public_raw.hex(), before=None)
    path = [bytes.fromhex(step) for step in given["path"]]
    check_logged(the_round(), point=point, place=given["place"], path=path)
    return {"size": point.size, "root": point.root.hex()}


def _watched(case: Case) -> Case:
    """Verify a note for a client that demands witnesses, named by their keys."""
    named = case["witnesses"]
    quorum = {"least": case["demanded"], "of": named} if isinstance(named, list) else named
    point = follow_watched(
        bytes.fromhex(case["input"]),
        board=pairs(BOARD).signing.public_raw.hex(),
        witnesses=_quorum(quorum),
        before=None,
    )
    return {"size": point.size, "root": point.root.hex()}


def _quorum(plain: Case) -> Quorum:
    members = [
        _quorum(member) if isinstance(member, dict) else frozenset(map(bytes.fromhex, member))
        for member in plain["of"]
    ]
    return Quorum(plain["least"], tuple(members))


def _challenge(case: Case) -> Case:
    round_, hop = read_terms(case["input"]["document"].encode()), case["input"]["hop"]
    told = privacy_pass.demand(round_, hop)
    return {"challenge": privacy_pass.challenge(round_, hop).hex(), "header": told}


def _token(case: Case) -> Case:
    given = case["input"]
    round_ = read_terms(given["document"].encode())
    token = bytes.fromhex(given["token"])
    return {"remembered": privacy_pass.redeem(token, round_, given["hop"]).hex()}


def _binary(case: Case) -> Case:
    kind = oblivious_http.Request if case["of"] == "request" else oblivious_http.Response
    found = kind.decode(bytes.fromhex(case["input"]))._asdict()
    plain = {name: part.hex() for name, part in found.items() if isinstance(part, bytes)}
    fields = {
        name: [[key.decode(), value.decode("latin-1")] for key, value in part]
        for name, part in found.items()
        if isinstance(part, tuple)
    }
    status = {"status": found["status"]} if "status" in found else {}
    return {**plain, **fields, **status}


def _gateway_keys(case: Case) -> Case:
    config = oblivious_http.read_keys(bytes.fromhex(case["input"]))
    return {"number": config.number, "key": config.key.raw.hex(), "aead": config.aead}


def _key_list(case: Case) -> Case:
    raw = bytes.fromhex(case["input"])
    keys = KeyList.decode(raw)
    signed = KeyList.signed_part(keys.keys, keys.until)
    VerifyingKey(keys.verifying).check(keys.signature, signed)
    leaf = hashlib.sha256(b"\0" + KEYS_LEAF + raw).hexdigest()
    fields = {"verifying": keys.verifying.hex(), "until": keys.until, "keys": keys.keys.hex()}
    return {**fields, "leaf": leaf}


def _oblivious(case: Case) -> Case:
    """Open a request as the gateway with the board's seed, and answer it with a fixed salt."""
    opened = oblivious_http.GatewayKey(7, seed(BOARD)).open(bytes.fromhex(case["input"]))
    salt = bytes(range(opened.overhead - 16))
    return {"text": opened.text.hex(), "answer": opened.answer(b"answer", salt=salt).hex()}


KINDS: dict[str, Callable[[Case], Case]] = {
    "terms": _terms,
    "keys": _keys,
    "contact": _contact,
    "binding": _binding,
    "payload": _payload,
    "mechanism": noises.mechanism,
    "coin": noises.coin,
    "fields": noises.fields,
    "directions": noises.directions,
    "law": examining.law,
    "crowd": examining.crowd,
    "promise": examining.promise,
    "exposure": examining.exposure,
    "upload": _upload,
    "decoys": _decoys,
    "receipt": _receipt,
    "batch": _batch,
    "manifest": _manifest,
    "partitions": _partitions,
    "order": _order,
    "commitment": _commitment,
    "registration": _registration,
    "slack": _slack,
    "answer": _answer,
    "bulletin": _bulletin,
    "posting": _posting,
    "checkpoint": _checkpoint,
    "logged": _logged,
    "watched": _watched,
    "root": trees.root,
    "inclusion": trees.inclusion,
    "consistency": trees.consistency,
    "binary-http": _binary,
    "gateway-keys": _gateway_keys,
    "key-list": _key_list,
    "oblivious": _oblivious,
    "cell": conversations.cell,
    "rings": conversations.rings,
    "nobody": conversations.nobody,
    "point": conversations.point,
    "conversation": conversations.conversation,
    "challenge": _challenge,
    "token": _token,
}


def outcome(case: Case) -> tuple[str, Case]:
    """Run a case: its outcome in a word, and the fields if it succeeds."""
    try:
        return "success", KINDS[case["kind"]](case)
    except tuple(OUTCOMES) as error:
        return next(word for kind, word in OUTCOMES.items() if isinstance(error, kind)), {}
