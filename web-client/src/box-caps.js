// A closer bound on delta where the caps of a mechanism are boxes that all overlap. SPEC S20.30 and on.
//
// Each of the others leaves with a small chance for a common pool, and the person takes an empty place at random. The sum
// over points of an integral, taken by absolute values, is largest if all others hold one value, and along each axis two
// of three values are at one end: these are the patterns. The same sums as coatcheck/accounting/box_caps.py; the proofs
// are in docs/explanation/amplification.md, section 7e.

const UNIT = 2 ** -53;
const UNIFORMS = 16;
const WIDTH = 0.08; // of each uniform variable of the noise, over 1/c
const END = 4; // the last point times the width
const APART = 13; // standard deviations of the sum between its images
const MOST = 0.9; // the largest share of what is hidden that the pool takes
const EMPTY = [1e-5, 0.003, 0.05]; // with which parts of the larger bound the pool is empty
// Which of the nine kinds of reports are in the caps of x0, of x1 and of another x; the first is in all caps.
const IN0 = [1, 1, 1, 1, 0, 1, 0, 0, 0];
const IN1 = [1, 1, 1, 0, 1, 0, 1, 0, 0];
const INX = [1, 1, 0, 1, 1, 0, 0, 1, 0];

const add = (list, term) => list.reduce((total, entry, at) => total + term(entry, at), 0);
const largest = (list) => list.reduce((most, entry) => Math.max(most, entry), -Infinity);
const least = (list) => list.reduce((most, entry) => Math.min(most, entry), Infinity);

/** Return the masses of the nine kinds under the lower level, for each pattern. */
function volumesOf({ p, cap, share, axes }) {
  const patterns = [];
  const q = (power) => share ** power;
  for (let i = 0; i <= axes; i += 1) {
    for (let j = 0; i + j <= axes; j += 1) {
      for (let l = 0; i + j + l <= axes; l += 1) {
        const [pair, one, two, three, all] = [q(i + j), q(i + l), q(j + l), q(i + j + l), q(axes)];
        const masses = [
          all, three - all, pair - three, one - three, two - three,
          1 - pair - one + three, 1 - pair - two + three, 1 - one - two + three,
        ].map((volume) => cap * Math.max(0, volume));
        const rest = 1 - (p - 1) * cap - add(masses, (mass) => mass);
        patterns.push([...masses, Math.max(0, rest)]);
      }
    }
  }
  return patterns;
}

/**
 * Return a function that bounds delta at a central epsilon, given a larger bound.
 * @param {{ epsilon: number, cap: number, share: number, axes: number }} caps @param {number} n
 * @returns {(epsilon: number, guess: number) => number}
 */
export function deltaOfBoxes({ epsilon: local, cap, share, axes }, n) {
  const p = Math.exp(local);
  const volumes = volumesOf({ p, cap, share, axes });
  const pooled = IN0.map((inside, kind) => (inside === IN1[kind] ? (kind ? 1 : p) : 0));
  const hidden = least(volumes.map((masses) => add(masses, (mass, kind) => mass * pooled[kind])));
  const apart = cap * (1 - share ** axes);
  return (epsilon, guess) => {
    if (n < 2 || guess <= 0) return 1;
    const alone = apart * Math.exp(epsilon) * Math.expm1(local - epsilon);
    let best = 1;
    for (const part of EMPTY) {
      const taken = Math.log(Math.max(2, alone / (part * guess))) / (n - 1) / hidden;
      if (taken < MOST) best = Math.min(best, withPool({ p, volumes, pooled: pooled.map((level) => level * taken), apart }, n, Math.exp(epsilon)));
      if (taken < 0.2 * MOST) break;
    }
    return best;
  };
}

