// The delta of a crowd whose reports have two values, such as yes and no. SPEC S20.27 and on.
//
// Such a list tells only the number of its ones, so this is the truth over all data sets, slightly rounded up. The same
// sums as coatcheck/accounting/binary_response.py; the proofs are in docs/explanation/amplification.md, section 7d.

const UNIT = 2 ** -53;
const ROUNDING = 64 * UNIT;
const CUT = 45; // minus the logarithm of what each end of the sum may leave out; it is added back
const EACH = 128; // others below which every split of them is a block of its own
const FIRST = 50; // even and geometric blocks to start with
const MOST = 300; // blocks that make it stop halving them
const CLOSE = 1e-6; // how far above the truth a block may lie

const add = (list, term) => list.reduce((total, entry, at) => total + term(entry, at), 0);

/**
 * Return an upper bound on delta at a central epsilon for n people whose two reports have this local epsilon.
 * @param {number} local @param {number} n @param {number} epsilon @returns {number}
 */
export function deltaOfTwo(local, n, epsilon) {
  if (epsilon >= local) return 0;
  const coins = weighted(local, epsilon);
  const others = n - 1;
  let blocks = startingBlocks(others).map((block) => ({ ...block, value: deltaOfSplit(coins, others - block.width, block.many) }));
  while (blocks.length < MOST) {
    const reached = blocks.reduce((most, { width, value }) => (width ? most : Math.max(most, value)), 0);
    const wide = blocks.filter(({ width, value }) => width > 0 && value > reached * (1 + CLOSE));
    if (!wide.length) break;
    const halves = wide.flatMap(({ many, width }) => {
      const half = Math.floor((width + 1) / 2);
      return [{ many, width: half - 1 }, { many: many + half, width: width - half }];
    });
    blocks = [
      ...blocks.filter((block) => !wide.includes(block)),
      ...halves.map((block) => ({ ...block, value: deltaOfSplit(coins, others - block.width, block.many) })),
    ];
  }
  return Math.min(1, blocks.reduce((most, { value }) => Math.max(most, value), 0) * (1 + 1e-11));
}

/** Cut the splits 0 to `others` to blocks: `many` of them, to `many` + `width`, hold the value with many ones. */
function startingBlocks(others) {
  if (others < EACH) return Array.from({ length: others + 1 }, (_, many) => ({ many, width: 0 }));
  const even = Array.from({ length: FIRST }, (_, at) => Math.floor((at * (others + 1)) / (FIRST - 1)));
  const far = Array.from({ length: FIRST }, (_, at) => Math.floor((others + 1) ** (at / (FIRST - 1))));
  const edges = [...new Set([...even, ...far, 0, others + 1])].filter((edge) => edge <= others + 1).sort((a, b) => a - b);
  return edges.slice(1).map((next, at) => ({ many: edges[at], width: next - edges[at] - 1 }));
}

/** Weigh the ones of other people by ratio^-ones, so that their number has its mode where delta is reached. */
function weighted(local, epsilon) {
  const p = Math.exp(local);
  const [often, rarely] = [p / (1 + p), 1 / (1 + p)];
  const first = Math.exp(epsilon) * Math.expm1(local - epsilon) * rarely * (1 + ROUNDING);
  const excess = Math.expm1(epsilon) * (1 - ROUNDING);
  const [shrunk, lost] = [first / (first + excess), excess / (first + excess)];
  const coins = [[often, rarely], [rarely, often]].map(([zero, one]) => ({
    one: (one * shrunk) / (zero + one * shrunk),
    log: one * lost < 0.5 ? Math.log1p(-one * lost) : Math.log(zero + one * shrunk),
  }));
  return { first, more: excess / first, coins };
}

/** Return the delta if `many` of the others hold the value with many ones, rounded up: a P[S <= m] - b P[S <= m - 1]. */
function deltaOfSplit({ first, more, coins }, others, many) {
  const people = [others - many, many];
  const mean = add(coins, ({ one }, at) => people[at] * one);
  const variance = add(coins, ({ one }, at) => people[at] * one * (1 - one));
  const reach = Math.ceil(CUT / 3 + Math.sqrt((CUT * CUT) / 9 + 2 * variance * CUT)) + 4;
  const points = 2 * reach + 1;
  // Beyond the last point the transform is below e^-CUT.
  const end = 2 * Math.asin(Math.sqrt(Math.min(1, CUT / (2 * Math.max(variance, 1e-9)))));
  const count = Math.min(reach, Math.ceil((end * points) / (2 * Math.PI)));
  const ratio = Math.log1p(more);
  const rest = (more / (1 + more)) * Math.exp(-ratio * reach);
  const modes = modesOf(mean);
  const totals = modes.map(() => 0);
  for (let at = 1; at <= count; at += 1) {
    const t = ((2 * Math.PI) / points) * at;
    const [sine, cosine] = [Math.sin(t / 2), Math.cos(t / 2)];
    const [rise, turn] = [2 * sine * sine, 2 * sine * cosine]; // 1 - cos t and sin t
    const log = add(coins, ({ one }, side) => people[side] * 0.5 * Math.log1p(-2 * one * (1 - one) * rise));
    const angle = Math.atan2(turn, more + rise) + add(coins, ({ one }, side) => people[side] * Math.atan2(one * turn, 1 - one * rise));
    const size = Math.exp(log) / Math.hypot(more + rise, turn);
    modes.forEach((m, which) => {
      const phase = angle - m * t;
      const term = 2 * sine * Math.sin(phase + t / 2) + rest * Math.cos(phase + (reach + 1) * t);
      const doubt = ROUNDING * (1 + (mean + m + reach) * t - log);
      totals[which] += size * (term + doubt * (2 * sine + rest));
    });
  }
  return modes.reduce((most, m, which) => {
    const total = (2 * totals[which] + Math.exp(-ratio * (reach + 1))) / points + (6 * Math.exp(-CUT)) / (1 + more);
    const power = add(coins, ({ log }, at) => people[at] * log) + (m + 1) * ratio;
    const doubt = 1e-12 + ROUNDING * (Math.abs(power) + (m + 1) * ratio);
    return Math.max(most, first * Math.exp(power) * total * (1 + doubt));
  }, 0);
}

/** List numbers of which one is the mode of a sum of coins with this mean (Darroch 1964), trusted to 1e-6. */
function modesOf(mean) {
  const low = Math.floor(Math.max(0, mean - 1e-6));
  const modes = [low];
  if (mean + 1e-6 - low >= 1 / (low + 2)) modes.push(low + 1);
  if (mean + 1e-6 >= low + 1) modes.push(low + 2);
  return modes;
}
