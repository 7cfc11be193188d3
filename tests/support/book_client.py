"""A person's client written from SPEC alone, with another HPKE library and nothing of coatcheck.

It examines terms, finds them in the board's log, joins at every shuffler of a cascade with decoys
and traps, and opens its answer. The rule stands beside each step, so that a rule which is missing
or wrong in SPEC shows here. Sections 13 (mechanisms) and 20 are in `vectors.by_the_book`.
"""

import base64
import hashlib
import hmac
import itertools
import json
import secrets
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from support.book_relay import Relay
from vectors import by_the_book

SUITE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305)
OVERHEAD, CONTACT, ADDRESS = 48, 64, 16


class Refused(Exception):
    """The client does not take part."""


def need(holds: object, rule: str) -> None:
    """Refuse if a rule is broken."""
    if not holds:
        raise Refused(rule)


def sha256(data: bytes) -> bytes:
    """Hash."""
    return hashlib.sha256(data).digest()


# -- sections 4 and 5: keys and seals


def _derived(seed: bytes, info: bytes) -> bytes:
    secret = hmac.digest(bytes(32), seed, "sha256")  # HKDF without a salt
    return hmac.digest(secret, info + b"\x01", "sha256")


class Keys(NamedTuple):
    """One-time keys (S4.1, S3.5, S4.3)."""

    opening: X25519PrivateKey
    contact: bytes
    address: bytes

    @classmethod
    def of(cls, seed: bytes) -> "Keys":
        """Derive them."""
        opening = X25519PrivateKey.from_private_bytes(_derived(seed, b"coatcheck/v1/opening"))
        signing = Ed25519PrivateKey.from_private_bytes(_derived(seed, b"coatcheck/v1/signing"))
        contact = opening.public_key().public_bytes_raw() + signing.public_key().public_bytes_raw()
        address = sha256(b"coatcheck/v1/address\0" + b"\x01" + contact)[:ADDRESS]
        return cls(opening, contact, address)


def info(label: str, sealer: str, opener: str, place: tuple[int, int], upload: bytes) -> bytes:
    """S5.1 without the digest, which stands before the upload id."""
    return f"coatcheck/v1/{label}\0{sealer}{opener}".encode() + bytes(place) + upload


def seal(key: bytes, bound: bytes, text: bytes) -> bytes:
    """S3.3."""
    public = KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(key))
    enc, context = SUITE.create_sender_context(public, bound)
    return bytes(enc + context.seal(text))


def unseal(key: X25519PrivateKey, bound: bytes, raw: bytes) -> bytes:
    """Open a seal."""
    private = KEMKey.from_pyca_cryptography_key(key)
    return bytes(SUITE.create_recipient_context(raw[:32], private, bound).open(raw[32:]))


def verify(key: str, signature: bytes, text: bytes) -> None:
    """S2.3."""
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, text)


# -- trees (S9.15, RFC 9162)


def leaf_hash(leaf: bytes) -> bytes:
    """Hash a leaf."""
    return sha256(b"\0" + leaf)