/** Return the bound if the pool takes these levels of the reports that x0 and x1 have in common. */
function withPool({ p, volumes, pooled, apart }, n, e) {
  const level = INX.map((inside, kind) => (inside ? p : 1) - pooled[kind]);
  const [first, second] = [IN0, IN1].map((side) => side.map((inside) => (inside ? p : 1)));
  const raw = level.map((under, kind) => (first[kind] - e * second[kind] + 16 * UNIT * (first[kind] + e * second[kind])) / under);
  const top = largest(raw);
  const values = raw.map((value) => Math.max(value, -n * top));
  const patterns = volumes.map((masses) => ({
    mass: masses.map((mass, kind) => mass * level[kind]),
    kappa: add(masses, (mass, kind) => mass * pooled[kind]),
  }));
  const [few, many] = [least(patterns.map(({ kappa }) => kappa)), largest(patterns.map(({ kappa }) => kappa))];
  const most = many * (1 + 1e-9);
  const alone = (1 - few * (1 - 1e-9)) ** (n - 1) * apart * Math.max(0, p - e);
  const moreAt = (c) => patterns.map(({ mass }) => add(mass, (m, kind) => m * Math.expm1(c * values[kind])));
  const c = saddle(values, (at) => n * Math.log1p(largest(moreAt(at))) - 2 * Math.log(at));
  const mores = moreAt(c);
  const order = patterns.map((pattern, at) => ({ ...pattern, more: mores[at] })).sort((a, b) => b.more - a.more);
  const tilted = order[0].mass.map((m, kind) => (m * Math.exp(c * values[kind])) / (1 + order[0].more));
  const mean = add(tilted, (m, kind) => m * values[kind]);
  const spread = Math.max(0, add(tilted, (m, kind) => m * values[kind] ** 2) - mean ** 2);
  const noise = WIDTH / c;
  const step = (2 * Math.PI) / (APART * Math.sqrt(n * spread + (UNIFORMS / 12) * noise ** 2) + 8 / c);
  const end = END / noise;
  const points = Math.ceil(end / step) + 1;
  const beyond = ((2 * Math.cosh((c * noise) / 2)) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / Math.PI;
  const weights = Float64Array.from({ length: points }, (_, j) => (
    ((smoothing(c, j * step, noise) * (j ? 2 : 1) * step) / (2 * Math.PI)) * (1 + 128 * UNIT)
  ));
  const weight = weights.reduce((total, part) => total + part, 0);
  let worst = 0;
  for (const { mass, kappa, more } of order) {
    // |M| and |M - most| are at most these.
    const grown = most * meanPower(1 + more, Math.abs(1 + more - 2 * kappa) + most, n);
    if (grown * (weight + beyond) <= worst) continue;
    const rounding = n * 64 * UNIT * add(mass, (m, kind) => m * Math.abs(Math.expm1(c * values[kind]))) + 1e-9;
    const total = pointwise({ mass, kappa, more, most }, { values, weights, c, step, n });
    worst = Math.max(worst, (total + grown * beyond) * (1 + rounding));
  }
  return Math.min(1, worst + alone + 1e-250);
}

/** Sum over the points: the mean of |M|^(n - 1 - i) |M - most|^i over i, times most and the weight. */
function pointwise({ mass, kappa, more, most }, { values, weights, c, step, n }) {
  const grown = mass.map((m, kind) => m * Math.exp(c * values[kind]));
  const unit = 128 * UNIT * (1 + more);
  const speed = (unit * add(grown, (m, kind) => m * Math.abs(values[kind]))) / (1 + more);
  let total = 0;
  for (let j = 0; j < weights.length; j += 1) {
    const t = j * step;
    let [real, imaginary] = [kappa, 0];
    for (let kind = 0; kind < grown.length; kind += 1) {
      real += grown[kind] * Math.cos(t * values[kind]);
      imaginary += grown[kind] * Math.sin(t * values[kind]);
    }
    const doubt = unit + speed * t;
    const [x, y] = [Math.hypot(real, imaginary) + doubt, Math.hypot(real - most, imaginary) + doubt];
    total += weights[j] * most * meanPower(x, y, n);
  }
  return total;
}

/** Return the mean of x^(n - 1 - i) y^i over i = 0 to n - 1, rounded up. */
function meanPower(x, y, n) {
  const [high, ratio] = [Math.max(x, y), Math.max(Math.min(x, y), 1e-300) / Math.max(x, y)];
  const share = ratio < 1 - 1e-12 ? -Math.expm1(n * Math.log(ratio)) / (n * (1 - ratio)) : 1;
  return Math.min(1, share) * Math.exp(Math.min((n - 1) * Math.log(high), 700)) * (1 + 1e-12);
}

/** Return |(sinh(z noise / 2) / (z noise / 2))^16 / z^2| at z = c + it. */
function smoothing(c, t, noise) {
  const [x, y] = [(c * noise) / 2, (t * noise) / 2];
  const sine = Math.hypot(Math.sinh(x) * Math.cos(y), Math.cosh(x) * Math.sin(y));
  return (sine / Math.hypot(x, y)) ** UNIFORMS / (c * c + t * t);
}

/** Find the c > 0 at which this height is nearly least, by golden sections of its logarithm. Any c > 0 is sound. */
function saddle(values, heightAt) {
  const golden = (Math.sqrt(5) - 1) / 2;
  const height = (log) => heightAt(Math.exp(log));
  let [low, high] = [Math.log(1e-9 / largest(values)), Math.log(600 / largest(values.map(Math.abs)))];
  let [left, right] = [high - golden * (high - low), low + golden * (high - low)];
  let [atLeft, atRight] = [height(left), height(right)];
  while (high - low > 0.003) {
    if (atLeft <= atRight) {
      [high, right, atRight] = [right, left, atLeft];
      left = high - golden * (high - low);
      atLeft = height(left);
    } else {
      [low, left, atLeft] = [left, right, atRight];
      right = low + golden * (high - low);
      atRight = height(right);
    }
  }
  return Math.exp((low + high) / 2);
}
