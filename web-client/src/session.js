// One person's part in one round over the network: join, wait, collect, write, read, settle.
//
// What is private stays in the ticket, which is stored before anything is sent. A retry sends the same bytes;
// whatever fails, no other and no less private way is tried. SPEC section 12.

import { headersFor } from "./admission.js";
import { BoardView } from "./board-view.js";
import { settleByLetter } from "./candidates.js";
import { addReceipt, addRegistrationReceipt, addressOfTicket, collect, examine, join, openEntry, outcomeOf } from "./client.js";
import { hex, parse, text, utf8 } from "./encoding.js";
import { Misuse, Refused, Unavailable } from "./errors.js";
import { DirectClient, retry } from "./http-client.js";
import { recordOutcome, spend, spent } from "./ledger.js";
import { read, write } from "./letters.js";
import { readHeading } from "./messages.js";
import { waitRandomly, pauseRule, RelayClient, windowOf } from "./relay-client.js";
import { checkLimit, PersonStore } from "./store.js";
import { verifySignatures } from "./agreement.js";

const MOST = 2000; // entries up to which the whole board is fetched, also through a relay
const seconds = () => Math.floor(Date.now() / 1000);

/**
 * One person's part in one round. The ticket is in the store before the report leaves, and only its bytes ever
 * leave; a visit that is made again with the same store goes on from it.
 */
export class Session {
  #trusted;
  #store;
  #ask;
  #relay;
  /** @type {RelayClient | DirectClient | null} */
  #peer = null;
  /** @type {import("./types.js").Round | null} */
  #round = null;
  /** @type {import("./types.js").SignedTerms | null} */
  #signed = null;
  /** @type {import("./types.js").Answer | null} */
  #answer = null;

