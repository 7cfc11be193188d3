// The one door for randomness: the browser's cryptographic generator, and unbiased draws from it.

import { Misuse } from "./errors.js";

export class Entropy {
  /** `fill` writes uniform bytes over an array; only tests give another one than the system's. */
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
   * One integer exactly uniform on 0 .. bound - 1 (bigint).
   * Many more bits than the bound has, times the bound, top part; the few words that would favor
   * some results are drawn again (Lemire 2019), so there is no bias at all.
   */
  integer(bound) {
    if (bound < 1n) throw new Misuse(`a draw needs a bound of at least 1, got ${bound}`);
    const size = (bound.toString(2).length + 71) & ~7;
    const words = 1n << BigInt(size);
    const unfair = words % bound;
    for (;;) {
      const product = this.bits(size) * bound;
      if ((product & (words - 1n)) >= unfair) return product >> BigInt(size);
    }
  }

  /** Whether a coin falls heads, with probability exactly heads / 2^64. */
  coin(heads) {
    return this.bits(64) < heads;
  }
}
