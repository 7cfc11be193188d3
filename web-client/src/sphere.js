// Sphere response and its public codebook of directions. SPEC section 13.
//
// Bit for bit the same as coatcheck/randomizers/sphere.py. All numbers are integers below 2^53, which floats represent
// exactly.

import { chacha20 } from "@noble/ciphers/chacha.js";
import { countedLaw, headsFor } from "./biased-coin.js";
import { isWhole, isWithin } from "./domains.js";
import { utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sha256 } from "./keys.js";

const MAX_DIMENSIONS = 5000;
const MAX_CODEWORDS = 2 ** 16;
const MAX_REPORTS = 2 ** 32;
const MAX_ENTRIES = 2 ** 23;
// Entry b of 128 is the mean of a Gaussian between its quantiles (128 + b)/256 and (129 + b)/256,
// times 42.77, rounded, but at least 1.
const UPPER = [
  1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7, 7, 7, 8, 8, 9, 9, 10, 10, 10, 11, 11, 12, 12, 13,
  13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 17, 18, 18, 19, 19, 20, 20, 21, 21, 22, 22, 23, 23, 24,
  24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31, 32, 32, 33, 33, 34, 35, 35, 36, 36,
  37, 38, 38, 39, 40, 40, 41, 41, 42, 43, 44, 44, 45, 46, 46, 47, 48, 49, 50, 50, 51, 52, 53, 54,
  55, 56, 57, 58, 59, 60, 61, 62, 64, 65, 66, 68, 69, 71, 73, 74, 76, 79, 81, 84, 87, 90, 94, 100,
  108, 127,
];

/** Return the first bytes of the public stream of a text, the same on every machine. */
function stream(text, size) {
  return chacha20(sha256(utf8(text)), new Uint8Array(12), new Uint8Array(size));
}

/** Return all codewords in one array of small integers, and the factor of each one's score. */
function codewords(seed, width, size) {
  const drawn = stream(`coatcheck sphere codewords ${seed}`, size * width);
  const entries = Int8Array.from(drawn, (byte) => (byte < 128 ? UPPER[byte] : -UPPER[byte - 128]));
  const factors = Array.from({ length: size }, (_, k) => {
    let square = 0;
    for (let at = k * width; at < (k + 1) * width; at += 1) square += entries[at] * entries[at];
    return Math.floor(2 ** 38 / root(square * 2 ** 24));
  });
  return { entries, factors };
}

/** Return the square root of an integer below 2^53, rounded down. */
function root(square) {
  const near = Math.floor(Math.sqrt(square));
  return near * near > square ? near - 1 : near;
}

/** Lift a lattice point of the ball to the sphere of one dimension more. */
function lifted(point, half) {
  if (!isWithin(point, 2, half)) throw new Misuse("this is not a lattice point: call `snap` first");
  return [...point, root(point.reduce((rest, i) => rest - i * i, half * half))];
}

/** Turn a vector: rotate its coordinates by a public number of places, with public signs. */
function turned(vector, seed, turn) {
  const size = vector.length;
  const drawn = stream(`coatcheck sphere turn ${seed} ${turn}`, 4 + Math.ceil(size / 8));
  const move = new DataView(drawn.buffer).getUint32(0, true) % size;
  const isMinus = (j) => (drawn[4 + (j >> 3)] >> (j & 7)) & 1;
  return vector.map((_, j) => {
    const number = vector[(j + move) % size];
    return isMinus(j) ? -number : number;
  });
}

/** Return the mechanism: one of the nearest codewords with probability heads / 2^64, otherwise a uniform codeword. */
export function sphere(params, domain) {
  const { size, closest, turns, seed } = params;
  const { half, dimension } = domain;
  const width = dimension + 1;
  const good = params.domain.kind === "ball" && domain.p === 2 && dimension <= MAX_DIMENSIONS
    && isWhole(size, 2, MAX_CODEWORDS) && size * width <= MAX_ENTRIES && isWhole(closest, 1, size - 1)
    && isWhole(turns, 1, MAX_REPORTS / size) && isWhole(seed, 0, Number.MAX_SAFE_INTEGER);
  if (!good) throw new Refused("sphere response needs a ball with p = 2, and `size`, `closest`, `turns` and `seed` within their limits: these terms are invalid");
  const heads = headsFor(params.epsilon, BigInt(closest), BigInt(size));
  const shift = 2 ** Math.max(0, half.toString(2).length - 10);
  let codebook; // derived on first use, and never to examine terms
  const nearest = (point, turn) => {
    codebook ??= codewords(seed, width, size);
    const z = turned(lifted(point, half), seed, turn);
    const keys = new Float64Array(size);
    for (let k = 0; k < size; k += 1) {
      let score = 0;
      for (let j = 0; j < width; j += 1) score += codebook.entries[k * width + j] * z[j];
      keys[k] = Math.floor((score * codebook.factors[k]) / shift);
    }
    const order = Array.from(keys, (_, k) => k);
    order.sort((a, b) => keys[b] - keys[a] || a - b);
    return order.slice(0, closest);
  };
  return {
    heads,
    low: [0],
    high: [size * turns - 1],
    center: nearest,
    respond(point, entropy) {
      // All four are drawn every time, so that the running time does not reveal how the coin fell.
      const below = (bound) => Number(entropy.integer(BigInt(bound)));
      const turn = below(turns);
      const near = nearest(point, turn)[below(closest)];
      const far = below(size);
      return [turn * size + (entropy.coin(heads) ? near : far)];
    },
    decoy: (entropy) => [Number(entropy.integer(BigInt(size * turns)))],
    law: () => ({ ...countedLaw(heads, closest, size, params.epsilon), exact: false, binary: false }),
    place: () => null, // one report is a direction; only the mean of many is a place
  };
}
