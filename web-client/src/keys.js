// Keys: one 32-byte seed gives a sealing pair and a signing pair. SPEC section 4.
//
// Public keys are decoded strictly: one hostile key must not stop a round or forge a letter.

import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256 as hash } from "@noble/hashes/sha2.js";
import { big, byte, concat, unhex, utf8 } from "./encoding.js";
import { hybridPublic } from "./envelope.js";
import { Refused } from "./errors.js";
import { ADDRESS, CLASSICAL, SIGNATURE, VERIFYING } from "./suites.js";

const P = 2n ** 255n - 19n;
const little = (bytes) => big(bytes.slice().reverse());
const point = (digits) => little(unhex(digits));

// Points of order 1, 2, 4 and 8, on the curve and its twist: sealing to one fails.
const LOW_ORDER_U = new Set([
  0n,
  1n,
  P - 1n,
  point("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
  point("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]);
// The y of the points of small order: under such a key one fixed signature passes for every message.
const SMALL_ORDER_Y = new Set([
  0n,
  1n,
  P - 1n,
  point("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
  point("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]);

/** @param {Uint8Array} bytes @returns {Uint8Array<ArrayBuffer>} */
export const sha256 = (bytes) => hash(bytes);

/** Return the bytes of a public sealing key, or refuse them. */
export function sealingKey(suite, raw) {
  if (raw.length !== suite.sealing) {
    throw new Refused(`a sealing key of suite ${suite.name} must have ${suite.sealing} bytes, got ${raw.length}`);
  }
  const u = little(raw.slice(-32));
  if (u >= P) throw new Refused("this X25519 key is not in canonical form");
  if (LOW_ORDER_U.has(u)) {
    throw new Refused("this X25519 key has low order, so nothing can be sealed to it");
  }
  return raw;
}

/** Return the bytes of a public verifying key, or refuse them. */
export function verifyingKey(raw) {
  if (raw.length !== VERIFYING) throw new Refused(`a verifying key must have ${VERIFYING} bytes, got ${raw.length}`);
  const y = little(raw) & (2n ** 255n - 1n);
  if (y >= P) throw new Refused("this Ed25519 key is not in canonical form");
  if (SMALL_ORDER_Y.has(y)) {
    throw new Refused("this Ed25519 key has small order, so anybody could sign for it");
  }
  return raw;
}

/** Refuse a message that the key's owner did not sign. */
export function checkSignature(key, signature, message, whose) {
  let good = false;
  try {
    good = signature.length === SIGNATURE
      && ed25519.verify(signature, message, verifyingKey(key), { zip215: false });
  } catch (error) {
    if (error instanceof Refused) throw error;
  }
  if (!good) throw new Refused(`the signature of ${whose} is not valid for these bytes`);
}

/** Return the address of a contact: a hash of 16 bytes. */
export function addressOf(suite, contact) {
  return sha256(concat(utf8("coatcheck/v1/address\0"), byte(suite.number), contact)).slice(0, ADDRESS);
}

/** Decode a public one-time pair strictly. */
export function contactOf(suite, raw) {
  if (raw.length !== suite.contact) throw new Refused(`a contact must have ${suite.contact} bytes, got ${raw.length}`);
  const sealing = sealingKey(suite, raw.slice(0, suite.sealing));
  const verifying = verifyingKey(raw.slice(suite.sealing));
  return { raw, sealing, verifying, address: addressOf(suite, raw) };
}

const derive = (seed, label) => hkdf(hash, seed, undefined, utf8(label), 32);

/** Return the seed of the keys of a person's decoy, numbered from 1. */
export const decoySeed = (seed, number) => derive(seed, `coatcheck/v1/decoy\0${String.fromCharCode(number)}`);

/** Derive both pairs from one seed. */
export async function keyPairs(suite, seed) {
  const opening = derive(seed, "coatcheck/v1/opening");
  const signing = derive(seed, "coatcheck/v1/signing");
  const sealing = suite === CLASSICAL ? x25519.getPublicKey(opening) : await hybridPublic(opening);
  const contact = concat(sealing, ed25519.getPublicKey(signing));
  const sign = (message) => ed25519.sign(message, signing);
  return { opening, sign, contact, address: addressOf(suite, contact) };
}