def root_of(leaves: list[bytes]) -> bytes:
    """Hash a tree."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + root_of(leaves[:half]) + root_of(leaves[half:]))


def root_above(leaf: bytes, place: int, size: int, path: list[bytes]) -> bytes:
    """Follow an inclusion proof (RFC 9162, section 2.1.3.2)."""
    number, last, node = place, size - 1, leaf_hash(leaf)
    for step in path:
        need(last, "the path is too long")
        if number & 1 or number == last:
            node = sha256(b"\1" + step + node)
            while number and not number & 1:
                number, last = number >> 1, last >> 1
        else:
            node = sha256(b"\1" + node + step)
        number, last = number >> 1, last >> 1
    need(last == 0, "the path is too short")
    return node


# -- requests


# What may pass, so that the same bytes are sent again later (S19.15).
PASSING = {408, 425, 429, 500, 502, 503, 504, 507}


def ask(url: str, body: bytes | None = None, token: str = "") -> tuple[int, bytes]:
    """Send a request without a relay, and return the status and body of the answer."""
    headers = {"content-type": "application/octet-stream", "coatcheck-token": token}
    request = urllib.request.Request(url, body, headers if token else {})  # noqa: S310 - of the terms
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - as above
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, problem.read()


# -- the client


@dataclass
class Person:
    """A person in one group of a round; `trusted` has verifying keys in hex, by role."""

    address: str
    group: str
    trusted: dict[str, list[str]]
    limit: float
    relay: Relay | None = None
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def ask(
        self, url: str, *, role: str, body: bytes | None = None, token: str = "", until: int = 200
    ) -> bytes:
        """Ask a role, through the relay if there is one, until what passes has passed."""
        for _ in range(1500):
            if self.relay:
                status, answer = self.relay.send(url, role=role, body=body, token=token)
            else:
                status, answer = ask(url, body, token)
            if status == until:
                return answer
            need(status in PASSING or (status == 404 and "bulletin" in url), f"{status} {answer!r}")
            time.sleep(0.2)
        raise Refused("no answer")

    def examine(self) -> None:
        """Check the terms (S12.3 to S12.7)."""
        offer = json.loads(self.ask(self.address, role="shufflers"))["signed"]
        document = offer["document"].encode()
        self.digest = sha256(document)
        self.terms = terms = json.loads(document)
        first = terms["shufflers"][0]["url"]
        need(self.address == f"{first}/rounds/{self.digest.hex()}", "S12.39")
        need(terms["server"]["verifying"] in self.trusted["server"], "S6.40")
        need(terms["board"]["verifying"] in self.trusted["board"], "S6.40")
        label = b"coatcheck/v1/terms/"
        verify(
            terms["server"]["verifying"],
            bytes.fromhex(offer["server"]),
            label + b"server\0" + document,
        )
        for shuffler, signature in zip(terms["shufflers"], offer["shufflers"], strict=True):
            need(shuffler["verifying"] in self.trusted["shufflers"], "S6.40")
            signed = label + b"shuffler\0" + document
            verify(shuffler["verifying"], bytes.fromhex(signature), signed)
        need(terms["opens"] <= time.time() < terms["expires"], "S12.3")
        self._check_promise()

    def _check_promise(self) -> None:
        groups = self.terms["groups"]
        self.number = [group["name"] for group in groups].index(self.group)
        own = groups[self.number]
        self.randomizer = own["randomizer"]
        need(self.randomizer["name"] == "minkowski", "this client draws no others")
        self.half = self.randomizer["domain"]["steps"] // 2
        self.reach = max(1, round(self.randomizer["radius"] * self.half))  # S13.15
        self.axes = len(self.randomizer["domain"]["lo"])
        self.bytes_each = -(-(2 * (self.half + self.reach)).bit_length() // 8)  # S8.1
        need(own["payload_size"] == self.axes * self.bytes_each, "S12.4")
        promise = {"corrupted": 0, "exposed": 0, **own["promise"]}
        crowd = by_the_book.Crowd(
            own["minimum"], promise["corrupted"], promise["exposed"], own.get("decoys", 0)
        )
        kept = by_the_book.keeps(
            self.randomizer,
            promise=promise["epsilon"],
            crowd=crowd,
            delta=promise["delta"] - self.terms.get("trap_delta", 0),
        )
        need(kept, "S12.5")
        need(promise["epsilon"] <= self.limit, "S12.11")
        corrupted = [group["promise"].get("corrupted", 0) for group in groups]
        if any(corrupted):  # S12.6
            exposed = by_the_book.exposed_by(
                self.terms["task"]["name"],
                self.terms["task"].get("params", {}),
                {
                    "minimum": [group["minimum"] for group in groups],
                    "corrupted": corrupted,
                    "decoys": [group.get("decoys", 0) for group in groups],
                    "shufflers": len(self.terms["shufflers"]),
                },
            )
            need(exposed[self.number] <= promise["exposed"], "S20.19")

    def check_logged(self) -> None:
        """Find the terms in the board's log (S12.14)."""
        board = self.terms["board"]
        url = f"{board['url']}/rounds/{self.digest.hex()}/logged"
        shown = json.loads(self.ask(url, role="board"))
        point = base64.b64decode(shown["checkpoint"])
        need(len(point) == 108 and point[:4] == b"\1\0\0\0", "S9.19")
        verify(board["verifying"], point[44:], b"coatcheck/v1/checkpoint\0" + point[:44])
        path = base64.b64decode(shown["path"])
        steps = [path[at : at + 32] for at in range(0, len(path), 32)]
        size = int.from_bytes(point[4:12], "big")
        root = root_above(b"\3" + self.digest, shown["place"], size, steps)
        need(root == point[12:44], "S12.14")

    def join(self, value: list[float], tokens: list[str]) -> None:
        """Randomize, seal and send (S12.17 to S12.19)."""
        own = self.terms["groups"][self.number]
        decoys = range(1, own.get("decoys", 0) + 1)
        label = b"coatcheck/v1/decoy\0"  # S4.11
        seeds = [self.seed, *(_derived(self.seed, label + bytes([j])) for j in decoys)]
        self.keys = [Keys.of(seed) for seed in seeds]
        reports = [self._randomized(value), *(self._uniform() for _ in seeds[1:])]
        self.upload_id = secrets.token_bytes(16)
        server = bytes.fromhex(self.terms["server"]["sealing"])
        shufflers = self.terms["shufflers"]
        items = []
        for keys, report in zip(self.keys, reports, strict=True):
            text = bytes([1, self.number]) + keys.contact + report + bytes(own.get("note_size", 0))
            bound = self._bound("report", "PS", 0, bytes(16))
            items.append(self._layers(seal(server, bound, text), len(shufflers) - 1))
        inner = len(items[0]) - len(shufflers) * OVERHEAD  # item(g, k)
        registrations = []
        for hop in range(1, len(shufflers)):  # S7.2, S7.4, S7.5
            trap = secrets.token_bytes(inner + (len(shufflers) - hop - 1) * OVERHEAD)
            head = bytes([hop, self.number])
            commitment = sha256(b"coatcheck/v1/trap\0" + head + self.digest + trap)
            registrations.append(b"\1" + head + b"\0" + self.digest + commitment)
            items.append(self._layers(trap, hop))
        secrets.SystemRandom().shuffle(items)
        head = bytes([1, 1, self.number, 0]) + self.digest + self.upload_id
        for hop, registration in enumerate(registrations, start=1):
            self._send(hop, registration, registration[36:52], tokens[hop])
        self._send(0, head + b"".join(items), self.upload_id, tokens[0])

    def _bound(self, label: str, roles: str, hop: int, upload: bytes) -> bytes:
        return info(label, roles[0], roles[1], (hop, self.number), self.digest + upload)

    def _layers(self, text: bytes, last: int) -> bytes:
        """S5.3: the last shuffler first; only the layer of hop 0 names the upload."""
        for hop in range(last, -1, -1):
            key = bytes.fromhex(self.terms["shufflers"][hop]["sealing"])
            upload = bytes(16) if hop else self.upload_id
            text = seal(key, self._bound("layer", "PM", hop, upload), text)
        return text

    def _randomized(self, value: list[float]) -> bytes:
        """S13.7, S13.13 to S13.15."""
        domain = self.randomizer["domain"]
        point = [
            round((x - (lo + hi) / 2) / ((hi - lo) / 2) * self.half)
            for x, lo, hi in zip(value, domain["lo"], domain["hi"], strict=True)
        ]
        whole = (2 * (self.half + self.reach) + 1) ** self.axes
        cap = (2 * self.reach + 1) ** self.axes
        heads = by_the_book.heads_of(self.randomizer["epsilon"], cap, whole)
        near = [i + secrets.randbelow(2 * self.reach + 1) - self.reach for i in point]
        low = self.half + self.reach
        inside = b"".join((y + low).to_bytes(self.bytes_each, "big") for y in near)
        outside = self._uniform()
        return inside if secrets.randbits(64) < heads else outside

    def _uniform(self) -> bytes:
        """S7.24, S7.25: also what a coin that shows tails sends."""
        most = 2 * (self.half + self.reach)
        offsets = [secrets.randbelow(most + 1) for _ in range(self.axes)]
        return b"".join(offset.to_bytes(self.bytes_each, "big") for offset in offsets)

    def _send(self, hop: int, body: bytes, name: bytes, token: str) -> None:
        """Send to a shuffler, and check its receipt (S7.6, S7.7)."""
        shuffler = self.terms["shufflers"][hop]
        url = f"{shuffler['url']}/rounds/{self.digest.hex()}/uploads"
        receipt = self.ask(url, role="shufflers", body=body, token=token, until=201)
        need(len(receipt) == 470, "S7.6")
        need(receipt[:84] == b"\1\0\0\0" + self.digest + name + sha256(body), "S12.32")
        place = int.from_bytes(receipt[84:86], "big")
        node = leaf_hash(receipt[:84])
        for level in range(10):
            step = receipt[86 + 32 * level : 118 + 32 * level]
            pair = step + node if place >> level & 1 else node + step
            node = sha256(b"\1" + pair)
        verify(shuffler["verifying"], receipt[406:], b"coatcheck/v1/receipt\0" + node)

    def collect(self) -> list[tuple[int, bytes]]:
        """Wait for the bulletin, check all of it, and open the person's answer (S12.33, S12.51)."""
        url = f"{self.terms['board']['url']}/rounds/{self.digest.hex()}/bulletin"
        return self._opened(self.ask(url, role="board"))

    def _opened(self, raw: bytes) -> list[tuple[int, bytes]]:
        groups, hops = self.terms["groups"], len(self.terms["shufflers"])
        tallies = 40 + 36 * len(groups)
        end = tallies + 32 * hops
        need(raw[:8] == bytes([1, 1, 0, 255, len(groups), hops, 0, 0]), "S9.1: answered")
        need(raw[8:40] == self.digest, "S9.1")
        verify(
            self.terms["server"]["verifying"],
            raw[end + 32 : end + 96],
            b"coatcheck/v1/bulletin\0" + raw[: end + 32],
        )
        at, leaves, own = end + 96, [], b""
        for number, group in enumerate(groups):
            tally = raw[40 + 36 * number : 76 + 36 * number]
            counts = [int.from_bytes(tally[i : i + 4], "big") for i in range(0, 36, 4)]
            kept = counts[0] - sum(counts[1:])
            need(kept >= group["minimum"] * (1 + group.get("decoys", 0)), "S9.7")
            size = ADDRESS + group["answer_size"] + OVERHEAD
            entries = [raw[at + i * size : at + (i + 1) * size] for i in range(kept)]
            need(all(a[:16] < b[:16] for a, b in itertools.pairwise(entries)), "S9.3")
            leaves += [bytes([number]) + entry for entry in entries]
            at += kept * size
            if number == self.number:
                own = next(entry for entry in entries if entry[:16] == self.keys[0].address)
        need(at == len(raw), "S2.4")
        need(root_of(leaves) == raw[end : end + 32], "S9.16")
        bound = self._bound("answer", "SP", 0, bytes(16))
        answer = unseal(self.keys[0].opening, bound, own[16:])
        need(answer[0] == 1 and answer[1] == 2, "S8.4: partners")
        count = int.from_bytes(answer[2:4], "big")
        parts = [answer[8 + 65 * i : 8 + 65 * (i + 1)] for i in range(count)]
        return [(part[0], part[1:]) for part in parts]
