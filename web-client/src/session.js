// A person's session in one round over the network: join, collect, write, read, settle. SPEC section 12.
//
// Private data stays in the ticket, which the session stores before it sends anything. A retry sends the same bytes.
// Whatever fails, the session never falls back to a less private way.

import { headersFor } from "./admission.js";
import { BoardView } from "./board-view.js";
import { settleByLetter } from "./candidates.js";
import {
  addReceipt, addRegistrationReceipt, addressOfTicket, collect, decoyAnswers, examine, join, openEntry, outcomeOf,
} from "./client.js";
import { hex, parse, text, utf8 } from "./encoding.js";
import { Entropy } from "./entropy.js";
import { Misuse, Refused, Unavailable } from "./errors.js";
import { DirectClient, retry } from "./http-client.js";
import { checkLetters, disclosures, recordOutcome, spend, spent, worst } from "./ledger.js";
import { read, write } from "./letters.js";
import { readHeading } from "./messages.js";
import { waitRandomly, pauseRule, RelayClient, windowOf } from "./relay-client.js";
import { checkLimit, PersonStore } from "./store.js";
import { decoyTickets } from "./ticket.js";
import { verifySignatures } from "./agreement.js";

const MOST = 2000; // entries up to which the whole board is fetched, also through a relay
const seconds = () => Math.floor(Date.now() / 1000);

/**
 * One person's part in one round. The session stores the ticket before it sends the report, and sends only the
 * ticket's bytes. A new session with the same store continues from the ticket.
 */
export class Session {
  #trusted;
  #store;
  #fetch;
  #relay;
  /** @type {RelayClient | DirectClient | null} */
  #peer = null;
  /** @type {import("./types.js").Round | null} */
  #round = null;
  /** @type {import("./types.js").SignedTerms | null} */
  #signed = null;
  /** @type {import("./types.js").Answer | null} */
  #answer = null;
  /** @type {(import("./types.js").Answer | null)[]} */
  #decoyAnswers = [];

