// A person's view of the board: letters, posting, and proofs that the board shows everybody the same. SPEC section 9.
//
// The caller supplies the transport: `peer` has `get(url)` and `send(url, bytes)`, as a RelayClient does.
// `remember` stores the last checkpoint, which every later one must continue.

import { concat, text, unbase64, unhex } from "./encoding.js";
import { Refused, Unavailable } from "./errors.js";
import * as messages from "./messages.js";
import { pauseRule, windowOf } from "./relay-client.js";
import { checkLogged, checkPlaced, checkTerms, follow, KEYS_LEAF, ROUND_LEAF, UNSEEN } from "./verification.js";

const UNLOGGED = "the board has not logged the terms of this round, so other people may have received different terms: nothing was sent";
const BULK = 1 << 30; // the most bytes of letters that are read

/** Parse a document of the board. */
function json(raw) {
  try {
    return JSON.parse(text(raw));
  } catch {
    throw new Refused("the board's answer is not valid JSON: ask its operator");
  }
}

/** Split a base64 path into its hashes. */
function hashesOf(path) {
  const raw = unbase64(path);
  return Array.from({ length: Math.ceil(raw.length / 32) }, (_, n) => raw.slice(32 * n, 32 * n + 32));
}

export class BoardView {
  /**
   * @param {import("./types.js").Round} round
   * @param {object} options
   * @param {import("./types.js").Peer} options.peer
   * @param {import("./types.js").Checkpoint | null} [options.before] the last checkpoint that `remember` received
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

  /** Return the seconds within which request times are drawn; 0 without a relay. */
  get window() {
    return windowOf(this.round, this.peer);
  }

  /** Return how long to wait before the next request; through a relay it is drawn at random. @param {number} due @returns {number} */
  pause(due) {
    return pauseRule(this.round, this.peer)(due);
  }

  /**
   * Fetch every posting from a place on, page by page, or those to one address; an empty page is the last.
   * @param {number} since @param {string} [address] @returns {Promise<Uint8Array[]>}
   */
  async letters(since, address = "") {
    const size = messages.postingSize(this.round);
    const at = address ? `${this.at}/${address}` : this.at;
    const postings = [];
    for (;;) {
      const page = await this.peer.get(`${at}?since=${since + postings.length}`);
      if (page.length % size) throw new Refused("the board returned letters of another size than this round's: do not rely on them");
      if (!page.length) return postings;
      for (let from = 0; from < page.length; from += size) postings.push(page.slice(from, from + size));
      if (postings.length * size > BULK) throw new Refused(`the list of letters from ${this.url} does not end: at most ${BULK} bytes are read; ask its operator`);
    }
  }

  /**
   * Post letters in one request, each preceded by its recipient's contact; return the place of the first in the log.
   * @param {Uint8Array[]} stamped @returns {Promise<number>}
   */
  async post(stamped) {
    const { place } = json(await this.peer.send(this.at, concat(...stamped)));
    if (!(Number.isSafeInteger(place) && place >= 0)) throw new Refused("the board did not return the place of your letter, which may be lost: post it again");
    return place;
  }

  /** Check that the log has only grown since the last checkpoint, and store the new one. */
  async follow() {
    return this.keep(checkLogged([], this.round, await this.grown(), this.before));
  }

  /** Check that the log contains the terms. Call this before you spend or send: otherwise other people may have received different terms. */
  async terms() {
    const proof = await this.grown();
    if (!proof.size) throw this.round.cosigners.least ? new Unavailable(UNSEEN) : new Refused(UNLOGGED);
    const raw = await this.peer.get(`${this.round.atBoard}/logged?size=${proof.size}`).catch((error) => {
      throw error.status === 404 ? new Refused(UNLOGGED) : error;
    });
    const { place, path } = json(raw);
    return this.keep(checkTerms(this.round, { ...proof, place, path: hashesOf(path) }, this.before));
  }

  /**
   * Check that the log shows this bulletin to everybody and has only grown; return the new checkpoint.
   * @param {Uint8Array} bulletin
   */
  async check(bulletin) {
    const proof = await this.grown();
    const place = json(await this.peer.get(`${this.round.atBoard}/place`));
    const path = await this.included(place, proof.size);
    return this.keep(follow(bulletin, this.round, { ...proof, place, path }, this.before));
  }

  /**
   * Fetch one entry, with the proof that it is in the bulletin that the log shows to everybody. The board sees which
   * entry is requested, so call this through a relay only. Return `null` if the board says that there is none.
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
    const document = json(raw);
    const [entry, heading] = [unbase64(document.entry), unbase64(document.heading)];
    const head = messages.readHeading(heading, this.round);
    const leaf = concat(ROUND_LEAF, head.heading);
    const logged = { place: document.log_place, path: hashesOf(document.log_path), leaf };
    const point = checkLogged([logged], this.round, proof, this.before);
    messages.checkEntry(entry, this.round, { group, head, place: document.place, path: hashesOf(document.path) });
    await this.keep(point);
    return { heading: head.heading, entry };
  }

  /** Check that the log contains the key list of a gateway; have the board log it first if not. @param {Uint8Array} list */
  async keys(list) {
    const { place, path, checkpoint } = json(await this.peer.send(`${this.url}/gateways`, list));
    const leaf = { leaf: concat(KEYS_LEAF, list), place, path: hashesOf(path) };
    let proof;
    if (this.round.cosigners.least) { // under the cosigned checkpoint, which lags behind
      proof = await this.grown();
      leaf.path = await this.included(place, proof.size);
    } else proof = await this.since(unbase64(checkpoint));
    return this.keep(checkLogged([leaf], this.round, proof, this.before));
  }

  /** Check that the log contains these postings, each `[place, posting]`, and has only grown. @param {[number, Uint8Array][]} placed */
  async prove(placed) {
    const proof = await this.grown();
    const paths = [];
    for (const [place] of placed) paths.push(await this.included(place, proof.size));
    return this.keep(checkPlaced(placed, this.round, { ...proof, paths }, this.before));
  }

  /** Fetch the checkpoint (the cosigned one if witnesses are demanded) and the path from the last one. */
  async grown() {
    return this.since(await this.peer.get(this.round.checkpointAt));
  }

  /** Fetch the path from the last checkpoint to this one. */
  async since(checkpoint) {
    const { size } = messages.readCheckpoint(checkpoint, this.round);
    const old = this.before?.size ?? 0;
    const since = 0 < old && old < size ? await this.path(`consistency?old=${old}&new=${size}`) : [];
    return { checkpoint, size, since };
  }

  async included(place, size) {
    if (!(Number.isSafeInteger(place) && place >= 0)) throw new Refused("the board named no valid place in its log: do not rely on it");
    return place < size ? this.path(`inclusion?place=${place}&size=${size}`) : [];
  }

  /** Fetch a proof; a board that returns none is treated as one that equivocates. */
  async path(question) {
    try {
      return json(await this.peer.get(`${this.url}/proofs/${question}`)).path.map(unhex);
    } catch (error) {
      if (error instanceof Unavailable) throw error;
      throw new Refused("the board returned no proof that its log has only grown and contains this: do not rely on it");
    }
  }

  async keep(point) {
    this.before = point;
    await this.remember(point);
    return point;
  }
}
