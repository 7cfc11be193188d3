// Oblivious HTTP (RFC 9458) over Binary HTTP (RFC 9292, known length). SPEC section 17.
//
// Encodes requests, decodes responses strictly. hpke-js implements HPKE and its exporter; this file adds the
// bytes around them and the padded sizes.

import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { Aes128Gcm, CipherSuite, HkdfSha256 } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { big, byte, concat, equal, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sealingKey } from "./keys.js";
import { CLASSICAL } from "./suites.js";

const [REQUEST, RESPONSE] = [0, 1];
const NAME = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
const VALUE = /^([!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?)?$/;
const NOTHING = new Uint8Array();
const latin = (bytes) => Array.from(bytes, (code) => String.fromCharCode(code)).join("");

function varint(number) {
  const power = [0, 1, 2, 3].find((exponent) => number < 2 ** ((8 << exponent) - 2)) ?? 3;
  return unsigned(BigInt(number) | (BigInt(power) << BigInt((8 << power) - 2)), 1 << power);
}

const sized = (bytes) => concat(varint(bytes.length), bytes);

function section(fields) {
  return sized(concat(...fields.flat().map((words) => sized(utf8(words)))));
}

/**
 * Encode a request, padded with zeros to `size`.
 * @param {{ method: string, scheme: string, authority: string, path: string, headers?: [string, string][], content?: Uint8Array }} request
 */
export function encodeRequest({ method, scheme, authority, path, headers = [], content = NOTHING }, size = 0) {
  const control = [method, scheme, authority, path].map((words) => sized(utf8(words)));
  const raw = concat(byte(REQUEST), ...control, section(headers), sized(content), section([]));
  if (size && raw.length > size) throw new Misuse(`this message has ${raw.length} bytes, more than the padded size ${size}`);
  return concat(raw, new Uint8Array(Math.max(0, size - raw.length)));
}

/** A cursor over a message. */
class Reader {
  constructor(raw) {
    this.raw = raw;
    this.at = 0;
  }

  get ended() {
    return this.at === this.raw.length;
  }

  take(size) {
    if (this.at + size > this.raw.length) throw new Refused("this Binary HTTP message is truncated");
    this.at += size;
    return this.raw.slice(this.at - size, this.at);
  }

  /** Read an integer of QUIC (RFC 9000, section 17); longer forms than needed are allowed. */
  varint() {
    const [first] = this.take(1);
    const rest = this.take((1 << (first >> 6)) - 1);
    return Number(big(concat(byte(first & 63), rest)));
  }

  sized() {
    return this.take(this.varint());
  }

  fields() {
    const inside = new Reader(this.sized());
    const pairs = [];
    while (!inside.ended) {
      const [name, value] = [latin(inside.sized()), latin(inside.sized())];
      if (!NAME.test(name) || !VALUE.test(value)) {
        throw new Refused("a field of this message is not a valid HTTP field in lower case");
      }
      pairs.push([name, value]);
    }
    return pairs;
  }
}

/** Decode a final response; skip informational ones before it. */
export function decodeResponse(raw) {
  const reader = new Reader(raw);
  if (reader.varint() !== RESPONSE) throw new Refused("this is not a Binary HTTP response of known length");
  let status = reader.varint();
  while (status >= 100 && status < 200) {
    reader.fields();
    status = reader.varint();
  }
  if (!(status >= 200 && status < 600)) throw new Refused("this response has no valid HTTP status");
  // A message may end before each part that is empty.
  const headers = reader.ended ? [] : reader.fields();
  const content = reader.ended ? NOTHING : reader.sized();
  const trailers = reader.ended ? [] : reader.fields();
  if (raw.slice(reader.at).some(Boolean)) throw new Refused("this message is followed by bytes other than zeros");
  return { status, headers, content, trailers };
}

const KEM = byte(0, 0x20);
const KDF = byte(0, 1);
// The supported ciphers, the preferred one first.
const AEADS = [
  { id: 1, size: 16, create: () => new Aes128Gcm() },
  { id: 3, size: 32, create: () => new Chacha20Poly1305() },
];
const NONCE = 12;
const CUT = "these gateway keys are truncated or do not have their stated length";

export const OVERHEAD = 55;
export const SIZES = [0, 1, 2, 3, 4].map((step) => 4096 * 4 ** step);

/** Return the size to which a message is padded, so that once sealed it has one of `SIZES`. */
export function messageSize(size, overhead) {
  const total = SIZES.find((step) => size + overhead <= step);
  if (!total) throw new Misuse(`a message of ${size} bytes is too long for a relay: request a part of it`);
  return total - overhead;
}

/** Read a gateway's keys and return the first supported one; any error discards all. */
export function readKeys(raw) {
  const configs = [];
  let at = 0;
  while (at < raw.length) {
    const end = at + 2 + Number(big(raw.slice(at, at + 2)));
    if (end > raw.length) throw new Refused(CUT);
    configs.push(...readConfig(raw.slice(at + 2, end)));
    at = end;
  }
  if (!configs.length) throw new Refused("this version supports none of these gateway keys: update the client");
  return configs[0];
}

function readConfig(raw) {
  if (raw.length < 3) throw new Refused(CUT);
  if (!equal(raw.slice(1, 3), KEM)) return []; // an unknown kind, and so of unknown length
  const ciphers = raw.slice(37);
  const length = Number(big(raw.slice(35, 37)));
  if (raw.length < 37 || length !== ciphers.length || length < 4 || length % 4) throw new Refused(CUT);
  const listed = (id) => {
    const pair = concat(KDF, byte(0, id));
    for (let at = 0; at < length; at += 4) if (equal(ciphers.slice(at, at + 4), pair)) return true;
    return false;
  };
  const key = sealingKey(CLASSICAL, raw.slice(3, 35));
  return AEADS.filter(({ id }) => listed(id)).slice(0, 1).map(({ id }) => ({ number: raw[0], key, aead: id }));
}

/**
 * Seal a request. Return its bytes, and `open` for its single answer. `ekm` fixes the one-time key, for tests.
 */
export async function sealRequest(text, { number, key, aead }, ekm) {
  const { size, create } = AEADS.find(({ id }) => id === aead) ?? AEADS[0];
  const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: create() });
  const header = concat(byte(number), KEM, KDF, byte(0, aead));
  const recipientPublicKey = await suite.kem.deserializePublicKey(key.slice().buffer);
  const info = concat(utf8("message/bhttp request\0"), header);
  const sender = await suite.createSenderContext({ recipientPublicKey, info, ekm });
  const enc = new Uint8Array(sender.enc);
  const sealed = new Uint8Array(await sender.seal(text));
  const secret = new Uint8Array(await sender.export(utf8("message/bhttp response"), size));
  return {
    raw: concat(header, enc, sealed),
    async open(answer) {
      const prk = hmac(sha256, concat(enc, answer.slice(0, size)), secret);
      const opening = hmac(sha256, prk, utf8("key\x01")).slice(0, size);
      const nonce = hmac(sha256, prk, utf8("nonce\x01")).slice(0, NONCE);
      try {
        const context = create().createEncryptionContext(opening);
        return new Uint8Array(await context.open(nonce, answer.slice(size), new Uint8Array()));
      } catch {
        throw new Refused("the gateway's answer does not open: it belongs to another request or was altered");
      }
    },
  };
}
