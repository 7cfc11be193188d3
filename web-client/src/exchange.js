// The exchange between two candidates: a key that both have only if both see the same ring. SPEC section 16.
//
// The XOR of one's token and of the value read in the candidate's table is a password. Both have the same one if
// each is in the same ring of the other. An exchange of keys by password (CPace) gives both a key, for boxes.

import { chacha20poly1305 } from "@noble/ciphers/chacha.js";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 as hash } from "@noble/hashes/sha2.js";
import { BlindedSet, exclusiveOr, Factor, hashToPoint, isPoint, POINT, Question, readPoint } from "./blinded-sets.js";
import { big, byte, compare, concat, hex, unsigned, utf8 } from "./encoding.js";
import { sha256 } from "./keys.js";
import { VALUE } from "./rings.js";

const KEY_LABEL = utf8("coatcheck/v1/blind/key\0");
const EVEN = byte(2);
const SEAL = 16;

/** Derive 32 bytes for one purpose. */
export function prf(key, label, data = new Uint8Array()) {
  return hmac(hash, key, concat(utf8(`coatcheck/v1/settle/${label}\0`), data));
}

/** Return the bytes of a box with so many bytes of content after the token. */
export const boxSize = (content) => VALUE + content + SEAL;

/** Read what a candidate published, a question and a point for answers; null if it is not two points. */
export function readPoints(raw) {
  const [question, answers] = [raw.slice(0, POINT), raw.slice(POINT)];
  return isPoint(question) && isPoint(answers) ? { question, answers } : null;
}

/** Return whether these bytes are a share of a key: a point with an even y. */
export const isShare = (raw) => raw[0] === EVEN[0] && isPoint(raw);

const cipher = (key, sender, index) => chacha20poly1305(prf(key, "box", sender), concat(new Uint8Array(11), byte(index)));

/** One person's part in the exchange with each candidate. */
export class Exchange {
  constructor(secret, cell, { address, digest, rings }) {
    this.secret = secret;
    this.address = address;
    this.digest = digest;
    this.rings = rings;
    this.question = new Question(prf(secret, "question"), cell, digest);
    const cells = rings.around.map(({ offset }) => cell.map((number, axis) => number + offset[axis]));
    this.set = new BlindedSet(prf(secret, "set"), cells, { digest, width: rings.width });
    this.points = concat(this.question.point, this.set.point);
    this.keys = new Map();
  }

  token(candidate) {
    return prf(this.secret, "token", candidate).slice(0, VALUE);
  }

  /** Answer a candidate's question; random bytes if there is none. */
  table(candidate, points) {
    const { tableSize } = this.rings;
    const key = prf(this.secret, "table", candidate);
    const filler = chacha20poly1305(key, new Uint8Array(12)).encrypt(new Uint8Array(tableSize)).slice(0, tableSize);
    if (!points) return filler;
    const token = this.token(candidate);
    const values = this.rings.around.map(({ ring }) => exclusiveOr(token, unsigned(ring, VALUE)));
    return this.set.reply(points.question, values, { asker: candidate, answerer: this.address, filler });
  }

  /** Read the value of the person's own cell in a candidate's table. */
  read(candidate, points, table) {
    return this.question.read(table, { point: points.answers, asker: this.address, answerer: candidate, width: this.rings.width });
  }

  /** Return the share of the key of the two; one for no password if there is no value. */
  share(candidate, value) {
    const password = value ? exclusiveOr(this.token(candidate), value) : prf(this.secret, "password", candidate);
    const point = hashToPoint(concat(this.digest, this.inOrder(candidate, this.address, candidate), password));
    return concat(EVEN, this.factor(candidate).xOf(point));
  }

  /** Return the key of the two; the candidate has the same one if the passwords agree. */
  key(candidate, value, share) {
    const name = [candidate, value, share].map(hex).join("/");
    if (!this.keys.has(name)) {
      const secret = this.factor(candidate).xOf(readPoint(share));
      const shares = this.inOrder(candidate, this.share(candidate, value), share);
      this.keys.set(name, sha256(concat(KEY_LABEL, this.digest, this.inOrder(candidate, this.address, candidate), shares, secret)));
    }
    return this.keys.get(name);
  }

  /** Return a key that only the person has: nobody can open a box under it. */
  noKey(candidate) {
    return prf(this.secret, "no key", candidate);
  }

  /** Seal the token of the two and more for a step, under their key. */
  box(key, index, candidate, content) {
    return cipher(key, this.address, index).encrypt(concat(this.token(candidate), content));
  }

  /** Open a candidate's box; the ring is 0 if the candidate does not have the same key. */
  open(key, value, index, sender, box) {
    const none = { ring: 0, content: new Uint8Array() };
    let text;
    try {
      text = cipher(key, sender, index).decrypt(box);
    } catch {
      return none;
    }
    const ring = Number(big(exclusiveOr(text.slice(0, VALUE), value)));
    return ring >= 1 && ring <= this.rings.count ? { ring, content: text.slice(VALUE) } : none;
  }

  factor(candidate) {
    return new Factor(prf(this.secret, "factor", candidate));
  }

  /** Join something of both people, that of the smaller address first. */
  inOrder(candidate, own, other) {
    return compare(this.address, candidate) < 0 ? concat(own, other) : concat(other, own);
  }
}
