// Minkowski, bounded, grid and codebook response on boxes and balls, drawn in integers on the lattice.
//
// The same mechanisms as coatcheck/randomizers, bit for bit in their parameters; whatever else
// terms may name is refused here. No float carries a private value to the wire.

import { latticeBall, ratio } from "./balls.js";
import { complete, domainOf, isWhole, isWithin, roundEven } from "./domains.js";
import { Refused } from "./errors.js";
import { TOSSES, countedLaw, headsFor } from "./mixing.js";
import { sphere } from "./sphere.js";

const MAX_REACH = 2 ** 30;
const MAX_NUMBERS = 1024; // of a report
const MAX_POINTS = 4096;
const MAX_AXES = 16;
const MAX_WEIGHT = 256;
const MAX_LEARNED = 3; // dimensions in which reports are read by the whole batch

/** A cap around the value with probability heads / 2^64, else the whole output ball. */
function caps(params, domain, { bounded }) {
  const { radius, inset = 0 } = params;
  const { half, dimension: d } = domain;
  if (!(Number.isFinite(radius) && radius > 0 && inset >= 0 && inset < 1)) {
    throw new Refused("the terms give no radius above 0 for the cap, or no inset from 0 to below 1");
  }
  if (d > MAX_NUMBERS) throw new Refused(`a report has at most ${MAX_NUMBERS} numbers, this one has ${d}`);
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

/** A cap no smaller and a kernel no larger than the truth: so rounded, the law is private. */
function capLaw({ ball, reach, whole, heads, apart, counts: [near, all] }) {
  const cap = ratio(TOSSES - heads, TOSSES) * ratio(...ball.countsAbove(reach, whole));
  const deep = reach - apart;
  const core = deep >= 0 ? ratio(...ball.counts(deep, reach)) : 0;
  const shared = Math.max(core, ball.lens(reach, apart));
  const epsilon = near === all || !heads ? 0 : Math.log1p(ratio(heads * all, (TOSSES - heads) * near));
  return { epsilon, cap, apart: cap * (1 - shared), kernel: cap * core };
}

/** The true cell with probability heads / 2^64, else any cell. */
function grid(params, box) {
  const { cells } = params;
  if (params.domain.kind !== "box") throw new Refused("a grid cuts a box, and the terms describe a ball");
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
    place: (report) => report.map((y, axis) => box.value(((y + 0.5) / cells[axis]) * 2 - 1, axis)),
  };
}

/** One of the closest points of a codebook with probability heads / 2^64, else any point. */
function codebook(params, domain) {
  const { points, weights, closest } = params;
  const whole = (row, low, high) => Array.isArray(row) && row.length === domain.dimension
    && row.every((i) => isWhole(i, low, high));
  const size = Array.isArray(points) ? points.length : 0;
  const good = size >= 1 && size <= MAX_POINTS && (size === 1 || domain.dimension <= MAX_AXES)
    && points.every((point) => whole(point, -domain.half, domain.half) && isWithin(point, domain.p, domain.half))
    && whole(weights, 1, MAX_WEIGHT)
    && new Set(points.map(String)).size === size
    && isWhole(closest, 1, Math.max(1, size - 1));
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
    place: ([named]) => points[named].map((i, axis) => domain.value(i / domain.half, axis)),
  };
}

const boxes = ({ p, dimension }) => p === Infinity || dimension === 1;
const median = (domain) => (boxes(domain) ? ["median"] : []);
const learned = ({ dimension }) => (dimension <= MAX_LEARNED ? ["learned", "learned-mean"] : []);

const KINDS = {
  minkowski: {
    make: (params, domain) => caps(params, domain, { bounded: false }),
    decodes: (domain) => ["project", ...median(domain), "unbiased", "raw", ...learned(domain)],
    stated: ["radius", "inset"],
  },
  bounded: {
    make: (params, domain) => caps(params, domain, { bounded: true }),
    decodes: (domain) => ["raw", ...median(domain), ...learned(domain)],
    stated: ["radius"],
  },
  grid: { make: grid, decodes: (domain) => ["median", "raw", ...learned(domain)], stated: ["cells"] },
  codebook: { make: codebook, decodes: () => ["raw"], stated: ["points", "weights", "closest"] },
  sphere: { make: sphere, decodes: () => ["unbiased", "project"], stated: ["size", "closest", "turns", "seed"] },
};

/** Make the mechanism that terms describe, or say why this page cannot. */
export function randomizerOf(params) {
  if (!Object.hasOwn(KINDS, params.name)) {
    throw new Refused(
      `the round randomizes by ${params.name}; this page draws ${Object.keys(KINDS).join(", ")} only:`
      + " join with the command line",
    );
  }
  const { make, decodes, stated } = KINDS[params.name];
  complete(params, ["name", "domain", "epsilon", "decode", ...stated]);
  const domain = domainOf(params.domain);
  const made = make(params, domain);
  if (!decodes(domain).includes(params.decode)) throw new Refused(`${params.name} has no decode ${params.decode} here`);
  return { name: params.name, decodes: decodes(domain), ...made, snap: domain.snap };
}
