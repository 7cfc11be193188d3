// The only source of randomness: the platform's cryptographic generator, and unbiased draws from it.

import { Misuse } from "./errors.js";

export class Entropy {
  /** `fill` overwrites an array with uniform bytes; only tests replace the system's generator. */
  constructor(fill = (bytes) => globalThis.crypto.getRandomValues(bytes)) {
    this.fill = fill;
  }

  token(size) {
    const bytes = new Uint8Array(size);
    this.fill(bytes);
    return bytes;
  }

  bits(size) {
    return this.token(size >> 3).reduce((sum, value) => (sum << 8n) | BigInt(value), 0n);
  }

  /**
   * Return an integer exactly uniform on 0 .. bound - 1 (bigint).
   * Multiplies a word of many more bits than the bound by the bound and takes the top part. Draws again on the few
   * words that would favour some results (Lemire 2019), so there is no bias at all.
   */
  integer(bound) {
    if (bound < 1n) throw new Misuse(`\`bound\` must be at least 1, got ${bound}`);
    const size = (bound.toString(2).length + 71) & ~7;
    const words = 1n << BigInt(size);
    const unfair = words % bound;
    for (;;) {
      const product = this.bits(size) * bound;
      if ((product & (words - 1n)) >= unfair) return product >> BigInt(size);
    }
  }

  /** Return items in a uniformly random order. @template T @param {T[]} items @returns {T[]} */
  shuffled(items) {
    const rest = [...items];
    const order = [];
    while (rest.length) order.push(...rest.splice(Number(this.integer(BigInt(rest.length))), 1));
    return order;
  }

  /** Return true with probability exactly heads / 2^64. */
  coin(heads) {
    return this.bits(64) < heads;
  }
}
