// Settling: its steps, the bodies of its letters, and one person's state machine. SPEC section 15.
//
// At every step everybody writes the same number of letters of one size, whatever they decide. Of each candidate a
// person learns a ring (exchange.js). Keys, seals and the board are in candidates.js.

import { POINT } from "./blinded-sets.js";
import { base64, big, byte, compare, concat, equal, hex, unbase64, unsigned } from "./encoding.js";
import { Misuse } from "./errors.js";
import { boxSize, Exchange, isShare, prf, readPoints } from "./exchange.js";

/** The first byte of the body of every letter of settling; no text begins with it. */
export const MARK = 0;
const HEAD = 2;
export const TAG = 16;
/** "I am free and here"; "I ask you", or "I hold you"; "I would take you". */
export const [HERE, YOURS, WOULD] = [1, 2, 4];
const LENGTH = 2; // bytes of the length of words

/** Return the steps, given how often to ask with each list; each step has a kind and the number of its list. */
export function schedule(asks) {
  const of = (times) => ["show", ...Array.from({ length: times }, () => ["ask", "answer"]).flat(), "tag", "close"];
  const first = ["points", "table", "share"].map((kind) => ({ kind, turn: 0 }));
  const rest = asks.flatMap((times, turn) => of(times).map((kind) => ({ kind, turn })));
  return [...first, ...rest, { kind: "words", turn: Math.max(0, asks.length - 1) }];
}

const NOTICES = { points: 2 * POINT, tag: TAG, close: 0 };
export const isNotice = ({ kind }) => Object.hasOwn(NOTICES, kind);
export const isTalk = ({ kind }) => kind === "show" || kind === "ask" || kind === "answer";

/** Return how many bytes of words a letter has room for. */
export const wordsRoom = (letterSize) => letterSize - HEAD - boxSize(LENGTH);

/** Return the least size of letters for settling with these rings. */
export const leastLetter = (rings) => HEAD + Math.max(rings.tableSize, boxSize(LENGTH));

/** Return the tag by which a sender names the other owner of a pair's key. */
export const pairTag = (key, turn, sender) => prf(key, "tag", concat(byte(turn), sender)).slice(0, TAG);

/** Return the progress of a person who begins to settle; the ticket stores it. */
export function newProgress(cell, begun) {
  return {
    cell, begun, step: 0, read: 0, points: {}, values: {}, shares: {}, heard: {}, notices: [], chosen: [],
    words: {}, placed: [], outbox: [], dropped: {},
  };
}

const mapped = (record, work) => Object.fromEntries(Object.entries(record ?? {}).map(([address, entry]) => [address, work(entry)]));

/** Return progress as the JSON that the Python client reads and writes. */
export function writeProgress(progress) {
  const { heard, notices, chosen, points, values, shares, words, placed, outbox } = progress;
  return {
    ...progress,
    points: mapped(points, base64),
    values: mapped(values, base64),
    shares: mapped(shares, base64),
    heard: mapped(heard, (word) => [word.step, word.said, word.ring]),
    notices: notices.map((notice) => [base64(notice.sender), notice.step, base64(notice.tag)]),
    chosen: chosen.map(base64),
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
    points: mapped(raw.points, unbase64),
    values: mapped(raw.values, unbase64),
    shares: mapped(raw.shares, unbase64),
    heard: mapped(raw.heard, ([step, said, ring]) => ({ step, said, ring })),
    notices: list("notices").map(([sender, step, tag]) => ({ sender: unbase64(sender), step, tag: unbase64(tag) })),
    chosen: list("chosen").map(unbase64),
    words: mapped(raw.words, unbase64),
    placed: list("placed").map(([place, posting]) => [place, unbase64(posting)]),
    outbox: list("outbox").map(unbase64),
  };
}

const SILENCES = 2; // after this many missing letters in a row, a candidate counts as gone

export class Settling {
  /** `lists` holds the candidates' addresses for each pass; no address is in two lists. */
  constructor(progress, { address, asks, lists, secret, steps, digest, rings, letterSize }) {
    if (letterSize < leastLetter(rings)) throw new Misuse(`to settle, letters must have at least ${leastLetter(rings)} bytes, got ${letterSize}`);
    this.progress = progress;
    this.address = address;
    this.asks = asks;
    this.lists = lists;
    this.secret = secret;
    this.steps = steps;
    this.room = wordsRoom(letterSize);
    this.pairs = steps[3].kind === "show";
    this.exchange = new Exchange(secret, progress.cell, { address, digest, rings });
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
    return isTalk(this.steps[index]) ? !asks : true;
  }

