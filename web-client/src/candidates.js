// A person's side of settling: sealed letters and signed notices, driven from the ticket. SPEC section 15.
//
// A page needs only `settleByLetter`, which takes a BoardView and a function that stores the ticket.

import { concat, equal, hex, unhex } from "./encoding.js";
import { Misuse, Refused, Unavailable } from "./errors.js";
import { mostNamed } from "./exposure.js";
import { prf } from "./exchange.js";
import { retry, wait } from "./http-client.js";
import { addressOf, contactOf, keyPairs } from "./keys.js";
import { readNotice, readSettling, write, writeNotice } from "./letters.js";
import * as messages from "./messages.js";
import { waitRandomly } from "./relay-client.js";
import { cellOf, cellOfNobody, Rings } from "./rings.js";
import { isNotice, leastLetter, newProgress, schedule, Settling, wordsRoom } from "./settling.js";
import { decoyTickets, withLetters } from "./ticket.js";

const LOOKS = 20; // how often per pause the client looks for letters

/** Return the settling parameters of the terms; refuse terms without them. */
export function settlingTerms({ terms }) {
  if (!terms.settle) throw new Refused("this round has no settling: its terms have no `settle`; use `collect` instead");
  const { pause = 60 } = terms.settle;
  return { asks: [3, 2], pause, spread: pause / 4, ...terms.settle };
}

/** Return the rings of the terms; refuse terms that no letter has room for. */
function ringsOf(round, axes) {
  const { cell, rings } = settlingTerms(round);
  return new Rings(rings, cell, axes);
}

/**
 * Return what letters may tell candidates about a person of a group, or null without settling. No ε covers it.
 * @param {import("./types.js").Round} round @param {number} group @param {number} axes of a place
 * @returns {import("./types.js").Disclosure | null}
 */
export function disclosureOf(round, group, axes) {
  const { settle, task, groups } = round.terms;
  if (!settle) return null;
  const rings = ringsOf(round, axes);
  return {
    candidates: mostNamed(task, groups.length, group), cells: rings.around.length, rings: rings.count,
    chooses: settlingTerms(round).asks.length > 0,
  };
}

/**
 * Say what letters may tell, and which ε holds beside it.
 * @param {import("./types.js").Invitation} invitation
 */
export function disclosureText({ letters, local }) {
  if (!letters) return "";
  const { candidates, cells, rings, chooses } = letters;
  const around = `${cells} cells around a cell that the candidate chose before`;
  const answer = rings > 1 ? `in which of ${rings} rings your cell is, or in none, of ${around}` : `whether your cell is one of ${around}`;
  return `Letters: if you settle, each of at most ${candidates} candidates learns one exact answer, ${answer}`
    + `${chooses ? "; one in a ring also learns how you choose" : ""}. A candidate who lies chooses that cell freely. ε does not cover`
    + ` these answers; apart from them ε holds against everybody but the candidates, and the local ε = ${local.toPrecision(4)} against`
    + " candidates, even if they work with the server.";
}

const secretOf = (ticket, round) => prf(ticket.seed, "secret", round.digest);

/**
 * Begin to settle from a place, or resume from the ticket; `now` in seconds since 1970. Without a place (null) nobody
 * is behind the ticket's address: it writes letters like a person's, and settles with nobody.
 */
export function beginSettling(ticket, place, round, now, axes = 2) {
  if (ticket.settling) return ticket;
  const { cell: side } = settlingTerms(round);
  const cell = place === null
    ? cellOfNobody(secretOf(ticket, round), axes)
    : cellOf(place, round.terms.task.params?.scale ?? [], side);
  const size = leastLetter(ringsOf(round, cell.length));
  const capacity = round.terms.letter_size;
  if (size > capacity) throw new Refused(`letters of this round have ${capacity} bytes, but settling needs ${size}: do not settle in this round`);
  return { ...ticket, settling: newProgress(cell, now) };
}

/** One person's side of settling, with the ticket as it stands. */
export class Candidates {
  constructor(ticket, { round, keys }) {
    this.ticket = ticket;
    this.round = round;
    this.keys = keys;
    /** @type {Map<string, Uint8Array>} */
    this.contacts = new Map();
    this.refused = 0;
    /** @type {any} */
    this.machine = null;
  }

  /** `sizes` says how many entries each group has on the bulletin. */
  static async from(ticket, answer, { round, sizes }) {
    if (!ticket.settling) throw new Misuse("settling has not begun: call `beginSettling` with your place first");
    const keys = await keyPairs(round.suite, ticket.seed);
    const side = new Candidates(ticket, { round, keys });
    const { asks } = settlingTerms(round);
    const { address } = keys;
    const { settling } = ticket;
    const [named, most] = [answer.partners.length + answer.second.length, mostNamed(round.terms.task, round.terms.groups.length, ticket.group)];
    if (named > most) throw new Refused(`this answer names ${named} candidates, but those of these terms name at most ${most}: do not settle`);
    const lists = [answer.partners, answer.second].slice(0, Math.max(1, asks.length)).map((partners) => side.listed(partners));
    const few = sizes.indexOf(Math.min(...sizes));
    side.machine = new Settling(settling, {
      address,
      asks: ticket.group === few,
      lists,
      secret: secretOf(ticket, round),
      steps: schedule(asks),
      digest: round.digest,
      rings: ringsOf(round, settling.cell.length),
      letterSize: round.terms.letter_size,
    });
    return side;
  }

