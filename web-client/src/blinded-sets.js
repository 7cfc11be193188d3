// Blinded sets on P-256: an asker learns the value that a set gives to one cell, and no more. SPEC section 16.
//
// The asker hides one cell in a point; the answerer's reply is a table with a masked value in the slot of each
// cell of its set, and random bytes in all others. Nothing in a reply shows which cells are in the set.

import { normalizeZ } from "@noble/curves/abstract/curve.js";
import { weierstrass } from "@noble/curves/abstract/weierstrass.js";
import { sha512 } from "@noble/hashes/sha2.js";
import { big, byte, concat, unsigned, utf8 } from "./encoding.js";
import { Refused } from "./errors.js";
import { sha256 } from "./keys.js";
import { slotOf, VALUE, writeCell } from "./rings.js";

export const POINT = 33;
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
// P-256 alone (FIPS 186-5): the module with all of NIST's curves would make the bundle much larger.
/** @type {any} */
const Point = weierstrass({
  p: 0xffffffff00000001000000000000000000000000ffffffffffffffffffffffffn,
  n: ORDER,
  h: 1n,
  a: 0xffffffff00000001000000000000000000000000fffffffffffffffffffffffcn,
  b: 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn,
  Gx: 0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296n,
  Gy: 0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5n,
});
const POINT_LABEL = utf8("coatcheck/v1/blind/point\0");
const MASK_LABEL = utf8("coatcheck/v1/blind/mask\0");

/** Read a point of 33 bytes; refuse anything else. */
export function readPoint(raw) {
  try {
    if (raw.length !== POINT) throw new Error("length");
    const point = Point.fromBytes(raw);
    point.assertValidity();
    return point;
  } catch {
    throw new Refused("these bytes are not a point of P-256 in 33 bytes");
  }
}

export function isPoint(raw) {
  try {
    return Boolean(readPoint(raw));
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}

const xOf = (point) => unsigned(point.toAffine().x, 32);
const writePoint = (point) => point.toBytes(true);

/** Hash a text to a point whose logarithm nobody knows: the first digest that is a valid x. */
export function hashToPoint(text) {
  for (let attempt = 0; ; attempt += 1) {
    const raw = concat(byte(2), sha256(concat(POINT_LABEL, unsigned(attempt, 4), text)));
    if (isPoint(raw)) return readPoint(raw);
  }
}

/** A secret number, derived from secret bytes. */
export class Factor {
  constructor(secret) {
    this.number = (big(sha512(secret)) % (ORDER - 2n)) + 1n;
  }

  /** This many times the generator. */
  get point() {
    return Point.BASE.multiply(this.number);
  }

  times(point) {
    return point.multiply(this.number);
  }

  /** Return the x of a multiple of a point. */
  xOf(point) {
    return xOf(this.times(point));
  }
}

function axisPoint(digest, axis, number) {
  return hashToPoint(concat(digest, unsigned(axis, 4), writeCell([number])));
}

const sum = (points) => points.reduce((all, point) => all.add(point));

/** One cell that a person asks about, the same for all who answer; `point` hides it perfectly. */
export class Question {
  constructor(secret, cell, digest) {
    this.factor = new Factor(secret);
    this.cell = cell;
    this.digest = digest;
    const hidden = sum(cell.map((number, axis) => axisPoint(digest, axis, number)));
    this.point = writePoint(this.factor.point.add(hidden));
  }

  /** Return the value of the cell; random bytes if the answerer's set does not have it. */
  read(table, { point, asker, answerer, width }) {
    const at = VALUE * slotOf(this.cell, width);
    const context = concat(this.digest, asker, answerer, this.point, point);
    return exclusiveOr(table.slice(at, at + VALUE), mask(context, this.cell, this.factor.xOf(readPoint(point))));
  }
}

/** A set of cells of one person, for everybody who asks. Their slots must differ. */
export class BlindedSet {
  constructor(secret, cells, { digest, width }) {
    this.factor = new Factor(secret);
    this.cells = cells;
    this.digest = digest;
    this.width = width;
    this.point = writePoint(this.factor.point);
    /** @type {any[] | null} */
    this.multiples = null;
  }

  /** Return each cell's point times the factor: the same for everybody who asks. */
  multiplied() {
    const known = new Map();
    const multiple = (axis, number) => {
      const name = `${axis}/${number}`;
      if (!known.has(name)) known.set(name, this.factor.times(axisPoint(this.digest, axis, number)));
      return known.get(name);
    };
    this.multiples ??= normalizeZ(Point, this.cells.map((cell) => sum(cell.map((number, axis) => multiple(axis, number)))));
    return this.multiples;
  }

  /** Answer a question with the values of the cells, in their order; `filler` is a table of random bytes. */
  reply(point, values, { asker, answerer, filler }) {
    const context = concat(this.digest, asker, answerer, point, this.point);
    const table = filler.slice();
    const asked = this.factor.times(readPoint(point));
    const { x } = asked.toAffine();
    const multiples = this.multiplied();
    // A question about a cell with the factor 0 has no answer.
    const answered = this.cells.map((_, at) => at).filter((at) => multiples[at].toAffine().x !== x);
    const rests = normalizeZ(Point, answered.map((at) => asked.subtract(multiples[at])));
    answered.forEach((at, place) => {
      const cell = this.cells[at];
      table.set(exclusiveOr(values[at], mask(context, cell, xOf(rests[place]))), VALUE * slotOf(cell, this.width));
    });
    return table;
  }
}

/** Return the mask of a cell's value, for one asker, one answerer and their points. */
function mask(context, cell, x) {
  return sha256(concat(MASK_LABEL, context, writeCell(cell), x)).slice(0, VALUE);
}

export const exclusiveOr = (one, other) => one.map((value, at) => value ^ other[at]);
