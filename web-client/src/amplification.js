// The client's own accounting: an upper bound on the ε that a crowd of n guarantees.
//
// With the blanket m, the evidence of a report for one of two inputs is G = (R(x0) - e R(x1))/m and
//     delta(eps_c) <= E[(G_1 + ... + G_n)_+] / n          (docs/explanation/amplification.md)
// This file turns a law into its kinds of reports, each with R(x0)/m, R(x1)/m and m, as SPEC section 20 says;
// `hockey-stick.js` bounds the sum.

import { Refused } from "./errors.js";
import { meanExcess } from "./hockey-stick.js";

const UNIT = 2 ** -53;
const above = (number) => number * (1 + 8 * UNIT); // more than the rounding error of the number
const SLACK = 1e-9; // of a cap: what two caps share below this is rounding
const ROUNDED = 1e-13; // how far rounding may take the mass of the rest below 0
const MOST_KINDS = 1500; // of reports that are worked out one by one
const ROUNDING = 1e-9; // by how much of a promise this client's bound may exceed it (SPEC S12.10)
const MOST = 130; // values of G that are summed as they are; more are put on as many points

/** Return the kinds of reports of the worst mechanism with this epsilon. */
function anyKinds(epsilon) {
  const p = above(Math.exp(epsilon));
  return [{ x: p, y: 1, m: 1 / (p + 1) }, { x: 1, y: p, m: 1 / (p + 1) }];
}

/** Return the kinds of one field's report: in one of two caps, in both, elsewhere. Null if they do not fit. SPEC S20.3. */
function fieldKinds(field) {
  const p = above(Math.exp(field.epsilon));
  const apart = above(field.apart);
  const cap = Math.max(above(field.cap), apart);
  const kernel = Math.min(field.kernel * (1 - 8 * UNIT), cap - apart);
  const shared = Math.max(0, cap - apart - kernel);
  const deep = shared <= SLACK * cap ? 0 : shared;
  const flat = 1 - (p - 1) * cap - 2 * apart - deep - kernel + p * kernel;
  if (flat < -ROUNDED) return null;
  const kinds = [{ x: p, y: 1, m: apart }, { x: 1, y: p, m: apart }, { x: 1, y: 1, m: Math.max(0, flat) }, { x: p, y: p, m: deep }];
  return kinds.filter(({ m }) => m > 0);
}

/** Multiply the fields: the worst values differ as far as possible in every field (Statements 17, 18). */
function productKinds(fields) {
  let whole = [{ x: 1, y: 1, m: 1 }];
  for (const field of fields) {
    const kinds = fieldKinds(field);
    if (!kinds) return null;
    const merged = new Map();
    for (const prefix of whole) {
      for (const { x, y, m } of kinds) {
        const [first, second] = [prefix.x * x, prefix.y * y];
        const name = `${first} ${second}`;
        merged.set(name, { x: first, y: second, m: prefix.m * m + (merged.get(name)?.m ?? 0) });
      }
    }
    if (merged.size > MOST_KINDS) return null;
    whole = [...merged.values()];
  }
  return whole;
}

/** Return a law as lists of kinds of reports; each list bounds it. Silence is equally likely under every value. */
function bounds({ rate = 1, ...law }) {
  const any = anyKinds(law.epsilon);
  const silenced = (kinds) => [...kinds.map(({ x, y, m }) => ({ x, y, m: rate * m })), { x: 1, y: 1, m: 1 - rate }];
  return [productKinds(law.fields ?? [law]), any].filter((kinds) => kinds !== null).map(silenced);
}

/** Return the kinds of reports of a law, each as x, y and m of SPEC S20.1. @param {import("./types.js").Law} law @returns {number[][]} */
export function kindsOf(law) {
  return bounds(law)[0].filter(({ m }) => m > 0).map(({ x, y, m }) => [x, y, m]);
}

function delta(kinds, n, epsilon, enough = 0) {
  const e = Math.exp(epsilon);
  const values = kinds.map(({ x, y, m }) => ({ v: x - e * y + 8 * UNIT * (x + e * y), m })).filter(({ m }) => m > 0);
  return Math.min(1, meanExcess(values.length > MOST ? fewer(values, e) : values, n, enough));
}

/** Move values to fewer points by lotteries that keep their means, which only raises the bound. */
function fewer(values, e) {
  const top = values.reduce((most, { v }) => Math.max(most, (v + e) * (1 + 1e-12), ((1 - v) / e) * (1 + 1e-12)), 2);
  const ratios = Array.from({ length: MOST / 2 }, (_, at) => top ** (at / (MOST / 2 - 1)));
  const points = [...ratios.map((ratio) => 1 - e * ratio), ...ratios.map((ratio) => ratio - e)].sort((a, b) => a - b);
  const mass = points.map(() => 0);
  for (const { v, m } of values) {
    const next = Math.min(points.length - 1, Math.max(1, points.findIndex((point) => point >= v)));
    const up = Math.min(1, Math.max(0, (v - points[next - 1]) / (points[next] - points[next - 1] || 1)));
    mass[next] += m * up;
    mass[next - 1] += m * (1 - up);
  }
  return points.map((point, at) => ({ v: point + 16 * UNIT * (Math.abs(point) + e), m: mass[at] })).filter(({ m }) => m > 0);
}

/**
 * Return an upper bound on delta at a central epsilon for n honest, anonymous people.
 * @param {import("./types.js").Law} law @param {number} n @param {number} epsilon @returns {number}
 */
export function deltaAbove(law, n, epsilon) {
  return epsilon >= law.epsilon ? 0 : Math.min(...bounds(law).map((kinds) => delta(kinds, n, epsilon)));
}

/**
 * Return the central epsilon that the crowd gives at this delta, rounded up; never above the local one, nor above a
 * `promise` that holds.
 * @param {import("./types.js").Law} law
 * @param {{ crowd: number, delta: number, corrupted?: number, exposed?: number, promise?: number }} options @returns {number}
 */
export function amplify(law, { crowd, delta: target, corrupted = 0, exposed = 0, promise = Infinity }) {
  const n = Math.max(1, crowd - corrupted - exposed);
  let best = law.epsilon;
  for (const kinds of n > 1 ? bounds(law) : []) {
    const holds = (epsilon) => delta(kinds, n, epsilon, target) <= target;
    if (promise < best && holds(promise)) best = promise;
    else if (!holds(best * (1 - 1e-6))) continue;
    let bad = 0;
    for (let turn = 0; turn < 40 && best - bad > 1e-7 * best; turn += 1) {
      const middle = (best + bad) / 2;
      if (holds(middle)) best = middle;
      else bad = middle;
    }
  }
  return best;
}

/**
 * Return the central epsilon that this client proves; refuse a promise below it.
 * @param {import("./types.js").Law} law @param {{ epsilon: number, corrupted: number, exposed: number }} promise
 * @param {{ crowd: number, delta: number }} options @returns {number}
 */
export function examined(law, promise, { crowd, delta }) {
  const most = promise.epsilon * (1 + ROUNDING);
  const epsilon = amplify(law, { ...promise, crowd, delta, promise: most });
  if (epsilon <= most) return epsilon;
  throw new Refused(
    `the terms promise ε = ${promise.epsilon.toPrecision(4)}, but a crowd of ${crowd} gives only ε = ${epsilon.toPrecision(4)}: do not join`,
  );
}
