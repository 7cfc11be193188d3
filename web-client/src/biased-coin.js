// The exact biased coin that chooses between truth and noise, in integers, as in coatcheck/randomizers/contract.py.

import { Refused } from "./errors.js";

export const TOSSES = 1n << 64n;
const BITS = 160n;
const LARGEST = 64;

/** Return a double as an exact fraction of two integers. */
export function fraction(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  const exponent = Number((bits >> 52n) & 0x7ffn);
  const mantissa = (bits & ((1n << 52n) - 1n)) + (exponent ? 1n << 52n : 0n);
  const power = Math.max(exponent, 1) - 1075;
  return power >= 0 ? [mantissa << BigInt(power), 1n] : [mantissa, 1n << BigInt(-power)];
}

/** Return the numerator over 2^160 of a number at most e^epsilon. */
function expBelow(epsilon) {
  const [numerator, denominator] = fraction(epsilon);
  let term = 1n << BITS;
  let total = term;
  for (let order = 1n; term; order += 1n) {
    // Every term is positive and rounded down, so the sum stays below e^epsilon.
    term = (term * numerator) / (denominator * order);
    total += term;
  }
  return total;
}

/**
 * Return the coin's heads out of 2^64 for a cap of `cap` points among `whole`.
 * Guarantee: heads whole <= (e^epsilon - 1) cap (2^64 - heads), checked in integers.
 */
export function headsFor(epsilon, cap, whole) {
  if (!(Number.isFinite(epsilon) && epsilon > 0 && epsilon <= LARGEST)) {
    throw new Refused(`a local epsilon must be above 0 and at most ${LARGEST}, got ${epsilon}`);
  }
  const gain = (expBelow(epsilon) - (1n << BITS)) * cap;
  const heads = (TOSSES * gain) / (gain + (whole << BITS));
  if (heads * (whole << BITS) > gain * (TOSSES - heads)) {
    throw new Refused("the biased coin exceeds its budget: this is a bug in coatcheck, please report it");
  }
  return heads;
}

/** Return the ratio of two integers as a float. @param {[any, any]} integers */
export function ratio([top, bottom]) {
  const bits = (value) => value.toString(2).length;
  const shift = BigInt(Math.max(0, bits(bottom) - bits(top) + 64));
  return Number((top << shift) / bottom) * 2 ** -Number(shift);
}

/** Return the local epsilon that a coin really costs, rounded up; at most the stated one. SPEC S20.4. */
export function spent(heads, [cap, whole], epsilon) {
  if (cap === whole || !heads) return 0;
  return Math.min(epsilon, Math.log1p(ratio([heads * whole, (TOSSES - heads) * cap])) * (1 + 2 ** -50));
}

/** Return the law of a cap of `cap` among `whole` reports, with caps as disjoint as their sizes allow. SPEC S20.5. */
export function countedLaw(heads, cap, whole, stated) {
  const epsilon = spent(heads, [BigInt(cap), BigInt(whole)], stated);
  if (!epsilon) return { epsilon: 0, cap: 1, apart: 0, kernel: 1 };
  const unit = ratio([TOSSES - heads, TOSSES * BigInt(whole)]);
  return { epsilon, cap: cap * unit, apart: Math.min(cap, whole - cap) * unit, kernel: 0, exact: cap === 1, binary: cap === 1 && whole === 2 };
}
