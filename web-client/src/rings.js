// Places rounded to cells, and the ring in which two cells are of each other. SPEC section 16.

import { big, byte, concat, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sha256 } from "./keys.js";

export const VALUE = 3; // bytes of a slot
const MOST_SLOTS = Math.floor(4094 / VALUE); // of a table: the longest letter has no room for more
const LAST = 2 ** 31 - 2 ** 11; // so that the cells around it also fit into 32 bits
const NOBODY = utf8("coatcheck/v1/settle/nobody\0");

/** Divide and round down, as exactly as floats allow: Python's `//`. */
function floorDivide(value, side) {
  const rest = value % side;
  let quotient = (value - rest) / side;
  if (rest && rest < 0 !== side < 0) quotient -= 1;
  return quotient - Math.floor(quotient) > 0.5 ? Math.floor(quotient) + 1 : Math.floor(quotient);
}

/** Return the cell of a place: one number per axis. */
export function cellOf(place, scale, side) {
  if (!Array.isArray(place) || !place.length || !place.every(Number.isFinite)) {
    throw new Misuse("`place` must be a list of numbers, one per coordinate");
  }
  const factors = scale?.length ? Array.from(scale) : place.map(() => 1);
  if (factors.length !== place.length) throw new Refused("this place has another number of axes than the terms");
  const cell = place.map((x, axis) => floorDivide(x * factors[axis], side));
  if (!cell.every((number) => Math.abs(number) <= LAST)) throw new Refused("the cells of this round are too small for this place: do not settle in this round");
  return cell;
}

/** Write a cell as one signed 32-bit integer per axis. */
export function writeCell(cell) {
  const raw = new DataView(new ArrayBuffer(4 * cell.length));
  cell.forEach((number, axis) => raw.setInt32(4 * axis, number));
  return new Uint8Array(raw.buffer);
}

/** Draw the cell of an address behind which is nobody: it settles like a person, and is near nobody. */
export function cellOfNobody(secret, axes) {
  const drawn = (axis) => big(sha256(concat(NOBODY, byte(axis), secret)).slice(0, 4));
  return Array.from({ length: axes }, (_, axis) => Number(drawn(axis) / 2n) - 2 ** 30);
}

/** Return the slot of a cell in a table, equal for cells that differ by multiples of the width. */
export function slotOf(cell, width) {
  return cell.reduce((slot, number) => slot * width + (((number % width) + width) % width), 0);
}

/** The rings around every cell: `around` holds each offset that is in one, with its ring. */
export class Rings {
  constructor(radii, side, axes) {
    if (!radii.length || !radii.every((radius, at) => radius > (radii[at - 1] ?? 0))) {
      throw new Refused("`rings` must be one or more radii, each larger than the one before");
    }
    this.count = radii.length;
    const reach = Math.trunc(radii[radii.length - 1] / side);
    this.width = 2 * reach + 1;
    if (!(this.width <= MOST_SLOTS) || axes * Math.log(this.width) > Math.log(MOST_SLOTS)) {
      throw new Refused(`a letter holds a table of at most ${MOST_SLOTS} cells: make \`cell\` larger or \`rings\` smaller`);
    }
    this.tableSize = VALUE * this.width ** axes;
    const line = Array.from({ length: this.width }, (_, at) => at - reach);
    /** @type {number[][]} */
    let offsets = [[]];
    for (let axis = 0; axis < axes; axis += 1) offsets = offsets.flatMap((offset) => line.map((at) => [...offset, at]));
    const ringOf = (offset) => {
      const squared = offset.reduce((sum, at) => sum + at * at, 0) * side * side;
      return radii.findIndex((radius) => squared <= radius * radius) + 1;
    };
    this.around = offsets.map((offset) => ({ offset, ring: ringOf(offset) })).filter(({ ring }) => ring);
  }
}
