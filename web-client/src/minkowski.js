// Minkowski and bounded response: a small ball around the value, or the whole output ball.

import { TOSSES, headsFor, ratio } from "./biased-coin.js";
import { roundEven } from "./domains.js";
import { Refused } from "./errors.js";
import { latticeBall } from "./lattice-balls.js";

const MAX_REACH = 2 ** 30;
const MAX_NUMBERS = 1024; // of a report

/** A cap around the value with probability heads / 2^64, else the whole output ball. */
export function caps(params, domain, { bounded }) {
  const { radius, inset = 0 } = params;
  const { half, dimension: d } = domain;
  if (domain.labels) throw new Refused("a cap is drawn in a box or a ball, and the terms describe categories");
  if (!(Number.isFinite(radius) && radius > 0 && inset >= 0 && inset < 1)) {
    throw new Refused("the terms give no radius above 0 for the cap, or no inset from 0 to below 1");
  }
  if (d > MAX_NUMBERS) throw new Refused(`a report has at most ${MAX_NUMBERS} numbers, this one has ${d}`);
  /** @type {any} */
  const ball = latticeBall(domain.p, d);
  const reach = Math.max(1, Math.min(roundEven(radius * half), bounded ? half : MAX_REACH - half));
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
      // All three are drawn every time, so that the work does not tell how the coin fell.
      const near = ball.sample(reach, entropy);
      const far = ball.sample(whole, entropy);
      const middle = center(point);
      return entropy.coin(heads) ? near.map((u, axis) => middle[axis] + u) : far;
    },
    law: () => capLaw({ ball, reach, whole, heads, apart, counts }),
    /** Where the server will put this report, in the user's units. */
    place: (report) => ball.project(report.map((y) => y / half)).map(domain.value),
  };
}

/**
 * A cap no smaller and a kernel no larger than the truth: so rounded, the law is private.
 * @param {any} given
 */
function capLaw({ ball, reach, whole, heads, apart, counts: [near, all] }) {
  const cap = ratio([TOSSES - heads, TOSSES]) * ratio(ball.countsAbove(reach, whole));
  const deep = reach - apart;
  const core = deep >= 0 ? ratio(ball.counts(deep, reach)) : 0;
  const shared = Math.max(core, ball.lens(reach, apart));
  const epsilon = near === all || !heads ? 0 : Math.log1p(ratio([heads * all, (TOSSES - heads) * near]));
  return { epsilon, cap, apart: cap * (1 - shared), kernel: cap * core };
}
