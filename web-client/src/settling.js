// Settling: its steps, the bodies of its letters, and one person's state machine. SPEC section 15.
//
// At every step everybody writes the same number of letters of one size, whatever they decide. Keys, seals and
// the board are in candidates.js.

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
const LAST = 2 ** 31 - 8; // so that the cells around it also fit into 32 bits

/** Return the steps, given how often to ask with each list; each step has a kind and the number of its list. */
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

export const wordSize = (axes) => HEAD + HALF + 4 * axes;

/** Encode the body of a letter for a step; all zeros if the sender is not free. */
export function writeWord(step, said, { half = new Uint8Array(HALF), cell }) {
  return concat(byte(MARK, step, said), half, writeCell(cell));
}

/** Decode a body of the right size. */
export function readWord(body) {
  const raw = new DataView(body.buffer, body.byteOffset + HEAD + HALF);
  const axes = (body.length - HEAD - HALF) / 4;
  const cell = Array.from({ length: axes }, (_, axis) => raw.getInt32(4 * axis));
  return { step: body[1], said: body[2], half: body.slice(HEAD, HEAD + HALF), cell };
}

export const half = (secret, recipient) => prf(secret, "half", recipient).slice(0, HALF);

/** Return the tag by which a sender names the other owner of a pair's key. */
export const pairTag = (key, turn, sender) => prf(key, "tag", concat(byte(turn), sender)).slice(0, TAG);

/** Return the progress of a person who begins to settle; the ticket stores it. */
export function newProgress(cell, begun) {
  return {
    cell, begun, step: 0, read: 0, heard: {}, notices: [], chosen: [], points: {}, replies: {},
    words: {}, placed: [], outbox: [], dropped: {},
  };
}

const mapped = (record, work) => Object.fromEntries(Object.entries(record ?? {}).map(([address, entry]) => [address, work(entry)]));

/** Return progress as the JSON that the Python client reads and writes. */
export function writeProgress(progress) {
  const { heard, notices, chosen, points, replies, words, placed, outbox } = progress;
  return {
    ...progress,
    heard: mapped(heard, (word) => [word.step, word.said, base64(word.half), word.cell]),
    notices: notices.map((notice) => [base64(notice.sender), notice.step, base64(notice.tag)]),
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
    heard: mapped(raw.heard, ([step, said, encoded, cell]) => ({ step, said, half: unbase64(encoded), cell })),
    notices: list("notices").map(([sender, step, tag]) => ({ sender: unbase64(sender), step, tag: unbase64(tag) })),
    chosen: list("chosen").map(unbase64),
    points: mapped(raw.points, unbase64),
    replies: mapped(raw.replies, unbase64),
    words: mapped(raw.words, unbase64),
    placed: list("placed").map(([place, posting]) => [place, unbase64(posting)]),
    outbox: list("outbox").map(unbase64),
  };
}

const SILENCES = 2; // after this many missing letters in a row, a candidate counts as gone

export class Settling {
  /** `lists` holds the candidates' addresses for each pass; no address is in two lists. */
  constructor(progress, { address, asks, lists, secret, steps }) {
    this.progress = progress;
    this.address = address;
    this.asks = asks;
    this.lists = lists;
    this.secret = secret;
    this.steps = steps;
    this.keys = new Map();
    this.turns = new Map(lists.flatMap((names, turn) => names.map((candidate) => [hex(candidate), turn])));
    this.order = new Map(progress.notices.map((notice, at) => [`${hex(notice.sender)}/${notice.step}`, at]));
  }

  get done() {
    return this.progress.step >= this.steps.length;
  }

  /** Return whether a side writes at a step. */
  speaks(index, asks) {
    const { kind } = this.steps[index];
    if (kind === "ask") return asks;
    return kind === "answer" ? !asks : true;
  }

  /** Return whether the next step may begin: all have written, or it is late. Your own notices must be on the board. */
  ready({ late = false } = {}) {
    const before = this.progress.step - 1;
    if (before < 0) return true;
    const step = this.steps[before];
    if (isNotice(step) && !this.posted(this.address, before)) return false;
    if (late || step.kind === "close") return true;
    const present = this.lists[step.turn].filter((candidate) => !this.missed(candidate, before));
    if (step.kind === "tag") return present.every((candidate) => this.posted(candidate, before));
    if (!this.speaks(before, !this.asks)) return true;
    return present.every((candidate) => (this.word(candidate)?.step ?? -1) >= before);
  }

  /** Write the letters of the next step and advance; a letter to your own address is a public notice. */
  speak(words = new Uint8Array()) {
    const index = this.progress.step;
    const { kind, turn } = this.steps[index];
    const head = byte(MARK, index);
    this.progress.step += 1;
    if (kind === "tag") return [[this.address, concat(head, this.tag(turn))]];
    if (kind === "close") return [[this.address, head]];
    const { partner } = this;
    if (kind === "words") {
      const isPartner = (candidate) => partner && equal(candidate, partner);
      return this.lists.flat().map((candidate) => [candidate, concat(head, isPartner(candidate) ? words : new Uint8Array())]);
    }
    if (!this.speaks(index, this.asks)) return [];
    const chosen = !partner && kind !== "places" ? this.choice(turn) : null;
    return this.lists[turn].map((candidate) => [candidate, this.body(index, candidate, chosen, Boolean(partner))]);
  }