  /** Return whether the next step may begin: all have written, or it is late. Your own tag must be on the board. */
  ready({ late = false } = {}) {
    const before = this.progress.step - 1;
    if (before < 0) return true;
    const { kind } = this.steps[before];
    if ((kind === "tag" || kind === "close") && !this.posted(this.address, before)) return false;
    if (late || kind === "close") return true;
    return !this.lists.flat().some((candidate) => this.awaits(candidate, before));
  }

  /** Return whether a candidate should still write at a step, and missed nothing before. */
  awaits(candidate, index) {
    const { points, values, shares } = this.progress;
    const has = (record) => Object.hasOwn(record, hex(candidate));
    const { kind, turn } = this.steps[index];
    if (kind === "points") return !has(points);
    if (kind === "table") return has(points) && !has(values);
    if (kind === "share") return has(values) && !has(shares);
    if (turn !== this.turns.get(hex(candidate)) || this.missed(candidate, index)) return false;
    if (kind === "tag") return !this.posted(candidate, index);
    return this.speaks(index, !this.asks) && (this.word(candidate)?.step ?? -1) < index;
  }

  /** Write the letters of the next step and advance; a letter to your own address is a public notice. */
  speak(words = new Uint8Array()) {
    if (words.length > this.room) throw new Misuse(`words may have at most ${this.room} bytes, got ${words.length}`);
    const index = this.progress.step;
    const step = this.steps[index];
    const head = byte(MARK, index);
    this.progress.step += 1;
    if (step.kind === "points") return [[this.address, concat(head, this.exchange.points)]];
    if (isNotice(step)) return [[this.address, concat(head, step.kind === "tag" ? this.tag(step.turn) : new Uint8Array())]];
    if (!isTalk(step)) return this.lists.flat().map((candidate) => [candidate, concat(head, this.write(index, candidate, words))]);
    if (!this.speaks(index, this.asks)) return [];
    const free = !this.partner;
    const chosen = free ? this.choice(step.turn) : null;
    return this.lists[step.turn].map((candidate) => [candidate, concat(head, this.talk(index, candidate, chosen, free))]);
  }

  /** Write to a candidate, of whichever list, what is no talk. */
  write(index, candidate, words) {
    const { kind } = this.steps[index];
    if (kind === "table") return this.exchange.table(candidate, this.points(candidate));
    if (kind === "share") return this.exchange.share(candidate, this.value(candidate));
    const { partner } = this;
    const readable = !this.pairs || Boolean(partner && equal(candidate, partner));
    const content = concat(unsigned(words.length, LENGTH), words, new Uint8Array(this.room - words.length));
    return this.box(index, candidate, content, readable);
  }

  /** Write what the person would do; who is not free seals it so that nobody can open it. */
  talk(index, candidate, chosen, free) {
    const { kind } = this.steps[index];
    let said = HERE;
    if (chosen && equal(candidate, chosen)) said |= YOURS;
    if (kind === "show" || (kind === "answer" && this.prefers(candidate, chosen))) said |= WOULD;
    return this.box(index, candidate, byte(said), free);
  }

  box(index, candidate, content, readable) {
    const key = (readable && this.key(candidate)) || this.exchange.noKey(candidate);
    return this.exchange.box(key, index, candidate, content);
  }

  /** Process a candidate's letter; drop and count it if it is not valid at this step. */
  receive(sender, body) {
    const reason = this.wrong(sender, body) || this.stale(sender, body);
    if (reason) return this.drop(reason);
    const [, index] = body;
    const content = body.slice(HEAD);
    const { kind } = this.steps[index];
    if (kind === "table") this.progress.values[hex(sender)] = this.exchange.read(sender, this.points(sender), content);
    else if (kind === "share") this.progress.shares[hex(sender)] = content;
    else return this.open(sender, index, content);
    return true;
  }

  /** Open a box, and note what it says; one that does not open says "not free". */
  open(sender, index, box) {
    const key = this.key(sender);
    const shown = this.ring(sender);
    const { ring, content } = key
      ? this.exchange.open(key, this.value(sender), index, sender, box)
      : { ring: 0, content: new Uint8Array() };
    if (ring && shown && ring !== shown) return this.drop("changed");
    const isWords = this.steps[index].kind === "words";
    if (isWords) {
      const length = Number(big(content.slice(0, LENGTH)));
      this.progress.words[hex(sender)] = content.slice(LENGTH, LENGTH + length);
    }
    if (!isWords || !this.pairs) {
      const said = ring && !isWords ? content[0] : 0;
      this.progress.heard[hex(sender)] = { step: index, said, ring: ring || shown };
    }
    return true;
  }

