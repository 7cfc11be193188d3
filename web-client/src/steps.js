// The steps of settling, the bodies of its letters, and what a ticket keeps of it. SPEC section 15.

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { base64, byte, concat, unbase64, utf8 } from "./bytes.js";
import { Misuse, Refused } from "./errors.js";

/** The first byte of the body of every letter of settling; no text begins with it. */
export const MARK = 0;
const HALF = 16;
export const TAG = 16;
/** "I am free and here"; "I ask you", or "I hold you"; "I would take you". */
export const [HERE, YOURS, WOULD] = [1, 2, 4];
const HEAD = 3;
const LAST = 2 ** 31 - 8; // so that the cells around it have numbers of 32 bits, too

/** The steps for so many times of asking with each list; each has its kind and its list's number. */
export function schedule(asks) {
  const of = (times) => ["places", ...Array.from({ length: times }, () => ["ask", "answer"]).flat(), "tag", "close"];
  const steps = asks.flatMap((times, turn) => of(times).map((kind) => ({ kind, turn })));
  return [...steps, { kind: "words", turn: asks.length - 1 }];
}

export const isNotice = ({ kind }) => kind === "tag" || kind === "close";
export const isTalk = ({ kind }) => kind === "places" || kind === "ask" || kind === "answer";

/** Derive 32 bytes for one purpose. */
export function prf(key, label, data = new Uint8Array()) {
  return hmac(sha256, key, concat(utf8(`coatcheck/v1/settle/${label}\0`), data));
}

/** Divide and round down, as exactly as floats allow: Python's `//`. */
function floorDivide(value, side) {
  const rest = value % side;
  let found = (value - rest) / side;
  if (rest && rest < 0 !== side < 0) found -= 1;
  return found - Math.floor(found) > 0.5 ? Math.floor(found) + 1 : Math.floor(found);
}

/** Round a place to its cell: the number of the cell on each axis. */
export function cellOf(place, scale, side) {
  if (!Array.isArray(place) || !place.length || !place.every(Number.isFinite)) {
    throw new Misuse("say where you are, as a list of numbers, one per coordinate");
  }
  const factors = scale?.length ? Array.from(scale) : place.map(() => 1);
  if (factors.length !== place.length) throw new Refused("the terms give this place no cell: they have another number of axes");
  const cell = place.map((x, axis) => floorDivide(x * factors[axis], side));
  if (!cell.every((number) => Math.abs(number) <= LAST)) throw new Refused("the cells of this round are too small for this place: do not settle here");
  return cell;
}

/** Write a cell as one signed 32-bit integer per axis. */
export function writeCell(cell) {
  const raw = new DataView(new ArrayBuffer(4 * cell.length));
  cell.forEach((number, axis) => raw.setInt32(4 * axis, number));
  return new Uint8Array(raw.buffer);
}

export const wordSize = (axes) => HEAD + HALF + 4 * axes;

/** Write the body of a letter for a step; of nobody who is free, all zeros. */
export function writeWord(step, said, { half = new Uint8Array(HALF), cell }) {
  return concat(byte(MARK, step, said), half, writeCell(cell));
}

/** Read what a body of the right size says. */
export function readWord(body) {
  const raw = new DataView(body.buffer, body.byteOffset + HEAD + HALF);
  const axes = (body.length - HEAD - HALF) / 4;
  const cell = Array.from({ length: axes }, (_, axis) => raw.getInt32(4 * axis));
  return { step: body[1], said: body[2], half: body.slice(HEAD, HEAD + HALF), cell };
}

export const half = (secret, who) => prf(secret, "half", who).slice(0, HALF);

/** The tag by which a sender names the other owner of a pair's key. */
export const pairTag = (key, turn, sender) => prf(key, "tag", concat(byte(turn), sender)).slice(0, TAG);

/** How far a person is: all that a ticket keeps of settling. */
export function progressFrom(cell, begun) {
  return {
    cell, begun, step: 0, read: 0, heard: {}, notices: [], chosen: [], points: {}, replies: {},
    words: {}, placed: [], outbox: [], dropped: {},
  };
}

const mapped = (record, work) => Object.fromEntries(Object.entries(record ?? {}).map(([who, one]) => [who, work(one)]));

/** Progress as the JSON that the Python side reads and writes. */
export function writeProgress(progress) {
  const { heard, notices, chosen, points, replies, words, placed, outbox } = progress;
  return {
    ...progress,
    heard: mapped(heard, (word) => [word.step, word.said, base64(word.half), word.cell]),
    notices: notices.map((one) => [base64(one.sender), one.step, base64(one.tag)]),
    chosen: chosen.map(base64),
    points: mapped(points, base64),
    replies: mapped(replies, base64),
    words: mapped(words, base64),
    placed: placed.map(([place, posting]) => [place, base64(posting)]),
    outbox: outbox.map(base64),
  };
}

export function readProgress(raw) {
  const list = (name) => raw[name] ?? [];
  return {
    ...progressFrom(raw.cell, raw.begun ?? 0),
    ...raw,
    heard: mapped(raw.heard, ([step, said, spelled, cell]) => ({ step, said, half: unbase64(spelled), cell })),
    notices: list("notices").map(([sender, step, tag]) => ({ sender: unbase64(sender), step, tag: unbase64(tag) })),
    chosen: list("chosen").map(unbase64),
    points: mapped(raw.points, unbase64),
    replies: mapped(raw.replies, unbase64),
    words: mapped(raw.words, unbase64),
    placed: list("placed").map(([place, posting]) => [place, unbase64(posting)]),
    outbox: list("outbox").map(unbase64),
  };
}