  /** Return the addresses of candidates, without duplicates and without unusable keys. */
  listed(partners) {
    const addresses = [];
    for (const { contact } of partners) {
      const name = hex(addressOf(this.round.suite, contact));
      if (name === hex(this.keys.address) || this.contacts.has(name) || !readable(this.round, contact)) continue;
      this.contacts.set(name, contact);
      addresses.push(unhex(name));
    }
    return addresses;
  }

  /** Return the contacts of the partner, or of all who are near, as far as known. */
  get partners() {
    return this.machine.partners.map((partner) => this.contacts.get(hex(partner)));
  }

  /** Return what the partners wrote at the end, with their contacts, as far as it has arrived. */
  get words() {
    const letters = this.machine.progress.words;
    return this.machine.partners
      .map((partner) => ({ contact: this.contacts.get(hex(partner)), body: letters[hex(partner)] ?? new Uint8Array() }))
      .filter(({ body }) => body.length);
  }

  /** Write the postings of the next step into the ticket. Store the ticket before you post them. */
  async speak(words) {
    const { progress, address } = this.machine;
    const outbox = [];
    for (const [to, body] of this.machine.speak(words)) {
      const options = { round: this.round, keys: this.keys };
      const written = equal(to, address)
        ? writeNotice(this.ticket, body, options)
        : await write(this.ticket, body, this.contacts.get(hex(to)) ?? new Uint8Array(), this.round, this.keys);
      this.ticket = written.ticket;
      outbox.push(written.posting);
    }
    progress.outbox = outbox;
    return outbox;
  }

  /** Return a posting of the outbox as the board takes it: preceded by its recipient's contact. */
  stamped(posting) {
    const { recipient } = messages.decodePosting(posting, this.round);
    return concat(this.contacts.get(hex(recipient)) ?? this.keys.contact, posting);
  }

  /** Process new postings of the round in the board's order; `read` is the number of postings read so far. */
  async hear(postings, read) {
    const sealed = [];
    for (const raw of postings) {
      const to = messages.recipientOf(raw);
      const isOwn = equal(to, this.machine.address);
      if (!isOwn && !this.contacts.has(hex(to))) continue;
      const notice = readNotice(raw, this.round);
      if (notice) this.machine.notice(notice.sender.address, notice.body);
      else if (isOwn) sealed.push(raw);
    }
    const inbox = await readSettling(this.ticket, sealed, this.round, this.keys);
    for (const letter of inbox.letters) this.machine.receive(letter.sender.address, letter.body);
    this.refused += inbox.refused;
    this.machine.progress.read = read;
    this.ticket = inbox.ticket;
  }
}

