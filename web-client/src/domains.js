// Domains (boxes, balls and categories), and the lattice point of a value. SPEC section 13.
//
// Bit for bit the same as coatcheck/domains. Only balls whose norm can be computed in integers are
// supported: p = 1, 2 and inf.

import { Misuse, Refused } from "./errors.js";

const MAX_STEPS = 2 ** 24;
const MAX_DIMENSION = 2 ** 16; // more numbers than terms can hold
const SLACK = 1e-9; // a norm that a float sum makes this much too large still counts as inside

/** Round half to even, as Python does. */
export function roundEven(value) {
  const low = Math.floor(value);
  const rest = value - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}

/** Refuse parameters unless they are exactly `names`: the client guesses no part of a mechanism. */
export function complete(params, names) {
  const stated = Object.keys(params);
  if (stated.length !== names.length || !names.every((name) => stated.includes(name))) {
    throw new Refused(`the terms must state exactly ${names.join(", ")}, got ${stated.join(", ")}`);
  }
}

export const clip = (value, edge) => Math.max(-edge, Math.min(edge, value));
export const isWhole = (value, low, high) => Number.isInteger(value) && low <= value && value <= high;
const goodSteps = (steps) => isWhole(steps, 2, MAX_STEPS) && steps % 2 === 0;

function boxOf(params) {
  complete(params, ["kind", "lo", "hi", "steps", "degrees"]);
  const { lo, hi, steps, degrees } = params;
  const numbers = (list) => Array.isArray(list) && list.every((number) => Number.isFinite(number));
  const good = numbers(lo) && numbers(hi) && lo.length > 0 && lo.length === hi.length
    && lo.every((low, axis) => low < hi[axis]) && typeof degrees === "boolean" && goodSteps(steps);
  if (!good) throw new Refused("a box needs `lo` below `hi` on each axis and an even number of `steps`: these terms are invalid");
  const half = steps / 2;
  return {
    p: Infinity,
    steps,
    half,
    dimension: lo.length,
    pointOf: (value) => value.map((x, axis) => {
      const [a, b] = [lo[axis], hi[axis]];
      if (!(a <= x && x <= b)) throw new Misuse(`a coordinate is outside ${a} to ${b}, the domain of this round`);
      return roundEven(((x - (a + b) / 2) / ((b - a) / 2)) * half);
    }),
    /** Return a coordinate of the unit ball in the user's units. */
    value: (unit, axis) => (lo[axis] + hi[axis]) / 2 + unit * ((hi[axis] - lo[axis]) / 2),
  };
}

function ballOf(params) {
  complete(params, ["kind", "radius", "p", "dimension", "steps"]);
  const { radius, dimension, steps } = params;
  const p = params.p === "inf" ? Infinity : params.p;
  const good = Number.isFinite(radius) && radius > 0 && typeof p === "number" && p >= 1
    && isWhole(dimension, 1, MAX_DIMENSION) && goodSteps(steps);
  if (!good) throw new Refused("a ball needs a `radius` above 0, a norm `p`, a `dimension` and an even number of `steps`: these terms are invalid");
  if (![1, 2, Infinity].includes(p)) {
    throw new Refused(`this round has a ball with p = ${p}; this client supports p = 1, 2 and inf only: join with the command line`);
  }
  const half = steps / 2;
  return {
    p,
    steps,
    half,
    dimension,
    pointOf(value) {
      const unit = value.map((x) => x / radius);
      if (!(norm(unit, p) <= 1 + SLACK)) {
        throw new Misuse(`the l${p} norm of the value must be at most ${radius}`);
      }
      return pulledIn(unit.map((u) => Math.trunc(u * half) + 0), p, half);
    },
    value: (unit) => unit * radius,
  };
}

/** Return a domain of unordered labels; a lattice point is a label's position. */
function categoriesOf(params) {
  complete(params, ["kind", "labels"]);
  const { labels } = params;
  const good = Array.isArray(labels) && labels.length > 0 && labels.every((label) => typeof label === "string")
    && new Set(labels).size === labels.length;
  if (!good) throw new Refused("categories need at least one label, and no label twice: these terms are invalid");
  return {
    labels,
    dimension: 1,
    pointOf([label]) {
      if (!labels.includes(label)) throw new Misuse(`${label} is not a label of this round: choose one of ${labels.join(", ")}`);
      return [labels.indexOf(label)];
    },
  };
}

function norm(unit, p) {
  const sizes = unit.map(Math.abs);
  if (p === Infinity) return sizes.reduce((most, size) => Math.max(most, size), 0);
  if (p === 1) return sizes.reduce((sum, size) => sum + size, 0);
  return Math.sqrt(sizes.reduce((sum, size) => sum + size * size, 0));
}

/** Pull a point inside that float rounding left outside: shorten its longest coordinate step by step. */
function pulledIn(point, p, half) {
  if (p === Infinity) return point.map((i) => clip(i, half));
  const moved = [...point];
  while (!isWithin(moved, p, half)) {
    const sizes = moved.map(Math.abs);
    const longest = sizes.indexOf(sizes.reduce((most, size) => Math.max(most, size), 0));
    moved[longest] -= Math.sign(moved[longest]);
  }
  return moved;
}

/** Return whether |point|_p <= reach, in integers. */
export function isWithin(point, p, reach) {
  if (!point.every((i) => -reach <= i && i <= reach)) return false;
  if (p === Infinity) return true;
  const total = (power) => point.reduce((sum, i) => sum + BigInt(Math.abs(i)) ** power, 0n);
  const power = BigInt(p);
  return total(power) <= BigInt(reach) ** power;
}

/** Return the domain that the terms describe; refuse one that this client does not support. */
export function domainOf(params) {
  const kinds = { box: boxOf, ball: ballOf, categories: categoriesOf };
  if (!Object.hasOwn(kinds, params?.kind ?? "")) {
    throw new Refused(`this round has a domain of kind ${params?.kind}; this client supports boxes, balls and categories only: join with the command line`);
  }
  const domain = kinds[params.kind](params);
  return {
    ...domain,
    /** Return the lattice point of a value in the user's units: one number per axis, or a label. */
    snap(value) {
      const entries = typeof value === "string" ? [value] : value;
      const good = Array.isArray(entries) && entries.length === domain.dimension
        && (domain.labels || entries.every((number) => Number.isFinite(number)));
      if (!good) {
        throw new Misuse(
          domain.labels ? `the value must be one of ${domain.labels.join(", ")}`
            : `the value must be a list of ${domain.dimension} numbers, one per coordinate`,
        );
      }
      return domain.pointOf(entries);
    },
  };
}
