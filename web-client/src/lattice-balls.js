// Lattice balls: counts the integer vectors with |i|_p <= reach, and samples one uniformly.
//
// As in coatcheck/randomizers/lattice_balls.py: exact for p = 1 and p = inf, and for p = 2 up to dimension 8.

import { clip, isWithin } from "./domains.js";
import { Refused } from "./errors.js";

const COUNTABLE = 2 ** 18; // additions to count an l2 ball; beyond, its volume is bounded
const FINE = 2 ** 20; // parts of a lattice step in which cubes are measured
const MAX_REJECTED = 8; // dimensions in which a cube holds enough of its l2 ball

/** Return the operations on integer vectors of d coordinates in the l_p norm. */
export function latticeBall(p, d) {
  const boxes = p === Infinity || d === 1;
  if (!boxes && p === 2 && d > MAX_REJECTED) {
    throw new Refused(`this client samples balls with p = 2 up to dimension ${MAX_REJECTED}, got ${d}: join with the command line`);
  }
  // The distance of a unit cube's corners from its centre, rounded up, in fine steps; used for p = 2.
  const corner = Math.ceil((Math.sqrt(d) / 2) * FINE) + 1;
  const countable = (reach) => boxes || p === 1 || d * reach ** 3 <= COUNTABLE;
  const count = (reach) => {
    if (boxes) return BigInt(2 * reach + 1) ** BigInt(d);
    return p === 1 ? l1Layers(d, reach).reduce((sum, count) => sum + count, 0n) : l2Count(d, reach);
  };
  const powers = (...lengths) => lengths.map((length) => BigInt(length) ** BigInt(d));
  /** Return two integers in the ratio of a cap to the whole, or below it if the points cannot be counted. */
  const counts = (cap, whole) => (countable(whole)
    ? [count(cap), count(whole)]
    : powers(Math.max(cap * FINE - corner, 0), whole * FINE + corner));
  /** Return the same, at or above the ratio. */
  const countsAbove = (cap, whole) => {
    if (countable(whole)) return [count(cap), count(whole)];
    const [outer, inner] = [cap * FINE + corner, Math.max(whole * FINE - corner, 1)];
    return powers(Math.min(outer, inner), inner);
  };
  /** Return a lower bound on the share of a cap that lies in another one whose centre is 2 `apart` away: an l2 lens. */
  const lens = (cap, apart) => {
    const h = corner / FINE;
    const inner = cap - h;
    if (p !== 2 || boxes || inner <= apart) return 0;
    const share = lensShare(d, ((inner - apart) * (inner + apart)) / inner ** 2);
    const points = countable(cap) ? l2Volume(d, inner) / Number(count(cap)) : (inner / (cap + h)) ** d;
    return Math.max(0, share * points * (1 - 1e-9));
  };
  const anywhere = (reach, entropy) => Array.from(
    { length: d },
    () => Number(entropy.integer(BigInt(2 * reach + 1))) - reach,
  );
  const sample = (reach, entropy) => {
    if (!boxes && p === 1) return l1Sample(d, reach, entropy);
    for (;;) {
      const point = anywhere(reach, entropy);
      if (boxes || isWithin(point, 2, reach)) return point;
    }
  };
  /** Move a point towards the centre until it is within reach. */
  const shrink = (point, reach) => {
    if (boxes) return point.map((i) => clip(i, reach));
    const norm = wholeNorm(point, p);
    if (norm <= reach) return point;
    return point.map((i) => Math.sign(i) * Math.floor((Math.abs(i) * reach) / norm) + 0);
  };
  /** Return the nearest place in the unit ball. */
  const project = (place) => {
    if (boxes) return place.map((u) => clip(u, 1));
    if (p === 1) return l1Project(place);
    const norm = Math.max(1, Math.hypot(...place));
    return place.map((u) => u / norm);
  };
  return { boxes, counts, countsAbove, lens, sample, shrink, project };
}

