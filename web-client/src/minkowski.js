// Minkowski and bounded response: a small ball around the value, or the whole output ball. SPEC section 13.
//
// The same mechanisms as coatcheck/randomizers/minkowski.py, bit for bit in their parameters.

import { TOSSES, headsFor, ratio, spent } from "./biased-coin.js";
import { roundEven } from "./domains.js";
import { Refused } from "./errors.js";
import { latticeBall } from "./lattice-balls.js";

const MAX_REACH = 2 ** 30;
const MAX_NUMBERS = 1024; // of a report
const MOST_AXES = 8; // of boxes whose overlaps are counted

/** Return the mechanism: a cap around the value with probability heads / 2^64, otherwise the whole output ball. */
export function caps(params, domain, { bounded }) {
  const { radius, inset = 0 } = params;
  const { half, dimension: d } = domain;
  if (domain.labels) throw new Refused("this mechanism needs a box or a ball, but the terms describe categories");
  if (!(Number.isFinite(radius) && radius > 0 && inset >= 0 && inset < 1)) {
    throw new Refused("`radius` in the terms must be above 0, and `inset` from 0 to below 1");
  }
  if (d > MAX_NUMBERS) throw new Refused(`a report must have at most ${MAX_NUMBERS} numbers, got ${d}`);
  /** @type {any} */
  const ball = latticeBall(domain.p, d);
  const reach = Math.max(1, Math.min(roundEven(radius * half), bounded ? half : MAX_REACH - half));
  if (radius !== reach / half) throw new Refused(`\`radius\` in the terms must be a whole number of lattice steps, such as ${reach / half}, got ${radius}`);
  const whole = bounded ? half : half + reach;
  const counts = ball.counts(reach, whole);
  const heads = headsFor(params.epsilon, ...counts);
  const apart = bounded ? half - reach : half;
  const center = (point) => (bounded ? ball.shrink(point, apart) : point);
  return {
    reach,
    whole,
    heads,
    low: Array(d).fill(-whole),
    high: Array(d).fill(whole),
    center,
    respond(point, entropy) {
      // All three are drawn every time, so that the running time does not reveal how the coin fell.
      const near = ball.sample(reach, entropy);
      const far = ball.sample(whole, entropy);
      const middle = center(point);
      return entropy.coin(heads) ? near.map((u, axis) => middle[axis] + u) : far;
    },
    decoy: (entropy) => ball.sample(whole, entropy),
    law: () => capLaw({ axes: d, ball, reach, whole, heads, apart, epsilon: spent(heads, counts, params.epsilon) }),
    /** Return the place at which the server will decode this report, in the user's units. */
    place: (report) => ball.project(report.map((y) => y / half)).map(domain.value),
  };
}

/**
 * Return the law. The cap is rounded up and the kernel down, so that the law is on the private side. SPEC S20.6.
 * @param {any} mechanism
 */
function capLaw({ axes, ball, reach, whole, heads, apart, epsilon }) {
  const cap = ratio([TOSSES - heads, TOSSES]) * ratio(ball.countsAbove(reach, whole));
  const deep = reach - apart;
  const core = deep >= 0 ? ratio(ball.counts(deep, reach)) : 0;
  const shared = Math.max(core, ball.lens(reach, apart));
  return { epsilon, cap, apart: cap * (1 - shared), kernel: cap * core, exact: ball.boxes, axes: ball.boxes && axes <= MOST_AXES ? axes : 0 };
}