  /**
   * @param {string} url the round's address at its first shuffler, `https://HOST/rounds/DIGEST`
   * @param {object} options
   * @param {import("./types.js").Trusted} options.trusted the keys that you got over another channel, by role
   * @param {import("./store.js").Store | Storage} options.store where the ticket, the ledger and checkpoints are stored
   * @param {string} [options.relay] a relay's address; every request then goes through it
   * @param {typeof globalThis.fetch} [options.fetch] the platform's `fetch` by default
   */
  constructor(url, { trusted, store, relay = "", fetch = globalThis.fetch }) {
    const match = /^(https?:\/\/[^/?#]+)\/rounds\/([0-9a-f]{64})\/?$/.exec(url);
    if (!match) throw new Misuse(`\`url\` must be https://HOST/rounds/ and the 64 digits of the round's terms, got ${url}`);
    if (typeof fetch !== "function") throw new Misuse("`fetch` must be a function: if this platform has none, give your own");
    this.url = `${match[1]}/rounds/${match[2]}`;
    this.digest = match[2];
    this.#trusted = trusted;
    this.#store = new PersonStore(store, this.digest);
    this.#relay = relay;
    this.#fetch = fetch;
  }

  /**
   * Check the terms and recompute their promise. Uses nothing private and stores nothing.
   * @param {{ group: string, limit: import("./types.js").Limit, patience?: number }} options
   * @returns {Promise<import("./types.js").Invitation & { phase: string }>}
   */
  async invitation({ group, limit, patience = 30 }) {
    checkLimit(limit, "limit", "the most that this round may cost");
    const { signed, status } = await this.#offer(patience);
    const invitation = examine(signed, { group, trusted: this.#trusted, limit, now: seconds() });
    return { ...invitation, phase: status?.phase ?? "open" };
  }

  /**
   * Take part with a value, or resume after a crash by sending the stored report again. Return your address.
   * @param {import("./types.js").Value} value
   * @param {object} options
   * @param {string} options.group
   * @param {import("./types.js").Limit} options.limit the most that this round may cost
   * @param {import("./types.js").Limit} [options.budget] the most that all rounds of this store may cost; the first one fixes it
   * @param {Uint8Array | string} [options.note] public bytes for the server beside the report, if the terms allow a note
   * @param {string} [options.token] one token per shuffler, separated by commas, if the shufflers require tokens
   * @param {number} [options.patience] seconds for which to retry a role that does not answer
   */
  async join(value, { group, limit, budget, note = "", token = "", patience = 60 }) {
    const invitation = await this.invitation({ group, limit, patience });
    const headers = headersFor(invitation.round, token); // before spending: without a token nothing is spent
    let ticket = await this.#store.ticket();
    const resumed = Boolean(ticket);
    if (!ticket) {
      if (invitation.phase !== "open") throw new Refused(`the round takes no reports now, its phase is ${invitation.phase}: nothing was spent`);
      const ledger = await this.#store.ledger(budget);
      ({ ticket } = await join(invitation, value, { note: toBytes(note) }));
      spend(ledger, ticket, invitation); // refuses before anything is stored
      const board = await this.#board();
      await retry(() => board.terms(), patience);
      const peer = await this.#client();
      if (peer instanceof RelayClient) await retry(() => peer.findLists(), patience);
      await this.#store.saveTerms({ signed: this.#signed, relay: this.#relay });
      await this.#store.saveTicket(ticket);
    }
    await this.#recordCost(ticket, invitation, { budget, resumed });
    await this.#upload(ticket, { headers, patience, resumed });
    return this.address();
  }

  /** Return your one-time address in this round. @returns {Promise<string>} */
  async address() {
    return addressOfTicket(await this.#ticket(), await this.round());
  }

  /**
   * Wait for the round's outcome, check that the board shows everybody the same, and open your answer. Records the
   * outcome in the ledger first. Throws `Refused` if the round was not answered, with the signed reason.
   *
   * Fetches the whole board; through a relay, if the board is large, one entry with its proof. With decoys these are
   * the entries of all your addresses, so that the board cannot tell which is the report's.
   * @param {{ patience?: number, retrieval?: "by-size" | "whole" | "entry" }} [options]
   * @returns {Promise<import("./types.js").Answer>}
   */
  async collect({ patience = 600, retrieval = "by-size" } = {}) {
    const ticket = await this.#ticket();
    const round = await this.round();
    const peer = await this.#client();
    if (!["by-size", "whole", "entry"].includes(retrieval)) throw new Misuse(`\`retrieval\` must be by-size, whole or entry, got ${retrieval}`);
    if (retrieval === "entry" && !(peer instanceof RelayClient)) {
      throw new Misuse("a direct request for your entry would reveal which one is yours: give a `relay`, or fetch the whole board");
    }
    const slowly = { growth: 1.3, draw: pauseRule(round, peer) };
    const heading = await retry(() => this.#afterOutcome(() => peer.get(`${round.atBoard}/heading`)), patience, slowly);
    await this.#waitRandomly();
    const entries = readHeading(heading, round).sizes.reduce((sum, size) => sum + size, 0);
    const large = retrieval === "entry" || (retrieval === "by-size" && entries > MOST);
    if (entries && large && peer instanceof RelayClient) return this.#collectEntry(ticket, patience, slowly);
    const raw = await retry(() => this.#afterOutcome(() => peer.whole(`${round.atBoard}/bulletin`)), patience, slowly);
    const board = await this.#board();
    await retry(() => board.check(raw), patience, slowly);
    await this.#recordOutcome(ticket, raw);
    this.#answer = await collect(ticket, raw, round);
    this.#decoyAnswers = await decoyAnswers(ticket, raw, round);
    return this.#answer;
  }

  /**
   * Write a letter to a partner's contact, post it, and check that the board shows it.
   * @param {string | Uint8Array} body @param {Uint8Array} to @param {{ patience?: number }} [options]
   */
  async write(body, to, { patience = 60 } = {}) {
    if (!(to instanceof Uint8Array)) throw new Misuse("`to` must be a partner's contact, such as `answer.partners[0].contact`");
    const round = await this.round();
    const { posting, stamped, ticket } = await write(await this.#ticket(), toBytes(body), to, round);
    await this.#store.saveTicket(ticket); // first: a used counter must never be used again
    await this.#waitRandomly();
    const board = await this.#board();
    const place = await retry(() => board.post([stamped]), patience);
    await retry(() => board.prove([[place, posting]]), patience);
  }

  /**
   * Fetch the round's letters (through a relay, only yours) and read the new ones to you.
   * @param {{ patience?: number }} [options]
   * @returns {Promise<{ contact: Uint8Array, address: string, body: Uint8Array, text: string | null }[]>}
   */
  async read({ patience = 60 } = {}) {
    const ticket = await this.#ticket();
    const [round, board, peer] = [await this.round(), await this.#board(), await this.#client()];
    await this.#waitRandomly();
    await retry(() => board.follow(), patience);
    const isRelayed = peer instanceof RelayClient; // a relay hides who asks
    /** @type {Uint8Array[]} */
    let postings = [];
    await this.#ofEachAddress(isRelayed ? ticket : { ...ticket, decoys: [] }, async (owner) => {
      const address = isRelayed ? await addressOfTicket(owner, round) : "";
      const letters = await retry(() => board.letters(0, address), patience);
      if (owner.upload.length) postings = letters; // those to decoys are for nobody
    });
    const inbox = await read(ticket, postings, round);
    await this.#store.saveTicket(inbox.ticket);
    return inbox.letters.map(({ sender, body }) => ({ contact: sender.raw, address: hex(sender.address), body, text: decodeText(body) }));
  }

  /**
   * Settle with the candidates of your answer, or resume after a crash. Return your partners and what they wrote.
   * Without a place (null) you settle with nobody and write the same letters. In a round with decoys do this if you do not
   * want to settle: otherwise the silence of your addresses would show that they belong together.
   * @param {number[] | null} place @param {{ words?: string | Uint8Array, axes?: number, patience?: number, look?: number }} [options]
   * @returns {Promise<{ partners: string[], contacts: Uint8Array[], words: { contact: Uint8Array, body: Uint8Array }[] }>}
   */
  async settle(place, { words = "", axes = 2, patience = 600, look = 1 } = {}) {
    const [ticket, round] = [await this.#ticket(), await this.round()];
    if (place !== null && await this.#store.hasLedger()) checkLetters(await this.#store.ledger(), ticket);
    const answer = this.#answer ?? await this.collect({ patience });
    const options = {
      round, sizes: answer.sizes, words: toBytes(words), board: await this.#board(), decoyAnswers: this.#decoyAnswers, axes, look, patience,
    };
    const side = await settleByLetter(ticket, place, answer, { ...options, save: (changed) => this.#store.saveTicket(changed) });
    return { partners: side.machine.partners.map(hex), contacts: side.partners, words: side.words };
  }

  /**
   * Return what all rounds of this store have cost so far, what they cost at worst while outcomes are overdue, how many
   * candidates may have learned an answer by letter, and the limit; null before the first round.
   */
  async spent() {
    if (!await this.#store.hasLedger()) return null;
    const ledger = await this.#store.ledger();
    return { ...spent(ledger), worst: worst(ledger), disclosures: disclosures(ledger), rounds: ledger.entries.length, of: { epsilon: ledger.epsilon, delta: ledger.delta } };
  }

  /** Return the verified terms that you joined, or would join. @returns {Promise<import("./types.js").Round>} */
  async round() {
    if (this.#round) return this.#round;
    const stored = await this.#store.terms();
    if (stored) return this.#accept(stored.signed);
    await this.#offer(30);
    return this.round();
  }

  // -- the state of the session

  async #ticket() {
    const ticket = await this.#store.ticket();
    if (!ticket) throw new Misuse("this store has no ticket of this round: join first");
    return ticket;
  }

  #accept(signed) {
    const round = verifySignatures(signed, this.#trusted);
    if (round.address !== this.url) {
      throw new Refused(`these terms belong to the round at ${round.address}, not at ${this.url}: ask for the right address`);
    }
    if (this.#peer instanceof RelayClient) {
      const { shufflers, board } = round.terms;
      this.#peer.know(shufflers.map((party) => party.url));
      const check = async (list, peer) => new BoardView(round, { peer, ...await this.#store.checkpoint(round) }).keys(list);
      this.#peer.checkLists(check, [...shufflers, board].map((party) => [party.url, party.verifying]));
      this.#peer.level(Math.max(round.document.length + 1024, ...round.terms.groups.map((_, group) => round.uploadSize(group))));
    }
    this.#signed = signed;
    this.#round = round;
    return round;
  }

  /** Fetch the round's terms and status; refuse terms other than the ones joined before. */
  async #offer(patience) {
    const peer = await this.#client();
    const { signed, status } = parseOffer(await retry(() => peer.get(this.url), patience), this.url);
    const before = this.#signed ?? (await this.#store.terms())?.signed;
    if (before && before.document !== signed.document) {
      throw new Refused("the shuffler shows other terms than before: keep both as proof of equivocation");
    }
    this.#accept(signed);
    return { signed, status };
  }

  /** Return the client for requests: through the relay of this session or of an earlier run, otherwise direct. */
  async #client() {
    if (!this.#peer) {
      this.#relay ||= (await this.#store.terms())?.relay ?? "";
      const options = { first: this.url, trusted: this.#trusted, fetch: this.#fetch, seen: this.#store.seenKeys };
      this.#peer = this.#relay ? new RelayClient(this.#relay, options) : new DirectClient({ fetch: this.#fetch });
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
    const [round, board] = [await this.round(), await this.#board()];
    const [entry, ...decoys] = await this.#ofEachAddress(ticket, async (owner) => {
      const address = await addressOfTicket(owner, round);
      return retry(() => board.entry(ticket.group, address), patience, slowly);
    });
    if (!entry) {
      throw new Refused(`the board says that it has no entry for your address ${await this.address()}: check this with \`retrieval\` "whole", which fetches the whole board`);
    }
    await this.#recordOutcome(ticket, entry.heading);
    this.#answer = await openEntry(ticket, entry, round);
    const owners = decoyTickets(ticket);
    this.#decoyAnswers = await Promise.all(decoys.map((shown, n) => (shown ? openEntry(owners[n], shown, round) : null)));
    return this.#answer;
  }

  /**
   * Send a request for the report's address and for each decoy's, in random order and at random times; return the
   * results, the report's first. The caller has waited for a random time already.
   * @template T @param {import("./types.js").Ticket} ticket @param {(owner: import("./types.js").Ticket) => Promise<T>} request
   * @returns {Promise<T[]>}
   */
  async #ofEachAddress(ticket, request) {
    const owners = [ticket, ...decoyTickets(ticket)];
    /** @type {T[]} */
    const results = Array(owners.length);
    for (const [number, owner] of new Entropy().shuffled([...owners.entries()])) {
      if (owners.length > 1) await this.#waitRandomly();
      results[number] = await request(owner);
    }
    return results;
  }

  /** Record the outcome in the ledger, from a bulletin or its heading. */
  async #recordOutcome(ticket, raw) {
    if (!await this.#store.hasLedger()) return;
    const outcome = outcomeOf(ticket, raw, await this.round());
    await this.#store.updateLedger((ledger) => recordOutcome(ledger, ticket, outcome));
  }

  /** Add the round to the ledger; the same bytes cost nothing again. Remove a new ticket that the ledger refuses. */
  async #recordCost(ticket, invitation, { budget, resumed }) {
    try {
      await this.#store.updateLedger((ledger) => spend(ledger, ticket, invitation), budget);
    } catch (error) {
      if (error instanceof Refused && !resumed) await this.#store.removeTicket();
      throw error;
    }
  }

  /** Register the traps, then send the upload, until every shuffler has signed a receipt. */
  async #upload(ticket, { headers, patience, resumed }) {
    if (ticket.receipt.length) return;
    const [round, peer] = [await this.round(), await this.#client()];
    let mayBeSent = resumed; // whether the report may have reached the first shuffler
    const send = async (hop, body) => {
      const { url } = round.terms.shufflers[hop];
      await this.#waitRandomly();
      return retry(() => peer.send(`${url}/rounds/${this.digest}/uploads`, body, headers[hop]).catch((error) => {
        mayBeSent ||= hop === 0 && error instanceof Unavailable && ![425, 429].includes(error.status ?? 0);
        throw error;
      }), patience);
    };
    let current = ticket;
    for (let hop = 1 + current.registered.length; hop < headers.length; hop += 1) {
      current = await this.#store.saveTicket(addRegistrationReceipt(current, await send(hop, current.registrations[hop - 1]), round));
    }
    let receipt;
    try {
      receipt = await send(0, current.upload);
    } catch (error) {
      // An answer was lost and the round closed meanwhile: `collect` finds out whether the report was received.
      if (mayBeSent && !(error instanceof Unavailable)) return;
      throw error;
    }
    await this.#store.saveTicket(addReceipt(current, receipt, round));
  }

  /** Fetch a document that the board has once the round has ended; otherwise say when it is due, or who failed to publish it. */
  async #afterOutcome(request) {
    try {
      return await request();
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
    }
    const round = await this.round();
    const by = new Date(round.endDue * 1000).toISOString();
    if (seconds() < round.endDue) throw new Unavailable(`the round has not ended; its outcome is due by ${by}: keep your ticket and try later`);
    throw new Refused(`the board shows no signed outcome of this round, which was due by ${by}: ask the operator of the server ${round.terms.server.name}; until it appears, your ledger sets its local ε aside`);
  }
}

function parseOffer(raw, url) {
  let offer = null;
  try {
    offer = parse(text(raw));
  } catch {
    // not JSON: refused below
  }
  if (typeof offer?.signed?.document !== "string") throw new Refused(`${url} is not a round at a shuffler: ask for the right address`);
  return offer;
}

/** @param {string | Uint8Array} body */
function toBytes(body) {
  if (typeof body === "string") return utf8(body);
  if (body instanceof Uint8Array) return body;
  throw new Misuse("expected a string or a Uint8Array");
}

function decodeText(body) {
  try {
    return text(body);
  } catch {
    return null;
  }
}
