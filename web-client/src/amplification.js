// The client's own accounting: an upper bound on the ε that a crowd of n guarantees.
//
// With the blanket m, the evidence of a report for one of two inputs is G = (R(x0) - e R(x1))/m and
//     delta(eps_c) <= E[(G_1 + ... + G_n)_+] / n          (docs/explanation/amplification.md)
// This file turns a law into its kinds of reports, each with R(x0)/m, R(x1)/m and m, as SPEC section 20 says;
// `hockey-stick.js` bounds the sum.

import { deltaOfTwo } from "./binary-response.js";
import { deltaOfBoxes } from "./box-caps.js";
import { Refused } from "./errors.js";
import { meanExcess } from "./hockey-stick.js";

const UNIT = 2 ** -53;
const above = (number) => number * (1 + 8 * UNIT); // more than the rounding error of the number
const SLACK = 1e-9; // of a cap: what two caps share below this is rounding
const ROUNDED = 1e-13; // how far rounding may take the mass of the rest below 0
const MOST_KINDS = 1500; // of reports that are worked out one by one
const ROUNDING = 1e-9; // by how much of a promise this client's bound may exceed it (SPEC S12.10)
const MOST_LOCAL = 12; // beside decoys
const GROUPS = 64; // of numbers of uniform reports, each bounded by its least
const FEWER = 50; // minus the log of the chance of fewer than are summed
const DECOY_ROUNDING = 2 ** -48; // of a ratio or a chance, times the share of uniform reports
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
function kindsOfBounds({ rate = 1, ...law }) {
  const any = anyKinds(law.epsilon);
  const silenced = (kinds) => [...kinds.map(({ x, y, m }) => ({ x, y, m: rate * m })), { x: 1, y: 1, m: 1 - rate }];
  return [productKinds(law.fields ?? [law]), any].filter((kinds) => kinds !== null).map(silenced);
}

/** Return functions that bound the delta of n people at a central epsilon; each one bounds the law. */
function bounds(law, n) {
  if (law.decoys) return [deltaWithDecoys(law, n)];
  if (law.binary && law.rate === undefined) return [(epsilon) => deltaOfTwo(law.epsilon, n, epsilon)];
  const coarse = kindsOfBounds(law).map((kinds) => (epsilon, enough) => delta(kinds, n, epsilon, enough));
  if (!law.axes || law.rate !== undefined || !(law.kernel > 0) || coarse.length < 2) return coarse;
  const share = (law.kernel / law.cap) ** (1 / law.axes) * (1 - 1e-14);
  const boxes = deltaOfBoxes({ epsilon: law.epsilon, cap: law.cap, share, axes: law.axes }, n);
  const [first, ...rest] = coarse;
  return [(epsilon, enough = 0) => {
    const rough = first(epsilon, enough);
    return rough <= enough ? rough : Math.min(rough, boxes(epsilon, first(epsilon)));
  }, ...rest];
}

/** Return the kinds of reports of a law, each as x, y and m of SPEC S20.1. @param {import("./types.js").Law} law @returns {number[][]} */
export function kindsOf(law) {
  return kindsOfBounds(law)[0].filter(({ m }) => m > 0).map(({ x, y, m }) => [x, y, m]);
}

function delta(kinds, n, epsilon, enough = 0) {
  const e = Math.exp(epsilon);
  const values = kinds.map(({ x, y, m }) => ({ v: x - e * y + 8 * UNIT * (x + e * y), m })).filter(({ m }) => m > 0);
  return Math.min(1, meanExcess(values.length > MOST ? fewer(values, e) : values, { first: n, gap: 0, shares: [1] }, enough));
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
 * Return a bound on delta for n people of whom each also sends `decoys` uniform reports. SPEC S20.23 and on: the reports of
 * others that say nothing, whose number is binomial, and all decoys but the person's own are uniform draws.
 */
function deltaWithDecoys({ epsilon: local, cap, apart, exact, decoys }, n) {
  if (!exact || local > MOST_LOCAL || !local) {
    throw new Refused("the terms ask for decoys of a mechanism whose promise they do not improve: do not join");
  }
  const p = Math.exp(local);
  const share = Math.max(2 ** -40, 1 - (p - 1) * cap);
  const close = DECOY_ROUNDING / share;
  const { low, gap, shares } = uniformReports(n - 1, share * (1 - close));
  const first = 1 + decoys * (n - 1) + low;
  const rounding = Math.exp(Math.min(700, (first + gap * (shares.length - 1)) * close)) * (1 + 1e-9);
  const both = Math.max(0, cap - apart);
  return (epsilon, enough = 0) => {
    const e = Math.exp(epsilon);
    const raised = DECOY_ROUNDING * (p + 1) * (e + 1);
    const values = [
      { v: share * (p - e), m: apart / share }, { v: share * (1 - p * e), m: apart / share },
      { v: share * p * (1 - e), m: both / share }, { v: share * (1 - e), m: Math.max(0, 1 - (2 * apart + both) / share) },
    ].filter(({ m }) => m > 0).map(({ v, m }) => ({ v: v + raised, m }));
    return Math.min(1, meanExcess(values, { first, gap, shares }, enough / (2 * rounding)) * rounding + Math.exp(-FEWER));
  };
}

/** Cut Bin(others, chance) to a window and that to groups; return its least value, their width and their chances. */
function uniformReports(others, chance) {
  const mean = others * chance;
  const reach = FEWER / 3 + Math.sqrt(FEWER ** 2 / 9 + 2 * mean * (1 - chance) * FEWER); // Bernstein
  const low = Math.max(0, Math.floor(mean - reach));
  const high = Math.min(others, Math.ceil(mean + reach));
  const gap = Math.ceil((high - low + 1) / GROUPS);
  const mode = Math.min(high, Math.max(low, Math.floor((others + 1) * chance)));
  const ratio = (count) => ((others - count) / (count + 1)) * (chance / (1 - chance)); // of the next chance to this one
  const masses = new Float64Array(high - low + 1);
  masses[mode - low] = 1;
  for (let count = mode; count < high; count += 1) masses[count + 1 - low] = masses[count - low] * ratio(count);
  for (let count = mode; count > low; count -= 1) masses[count - 1 - low] = masses[count - low] / ratio(count - 1);
  const whole = masses.reduce((total, mass) => total + mass, 0);
  const shares = [];
  for (let at = 0; at < masses.length; at += gap) shares.push(masses.slice(at, at + gap).reduce((total, mass) => total + mass, 0) / whole);
  return { low, gap, shares };
}

/**
 * Return an upper bound on delta at a central epsilon for n honest, anonymous people.
 * @param {import("./types.js").Law} law @param {number} n @param {number} epsilon @returns {number}
 */
export function deltaAbove(law, n, epsilon) {
  return epsilon >= law.epsilon ? 0 : Math.min(...bounds(law, n).map((bound) => bound(epsilon)));
}

/**
 * Return the central epsilon that the crowd gives at this delta, rounded up; never above the local one, nor above a
 * `promise` that holds.
 * @param {import("./types.js").Law} law
 * @param {{ crowd: number, delta: number, corrupted?: number, exposed?: number, promise?: number }} options @returns {number}
 */
export function amplify(law, { crowd, delta: target, corrupted = 0, exposed = 0, promise = Infinity }) {
  // With decoys the answers give away messages; as many as a person has decoys count as one person.
  const n = Math.max(1, crowd - corrupted - Math.ceil(exposed / (law.decoys || 1)));
  let best = law.epsilon;
  for (const bound of n > 1 ? bounds(law, n) : []) {
    const holds = (epsilon) => bound(epsilon, target) <= target;
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
