// The expectation behind `amplify` as one integral: E[(G_1 + ... + G_n)_+] / n, bounded from above.
//
// With M(z) = E[e^(zG)] and any c > 0 the expectation is (1/2 pi) times the integral of M(c + it)^n / (c + it)^2
// over t (SPEC S20.14). Adding noise of mean zero to the sum only raises the bound, and makes the integrand decay early. The sum
// over points exceeds the integral; the omitted tail and the float rounding are bounded and added. The same method as
// coatcheck/accounting/hockey_stick.py; the proof is Statement 28 of
// docs/explanation/amplification.md, section 7a. The work does not grow with n.

const UNIT = 2 ** -53;
const UNIFORMS = 16; // the number of uniform variables whose sum is the noise
const WIDTH = 0.005; // of each of them, over 1/c: it costs about 2e-5 of delta
const END = 4; // the last point of the integrand times the width of a uniform: 1e-7 of the integral lies beyond
const APART = 13; // standard deviations of the sum between the images that a sum over points adds
const MEAN = 0.462116; // of the positive part of their sum, rounded down
const UNDERFLOW = 1e-250;

const sum = (count, term) => {
  let total = 0;
  for (let k = 0; k < count; k += 1) total += term(k);
  return total;
};

/**
 * Bound the mean of E[(G_1 + ... + G_n)_+] / n for a G that has each value v with probability m, and otherwise is zero.
 * The n are `first`, `first` + `gap` and so on, each with its share. A bound of at most `enough` is not refined.
 * @param {{ v: number, m: number }[]} atoms @param {{ first: number, gap: number, shares: number[] }} draws
 * @param {number} [enough] @returns {number}
 */
export function meanExcess(atoms, { first, gap, shares }, enough = 0) {
  const draws = shares.map((_, at) => first + at * gap);
  const most = draws[draws.length - 1];
  const top = atoms.reduce((most, { v }) => Math.max(most, v), 0);
  if (top <= 0) return 0;
  // One draw as low as -most top makes every sum negative, so lower values need not be distinguished.
  const values = atoms.map(({ v }) => Math.max(v, -most * top));
  const mass = atoms.map(({ m }) => m);
  const over = (term) => sum(values.length, term);
  const c = saddle(values, mass, { n: draws[draws.length >> 1], top });
  const more = over((k) => mass[k] * Math.expm1(c * values[k])); // M(c) - 1
  const unit = (32 + 2 * values.length) * UNIT; // more than the relative rounding error of a sum over the values
  const rounding = (unit / (1 + more)) * over((k) => mass[k] * Math.abs(Math.expm1(c * values[k])));
  // M(c)^n / n, each times its share.
  const wholes = draws.map((n, at) => (shares[at] * Math.exp(Math.min(700, n * Math.log1p(more))) * (1 + 1e-12 + n * rounding)) / n);
  const whole = sum(wholes.length, (at) => wholes[at]);
  const quick = whole / (Math.E * c); // for s_+ <= e^(cs) / (ec)
  if (quick <= enough) return quick;
  const grown = mass.map((m, k) => (m * Math.exp(c * values[k])) / (1 + more));
  const mean = over((k) => grown[k] * values[k]);
  const variance = Math.max(0, over((k) => grown[k] * values[k] ** 2) - mean ** 2);
  const noise = WIDTH / c;
  const reach = APART * Math.sqrt(most * variance + (UNIFORMS / 12) * noise ** 2) + 8 / c;
  const step = (2 * Math.PI) / reach;
  const end = END / noise;
  // The float error per draw, over M(c), is at most `off` times |z|.
  const off = unit * over((k) => grown[k] * Math.abs(values[k]));
  const total = terms(values, grown, { first, gap, wholes, c, noise, off, step, points: Math.ceil(end / step) + 1 });
  // Past the end the kernel is below (2 cosh(c noise / 2) / (t noise))^16 / t^2.
  const past = ((2 * Math.cosh(WIDTH / 2)) / END) ** UNIFORMS / ((UNIFORMS + 1) * end) / Math.PI;
  // If no draw contributes, only the noise was counted (Statement 29).
  const none = Math.max(0, 1 - over((k) => mass[k]) - unit);
  const empty = sum(draws.length, (at) => (shares[at] * none ** draws[at]) / draws[at]) * noise * MEAN * (1 - 1e-6);
  return Math.max(0, (step / (2 * Math.PI)) * total + whole * past - empty) + UNDERFLOW;
}

