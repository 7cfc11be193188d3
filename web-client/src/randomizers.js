// Minkowski, bounded and grid response on a box, drawn in integers on the lattice.
//
// The same mechanisms as coatcheck/randomizers, bit for bit in their parameters; whatever else
// terms may name is refused here. No float carries a private value to the wire.

import { Misuse, Refused } from "./errors.js";
import { TOSSES, headsFor } from "./mixing.js";

const MAX_REACH = 2 ** 30;
const MAX_STEPS = 2 ** 24;

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
  return { epsilon: Math.log1p(mixing / (1 - mixing) / share), cap, apart: cap - kernel, kernel };
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
    law() {
      const mixing = Number(heads) / Number(TOSSES);
      const cap = (1 - mixing) / Number(total);
      if (total === 1n) return { epsilon: 0, cap: 1, apart: 0, kernel: 1 };
      return { epsilon: Math.log1p((mixing / (1 - mixing)) * Number(total)), cap, apart: cap, kernel: 0 };
    },
    place: (report) => report.map((y, axis) => {
      const [a, b] = [box.lo[axis], box.hi[axis]];
      return a + ((y + 0.5) / cells[axis]) * (b - a);
    }),
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
