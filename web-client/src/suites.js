// The two cipher suites and their sizes. SPEC section 3.

import { Refused } from "./errors.js";

export const ADDRESS = 16;
export const DIGEST = 32;
export const SIGNATURE = 64;
export const VERIFYING = 32;

const suite = (name, number, sealing, overhead) =>
  Object.freeze({ name, number, sealing, overhead, contact: sealing + VERIFYING });

export const CLASSICAL = suite("x25519", 1, 32, 48);
export const HYBRID = suite("mlkem768-x25519", 2, 1216, 1136);

export function suiteNamed(name) {
  const match = [CLASSICAL, HYBRID].find((entry) => entry.name === name);
  if (!match) throw new Refused(`unknown suite ${name}: this version supports x25519 and mlkem768-x25519`);
  return match;
}