/** Sum the integrand at the points t and -t, plus a bound on the float error. */
function terms(values, grown, { first, gap, wholes, c, noise, off, step, points }) {
  const most = first + (wholes.length - 1) * gap;
  const whole = sum(wholes.length, (at) => wholes[at]);
  // q - 1 with q = M(c + it)/M(c): the points form rows, and uw - 1 = (u - 1)w + (w - 1), where w belongs to the
  // row's first point. So q is exact where it is close to one, and few sines are computed.
  const many = values.length;
  const row = Math.ceil(Math.sqrt(points));
  const [cosines, sines] = turned(values, row, step);
  const [firstReal, firstImaginary] = turned(values, Math.ceil(points / row), row * step);
  const [a, b] = [new Float64Array(many), new Float64Array(many)];
  let total = 0;
  for (let start = 0; start < points; start += row) {
    const at = (start / row) * many;
    let [sumReal, sumImaginary] = [0, 0];
    for (let k = 0; k < many; k += 1) {
      a[k] = grown[k] * (1 + firstReal[at + k]);
      b[k] = grown[k] * firstImaginary[at + k];
      sumReal += grown[k] * firstReal[at + k];
      sumImaginary += b[k];
    }
    for (let j = 0; j < row && start + j < points; j += 1) {
      let [real, imaginary] = [sumReal, sumImaginary];
      for (let k = 0, from = j * many; k < many; k += 1, from += 1) {
        real += a[k] * cosines[from] - b[k] * sines[from];
        imaginary += a[k] * sines[from] + b[k] * cosines[from];
      }
      const square = 2 * real + real * real + imaginary * imaginary; // |q|^2 - 1
      const log = square < -0.5 ? Math.log(Math.hypot(1 + real, imaginary)) : Math.log1p(square) / 2;
      const t = (start + j) * step;
      const [x, y] = kernel(c, t, noise);
      const angle = Math.atan2(imaginary, 1 + real);
      const doubt = off * Math.hypot(c, t);
      const close = Math.log(Math.exp(log) + doubt);
      const wrong = most * doubt * Math.exp(((close > 0 ? most : first) - 1) * close) + 512 * UNIT;
      // q^first, q^(first + gap) and so on, each times its whole.
      let [u, v] = polar(first * log, first * angle);
      const [stepReal, stepImaginary] = gap ? polar(gap * log, gap * angle) : [1, 0];
      let [powerReal, powerImaginary] = [0, 0];
      for (let at = 0; at < wholes.length; at += 1) {
        powerReal += wholes[at] * u;
        powerImaginary += wholes[at] * v;
        [u, v] = [u * stepReal - v * stepImaginary, u * stepImaginary + v * stepReal];
      }
      const term = powerReal * x - powerImaginary * y + whole * wrong * Math.hypot(x, y);
      total += t > 0 ? 2 * term : term;
    }
  }
  return total;
}

const polar = (log, angle) => [Math.exp(log) * Math.cos(angle), Math.exp(log) * Math.sin(angle)];

/** Return e^(i x v) - 1 for x = 0, step, 2 step and so on, and each value v: real parts, imaginary parts. */
function turned(values, count, step) {
  const [real, imaginary] = [0, 1].map(() => new Float64Array(count * values.length));
  for (let j = 0, at = 0; j < count; j += 1) {
    for (const value of values) {
      const half = (j * step * value) / 2;
      const sine = Math.sin(half);
      real[at] = -2 * sine * sine;
      imaginary[at] = 2 * sine * Math.cos(half);
      at += 1;
    }
  }
  return [real, imaginary];
}

/** Return (sinh(z noise / 2) / (z noise / 2))^16 / z^2 at z = c + it. */
function kernel(c, t, noise) {
  const [x, y] = [(c * noise) / 2, (t * noise) / 2];
  let power = divided(Math.sinh(x) * Math.cos(y), Math.cosh(x) * Math.sin(y), x, y);
  for (let turn = 1; turn < UNIFORMS; turn *= 2) power = [power[0] ** 2 - power[1] ** 2, 2 * power[0] * power[1]];
  return divided(...power, c * c - t * t, 2 * c * t);
}

function divided(a, b, x, y) {
  const square = x * x + y * y;
  return [(a * x + b * y) / square, (b * x - a * y) / square];
}

/** Find the c > 0 at which M(c)^n / c^2 is nearly minimal. Any c > 0 is sound. */
function saddle(values, mass, { n, top }) {
  const none = Math.max(0, 1 - sum(mass.length, (k) => mass[k]));
  const low = (c) => {
    const grown = mass.map((m, k) => m * Math.exp((c / top) * values[k]));
    const [pull, all] = [sum(mass.length, (k) => grown[k] * values[k]), sum(mass.length, (k) => grown[k])];
    return n * c * pull <= 2 * top * (all + none);
  };
  let [good, bad] = [1, 1];
  while (bad < 500 && low(bad)) [good, bad] = [bad, 2 * bad];
  while (!low(good) && good > 1e-300) [bad, good] = [good, good / 4];
  while (bad - good > 1e-3 * bad) {
    const middle = (good + bad) / 2;
    if (low(middle)) good = middle;
    else bad = middle;
  }
  return good / top;
}
