// Points of P-256 by their x alone: hash a text to one, multiply by a secret, and undo it. SPEC section 16.

import { weierstrass } from "@noble/curves/abstract/weierstrass.js";
import { sha256, sha512 } from "@noble/hashes/sha2.js";
import { big, byte, concat, unsigned, utf8 } from "./bytes.js";
import { Refused } from "./errors.js";

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
const LABEL = utf8("coatcheck/v1/near/point\0");

/** One of the two points with this x: both have the same multiples, by x. */
function pointAt(x) {
  try {
    return Point.fromBytes(concat(byte(2), x));
  } catch {
    throw new Refused("these bytes are no point of P-256");
  }
}

/** Hash a text to a point whose logarithm nobody knows: the first digest that is an x. */
export function hashToPoint(text) {
  for (let attempt = 0; ; attempt += 1) {
    const x = sha256(concat(LABEL, unsigned(attempt, 4), text));
    try {
      pointAt(x);
      return x;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }
}

/** A secret factor; equal texts under equal blinds give equal points, and nothing else shows. */
export class Blind {
  constructor(secret) {
    this.number = (big(sha512(secret)) % (ORDER - 1n)) + 1n;
  }

  /** Multiply a point. */
  put(x) {
    return unsigned(pointAt(x).multiply(this.number).toAffine().x, POINT);
  }

  /** Undo it. */
  takeOff(x) {
    return unsigned(pointAt(x).multiply(Point.Fn.inv(this.number)).toAffine().x, POINT);
  }
}
