// The person's own arithmetic: what a crowd of so many guarantees, bounded from above.
//
// With the blanket m, a report's pull towards the one of two inputs is G = (R(x0) - e R(x1))/m and
//     delta(eps_c) <= E[(G_1 + ... + G_n)_+] / n          (docs/explanation/amplification.md)
// Of n draws C fall on the two sides, A of these on the upper one, F on the flat value. Given C, A
// is a fair binomial and F a binomial of the rest, so the expectation is a double sum with prefix
// sums over F. What overlap of caps would hide further is not counted, which is the private side.

const TAIL = 1e-30; // what is cut off weighs e^epsilon at most, in a crowd of millions too
const WHOLE = 50_000; // people who are always counted
const WORK = 1e7; // terms of the sum up to which more are; else a phone would be busy for minutes
const DEVIATIONS = 24; // how wide a binomial is, where `TAIL` cuts it off on both sides

/** ln C(n, k) p^k (1-p)^(n-k), for the whole range that holds all but `TAIL`. */
function binomial(n, p) {
  if (p <= 0) return { low: 0, mass: [1], cut: 0 };
  if (p >= 1) return { low: n, mass: [1], cut: 0 };
  const mode = Math.min(n, Math.floor((n + 1) * p));
  const odds = p / (1 - p);
  const up = [];
  for (let k = mode, mass = 1; mass > TAIL && k < n; k += 1) up.push((mass *= ((n - k) / (k + 1)) * odds));
  const down = [];
  for (let k = mode, mass = 1; mass > TAIL && k > 0; k -= 1) down.push((mass *= k / (n - k + 1) / odds));
  const mass = [...down.reverse(), 1, ...up];
  const sum = mass.reduce((total, one) => total + one, 0);
  return { low: mode - down.length, mass: mass.map((one) => one / sum), cut: 4 * TAIL * n };
}

/**
 * An upper bound on delta at a central epsilon for n honest, anonymous people.
 * @param {import("./types.js").Law} law @param {number} n @param {number} epsilon @returns {number}
 */
export function deltaAbove(law, n, epsilon) {
  if (epsilon >= law.epsilon) return 0;
  const p = Math.exp(law.epsilon);
  const e = Math.exp(epsilon);
  const rate = law.rate ?? 1; // the chance to speak; silence is as likely under every value
  const side = rate * law.apart;
  const rest = (p - 1) * (law.cap - law.kernel);
  // `deep` reports (of both caps, outside the kernel) pull by p(1-e) < 1-e: counting them as flat
  // only raises the bound.
  const flat = rate * Math.max(0, 1 - 2 * law.apart - Math.max(0, rest)) + 1 - rate;
  const sides = binomial(n, Math.min(1, 2 * side));
  let sum = 0;
  sides.mass.forEach((mass, at) => {
    const c = sides.low + at;
    sum += mass * pull({ n, c, p, e, flat: side < 0.5 ? flat / (1 - 2 * side) : 0 });
  });
  return Math.min(1, (sum / n) * (1 + 1e-9) + (sides.cut * 4 + TAIL) * (p - e));
}

/** E[(A(p - e) + (c - A)(1 - pe) - F(e - 1))_+] with A ~ Bin(c, 1/2), F ~ Bin(n - c, flat). */
function pull({ n, c, p, e, flat }) {
  const upper = binomial(c, 0.5);
  const weight = binomial(n - c, Math.min(1, flat));
  const before = prefix(weight);
  let sum = 0;
  upper.mass.forEach((mass, at) => {
    const a = upper.low + at;
    const gain = a * (p - e) + (c - a) * (1 - p * e);
    if (gain > 0) sum += mass * excess(gain, e - 1, weight, before);
  });
  return sum;
}

function prefix({ low, mass }) {
  const chance = [0];
  const mean = [0];
  mass.forEach((one, at) => {
    chance.push(chance[at] + one);
    mean.push(mean[at] + one * (low + at));
  });
  return { chance, mean };
}

/** E[(gain - step F)_+]. */
function excess(gain, step, { low, mass }, { chance, mean }) {
  const upTo = step > 0 ? Math.floor(gain / step) - low + 1 : mass.length;
  const count = Math.max(0, Math.min(mass.length, upTo));
  return gain * chance[count] - step * mean[count];
}

/** How many of the crowd are counted: whom the rest hides as well is only left out, so the bound holds. */
function counted(law, crowd) {
  const wide = (n, chance) => 1 + DEVIATIONS * Math.sqrt(n * chance);
  const work = (n) => wide(n, 2 * law.apart) * (wide(n, law.apart) + wide(n, 1 / 4));
  let n = crowd;
  while (n > WHOLE && work(n) > WORK) n = Math.max(WHOLE, Math.ceil(n / 2));
  return n;
}

/**
 * The central epsilon that the crowd gives at this delta, rounded up; never above the local one.
 * @param {import("./types.js").Law} law @param {{ crowd: number, delta: number, corrupted?: number, exposed?: number }} options @returns {number}
 */
export function amplify(law, { crowd, delta, corrupted = 0, exposed = 0 }) {
  const n = counted(law, Math.max(1, crowd - corrupted - exposed));
  let good = law.epsilon;
  let bad = 0;
  for (let turn = 0; turn < 40 && good - bad > 1e-7 * good; turn += 1) {
    const middle = (good + bad) / 2;
    if (deltaAbove(law, n, middle) <= delta) good = middle;
    else bad = middle;
  }
  return good;
}