function readable(round, contact) {
  try {
    return Boolean(contactOf(round.suite, contact));
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}

/**
 * Settle with the candidates of an answer, or resume after a crash. `board` is a BoardView. `save(ticket)` stores
 * the ticket before anything of a step is posted. If the board does not answer, retries for `patience` seconds.
 *
 * The ticket's decoys settle meanwhile, as addresses of nobody: their silence would tell which report is the own.
 * @param {import("./types.js").Ticket} ticket
 * @param {number[] | null} place without one the person settles with nobody, and writes the same letters, without words
 * @param {import("./types.js").Answer} answer
 * @param {object} options
 * @param {import("./types.js").Round} options.round
 * @param {number[]} options.sizes
 * @param {number} [options.axes] how many numbers a place has, if there is none
 * @param {Uint8Array} options.words the text for the partner, or for all who are near; may be empty
 * @param {import("./board-view.js").BoardView} options.board
 * @param {(ticket: import("./types.js").Ticket) => unknown} options.save
 * @param {(import("./types.js").Answer | null)[]} [options.decoyAnswers] those of `decoyAnswers`, if the ticket has decoys
 * @param {number} [options.look] seconds after which to look for letters again
 * @param {number} [options.patience]
 * @returns {Promise<Candidates>}
 */
export async function settleByLetter(ticket, place, answer, { save, decoyAnswers = [], axes = 2, ...options }) {
  const { round, words, board } = options;
  const capacity = wordsRoom(round.terms.letter_size);
  if (words.length > capacity) throw new Misuse(`\`words\` must have at most ${capacity} bytes in this round, got ${words.length}`);
  if (place === null && words.length) throw new Misuse("nobody gets `words` from an address of nobody: give a place, or leave them out");
  const decoys = decoyTickets(ticket);
  if (decoyAnswers.length !== decoys.length) throw new Misuse("give `decoyAnswers`: without the letters of your decoys, others would know your own report");
  let stored = ticket;
  const saved = inTurn();
  const saveAs = (number) => (changed) => {
    stored = withLetters(stored, changed, number);
    const whole = stored;
    return saved(() => save(whole));
  };
  // At random times, or the order of the log would show which addresses are one person's (S15.32).
  const spread = board.window || decoys.length ? settlingTerms(round).spread : 0;
  const shared = { ...options, board: new SharedBoard(board), axes: place?.length ?? axes, spread };
  const [side] = await Promise.all([
    settleAddress(ticket, place, answer, { ...shared, save: saveAs(null) }),
    ...decoys.flatMap((decoy, number) => { // an address that is not on the board gets no letters
      const own = decoyAnswers[number];
      return own ? [settleAddress(decoy, null, own, { ...shared, words: new Uint8Array(), save: saveAs(number) })] : [];
    }),
  ]);
  return side;
}

/** Return a function that runs asynchronous work one after the other. */
function inTurn() {
  /** @type {Promise<any>} */
  let last = Promise.resolve();
  return (work) => {
    last = last.then(work, work);
    return last;
  };
}

/** A view of the board for several addresses: all letters are fetched once, and proofs one after the other. */
class SharedBoard {
  /** @param {import("./board-view.js").BoardView} view */
  constructor(view) {
    this.view = view;
    this.turn = inTurn();
    this.postings = [];
    this.first = -1; // the number of the first posting that was fetched
  }

  get window() {
    return this.view.window;
  }

  pause(due) {
    return this.view.pause(due);
  }

  post(stamped) {
    return this.view.post(stamped);
  }

  prove(placed) {
    return this.turn(() => this.view.prove(placed));
  }

  /** Return the letters of the round from a number on. */
  async letters(since) {
    await this.turn(async () => {
      if (this.first < 0 || since < this.first) [this.first, this.postings] = [since, []];
      this.postings.push(...await this.view.letters(this.first + this.postings.length));
    });
    return this.postings.slice(since - this.first);
  }
}

/** Settle for one address; without a place nobody is there. Letters are posted at random times within `spread` seconds. */
async function settleAddress(ticket, place, answer, { round, sizes, words, board, save, axes, spread, look = 1, patience = 600 }) {
  const { pause } = settlingTerms(round);
  const begun = beginSettling(ticket, place, round, seconds(), axes);
  await save(begun);
  const side = await Candidates.from(begun, answer, { round, sizes });
  const { machine } = side;
  const { progress, steps } = machine;
  const nap = Math.min(look, pause / LOOKS);
  const hear = async () => {
    const fresh = await retry(() => board.letters(progress.read), patience);
    await side.hear(fresh, progress.read + fresh.length);
  };
  const post = async () => {
    if (!progress.outbox.length) return;
    const stamped = progress.outbox.map((posting) => side.stamped(posting));
    const send = (letters) => retry(() => board.post(letters), patience);
    if (!isNotice(steps[progress.step - 1])) return postLetters(stamped, send);
    const at = await send(stamped);
    const [posting] = progress.outbox;
    if (steps[progress.step - 1].kind === "points") return; // it needs no proof
    const isPlaced = progress.placed.some(([, placed]) => equal(placed, posting));
    if (!isPlaced) progress.placed.push([at, posting]);
  };
  if (progress.outbox.length) { // postings that a crash may have held back
    await waitRandomly(spread);
    await post();
  }
  while (!machine.done) {
    const end = progress.begun + progress.step * pause;
    const hidden = Math.max(end, seconds()) + patience;
    for (;;) {
      await hear();
      if (machine.ready({ late: seconds() >= end })) break;
      if (seconds() > hidden) throw new Unavailable("the board accepted your notice but does not show it: try later with the same ticket, or ask its operator");
      await wait(Math.min(board.pause(nap), pause));
    }
    if (progress.placed.length && steps[progress.step].kind === "words") {
      await retry(() => board.prove(progress.placed), patience);
    }
    if ((await side.speak(words)).length) {
      await save(side.ticket);
      await waitRandomly(spread);
      await post();
    }
  }
  const end = progress.begun + (steps.length + 1) * pause;
  while (!machine.complete && seconds() < end) {
    await wait(Math.min(board.pause(nap), pause));
    await hear();
  }
  await save(side.ticket);
  return side;
}

/** Post letters. If one candidate's mailbox is full, only the letter to that candidate is lost. */
async function postLetters(stamped, send) {
  const isLost = (error) => {
    if (!(error instanceof Refused) || error instanceof Unavailable) throw error;
    return true;
  };
  const isRefused = await send(stamped).then(() => false, isLost);
  for (const letter of isRefused && stamped.length > 1 ? stamped : []) await send([letter]).catch(isLost);
}

const seconds = () => Date.now() / 1000;
