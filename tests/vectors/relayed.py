"""Vectors of what goes through a relay: Binary HTTP, keys of gateways, encapsulated requests."""

import base64
import hashlib
import struct
from typing import Any

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from coatcheck.protocol.keys import KeyPairs
from coatcheck.protocol.oblivious_http import GatewayKey
from coatcheck.protocol.terms import CLASSICAL
from vectors.kinds import BOARD, Case, seed
from vectors.writing import case, flip

PEERS: dict[int, tuple[AEADId, Any, int]] = {
    1: (AEADId.AES128_GCM, AESGCM, 16),
    3: (AEADId.CHACHA20_POLY1305, ChaCha20Poly1305, 32),
}
GET = bytes.fromhex("00034745540468747470036578740c2f636865636b706f696e743f")


def cases() -> list[Case]:
    """Write all of them."""
    return _requests() + _responses() + _keys() + _key_lists() + _sealed()


def _requests() -> list[Case]:
    control = "0003474554056874747073036578740b2f636865636b706f696e74"
    plain = {
        "method": b"GET".hex(),
        "scheme": b"https".hex(),
        "authority": b"ext".hex(),
        "path": b"/checkpoint".hex(),
        "headers": [],
        "content": "",
        "trailers": [],
    }
    header = "0e06616363657074062a2f2a3b713d"
    full = control + header + "02abcd" + "00"
    some = {**plain, "headers": [["accept", "*/*;q="]], "content": "abcd"}
    good = {
        "a request that ends early": (control, plain),
        "padded": (control + "00" * 40, plain),
        "a length in eight bytes": ("00c000000000000003" + control[4:], plain),
        "a request in full": (full, some),
    }
    bad = {
        "nothing": "",
        "a response": "0140c8",
        "indeterminate length": "02" + control[2:],
        "cut within the path": control[:-2],
        "cut within a field": full[:-14],
        "cut within the content": control + header + "02ab",
        "padding that is not zero": full + "0001",
        "an empty method": "0000" + control[10:],
        "a method with a space": control.replace("03474554", "03472054"),
        "a scheme that is none": control.replace("056874747073", "053174747073"),
        "a path without a slash": control.replace("0b2f", "0b61"),
        "a path with a space": control.replace("0b2f63", "0b2f20"),
        "an authority with a line break": control.replace("03657874", "03650a74"),
        "an empty name": control + "02" + "0000" + "0000",
        "a name in upper case": control + "04" + "0141" + "0162" + "0000",
        "a pseudo-header": control + "05" + "023a61" + "0162" + "0000",
        "a value with a line break": control + "04" + "0161" + "010a" + "0000",
        "a value that ends in a space": control + "05" + "0161" + "026220" + "0000",
    }
    return [
        case(name, "binary-http", raw, of="request", fields=f) for name, (raw, f) in good.items()
    ] + [case(name, "binary-http", raw, "malformed", of="request") for name, raw in bad.items()]


def _responses() -> list[Case]:
    plain = {"status": 404, "headers": [], "content": "", "trailers": []}
    full = {**plain, "content": "6e6f", "trailers": [["a", "b"]]}
    good = {
        "a status": ("014194", plain),
        "with content and a trailer": ("014194" + "00" + "026e6f" + "0401610162", full),
        "after two informational ones": ("014066" + "00" + "4067" + "0401610162" + "4194", plain),
        "padded": ("014194" + "00" * 9, plain),
    }
    bad = {
        "a request": GET.hex(),
        "no status": "01",
        "a status below 100": "014063",
        "a status above 599": "014258",
        "only an informational one": "01406600",
        "indeterminate length": "034194",
        "padding that is not zero": "0141940000" + "00ff",
        "content that is cut off": "014194" + "00" + "036e6f",
    }
    return [
        case(name, "binary-http", raw, of="response", fields=f) for name, (raw, f) in good.items()
    ] + [case(name, "binary-http", raw, "malformed", of="response") for name, raw in bad.items()]


