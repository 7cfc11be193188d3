// Private nearness test between candidates, by letter, and blinding on P-256. SPEC section 16.
//
// Candidates learn whether they are near each other, and nothing else. `Nearness` has the same interface
// as `Settling`. Points are represented by their x coordinate alone.

import { weierstrass } from "@noble/curves/abstract/weierstrass.js";
import { sha512 } from "@noble/hashes/sha2.js";
import { big, byte, compare, concat, equal, hex, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sha256 } from "./keys.js";
import { MARK, prf, writeCell } from "./settling.js";

export const POINT = 32;
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
// P-256 alone (FIPS 186-5): the module with all of NIST's curves would make the bundle much larger.
const Point = weierstrass({
  p: 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn,
  n: ORDER,
  h: 1n,
  a: 0xffffffff00000001000000000000000000000000fffffffffffffffffffffffcn,
  b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
  Gx: 0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296n,
  Gy: 0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5n,
});
const POINT_LABEL = utf8("coatcheck/v1/near/point\0");

/** Return one of the two points with this x; their multiples have equal x. */
function pointAt(x) {
  try {
    return Point.fromBytes(concat(byte(2), x));
  } catch {
    throw new Refused("these bytes are not the x coordinate of a point of P-256");
  }
}

/** Hash a text to a point whose logarithm nobody knows: the first digest that is a valid x. */
export function hashToPoint(text) {
  for (let attempt = 0; ; attempt += 1) {
    const x = sha256(concat(POINT_LABEL, unsigned(attempt, 4), text));
    try {
      pointAt(x);
      return x;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
}

/** A secret factor. Blinded points reveal only which texts are equal under equal blinds. */
export class Blind {
  constructor(secret) {
    this.number = (big(sha512(secret)) % (ORDER - 1n)) + 1n;
  }

  /** Blind a point. */
  put(x) {
    return unsigned(pointAt(x).multiply(this.number).toAffine().x, POINT);
  }

  /** Remove the blind. */
  takeOff(x) {
    return unsigned(pointAt(x).multiply(Point.Fn.inv(this.number)).toAffine().x, POINT);
  }
}

const STEPS = ["blind", "reply", "words"].map((kind) => ({ kind, turn: 0 }));
const NAME = 16;
const MOST_CELLS = 6;
const MOST_NAMES = 253; // that fit into the longest letter, after its head and a point
const SHARE = 0.9; // of the radius: most pairs of cells this far apart are within it
const CELL_LABEL = utf8("coatcheck/v1/near/cell\0");

/** Return the offsets of the cells that count as near: by the distance between cell centres. */
export function offsets(radius, side, axes) {
  if (radius > MOST_CELLS * side) throw new Misuse(`the radius must be at most ${MOST_CELLS} cells, got ${radius / side}: make cells larger`);
  const reach = Math.trunc((SHARE * radius) / side);
  const line = Array.from({ length: 2 * reach + 1 }, (_, at) => at - reach);
  /** @type {number[][]} */
  let around = [[]];
  const square = (offset) => offset.reduce((sum, at) => sum + at * at, 0);
  const near = (offset) => square(offset) * side * side <= (SHARE * radius) ** 2;
  // Axis by axis, so that terms with many axes cost no more work than a letter can hold.
  for (let axis = 0; axis < axes; axis += 1) {
    around = around.flatMap((offset) => line.map((at) => [...offset, at])).filter(near);
    if (around.length > MOST_NAMES) throw new Misuse(`a letter can name at most ${MOST_NAMES} cells: make cells larger`);
  }
  return around;
}

const content = (cells) => POINT + NAME * cells;
export const replySize = (cells) => 2 + content(cells);

export class Nearness {
  constructor(progress, { address, candidates, secret, around, digest }) {
    if (!around.length) throw new Misuse("no cell counts as near: make cells smaller than the radius");
    this.progress = progress;
    this.address = address;
    this.secret = secret;
    this.around = around;
    this.digest = digest;
    this.steps = STEPS;
    this.lists = [candidates];
    this.first = new Blind(prf(secret, "first"));
    this.second = new Blind(prf(secret, "second"));
  }

  get done() {
    return this.progress.step >= STEPS.length;
  }

  ready({ late = false } = {}) {
    const before = this.progress.step - 1;
    return late || before < 0 || this.lists[0].every((candidate) => Object.hasOwn(this.heard(before), hex(candidate)));
  }

  /** Write the letters of the next step and advance; `words` go to the candidates who are near. */
  speak(words = new Uint8Array()) {
    const index = this.progress.step;
    this.progress.step += 1;
    const near = index === 2 ? this.partners.map(hex) : [];
    const blinded = index === 0 ? this.first.put(this.hashed(this.progress.cell)) : new Uint8Array();
    const cells = index === 1 ? this.blindedCells() : [];
    const body = (candidate) => {
      if (index === 0) return blinded;
      if (index === 1) return this.reply(candidate, cells);
      return near.includes(hex(candidate)) ? words : new Uint8Array();
    };
    return this.lists[0].map((candidate) => [candidate, concat(byte(MARK, index), body(candidate))]);
  }

  blindedCells() {
    const { cell } = this.progress;
    return this.around.map((o) => this.second.put(this.hashed(cell.map((number, axis) => number + o[axis]))));
  }

  /** Blind a candidate's point again, or a random one if the candidate sent none; then name your own cells. */
  reply(candidate, cells) {
    const point = this.progress.points[hex(candidate)] ?? hashToPoint(prf(this.secret, "nobody", candidate));
    const names = cells.map((cell) => this.name(candidate, this.address, cell)).sort(compare);
    return concat(this.second.put(point), ...names);
  }

  /** Name a blinded cell in the reply of one person to one other. */
  name(asker, answerer, point) {
    return sha256(concat(CELL_LABEL, this.digest, asker, answerer, point)).slice(0, NAME);
  }

  hashed(cell) {
    return hashToPoint(concat(this.digest, writeCell(cell)));
  }

  heard(index) {
    return [this.progress.points, this.progress.replies, this.progress.words][index];
  }

  /** Process a candidate's letter; drop and count it if it is not valid here. */
  receive(sender, body) {
    const reason = this.wrong(sender, body);
    if (reason) return this.drop(reason);
    this.heard(body[1])[hex(sender)] = body.slice(2);
    return true;
  }

  wrong(sender, body) {
    if (!this.lists[0].some((candidate) => equal(candidate, sender))) return "sender";
    if (body.length < 2 || body[0] !== MARK) return "size";
    const [, index] = body;
    if (index >= STEPS.length) return "step";
    if (Object.hasOwn(this.heard(index), hex(sender))) return "repeated";
    if (index === 2) return "";
    if (body.length - 2 !== content(index ? this.around.length : 0)) return "size";
    if (this.progress.step > index + 1) return "late";
    return this.onCurve(body.slice(2, 2 + POINT)) ? "" : "point";
  }

  onCurve(x) {
    try {
      this.first.put(x);
      return true;
    } catch (error) {
      if (error instanceof Refused) return false;
      throw error;
    }
  }

  /** Drop a public notice: the nearness test uses none. */
  notice() {
    return this.drop("step");
  }

  drop(reason) {
    const { dropped } = this.progress;
    dropped[reason] = (dropped[reason] ?? 0) + 1;
    return false;
  }

  /** Return the candidates whose cells include the person's own, as far as known. */
  get partners() {
    return this.lists[0].filter((candidate) => {
      const reply = this.progress.replies[hex(candidate)];
      if (!reply) return false;
      const ownName = this.name(this.address, candidate, this.first.takeOff(reply.slice(0, POINT)));
      const names = Array.from({ length: this.around.length }, (_, at) => reply.slice(POINT + NAME * at, POINT + NAME * (at + 1)));
      return names.some((name) => equal(name, ownName));
    });
  }
}
