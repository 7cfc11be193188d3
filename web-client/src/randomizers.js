// Every mechanism that terms may name here; Minkowski and bounded response are drawn in this file.
//
// The same mechanisms as coatcheck/randomizers, bit for bit in their parameters; whatever else
// terms may name is refused here. No float carries a private value to the wire.

import { latticeBall } from "./balls.js";
import { codebook, grid } from "./cells.js";
import { complete, domainOf, roundEven } from "./domains.js";
import { Refused } from "./errors.js";
import { fieldwise } from "./fieldwise.js";
import { TOSSES, fraction, headsFor, ratio } from "./mixing.js";
import { sphere } from "./sphere.js";

const MAX_REACH = 2 ** 30;
const MAX_NUMBERS = 1024; // of a report
const MAX_LEARNED = 3; // dimensions in which reports are read by the whole batch

/** A cap around the value with probability heads / 2^64, else the whole output ball. */
function caps(params, domain, { bounded }) {
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

const boxes = ({ p, dimension }) => p === Infinity || dimension === 1;
const median = (domain) => (boxes(domain) ? ["median"] : []);
const numeric = (domain) => !domain.labels;
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
  grid: { make: grid, decodes: (domain) => [...(numeric(domain) ? ["median"] : []), "raw", ...learned(domain)], stated: ["cells"] },
  codebook: { make: codebook, decodes: () => ["raw"], stated: ["points", "weights", "closest"] },
  sphere: { make: sphere, decodes: () => ["unbiased", "project"], stated: ["size", "closest", "turns", "seed"] },
};

/** Speak by the part with chance `rate`, else be silent; silence is a report like any other. */
function coin(params) {
  complete(params, ["name", "part", "rate"]);
  const { rate } = params;
  if (typeof rate !== "number" || !(rate >= 2 ** -32 && rate < 1)) {
    throw new Refused(`a coin has a rate from 2^-32 to below 1, this one has ${rate}`);
  }
  if (params.part?.name === "coin") throw new Refused("a coin stands before one mechanism, not before a coin");
  const part = randomizerOf(params.part);
  const [top, bottom] = fraction(rate);
  const heads = (TOSSES * top) / bottom; // never above the rate: speaking less often reveals no more
  const silence = [0, ...part.low];
  return {
    ...part,
    name: "coin",
    heads,
    low: silence,
    high: [1, ...part.high],
    respond(point, entropy) {
      // The part's report is always made, so that the work does not tell how the coin fell.
      const speaks = entropy.coin(heads);
      const made = part.respond(point, entropy);
      return speaks ? [1, ...made] : silence;
    },
    law: () => ({ ...part.law(), rate }),
    place: (report) => (report[0] ? part.place(report.slice(1)) : null),
  };
}

/**
 * Make the mechanism that terms describe, or say why this client cannot.
 * @param {any} params @returns {import("./types.js").Randomizer}
 */
export function randomizerOf(params) {
  if (params?.name === "coin") return coin(params);
  if (params?.name === "fieldwise") return fieldwise(params, randomizerOf);
  if (!Object.hasOwn(KINDS, params?.name ?? "")) {
    throw new Refused(
      `the round randomizes by ${params?.name}; this page draws ${[...Object.keys(KINDS), "fieldwise", "coin"].join(", ")} only:`
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
