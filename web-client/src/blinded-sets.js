// Blinded sets on P-256: an asker learns the value that a set gives to one cell, and no more. SPEC section 16.
//
// The asker hides one cell in a point; the answerer's reply is a table with a masked value in the slot of each
// cell of its set, and random bytes in all others. Nothing in a reply shows which cells are in the set.

import { weierstrass } from "@noble/curves/abstract/weierstrass.js";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 as syncSha256, sha512 } from "@noble/hashes/sha2.js";
import { big, byte, concat, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";

export const POINT = 33;
export const VALUE = 8;
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
const POINT_LABEL = utf8("coatcheck/v1/blind/point\0");
const MASK_LABEL = utf8("coatcheck/v1/blind/mask\0");
const FILLER_LABEL = utf8("coatcheck/v1/blind/filler\0");
