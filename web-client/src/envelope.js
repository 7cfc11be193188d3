// The only file that encrypts: seal to a public key, open with the private one. SPEC section 5.
//
// HPKE (RFC 9180, base mode, single shot) is hpke-js; ours is what each seal is bound to.

import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { CipherSuite, HkdfSha256 } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { XWing } from "@hpke/hybridkem-x-wing";
import { byte, concat, utf8 } from "./encoding.js";
import { Refused } from "./errors.js";
import { CLASSICAL } from "./suites.js";

const make = (kem) => new CipherSuite({ kem, kdf: new HkdfSha256(), aead: new Chacha20Poly1305() });
const classical = make(new DhkemX25519HkdfSha256());
const hybrid = make(new XWing());
const hpke = (suite) => (suite === CLASSICAL ? classical : hybrid);
const TAG = 16;

const PURPOSES = { report: "PS", layer: "PM", answer: "SP", letter: "PP" };

/** Spell out what a seal is bound to, as HPKE's `info`. */
export function binding(purpose, { digest, group, hop = 0, upload = new Uint8Array(16) }) {
  const head = utf8(`coatcheck/v1/${purpose}\0${PURPOSES[purpose]}`);
  return concat(head, byte(hop, group), digest, upload);
}

const buffer = (bytes) => bytes.slice().buffer;

/** Seal bytes so that only the key's owner, under the same binding, can open them. */
export async function seal(plaintext, { suite, to, bound }) {
  const with_ = hpke(suite);
  const recipientPublicKey = await with_.kem.deserializePublicKey(buffer(to));
  const { enc, ct } = await with_.seal({ recipientPublicKey, info: bound }, buffer(plaintext));
  return concat(new Uint8Array(enc), new Uint8Array(ct));
}

/** Open a seal, or refuse: one sentence whatever the cause, so nothing is learned. */
export async function unseal(sealed, { suite, key, bound }) {
  const with_ = hpke(suite);
  const cut = suite.overhead - TAG;
  try {
    const recipientKey = await with_.kem.deserializePrivateKey(buffer(key));
    const enc = buffer(sealed.slice(0, cut));
    return new Uint8Array(await with_.open({ recipientKey, enc, info: bound }, buffer(sealed.slice(cut))));
  } catch {
    throw new Refused("this seal does not open: it is for another key, round or group, or was altered");
  }
}

/** The public key that belongs to a secret of the hybrid suite. */
export async function hybridPublic(secret) {
  const { publicKey } = await /** @type {any} */ (hybrid.kem).generateKeyPairDerand(secret);
  return new Uint8Array(await hybrid.kem.serializePublicKey(publicKey));
}
