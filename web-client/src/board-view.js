// The board as one person follows it: proofs that it shows everybody the same, letters, posting.
//
// How bytes are fetched is the caller's: `peer` has `get(url)` and `send(url, bytes)`, as a RelayClient does,
// and `remember` keeps the last checkpoint, which every later one must continue. SPEC section 9.

import { concat, text, unbase64, unhex } from "./encoding.js";
import { Refused, Unavailable } from "./errors.js";
import * as messages from "./messages.js";
import { pauseRule, windowOf } from "./relay-client.js";
import { checkLogged, checkPlaced, checkTerms, follow, ROUND_LEAF, UNSEEN } from "./verification.js";

const UNLOGGED = "the board has not logged the terms of this round, so others may be shown other ones: nothing was sent";
const BULK = 1 << 30; // the most bytes of letters that are read

/** Read a document of the board. */
function json(raw) {
  try {
    return JSON.parse(text(raw));
  } catch {
    throw new Refused("the board's answer is not what its documents say: ask its operator");
  }
}

/** The hashes of a path that came in one piece. */
function steps(path) {
  const raw = unbase64(path);
  return Array.from({ length: Math.ceil(raw.length / 32) }, (_, n) => raw.slice(32 * n, 32 * n + 32));
}

export class BoardView {
  /**
   * @param {import("./types.js").Round} round
   * @param {object} options
   * @param {import("./types.js").Peer} options.peer
   * @param {import("./types.js").Checkpoint | null} [options.before] the last checkpoint, as `remember` was given it
   * @param {(point: import("./types.js").Checkpoint) => unknown} [options.remember]
   */
  constructor(round, { peer, before = null, remember = () => {} }) {
    this.round = round;
    this.peer = peer;
    this.before = before;
    this.remember = remember;
    this.url = round.terms.board.url;
    this.at = `${round.atBoard}/letters`;
  }

  /** Within how many seconds the times of requests are drawn; 0 without a relay. */
  get window() {
    return windowOf(this.round, this.peer);
  }

  /** How long to wait before looking again; through a relay it is drawn. @param {number} due @returns {number} */
  pause(due) {
    return pauseRule(this.round, this.peer)(due);
  }

  /**
   * Every posting from a place on, page by page, or those to one address; an empty page is the last.
   * @param {number} since @param {string} [address] @returns {Promise<Uint8Array[]>}
   */
  async letters(since, address = "") {
    const size = messages.postingSize(this.round);
    const at = address ? `${this.at}/${address}` : this.at;
    const found = [];
    for (;;) {
      const page = await this.peer.get(`${at}?since=${since + found.length}`);
      if (page.length % size) throw new Refused("the board's letters do not have the size of this round's");
      if (!page.length) return found;
      for (let from = 0; from < page.length; from += size) found.push(page.slice(from, from + size));
      if (found.length * size > BULK) throw new Refused(`${this.url} does not end: more letters than ${BULK} bytes are not read`);
    }
  }

  /**
   * Post letters in one request, each after its recipient's contact; the place of the first in the log.
   * @param {Uint8Array[]} stamped @returns {Promise<number>}
   */
  async post(stamped) {
    const { place } = json(await this.peer.send(this.at, concat(...stamped)));
    if (!(Number.isSafeInteger(place) && place >= 0)) throw new Refused("the board does not say where your letter is: it may be lost");
    return place;
  }

  /** Check that the log only grew since the last checkpoint, and keep the new one. */
  async follow() {
    return this.keep(checkLogged([], this.round, await this.grown(), this.before));
  }

  /** Check that the log has the terms, before anything is spent or sent: else others may be shown other ones. */
  async terms() {
    const proof = await this.grown();
    if (!proof.size) throw this.round.cosigners.demanded ? new Unavailable(UNSEEN) : new Refused(UNLOGGED);
    const raw = await this.peer.get(`${this.round.atBoard}/logged?size=${proof.size}`).catch((error) => {
      throw error.status === 404 ? new Refused(UNLOGGED) : error;
    });
    const { place, path } = json(raw);
    return this.keep(checkTerms(this.round, { ...proof, place, path: steps(path) }, this.before));
  }

  /**
   * Check that the log shows this bulletin to everybody, and only grew; the checkpoint that is kept.
   * @param {Uint8Array} bulletin
   */
  async check(bulletin) {
    const proof = await this.grown();
    const place = json(await this.peer.get(`${this.round.atBoard}/place`));
    const path = await this.included(place, proof.size);
    return this.keep(follow(bulletin, this.round, { ...proof, place, path }, this.before));
  }

  /**
   * Fetch one entry, with the proof that it is in the bulletin that the log shows to everybody. It shows the board
   * which entry is asked for, so it is for a relay. `null` if the board says that there is none.
   * @param {number} group @param {string} address in hex
   * @returns {Promise<{ heading: Uint8Array, entry: Uint8Array } | null>}
   */
  async entry(group, address) {
    const proof = await this.grown();
    if (!proof.size) throw new Unavailable(UNSEEN);
    const url = `${this.round.atBoard}/entries/${group}/${address}?size=${proof.size}`;
    const raw = await this.peer.get(url).catch((error) => {
      if (error.status === 404) return null;
      throw error;
    });
    if (!raw) return null;
    const found = json(raw);
    const [entry, heading] = [unbase64(found.entry), unbase64(found.heading)];
    const head = messages.readHeading(heading, this.round);
    const leaf = concat(ROUND_LEAF, head.heading);
    const logged = { place: found.log_place, path: steps(found.log_path), leaf };
    const point = checkLogged([logged], this.round, proof, this.before);
    messages.checkEntry(entry, this.round, { group, head, place: found.place, path: steps(found.path) });
    await this.keep(point);
    return { heading: head.heading, entry };
  }

  /** Check that the log has one's own postings, each `[place, posting]`, and only grew. @param {[number, Uint8Array][]} placed */
  async prove(placed) {
    const proof = await this.grown();
    const paths = [];
    for (const [place] of placed) paths.push(await this.included(place, proof.size));
    return this.keep(checkPlaced(placed, this.round, { ...proof, paths }, this.before));
  }

  /** Fetch the checkpoint, the one that witnesses cosigned if some are demanded, with the path from the last. */
  async grown() {
    const checkpoint = await this.peer.get(this.round.checkpointAt);
    const { size } = messages.readCheckpoint(checkpoint, this.round);
    const old = this.before?.size ?? 0;
    const since = 0 < old && old < size ? await this.path(`consistency?old=${old}&new=${size}`) : [];
    return { checkpoint, size, since };
  }

  async included(place, size) {
    if (!(Number.isSafeInteger(place) && place >= 0)) throw new Refused("the board names no place in its log: do not rely on it");
    return place < size ? this.path(`inclusion?place=${place}&size=${size}`) : [];
  }

  /** Fetch a proof; a board that gives none counts as one that shows two faces. */
  async path(question) {
    try {
      return json(await this.peer.get(`${this.url}/proofs/${question}`)).path.map(unhex);
    } catch (error) {
      if (error instanceof Unavailable) throw error;
      throw new Refused("the board gives no proof that its log only grew and shows this: do not rely on it");
    }
  }

  async keep(point) {
    this.before = point;
    await this.remember(point);
    return point;
  }
}
