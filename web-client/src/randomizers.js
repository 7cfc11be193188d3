// Minkowski, bounded, grid and codebook response on a box, drawn in integers on the lattice.
//
// The same mechanisms as coatcheck/randomizers, bit for bit in their parameters; whatever else
// terms may name is refused here. No float carries a private value to the wire.

import { Misuse, Refused } from "./errors.js";
import { TOSSES, headsFor } from "./mixing.js";

const MAX_REACH = 2 ** 30;
const MAX_STEPS = 2 ** 24;
const MAX_POINTS = 4096;
const MAX_AXES = 16;
const MAX_WEIGHT = 256;

/** Round half to even, as Python does. */
export function roundEven(value) {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}

/** Refuse parameters with one missing or one that is not known: nothing of a mechanism is guessed. */
function complete(params, names) {
  const given = Object.keys(params);
  if (given.length !== names.length || !names.every((name) => given.includes(name))) {
    throw new Refused(`the terms must state ${names.join(", ")}, they state ${given.join(", ")}`);
  }
}

function boxOf(params) {
  const numbers = (list) => Array.isArray(list) && list.every((one) => Number.isFinite(one));
  if (params?.kind !== "box") {
    throw new Refused(`values live in a ${params?.kind} here; this page randomizes on boxes only`);
  }
  complete(params, ["kind", "lo", "hi", "steps", "degrees"]);
  const { lo, hi, steps, degrees } = params;
  const good = numbers(lo) && numbers(hi) && lo.length > 0 && lo.length === hi.length
    && lo.every((low, axis) => low < hi[axis])
    && typeof degrees === "boolean" && Number.isInteger(steps) && steps >= 2 && steps <= MAX_STEPS && steps % 2 === 0;
  if (!good) throw new Refused("the terms describe no box: lo below hi along each axis, even steps");
  return { lo, hi, steps, degrees, half: steps / 2, dimension: lo.length };
}

/** Return the lattice point of a value in the user's units. */
function snap(box, value) {
  if (value.length !== box.dimension) {
    throw new Misuse(`a value has ${box.dimension} coordinates here, got ${value.length}`);
  }
  return value.map((x, axis) => {
    const [a, b] = [box.lo[axis], box.hi[axis]];
    if (!(a <= x && x <= b)) throw new Misuse(`${x} is outside ${a} to ${b}, where the round takes place`);
    return roundEven(((x - (a + b) / 2) / ((b - a) / 2)) * box.half);
  });
}

const power = (base, exponent) => BigInt(base) ** BigInt(exponent);
const clip = (value, edge) => Math.max(-edge, Math.min(edge, value));

/** A cap around the value with probability heads / 2^64, else the whole output box. */
function caps(params, box, { bounded }) {
  if (!(Number.isFinite(params.radius) && params.radius > 0)) {
    throw new Refused("the terms give no radius above 0 for the cap");
  }
  const largest = bounded ? box.half : MAX_REACH - box.half;
  const reach = Math.max(1, Math.min(roundEven(params.radius * box.half), largest));
  const whole = bounded ? box.half : box.half + reach;
  const d = box.dimension;
  const heads = headsFor(params.epsilon, power(2 * reach + 1, d), power(2 * whole + 1, d));
  const anywhere = (entropy, edge) => Array.from(
    { length: d },
    () => Number(entropy.integer(BigInt(2 * edge + 1))) - edge,
  );
  const center = (point) => (bounded ? point.map((i) => clip(i, box.half - reach)) : point);
  return {
    reach,
    whole,
    heads,
    low: Array(d).fill(-whole),
    high: Array(d).fill(whole),
    center,
    respond(point, entropy) {
      // All three are drawn every time, so that the work does not tell how the coin fell.
      const near = anywhere(entropy, reach);
      const far = anywhere(entropy, whole);
      const middle = center(point);
      return entropy.coin(heads) ? near.map((u, axis) => middle[axis] + u) : far;
    },
    law: () => capLaw({ d, reach, whole, heads, apart: bounded ? box.half - reach : box.half }),
    /** Where the server will put this report, in the user's units. */
    place: (report) => report.map((y, axis) => unsnap(box, clip(y, box.half), axis)),
  };
}

function unsnap(box, i, axis) {
  const [a, b] = [box.lo[axis], box.hi[axis]];
  return (a + b) / 2 + (i / box.half) * ((b - a) / 2);
}

function capLaw({ d, reach, whole, heads, apart }) {
  const mixing = Number(heads) / Number(TOSSES);
  const share = ((2 * reach + 1) / (2 * whole + 1)) ** d;
  const cap = (1 - mixing) * share;
  const deep = reach - apart;
  const kernel = deep >= 0 ? cap * ((2 * deep + 1) / (2 * reach + 1)) ** d : 0;
  const epsilon = reach === whole ? 0 : Math.log1p(mixing / (1 - mixing) / share);
  return { epsilon, cap, apart: cap - kernel, kernel };
}