def _keys() -> list[Case]:
    config = GatewayKey(7, seed(BOARD)).config()
    public = config[3:35]
    unknown = b"\x09\x00\x10" + bytes(65) + bytes.fromhex("000400010001")
    chacha = b"\x08\x00\x20" + public + bytes.fromhex("000800010002" + "00010003")
    none = b"\x08\x00\x20" + public + bytes.fromhex("000400020001")
    low = b"\x07\x00\x20" + bytes(32) + config[35:]
    fields = {"number": 7, "key": public.hex(), "aead": 1}

    def keys(*configs: bytes) -> str:
        return b"".join(struct.pack(">H", len(one)) + one for one in configs).hex()

    good = {
        "one": (keys(config), fields),
        "after one of an unknown kind": (keys(unknown, config), fields),
        "after one whose ciphers are unknown": (keys(none, config), fields),
        "ChaCha20-Poly1305 only": (keys(chacha), {**fields, "number": 8, "aead": 3}),
    }
    bad = {
        "none": "",
        "only unknown ones": keys(unknown, none),
        "cut off": keys(config)[:-2],
        "a good one, then a byte": keys(config) + "00",
        "a good one, then one that is cut off": keys(config, config[:20]),
        "no ciphers": keys(config[:35] + b"\0\0"),
        "half a cipher": keys(config[:35] + b"\0\6" + config[37:43]),
        "bytes left over": keys(config + b"\0"),
    }
    made = [case(name, "gateway-keys", raw, fields=f) for name, (raw, f) in good.items()]
    made += [case(name, "gateway-keys", raw, "malformed") for name, raw in bad.items()]
    return [*made, case("a key of low order", "gateway-keys", keys(low), "bad-key")]


def _key_lists() -> list[Case]:
    """Write what the board logs: a key list with its end, and the board's signature over both."""
    config = GatewayKey(7, seed(BOARD)).config()
    keys, until = struct.pack(">H", len(config)) + config, 20_000 * 86_400
    signing = KeyPairs(CLASSICAL, seed(BOARD)).signing
    public = signing.public_raw

    def logged(keys: bytes, until: int, *, signed: int = until) -> bytes:
        label = b"coatcheck/v1/gateway\0" + struct.pack(">Q", signed)
        head = b"\1\0\0\0" + public + struct.pack(">Q", until)
        return head + signing.sign(label + keys) + keys

    good = logged(keys, until)
    leaf = hashlib.sha256(b"\0\4" + good).hexdigest()
    fields = {"verifying": public.hex(), "until": until, "keys": keys.hex(), "leaf": leaf}
    bad = {
        "of another day": (logged(keys, until + 86_400, signed=until), "bad-signature"),
        "with an altered key": (good[:-1] + b"\1", "bad-signature"),
        "for no day": (logged(keys, until + 1, signed=until + 1), "malformed"),
        "of another version": (b"\2" + good[1:], "malformed"),
        "with a spare byte": (good[:1] + b"\1" + good[2:], "malformed"),
        "without keys": (logged(b"", until), "malformed"),
        "too long": (logged(bytes(1025 - 108), until), "malformed"),
    }
    made = [case("logged", "key-list", good.hex(), fields=fields)]
    return made + [case(name, "key-list", raw.hex(), error) for name, (raw, error) in bad.items()]


def _sealed() -> list[Case]:
    """Seal with pyhpke and a fixed ephemeral key, and answer with HKDF spelled out."""
    made = []
    for aead, (name, cipher, size) in PEERS.items():
        suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, name)
        ephemeral = suite.kem.derive_key_pair(bytes([aead]) * 32)
        public = KEMKey.from_jwk(
            {"kty": "OKP", "crv": "X25519", "x": _base64(GatewayKey(7, seed(BOARD)).config()[3:35])}
        )
        header = struct.pack(">BHHH", 7, 0x20, 1, aead)
        info = b"message/bhttp request\0" + header
        enc, sender = suite.create_sender_context(public, info, eks=ephemeral)
        raw = header + enc + sender.seal(GET)
        salt, secret = bytes(range(size)), sender.export(b"message/bhttp response", size)
        drawn = _mac(enc + salt, secret)
        key, nonce = _mac(drawn, b"key\1")[:size], _mac(drawn, b"nonce\1")[:12]
        answer = salt + cipher(key).encrypt(nonce, b"answer", None)
        fields = {"text": GET.hex(), "answer": answer.hex()}
        made.append(case(f"a request, cipher {aead}", "oblivious", raw.hex(), fields=fields))
        changed = {
            "another key number": flip(raw, 0),
            "another kind of key": flip(raw, 2),
            "another hash": flip(raw, 4),
            "another cipher": flip(raw, 6),
            "another one-time key": flip(raw, 20),
            "a one-time key of low order": raw[:7] + bytes(32) + raw[39:],
            "altered": flip(raw, -1),
            "cut off": raw[:-1],
        }
        made += [
            case(f"cipher {aead}: {what}", "oblivious", one.hex(), "unsealable")
            for what, one in changed.items()
        ]
    short = case("too short", "oblivious", raw[:55].hex(), "malformed")
    return [*made, short]


def _mac(key: bytes, text: bytes) -> bytes:
    made = hmac.HMAC(key, hashes.SHA256())
    made.update(text)
    return made.finalize()


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
