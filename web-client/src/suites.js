// The two ways of sealing, as numbers. SPEC section 3.

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
  const found = [CLASSICAL, HYBRID].find((one) => one.name === name);
  if (!found) throw new Refused(`unknown suite ${name}: this version speaks x25519, mlkem768-x25519`);
  return found;
}