/** The law of caps of so many of all reports, told apart as well as that allows. */
function countedLaw(heads, cap, whole) {
  if (cap === whole) return { epsilon: 0, cap: 1, apart: 0, kernel: 1 };
  const mixing = Number(heads) / Number(TOSSES);
  const one = (1 - mixing) / whole;
  const epsilon = Math.log1p(((mixing / (1 - mixing)) * whole) / cap);
  return { epsilon, cap: cap * one, apart: Math.min(cap, whole - cap) * one, kernel: 0 };
}

/** The true cell with probability heads / 2^64, else any cell. */
function grid(params, box) {
  const { cells } = params;
  const good = Array.isArray(cells) && cells.length === box.dimension
    && cells.every((count) => Number.isInteger(count) && count >= 1 && count <= box.steps);
  const total = good ? cells.reduce((product, count) => product * BigInt(count), 1n) : 0n;
  if (!good || total > 1n << 32n) throw new Refused("the terms give no cells for the grid");
  const heads = headsFor(params.epsilon, 1n, total);
  const cellOf = (point) => point.map((i, axis) => Math.floor(((i + box.half) * cells[axis]) / (box.steps + 1)));
  return {
    cells,
    heads,
    low: cells.map(() => 0),
    high: cells.map((count) => count - 1),
    center: cellOf,
    respond(point, entropy) {
      const near = cellOf(point);
      const far = cells.map((count) => Number(entropy.integer(BigInt(count))));
      return entropy.coin(heads) ? near : far;
    },
    law: () => countedLaw(heads, 1, Number(total)),
    place: (report) => report.map((y, axis) => {
      const [a, b] = [box.lo[axis], box.hi[axis]];
      return a + ((y + 0.5) / cells[axis]) * (b - a);
    }),
  };
}

/** One of the closest points of a codebook with probability heads / 2^64, else any point. */
function codebook(params, box) {
  const { points, weights, closest } = params;
  const whole = (row, low, high) => Array.isArray(row) && row.length === box.dimension
    && row.every((i) => Number.isInteger(i) && low <= i && i <= high);
  const size = Array.isArray(points) ? points.length : 0;
  const good = size >= 1 && size <= MAX_POINTS && (size === 1 || box.dimension <= MAX_AXES)
    && points.every((point) => whole(point, -box.half, box.half)) && whole(weights, 1, MAX_WEIGHT)
    && new Set(points.map(String)).size === size
    && Number.isInteger(closest) && closest >= 1 && closest <= Math.max(1, size - 1);
  if (!good) throw new Refused("the terms give no codebook: different points of the lattice, and how many are close");
  const heads = headsFor(params.epsilon, BigInt(closest), BigInt(size));
  // Squared distances can exceed what a float holds, so they are whole numbers of any size.
  const squares = (point) => points.map((other) => other.reduce(
    (sum, i, axis) => sum + BigInt(weights[axis]) * BigInt(point[axis] - i) ** 2n,
    0n,
  ));
  const nearest = (point) => {
    const far = squares(point);
    const order = far.map((_, index) => index);
    order.sort((a, b) => (far[a] < far[b] ? -1 : far[a] > far[b] ? 1 : a - b));
    return order.slice(0, closest);
  };
  return {
    heads,
    low: [0],
    high: [size - 1],
    center: nearest,
    respond(point, entropy) {
      // All are made every time, so that the work does not tell how the coin fell.
      const near = nearest(point)[Number(entropy.integer(BigInt(closest)))];
      const far = Number(entropy.integer(BigInt(size)));
      return [entropy.coin(heads) ? near : far];
    },
    law: () => countedLaw(heads, closest, size),
    place: ([named]) => points[named].map((i, axis) => unsnap(box, i, axis)),
  };
}

const KINDS = {
  minkowski: {
    make: (params, box) => caps(params, box, { bounded: false }),
    decodes: ["project", "median", "unbiased", "raw", "learned", "learned-mean"],
    stated: ["radius", "inset"],
  },
  bounded: {
    make: (params, box) => caps(params, box, { bounded: true }),
    decodes: ["raw", "median", "learned", "learned-mean"],
    stated: ["radius"],
  },
  grid: { make: grid, decodes: ["median", "raw", "learned", "learned-mean"], stated: ["cells"] },
  codebook: { make: codebook, decodes: ["raw"], stated: ["points", "weights", "closest"] },
};

/** Make the mechanism that terms describe, or say why this page cannot. */
export function randomizerOf(params) {
  if (!Object.hasOwn(KINDS, params.name)) {
    throw new Refused(
      `the round randomizes by ${params.name}; this page draws ${Object.keys(KINDS).join(", ")} only:`
      + " join with the command line",
    );
  }
  const box = boxOf(params.domain);
  const { make, decodes, stated } = KINDS[params.name];
  complete(params, ["name", "domain", "epsilon", "decode", ...stated]);
  const made = make(params, box);
  return { name: params.name, box, decodes, ...made, snap: (value) => snap(box, value) };
}
