// Grid and codebook response: the true cell, label or one of the closest points, or a uniform one. SPEC section 13.
//
// The same mechanisms as coatcheck/randomizers/grid.py and codebook.py, bit for bit in their parameters.

import { countedLaw, headsFor } from "./biased-coin.js";
import { isWhole, isWithin } from "./domains.js";
import { Refused } from "./errors.js";

const MAX_POINTS = 4096;
const MAX_AXES = 16;
const MAX_WEIGHT = 256;

/** Return the grid mechanism: the true cell with probability heads / 2^64, otherwise a uniform cell. */
export function grid(params, box) {
  const { cells } = params;
  if (params.domain.kind === "categories") return labels(params, box);
  if (params.domain.kind !== "box") throw new Refused("grid response needs a box or categories, but the terms describe a ball");
  const good = Array.isArray(cells) && cells.length === box.dimension
    && cells.every((count) => Number.isInteger(count) && count >= 1 && count <= box.steps);
  const total = good ? cells.reduce((product, count) => product * BigInt(count), 1n) : 0n;
  if (!good || total > 1n << 32n) throw new Refused("`cells` in the terms must be one positive number per axis, at most 2^32 cells in all");
  const heads = headsFor(params.epsilon, 1n, total);
  const decoy = (entropy) => cells.map((count) => Number(entropy.integer(BigInt(count))));
  const cellOf = (point) => point.map((i, axis) => Math.floor(((i + box.half) * cells[axis]) / (box.steps + 1)));
  return {
    cells,
    heads,
    low: cells.map(() => 0),
    high: cells.map((count) => count - 1),
    center: cellOf,
    respond(point, entropy) {
      const near = cellOf(point);
      const far = decoy(entropy);
      return entropy.coin(heads) ? near : far;
    },
    decoy,
    law: () => countedLaw(heads, 1, Number(total), params.epsilon),
    place: (report) => report.map((y, axis) => box.value(((y + 0.5) / cells[axis]) * 2 - 1, axis)),
  };
}

/** Return the same mechanism on labels: a grid whose cells are the labels. */
function labels(params, { dimension, labels: names }) {
  if (String(params.cells) !== String(names.length)) throw new Refused("`cells` in the terms must be the number of labels");
  const total = BigInt(names.length);
  const heads = headsFor(params.epsilon, 1n, total);
  const decoy = (entropy) => [Number(entropy.integer(total))];
  return {
    cells: params.cells,
    heads,
    low: Array(dimension).fill(0),
    high: [names.length - 1],
    center: (point) => point,
    respond(point, entropy) {
      const far = decoy(entropy);
      return entropy.coin(heads) ? point : far;
    },
    decoy,
    law: () => countedLaw(heads, 1, names.length, params.epsilon),
    place: ([report]) => names[report],
  };
}

/** Return the codebook mechanism: one of the closest points with probability heads / 2^64, otherwise a uniform point. */
export function codebook(params, domain) {
  const { points, weights, closest } = params;
  const whole = (row, low, high) => Array.isArray(row) && row.length === domain.dimension
    && row.every((i) => isWhole(i, low, high));
  const size = Array.isArray(points) ? points.length : 0;
  const good = size >= 1 && size <= MAX_POINTS && (size === 1 || domain.dimension <= MAX_AXES)
    && points.every((point) => whole(point, -domain.half, domain.half) && isWithin(point, domain.p, domain.half))
    && whole(weights, 1, MAX_WEIGHT)
    && new Set(points.map(String)).size === size
    && isWhole(closest, 1, Math.max(1, size - 1));
  if (!good) throw new Refused("a codebook needs distinct lattice points, `weights` per axis and `closest`, within their limits: these terms are invalid");
  const heads = headsFor(params.epsilon, BigInt(closest), BigInt(size));
  // Squared distances can exceed the exact range of floats, so they are bigints.
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
      // All are drawn every time, so that the running time does not reveal how the coin fell.
      const near = nearest(point)[Number(entropy.integer(BigInt(closest)))];
      const far = Number(entropy.integer(BigInt(size)));
      return [entropy.coin(heads) ? near : far];
    },
    decoy: (entropy) => [Number(entropy.integer(BigInt(size)))],
    law: () => countedLaw(heads, closest, size, params.epsilon),
    place: ([index]) => points[index].map((i, axis) => domain.value(i / domain.half, axis)),
  };
}