/** Return how many points of the l1 ball have k nonzero coordinates: C(d, k) C(reach, k) 2^k. */
function l1Layers(d, reach) {
  const layers = [1n];
  for (let k = 0; k < Math.min(d, reach); k += 1) {
    layers.push((layers[k] * 2n * BigInt(d - k) * BigInt(reach - k)) / BigInt(k + 1) ** 2n);
  }
  return layers;
}

/** Count |i|_2 <= reach by adding one axis at a time; for the reaches in use, floats are exact. */
function l2Count(d, reach) {
  let ways = new Float64Array(reach * reach + 1);
  ways[0] = 1;
  for (let axis = 0; axis < d; axis += 1) {
    const wider = new Float64Array(ways.length);
    for (let root = 0; root <= reach; root += 1) {
      for (let at = root * root; at < ways.length; at += 1) wider[at] += (root ? 2 : 1) * ways[at - root * root];
    }
    ways = wider;
  }
  return BigInt(ways.reduce((sum, count) => sum + count, 0));
}

function l2Volume(d, reach) {
  let unit = d % 2 ? 2 : 1;
  for (let k = d % 2 ? 3 : 2; k <= d; k += 2) unit *= (2 * Math.PI) / k;
  return unit * reach ** d;
}

/** Return the regularized incomplete beta function I_x((d + 1)/2, 1/2), rounded down, step by step in a. */
function lensShare(d, x) {
  let a = d % 2 ? 1 : 0.5;
  let beta = d % 2 ? 2 : Math.PI;
  let share = d % 2 ? 1 - Math.sqrt(1 - x) : (2 / Math.PI) * Math.asin(Math.sqrt(x));
  for (; a < (d + 1) / 2; a += 1) {
    share -= (x ** a * Math.sqrt(1 - x)) / (a * beta);
    beta *= a / (a + 0.5);
  }
  return share - 1e-14;
}

/** Draw k distinct integers of 0 .. bound - 1, every sequence equally likely. */
function distinct(bound, k, entropy) {
  const integers = new Set();
  while (integers.size < k) integers.add(Number(entropy.integer(BigInt(bound))));
  return [...integers];
}

/**
 * Draw the number of nonzero coordinates, which they are, their sizes and their signs.
 * k positive integers with a sum of at most `reach` are a k-subset of 1 .. reach: sort it and take
 * differences. So every step is a count, and the draw is exactly uniform.
 */
function l1Sample(d, reach, entropy) {
  const layers = l1Layers(d, reach);
  let left = entropy.integer(layers.reduce((sum, count) => sum + count, 0n));
  let k = 0;
  for (; left >= layers[k]; k += 1) left -= layers[k];
  const cuts = distinct(reach, k, entropy).sort((a, b) => a - b);
  const axes = distinct(d, k, entropy);
  const point = Array(d).fill(0);
  cuts.forEach((cut, at) => {
    const size = cut - (at ? cuts[at - 1] : -1);
    point[axes[at]] = entropy.integer(2n) ? size : -size;
  });
  return point;
}

/** Return the norm rounded up to an integer, for p = 1 and 2. */
function wholeNorm(point, p) {
  if (p === 1) return point.reduce((sum, i) => sum + Math.abs(i), 0);
  const square = point.reduce((sum, i) => sum + i * i, 0);
  const norm = Math.floor(Math.sqrt(square));
  return norm * norm < square ? norm + 1 : norm;
}

/** Project onto the unit l1 ball by a soft threshold (Duchi et al. 2008). */
function l1Project(place) {
  const falling = place.map(Math.abs).sort((a, b) => b - a);
  let threshold = 0;
  let sum = -1;
  falling.forEach((size, at) => {
    sum += size;
    if (size * (at + 1) > sum) threshold = sum / (at + 1);
  });
  return place.map((u) => Math.sign(u) * Math.max(Math.abs(u) - Math.max(threshold, 0), 0));
}