  /**
   * @param {string} url the round's address at its first shuffler, `https://HOST/rounds/DIGEST`
   * @param {object} options
   * @param {import("./types.js").Trusted} options.trusted the keys that you know from elsewhere, by role
   * @param {import("./store.js").Store | Storage} options.store where the ticket, the ledger and checkpoints are kept
   * @param {string} [options.relay] a relay's address; then nothing ever goes another way
   * @param {typeof globalThis.fetch} [options.ask] the platform's function for requests
   */
  constructor(url, { trusted, store, relay = "", ask = globalThis.fetch }) {
    const found = /^(https?:\/\/[^/?#]+)\/rounds\/([0-9a-f]{64})\/?$/.exec(url);
    if (!found) throw new Misuse(`${url} is no round: give https://HOST/rounds/ and the 64 digits of its terms`);
    if (typeof ask !== "function") throw new Misuse("this platform has no function for requests: give one as `ask`");
    this.url = `${found[1]}/rounds/${found[2]}`;
    this.digest = found[2];
    this.#trusted = trusted;
    this.#store = new PersonStore(store, this.digest);
    this.#relay = relay;
    this.#ask = ask;
  }

  /**
   * Check the terms with your own arithmetic; nothing private is touched, and nothing is stored.
   * @param {{ group: string, limit: import("./types.js").Limit, patience?: number }} options
   * @returns {Promise<import("./types.js").Invitation & { phase: string }>}
   */
  async invitation({ group, limit, patience = 30 }) {
    checkLimit(limit, "limit: the most that this round may cost");
    const { signed, status } = await this.#offer(patience);
    const found = examine(signed, { group, trusted: this.#trusted, limit, now: seconds() });
    return { ...found, phase: status?.phase ?? "open" };
  }

  /**
   * Take part with a value, or go on after a crash: the stored report is sent again. Returns your address.
   * @param {import("./types.js").Value} value
   * @param {object} options
   * @param {string} options.group
   * @param {import("./types.js").Limit} options.limit the most that this round may cost
   * @param {import("./types.js").Limit} [options.budget] the most that all rounds of this store may cost; the first one fixes it
   * @param {Uint8Array | string} [options.note] what the server is told beside the report, if the terms have room
   * @param {string} [options.token] one token per shuffler, separated by commas, where they ask for some
   * @param {number} [options.patience] seconds for which a role that is away is asked again
   */
  async join(value, { group, limit, budget, note = "", token = "", patience = 60 }) {
    const invitation = await this.invitation({ group, limit, patience });
    const headers = headersFor(invitation.round, token); // who has none spends nothing
    let ticket = await this.#store.ticket();
    const resumed = Boolean(ticket);
    if (!ticket) {
      if (invitation.phase !== "open") throw new Refused(`the round takes no reports now, it is ${invitation.phase}: nothing was spent`);
      const book = await this.#store.ledger(budget);
      ({ ticket } = await join(invitation, value, { note: bytes(note) }));
      spend(book, ticket, invitation); // refuses before anything is kept
      const board = await this.#board();
      await retry(() => board.terms(), patience);
      await this.#store.saveTerms({ signed: this.#signed, relay: this.#relay });
      await this.#store.saveTicket(ticket);
    }
    await this.#recordCost(ticket, invitation, { budget, resumed });
    await this.#upload(ticket, { headers, patience, resumed });
    return this.address();
  }

  /** Your one-time address in this round. @returns {Promise<string>} */
  async address() {
    return addressOfTicket(await this.#ticket(), await this.round());
  }

  /**
   * Wait for the round's end, check that the board shows the same to everybody, and open your answer. The ledger is
   * told first how the round ended. A round that was not answered is `Refused`, in the words of whoever ended it.
   *
   * Through a relay one entry with its proof is fetched where the board is large, else the whole board.
   * @param {{ patience?: number, retrieval?: "by-size" | "whole" | "entry" }} [options]
   * @returns {Promise<import("./types.js").Answer>}
   */
  async collect({ patience = 600, retrieval = "by-size" } = {}) {
    const ticket = await this.#ticket();
    const round = await this.round();
    const peer = await this.#client();
    if (!["by-size", "whole", "entry"].includes(retrieval)) throw new Misuse(`retrieval is by-size, whole or entry, not ${retrieval}`);
    if (retrieval === "entry" && !(peer instanceof RelayClient)) {
      throw new Misuse("asking for your entry directly shows which one is yours: give a relay, or fetch the whole board");
    }
    const slowly = { growth: 1.3, draw: pauseRule(round, peer) };
    const heading = await retry(() => this.#shown(() => peer.get(`${round.atBoard}/heading`)), patience, slowly);
    await this.#waitRandomly();
    const entries = readHeading(heading, round).sizes.reduce((sum, one) => sum + one, 0);
    const large = retrieval === "entry" || (retrieval === "by-size" && entries > MOST);
    if (entries && large && peer instanceof RelayClient) return this.#collectEntry(ticket, patience, slowly);
    const raw = await retry(() => this.#shown(() => peer.whole(`${round.atBoard}/bulletin`)), patience, slowly);
    const board = await this.#board();
    await retry(() => board.check(raw), patience, slowly);
    await this.#recordOutcome(ticket, raw);
    this.#answer = await collect(ticket, raw, round);
    return this.#answer;
  }

  /**
   * Write a letter to a partner's contact, post it, and check that the board shows it.
   * @param {string | Uint8Array} body @param {Uint8Array} to @param {{ patience?: number }} [options]
   */
  async write(body, to, { patience = 60 } = {}) {
    if (!(to instanceof Uint8Array)) throw new Misuse("a letter goes to a partner's contact: give `answer.partners[0].contact`");
    const round = await this.round();
    const { posting, stamped, ticket } = await write(await this.#ticket(), bytes(body), to, round);
    await this.#store.saveTicket(ticket); // first: a counter that was used must never be used again
    await this.#waitRandomly();
    const board = await this.#board();
    const place = await retry(() => board.post([stamped]), patience);
    await retry(() => board.prove([[place, posting]]), patience);
  }

  /**
   * Fetch the letters, all of the round or through a relay yours, and read those to you that are new.
   * @param {{ patience?: number }} [options]
   * @returns {Promise<{ contact: Uint8Array, address: string, body: Uint8Array, text: string | null }[]>}
   */
  async read({ patience = 60 } = {}) {
    const ticket = await this.#ticket();
    const [round, board, peer] = [await this.round(), await this.#board(), await this.#client()];
    await this.#waitRandomly();
    await retry(() => board.follow(), patience);
    const mine = peer instanceof RelayClient ? await this.address() : ""; // it hides whose letters are asked for
    const inbox = await read(ticket, await retry(() => board.letters(0, mine), patience), round);
    await this.#store.saveTicket(inbox.ticket);
    return inbox.letters.map(({ sender, body }) => ({ contact: sender.raw, address: hex(sender.address), body, text: spelled(body) }));
  }

  /**
   * Settle with the candidates of your answer, or go on after a crash; whom you meet, and what they told you.
   * @param {number[]} place @param {{ words?: string | Uint8Array, patience?: number, look?: number }} [options]
   * @returns {Promise<{ partners: string[], contacts: Uint8Array[], words: { contact: Uint8Array, body: Uint8Array }[] }>}
   */
  async settle(place, { words = "", patience = 600, look = 1 } = {}) {
    const [ticket, round] = [await this.#ticket(), await this.round()];
    const answer = this.#answer ?? await this.collect({ patience });
    const options = { round, sizes: answer.sizes, words: bytes(words), board: await this.#board(), look, patience };
    const side = await settleByLetter(ticket, place, answer, { ...options, keep: (one) => this.#store.saveTicket(one) });
    return { partners: side.machine.partners.map(hex), contacts: side.partners, words: side.words };
  }

  /** What all rounds of this store have cost so far, of how much; null before the first one. */
  async spent() {
    if (!await this.#store.hasLedger()) return null;
    const ledger = await this.#store.ledger();
    return { ...spent(ledger), rounds: ledger.entries.length, of: { epsilon: ledger.epsilon, delta: ledger.delta } };
  }

  /** The terms that you joined on, or would join on; checked. @returns {Promise<import("./types.js").Round>} */
  async round() {
    if (this.#round) return this.#round;
    const stored = await this.#store.terms();
    if (stored) return this.#accept(stored.signed);
    await this.#offer(30);
    return this.round();
  }

  // -- what the visit knows

  async #ticket() {
    const ticket = await this.#store.ticket();
    if (!ticket) throw new Misuse("you have no ticket of this round in this store: join first");
    return ticket;
  }

  #accept(signed) {
    const round = verifySignatures(signed, this.#trusted);
    if (round.address !== this.url) {
      throw new Refused(`the terms are of the round at ${round.address}, not at ${this.url}: ask whoever told you this address for the right one`);
    }
    if (this.#peer instanceof RelayClient) {
      this.#peer.know(round.terms.shufflers.map((one) => one.url));
      this.#peer.level(Math.max(round.document.length + 1024, ...round.terms.groups.map((_, group) => round.uploadSize(group))));
    }
    this.#signed = signed;
    this.#round = round;
    return round;
  }

  /** Fetch the terms of the round and where it stands; what was joined on before must be the same. */
  async #offer(patience) {
    const peer = await this.#client();
    const { signed, status } = offered(await retry(() => peer.get(this.url), patience), this.url);
    const before = this.#signed ?? (await this.#store.terms())?.signed;
    if (before && before.document !== signed.document) {
      throw new Refused("the shuffler shows other terms now than before: keep both as proof");
    }
    this.#accept(signed);
    return { signed, status };
  }

  /** Whoever asks for this person: the relay of this visit or of an earlier run, else nobody between. */
  async #client() {
    if (!this.#peer) {
      this.#relay ||= (await this.#store.terms())?.relay ?? "";
      const through = { first: this.url, trusted: this.#trusted, ask: this.#ask };
      this.#peer = this.#relay ? new RelayClient(this.#relay, through) : new DirectClient({ ask: this.#ask });
      if (this.#signed) this.#accept(this.#signed);
    }
    return this.#peer;
  }

  async #board() {
    const round = await this.round();
    return new BoardView(round, { peer: await this.#client(), ...await this.#store.checkpoint(round) });
  }

  async #waitRandomly() {
    await waitRandomly(windowOf(await this.round(), await this.#client()));
  }

  async #collectEntry(ticket, patience, slowly) {
    const [round, board, address] = [await this.round(), await this.#board(), await this.address()];
    const shown = await retry(() => board.entry(ticket.group, address), patience, slowly);
    if (!shown) {
      throw new Refused(`the board says that your address ${address} is not on it: fetch the whole board to see for yourself, with retrieval "whole"`);
    }
    await this.#recordOutcome(ticket, shown.heading);
    this.#answer = await openEntry(ticket, shown, round);
    return this.#answer;
  }

  /** Tell the ledger how the round ended, from a bulletin or its head. */
  async #recordOutcome(ticket, raw) {
    if (!await this.#store.hasLedger()) return;
    const end = outcomeOf(ticket, raw, await this.round());
    await this.#store.updateLedger((book) => recordOutcome(book, ticket, end));
  }

  /** Enter the round into the ledger; the same bytes cost nothing again. A new ticket that it refuses is removed. */
  async #recordCost(ticket, invitation, { budget, resumed }) {
    try {
      await this.#store.updateLedger((book) => spend(book, ticket, invitation), budget);
    } catch (error) {
      if (error instanceof Refused && !resumed) await this.#store.removeTicket();
      throw error;
    }
  }

  /** Register the traps, then send the upload, until every shuffler has signed for its part. */
  async #upload(ticket, { headers, patience, resumed }) {
    if (ticket.receipt.length) return;
    const [round, peer] = [await this.round(), await this.#client()];
    let maybe = resumed; // whether the report may have reached the first shuffler
    const send = async (hop, body) => {
      const { url } = round.terms.shufflers[hop];
      await this.#waitRandomly();
      return retry(() => peer.send(`${url}/rounds/${this.digest}/uploads`, body, headers[hop]).catch((error) => {
        maybe ||= hop === 0 && error instanceof Unavailable && ![425, 429].includes(error.status ?? 0);
        throw error;
      }), patience);
    };
    let kept = ticket;
    for (let hop = 1 + kept.registered.length; hop < headers.length; hop += 1) {
      kept = await this.#store.saveTicket(addRegistrationReceipt(kept, await send(hop, kept.registrations[hop - 1]), round));
    }
    let receipt;
    try {
      receipt = await send(0, kept.upload);
    } catch (error) {
      // An answer was lost and the round closed meanwhile: collecting tells whether the report is in.
      if (maybe && !(error instanceof Unavailable)) return;
      throw error;
    }
    await this.#store.saveTicket(addReceipt(kept, receipt, round));
  }

  /** Fetch what the board has once the round has ended, or say by when it must, or who owes it. */
  async #shown(fetched) {
    try {
      return await fetched();
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
    }
    const round = await this.round();
    const by = new Date(round.endDue * 1000).toISOString();
    if (seconds() < round.endDue) throw new Unavailable(`the round has not ended, and must by ${by}: your ticket waits`);
    throw new Refused(`the board shows no signed end of this round, due by ${by}: the server ${round.terms.server.name} owes it; your ledger counts the round with its local ε until then`);
  }
}

function offered(raw, url) {
  let found = null;
  try {
    found = parse(text(raw));
  } catch {
    // no JSON: the sentence below says so
  }
  if (typeof found?.signed?.document !== "string") throw new Refused(`${url} is no round of a shuffler: ask for the right address`);
  return found;
}

/** @param {string | Uint8Array} body */
function bytes(body) {
  if (typeof body === "string") return utf8(body);
  if (body instanceof Uint8Array) return body;
  throw new Misuse("what is sent is a text or a Uint8Array");
}

function spelled(body) {
  try {
    return text(body);
  } catch {
    return null;
  }
}