  body(index, candidate, chosen, dummy) {
    const { cell } = this.progress;
    if (dummy) return writeWord(index, 0, { cell: cell.map(() => 0) });
    let said = HERE;
    if (chosen && equal(candidate, chosen)) said |= YOURS;
    if (this.steps[index].kind === "answer" && (!chosen || this.nearer(candidate, chosen))) said |= WOULD;
    return writeWord(index, said, { half: half(this.secret, candidate), cell });
  }

  /** Process a candidate's letter; drop and count it if it is not valid at this step. */
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

  /** Process a public notice, in the board's order; the first of each step counts. */
  notice(sender, body) {
    const step = this.stepOf(body);
    const isOwn = equal(sender, this.address);
    let reason = "";
    if (!isOwn && !this.turns.has(hex(sender))) reason = "sender";
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

  /** Return the partner's address as soon as it is certain. */
  get partner() {
    for (let turn = 0; turn < this.progress.chosen.length; turn += 1) {
      const partner = this.verdict(turn);
      if (partner) return partner;
    }
    return null;
  }

  /** Return the partner of a pass, from the board alone: everybody who reads the same log finds the same pair. */
  verdict(turn) {
    const chosen = this.progress.chosen[turn];
    const [tagged, closed] = this.noticesOf(turn);
    if (!chosen?.length || !this.posted(this.address, closed)) return null;
    const both = [this.address, chosen];
    const first = Math.min(...both.map((owner) => this.at(owner, closed)));
    const key = this.pairKey(chosen);
    const named = both.every((owner) => {
      const place = this.at(owner, tagged);
      return place < first && key && equal(this.progress.notices[place].tag, pairTag(key, turn, owner));
    });
    return named ? chosen : null;
  }

  /** Return the candidate to ask, or the one to hold among those who ask, from everybody's last letter. */
  choice(turn) {
    const present = this.lists[turn].filter((candidate) => this.free(candidate));
    const interested = present.filter((candidate) => this.said(candidate, YOURS));
    if (!this.asks || interested.length) return this.nearest(interested);
    return this.nearest(present.filter((candidate) => this.open(candidate)));
  }

  /** Fix the choice of this pass, and return the tag that names the candidate to that candidate alone. */
  tag(turn) {
    let chosen = this.partner ? null : this.choice(turn);
    if (this.asks && chosen && !this.said(chosen, YOURS)) chosen = null;
    const key = chosen && this.pairKey(chosen);
    this.progress.chosen.push(key ? chosen : new Uint8Array());
    return key ? pairTag(key, turn, this.address) : prf(this.secret, "nobody", byte(turn)).slice(0, TAG);
  }

  word(candidate) {
    return this.progress.heard[hex(candidate)];
  }

  said(candidate, what) {
    return Boolean((this.word(candidate)?.said ?? 0) & what);
  }

  /** Return whether a candidate would take the person, or has not said. */
  open(candidate) {
    const word = this.word(candidate);
    return Boolean(word) && (this.steps[word.step].kind === "places" || Boolean(word.said & WOULD));
  }

  free(candidate) {
    return this.said(candidate, HERE) && this.missed(candidate, this.progress.step) < SILENCES;
  }

  /** Count the letters that a candidate should have written after the last one, up to a step. */
  missed(candidate, until) {
    const turn = this.turns.get(hex(candidate));
    let count = 0;
    for (let index = (this.word(candidate)?.step ?? -1) + 1; index < until; index += 1) {
      const step = this.steps[index];
      count += Number(step.turn === turn && isTalk(step) && this.speaks(index, !this.asks));
    }
    return count;
  }

  nearest(names) {
    return names.reduce((best, candidate) => (best && this.apart(candidate, best) >= 0 ? best : candidate), null);
  }

  nearer(candidate, other) {
    return Boolean(this.word(candidate)) && this.apart(candidate, other) < 0;
  }

  /** Compare two candidates by distance in cells, then by the pair keys. */
  apart(candidate, other) {
    const [a, b] = [this.distance(candidate), this.distance(other)];
    if (a !== b) return a < b ? -1 : 1;
    return compare(this.pairKey(candidate), this.pairKey(other));
  }

  distance(candidate) {
    const { cell } = this.word(candidate);
    return this.progress.cell.reduce((sum, number, axis) => sum + BigInt(number - cell[axis]) ** 2n, 0n);
  }

  pairKey(candidate) {
    const word = this.word(candidate);
    if (!word) return null;
    const name = `${hex(candidate)}/${hex(word.half)}`;
    if (!this.keys.has(name)) {
      const halves = [[this.address, half(this.secret, candidate)], [candidate, word.half]].sort(([a], [b]) => compare(a, b));
      this.keys.set(name, prf(concat(...halves.map(([, bytes]) => bytes)), "pair"));
    }
    return this.keys.get(name);
  }

  posted(sender, step) {
    return this.order.has(`${hex(sender)}/${step}`);
  }

  /** Return the place of a sender's notice among all that count; Infinity if there is none. */
  at(sender, step) {
    return this.order.get(`${hex(sender)}/${step}`) ?? Infinity;
  }

  /** Return the steps of the tag and the close of a pass. */
  noticesOf(turn) {
    const tag = this.steps.findIndex((step) => step.kind === "tag" && step.turn === turn);
    return [tag, tag + 1];
  }
}
