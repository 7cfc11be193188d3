// Boxes, balls and categories: where values live, and the lattice point of a value. SPEC section 13.
//
// As coatcheck/domains/numeric.py, bit for bit. Balls are those whose norm is told in whole
// numbers: p = 1, 2 and inf.

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

/** Refuse parameters with one missing or one that is not known: nothing of a mechanism is guessed. */
export function complete(params, names) {
  const given = Object.keys(params);
  if (given.length !== names.length || !names.every((name) => given.includes(name))) {
    throw new Refused(`the terms must state ${names.join(", ")}, they state ${given.join(", ")}`);
  }
}

export const clip = (value, edge) => Math.max(-edge, Math.min(edge, value));
export const isWhole = (value, low, high) => Number.isInteger(value) && low <= value && value <= high;
const goodSteps = (steps) => isWhole(steps, 2, MAX_STEPS) && steps % 2 === 0;

function boxOf(params) {
  complete(params, ["kind", "lo", "hi", "steps", "degrees"]);
  const { lo, hi, steps, degrees } = params;
  const numbers = (list) => Array.isArray(list) && list.every((one) => Number.isFinite(one));
  const good = numbers(lo) && numbers(hi) && lo.length > 0 && lo.length === hi.length
    && lo.every((low, axis) => low < hi[axis]) && typeof degrees === "boolean" && goodSteps(steps);
  if (!good) throw new Refused("the terms describe no box: lo below hi along each axis, even steps");
  const half = steps / 2;
  return {
    p: Infinity,
    steps,
    half,
    dimension: lo.length,
    pointOf: (value) => value.map((x, axis) => {
      const [a, b] = [lo[axis], hi[axis]];
      if (!(a <= x && x <= b)) throw new Misuse(`${x} is outside ${a} to ${b}, where the round takes place`);
      return roundEven(((x - (a + b) / 2) / ((b - a) / 2)) * half);
    }),
    /** A place of the unit ball in the user's units. */
    value: (unit, axis) => (lo[axis] + hi[axis]) / 2 + unit * ((hi[axis] - lo[axis]) / 2),
  };
}

function ballOf(params) {
  complete(params, ["kind", "radius", "p", "dimension", "steps"]);
  const { radius, dimension, steps } = params;
  const p = params.p === "inf" ? Infinity : params.p;
  const good = Number.isFinite(radius) && radius > 0 && typeof p === "number" && p >= 1
    && isWhole(dimension, 1, MAX_DIMENSION) && goodSteps(steps);
  if (!good) throw new Refused("the terms describe no ball: a radius above 0, a norm, a dimension, even steps");
  if (![1, 2, Infinity].includes(p)) {
    throw new Refused(`values live in a ball with p = ${p} here; this page knows p = 1, 2 and inf only`);
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
        throw new Misuse(`the l${p} norm of a value is at most ${radius} here: shorten it`);
      }
      return pulledIn(unit.map((u) => Math.trunc(u * half) + 0), p, half);
    },
    value: (unit) => unit * radius,
  };
}

/** A few named choices with no order among them; a lattice point is a label's position. */
function categoriesOf(params) {
  complete(params, ["kind", "labels"]);
  const { labels } = params;
  const good = Array.isArray(labels) && labels.length > 0 && labels.every((one) => typeof one === "string")
    && new Set(labels).size === labels.length;
  if (!good) throw new Refused("the terms describe no categories: at least one label, and no label twice");
  return {
    labels,
    dimension: 1,
    pointOf([label]) {
      if (!labels.includes(label)) throw new Misuse(`${label} is no choice here: choose one of ${labels.join(", ")}`);
      return [labels.indexOf(label)];
    },
  };
}

function norm(unit, p) {
  const sizes = unit.map(Math.abs);
  if (p === Infinity) return sizes.reduce((most, one) => Math.max(most, one), 0);
  if (p === 1) return sizes.reduce((sum, one) => sum + one, 0);
  return Math.sqrt(sizes.reduce((sum, one) => sum + one * one, 0));
}

/** Shorten what float rounding left outside: the longest coordinate, a step at a time. */
function pulledIn(point, p, half) {
  if (p === Infinity) return point.map((i) => clip(i, half));
  const moved = [...point];
  while (!isWithin(moved, p, half)) {
    const sizes = moved.map(Math.abs);
    const longest = sizes.indexOf(sizes.reduce((most, one) => Math.max(most, one), 0));
    moved[longest] -= Math.sign(moved[longest]);
  }
  return moved;
}

/** Whether |point|_p <= reach, in whole numbers. */
export function isWithin(point, p, reach) {
  if (!point.every((i) => -reach <= i && i <= reach)) return false;
  if (p === Infinity) return true;
  const total = (power) => point.reduce((sum, i) => sum + BigInt(Math.abs(i)) ** power, 0n);
  const power = BigInt(p);
  return total(power) <= BigInt(reach) ** power;
}

/** Make the domain that terms describe, or say why this page cannot. */
export function domainOf(params) {
  const kinds = { box: boxOf, ball: ballOf, categories: categoriesOf };
  if (!Object.hasOwn(kinds, params?.kind ?? "")) {
    throw new Refused(`values live in a ${params?.kind} here; this page randomizes on boxes, balls and categories only`);
  }
  const domain = kinds[params.kind](params);
  return {
    ...domain,
    /** The lattice point of a value in the user's units: one number per axis, or a label. */
    snap(value) {
      const given = typeof value === "string" ? [value] : value;
      const good = Array.isArray(given) && given.length === domain.dimension
        && (domain.labels || given.every((one) => Number.isFinite(one)));
      if (!good) {
        throw new Misuse(
          domain.labels ? `a value is one of ${domain.labels.join(", ")} here`
            : `a value is a list of ${domain.dimension} numbers here, one per coordinate`,
        );
      }
      return domain.pointOf(given);
    },
  };
}
