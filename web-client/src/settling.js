// The steps of settling, the bodies of its letters, and what a ticket keeps of it. SPEC section 15.
//
// Settling: one person's side as a plain state machine over lists of candidates. SPEC section 15.
//
// Everybody writes the same number of letters of one size at every step, whatever they decide. Keys,
// seals and the board are in candidates.js.

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { base64, byte, compare, concat, equal, hex, unbase64, utf8 } from "./encoding.js";
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
export function newProgress(cell, begun) {
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
    ...newProgress(raw.cell, raw.begun ?? 0),
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

const SILENCES = 2; // as many letters missing in a row, and the candidate is gone

export class Settling {
  /** `lists` has for each pass the addresses of the candidates; nobody is in two of them. */
  constructor(progress, { address, asks, lists, secret, steps }) {
    this.progress = progress;
    this.address = address;
    this.asks = asks;
    this.lists = lists;
    this.secret = secret;
    this.steps = steps;
    this.keys = new Map();
    this.turns = new Map(lists.flatMap((names, turn) => names.map((who) => [hex(who), turn])));
    this.order = new Map(progress.notices.map((one, at) => [`${hex(one.sender)}/${one.step}`, at]));
  }

  get done() {
    return this.progress.step >= this.steps.length;
  }

  /** Whether a side writes at a step. */
  speaks(index, asks) {
    const { kind } = this.steps[index];
    if (kind === "ask") return asks;
    return kind === "answer" ? !asks : true;
  }

  /** Whether the next step may begin: all have written, or it is late; one's own notices must be there. */
  ready({ late = false } = {}) {
    const before = this.progress.step - 1;
    if (before < 0) return true;
    const step = this.steps[before];
    if (isNotice(step) && !this.posted(this.address, before)) return false;
    if (late || step.kind === "close") return true;
    const there = this.lists[step.turn].filter((who) => !this.missed(who, before));
    if (step.kind === "tag") return there.every((who) => this.posted(who, before));
    if (!this.speaks(before, !this.asks)) return true;
    return there.every((who) => (this.word(who)?.step ?? -1) >= before);
  }

  /** Write the letters of the next step and go on; one to one's own address is a public notice. */
  speak(words = new Uint8Array()) {
    const index = this.progress.step;
    const { kind, turn } = this.steps[index];
    const head = byte(MARK, index);
    this.progress.step += 1;
    if (kind === "tag") return [[this.address, concat(head, this.tag(turn))]];
    if (kind === "close") return [[this.address, head]];
    const { partner } = this;
    if (kind === "words") {
      const mine = (who) => partner && equal(who, partner);
      return this.lists.flat().map((who) => [who, concat(head, mine(who) ? words : new Uint8Array())]);
    }
    if (!this.speaks(index, this.asks)) return [];
    const chosen = !partner && kind !== "places" ? this.choice(turn) : null;
    return this.lists[turn].map((who) => [who, this.body(index, who, chosen, Boolean(partner))]);
  }

  body(index, who, chosen, dummy) {
    const { cell } = this.progress;
    if (dummy) return writeWord(index, 0, { cell: cell.map(() => 0) });
    let said = HERE;
    if (chosen && equal(who, chosen)) said |= YOURS;
    if (this.steps[index].kind === "answer" && (!chosen || this.nearer(who, chosen))) said |= WOULD;
    return writeWord(index, said, { half: half(this.secret, who), cell });
  }

  /** Take in a candidate's letter; drop and count it if it does not belong here. */
  receive(sender, body) {
    const reason = this.wrong(sender, body) || this.stale(sender, body);
    if (reason) return this.drop(reason);
    if (this.steps[body[1]].kind === "words") this.progress.words[hex(sender)] = body.slice(2);
    else this.progress.heard[hex(sender)] = readWord(body);
    return true;
  }

  wrong(sender, body) {
    const turn = this.turns.get(hex(sender));
    if (turn === undefined) return "sender";
    if (body.length < 2 || body[0] !== MARK) return "size";
    const step = this.stepOf(body);
    if (!step || isNotice(step) || !this.speaks(body[1], !this.asks)) return "step";
    if (step.kind === "words") return "";
    if (step.turn !== turn) return "step";
    return body.length === wordSize(this.progress.cell.length) ? "" : "size";
  }

  stale(sender, body) {
    const [, index] = body;
    const step = this.steps[index];
    if (step.kind === "words") return Object.hasOwn(this.progress.words, hex(sender)) ? "repeated" : "";
    if (this.progress.step > this.noticesOf(step.turn)[0]) return "late";
    const last = this.word(sender);
    if (!last) return "";
    if (index <= last.step) return index === last.step ? "repeated" : "late";
    const word = readWord(body);
    const same = equal(last.half, word.half) && last.cell.every((number, axis) => number === word.cell[axis]);
    return !same && last.said & word.said & HERE ? "changed" : "";
  }

  /** Take in a public notice, in the order of the board; the first of each step counts. */
  notice(sender, body) {
    const step = this.stepOf(body);
    const own = equal(sender, this.address);
    let reason = "";
    if (!own && !this.turns.has(hex(sender))) reason = "sender";
    else if (!step || !isNotice(step)) reason = "step";
    else if (body.length !== 2 + (step.kind === "tag" ? TAG : 0)) reason = "size";
    else if (this.posted(sender, body[1])) reason = "repeated";
    if (reason) return this.drop(reason);
    this.order.set(`${hex(sender)}/${body[1]}`, this.progress.notices.length);
    this.progress.notices.push({ sender, step: body[1], tag: body.slice(2) });
    return true;
  }

  stepOf(body) {
    return body.length >= 2 && body[0] === MARK ? this.steps[body[1]] : undefined;
  }

  drop(reason) {
    const { dropped } = this.progress;
    dropped[reason] = (dropped[reason] ?? 0) + 1;
    return false;
  }

  get partners() {
    const { partner } = this;
    return partner ? [partner] : [];
  }

  /** The partner's address, as soon as it is certain. */
  get partner() {
    for (let turn = 0; turn < this.progress.chosen.length; turn += 1) {
      const found = this.verdict(turn);
      if (found) return found;
    }
    return null;
  }

  /** With whom a pass has paired the person, by the board alone: whoever reads the same log finds the same. */
  verdict(turn) {
    const chosen = this.progress.chosen[turn];
    const [tagged, closed] = this.noticesOf(turn);
    if (!chosen?.length || !this.posted(this.address, closed)) return null;
    const both = [this.address, chosen];
    const first = Math.min(...both.map((who) => this.at(who, closed)));
    const key = this.pairKey(chosen);
    const named = both.every((who) => {
      const place = this.at(who, tagged);
      return place < first && key && equal(this.progress.notices[place].tag, pairTag(key, turn, who));
    });
    return named ? chosen : null;
  }

  /** Whom to ask, or whom of those who ask to hold, by everybody's last word. */
  choice(turn) {
    const there = this.lists[turn].filter((who) => this.free(who));
    const theirs = there.filter((who) => this.said(who, YOURS));
    if (!this.asks || theirs.length) return this.nearest(theirs);
    return this.nearest(there.filter((who) => this.open(who)));
  }

  /** Fix whom this pass is for, and give the tag that names them to them alone. */
  tag(turn) {
    let chosen = this.partner ? null : this.choice(turn);
    if (this.asks && chosen && !this.said(chosen, YOURS)) chosen = null;
    const key = chosen && this.pairKey(chosen);
    this.progress.chosen.push(key ? chosen : new Uint8Array());
    return key ? pairTag(key, turn, this.address) : prf(this.secret, "nobody", byte(turn)).slice(0, TAG);
  }

  word(who) {
    return this.progress.heard[hex(who)];
  }

  said(who, what) {
    return Boolean((this.word(who)?.said ?? 0) & what);
  }

  /** Whether a candidate would take the person, or has not said. */
  open(who) {
    const word = this.word(who);
    return Boolean(word) && (this.steps[word.step].kind === "places" || Boolean(word.said & WOULD));
  }

  free(who) {
    return this.said(who, HERE) && this.missed(who, this.progress.step) < SILENCES;
  }

  /** Count the letters that a candidate should have written since the last one, to a step. */
  missed(who, until) {
    const turn = this.turns.get(hex(who));
    let count = 0;
    for (let index = (this.word(who)?.step ?? -1) + 1; index < until; index += 1) {
      const step = this.steps[index];
      count += Number(step.turn === turn && isTalk(step) && this.speaks(index, !this.asks));
    }
    return count;
  }

  nearest(names) {
    return names.reduce((best, who) => (best && this.apart(who, best) >= 0 ? best : who), null);
  }

  nearer(who, other) {
    return Boolean(this.word(who)) && this.apart(who, other) < 0;
  }

  /** Order two candidates by their distance in cells; equal ones by what both drew. */
  apart(who, other) {
    const [a, b] = [this.distance(who), this.distance(other)];
    if (a !== b) return a < b ? -1 : 1;
    return compare(this.pairKey(who), this.pairKey(other));
  }

  distance(who) {
    const { cell } = this.word(who);
    return this.progress.cell.reduce((sum, number, axis) => sum + BigInt(number - cell[axis]) ** 2n, 0n);
  }

  pairKey(who) {
    const word = this.word(who);
    if (!word) return null;
    const name = `${hex(who)}/${hex(word.half)}`;
    if (!this.keys.has(name)) {
      const halves = [[this.address, half(this.secret, who)], [who, word.half]].sort(([a], [b]) => compare(a, b));
      this.keys.set(name, prf(concat(...halves.map(([, one]) => one)), "pair"));
    }
    return this.keys.get(name);
  }

  posted(who, step) {
    return this.order.has(`${hex(who)}/${step}`);
  }

  /** The place of somebody's notice among all that count; behind all, if there is none. */
  at(who, step) {
    return this.order.get(`${hex(who)}/${step}`) ?? Infinity;
  }

  /** The steps of the tag and the close of a pass. */
  noticesOf(turn) {
    const tag = this.steps.findIndex((step) => step.kind === "tag" && step.turn === turn);
    return [tag, tag + 1];
  }
}
