// The only file that encrypts reports, answers and letters: seals to a public key, opens with the private one.
// SPEC section 5.
//
// hpke-js implements HPKE (RFC 9180, base mode, single shot); this file adds what each seal is bound to.

import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { CipherSuite, HkdfSha256 } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { XWing } from "@hpke/hybridkem-x-wing";
import { byte, concat, utf8 } from "./encoding.js";
import { Refused } from "./errors.js";
import { CLASSICAL } from "./suites.js";

const suiteOf = (kem) => new CipherSuite({ kem, kdf: new HkdfSha256(), aead: new Chacha20Poly1305() });
const classical = suiteOf(new DhkemX25519HkdfSha256());
const hybrid = suiteOf(new XWing());
const hpke = (suite) => (suite === CLASSICAL ? classical : hybrid);
const TAG = 16;

const PURPOSES = { report: "PS", layer: "PM", answer: "SP", letter: "PP" };

/** Return what a seal is bound to, as HPKE's `info`. */
export function binding(purpose, { digest, group, hop = 0, upload = new Uint8Array(16) }) {
  const head = utf8(`coatcheck/v1/${purpose}\0${PURPOSES[purpose]}`);
  return concat(head, byte(hop, group), digest, upload);
}

const buffer = (bytes) => bytes.slice().buffer;

/** Seal bytes so that only the key's owner, under the same binding, can open them. */
export async function seal(plaintext, { suite, to, bound }) {
  const cipher = hpke(suite);
  const recipientPublicKey = await cipher.kem.deserializePublicKey(buffer(to));
  const { enc, ct } = await cipher.seal({ recipientPublicKey, info: bound }, buffer(plaintext));
  return concat(new Uint8Array(enc), new Uint8Array(ct));
}

/** Open a seal. One message for every cause of failure, so that the error reveals nothing. */
export async function unseal(sealed, { suite, key, bound }) {
  const cipher = hpke(suite);
  const cut = suite.overhead - TAG;
  try {
    const recipientKey = await cipher.kem.deserializePrivateKey(buffer(key));
    const enc = buffer(sealed.slice(0, cut));
    return new Uint8Array(await cipher.open({ recipientKey, enc, info: bound }, buffer(sealed.slice(cut))));
  } catch {
    throw new Refused("this seal does not open: it was made for another key, round or group, or was altered");
  }
}

/** Return the public key for a secret of the hybrid suite. */
export async function hybridPublic(secret) {
  const { publicKey } = await /** @type {any} */ (hybrid.kem).generateKeyPairDerand(secret);
  return new Uint8Array(await hybrid.kem.serializePublicKey(publicKey));
}