  wrong(sender, body) {
    const turn = this.turns.get(hex(sender));
    if (turn === undefined) return "sender";
    if (body.length < HEAD || body[0] !== MARK) return "size";
    const step = this.stepOf(body);
    if (!step || isNotice(step) || !this.speaks(body[1], !this.asks)) return "step";
    if (isTalk(step) && step.turn !== turn) return "step";
    const content = body.slice(HEAD);
    const sizes = { table: this.exchange.rings.tableSize, share: POINT, words: boxSize(LENGTH + this.room) };
    if (content.length !== (sizes[step.kind] ?? boxSize(1))) return "size";
    return step.kind === "share" && !isShare(content) ? "point" : "";
  }

  stale(sender, body) {
    const [, index] = body;
    const { kind, turn } = this.steps[index];
    const { points, values, shares, words, step } = this.progress;
    const first = { table: values, share: shares, words }[kind];
    if (first) {
      if (Object.hasOwn(first, hex(sender))) return "repeated";
      // The share is written already, or there is no point to read the table with.
      return kind === "table" && (step > index + 1 || !Object.hasOwn(points, hex(sender))) ? "late" : "";
    }
    if (step > this.noticesOf(turn)[0]) return "late";
    const last = this.word(sender);
    if (last && index <= last.step) return index === last.step ? "repeated" : "late";
    return "";
  }

  /** Process a public notice, in the board's order; the first of each step counts. */
  notice(sender, body) {
    const step = this.stepOf(body);
    const isOwn = equal(sender, this.address);
    let reason = "";
    if (!isOwn && !this.turns.has(hex(sender))) reason = "sender";
    else if (!step || !isNotice(step)) reason = "step";
    else if (body.length !== HEAD + NOTICES[step.kind]) reason = "size";
    else if (step.kind === "points") return isOwn || this.receivePoints(sender, body);
    else if (this.posted(sender, body[1])) reason = "repeated";
    if (reason) return this.drop(reason);
    this.order.set(`${hex(sender)}/${body[1]}`, this.progress.notices.length);
    this.progress.notices.push({ sender, step: body[1], tag: body.slice(HEAD) });
    return true;
  }

  /** Process what a candidate publishes, before the person has written the tables. */
  receivePoints(sender, body) {
    if (Object.hasOwn(this.progress.points, hex(sender))) return this.drop("repeated");
    if (this.progress.step > body[1] + 1) return this.drop("late");
    if (!readPoints(body.slice(HEAD))) return this.drop("point");
    this.progress.points[hex(sender)] = body.slice(HEAD);
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

  /** Return the partner, once it is certain; without asks, all candidates in a ring so far. */
  get partners() {
    if (!this.pairs) return this.lists.flat().filter((candidate) => this.ring(candidate));
    const { partner } = this;
    return partner ? [partner] : [];
  }

  /** Return whether the words of every candidate who is not gone have arrived, with or without a partner. */
  get complete() {
    const { words, shares } = this.progress;
    const present = this.lists.flat().filter((candidate) => this.missed(candidate, this.steps.length) < SILENCES);
    return present.map(hex).every((name) => Object.hasOwn(words, name) || !Object.hasOwn(shares, name));
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
    const key = this.key(chosen);
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
    return this.nearest(present.filter((candidate) => this.said(candidate, WOULD)));
  }

  /** Fix the choice of this pass, and return the tag that names the candidate to that candidate alone. */
  tag(turn) {
    let chosen = this.partner ? null : this.choice(turn);
    if (this.asks && chosen && !this.said(chosen, YOURS)) chosen = null;
    const key = chosen && this.key(chosen);
    this.progress.chosen.push(key ? chosen : new Uint8Array());
    return key ? pairTag(key, turn, this.address) : prf(this.secret, "nobody", byte(turn)).slice(0, TAG);
  }

  word(candidate) {
    return this.progress.heard[hex(candidate)];
  }

  said(candidate, what) {
    return Boolean((this.word(candidate)?.said ?? 0) & what);
  }

  /** Return whether a candidate is in a ring, free, and not gone. */
  free(candidate) {
    return this.ring(candidate) > 0 && this.said(candidate, HERE) && this.missed(candidate, this.progress.step) < SILENCES;
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

  prefers(candidate, held) {
    return !held || (this.ring(candidate) > 0 && this.apart(candidate, held) < 0);
  }

  /** Compare two candidates by ring, then by the keys of the pairs. */
  apart(candidate, other) {
    return this.ring(candidate) - this.ring(other) || compare(this.key(candidate), this.key(other));
  }

  ring(candidate) {
    return this.word(candidate)?.ring ?? 0;
  }

  points(candidate) {
    return readPoints(this.progress.points[hex(candidate)] ?? new Uint8Array());
  }

  value(candidate) {
    return this.progress.values[hex(candidate)];
  }

  /** Return the key with a candidate, who has it too if the passwords agree; null if a letter is missing. */
  key(candidate) {
    const [value, share] = [this.value(candidate), this.progress.shares[hex(candidate)]];
    return value && share ? this.exchange.key(candidate, value, share) : null;
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
