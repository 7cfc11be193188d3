// A person's store: tickets and terms of rounds, the ledger over all rounds, and checkpoints of boards.
//
// A store has `get(name)` and `set(name, text)`, which may be asynchronous; `set` returns when the text is safe.
// A browser's localStorage is a valid store. Anyone who reads the store can read the person's answers.

import { hex, parse, unhex } from "./encoding.js";
import { Misuse } from "./errors.js";
import { beginLedger, readLedger } from "./ledger.js";
import { readTicket, writeTicket } from "./ticket.js";

/**
 * @typedef {object} Store
 * @property {(name: string) => string | null | undefined | Promise<string | null | undefined>} get
 * @property {(name: string, text: string) => unknown} set
 * @property {object} [turn] one object shared by all stores of the same data
 */

/** Return a store that is lost with the page or the process. @returns {Store} */
export function memoryStore() {
  const texts = new Map();
  return { get: (name) => texts.get(name) ?? null, set: (name, text) => { texts.set(name, text); } };
}

/** Return a store, also from a browser's Storage. @param {Store | Storage} store @returns {Store} */
export function storeOf(store) {
  if (store && "getItem" in store && typeof store.getItem === "function") {
    return { get: (name) => store.getItem(name), set: (name, text) => store.setItem(name, text) };
  }
  if (store && typeof store.get === "function" && "set" in store && typeof store.set === "function") return /** @type {Store} */ (store);
  throw new Misuse("give a `store` for your ticket: localStorage in a browser, fileStore(folder) in Node; without the ticket you cannot open your answer");
}

const LEDGER = "coatcheck/ledger";
const GATEWAYS = "coatcheck/gateways";

/** The pending change of each store's ledger: several sessions may join at once. @type {WeakMap<object, Promise<unknown>>} */
const turns = new WeakMap();

/** The data of one round in a store that all rounds of a person share. */
export class PersonStore {
  #store;
  #turn;
  #digest;

  /** @param {import("./store.js").Store | Storage} store @param {string} digest */
  constructor(store, digest) {
    this.#store = storeOf(store);
    this.#turn = /** @type {any} */ (store).turn ?? store;
    this.#digest = digest;
  }

  /** Return the terms that the person joined, and the relay in use. @returns {Promise<any>} */
  async terms() {
    const stored = await this.#store.get(`coatcheck/terms/${this.#digest}`);
    return stored ? parse(stored) : null;
  }

  async saveTerms(terms) {
    await this.#store.set(`coatcheck/terms/${this.#digest}`, JSON.stringify(terms));
  }

  /** @returns {Promise<import("./types.js").Ticket | null>} */
  async ticket() {
    const stored = await this.#store.get(`coatcheck/ticket/${this.#digest}`);
    return stored ? readTicket(stored) : null;
  }

  async saveTicket(ticket) {
    await this.#store.set(`coatcheck/ticket/${this.#digest}`, writeTicket(ticket));
    return ticket;
  }

  /** Remove a ticket from which nothing was sent. */
  async removeTicket() {
    await this.#store.set(`coatcheck/ticket/${this.#digest}`, "");
  }

  /**
   * Return the ledger, or a new one with a budget.
   * @param {import("./types.js").Limit} [budget] @returns {Promise<import("./types.js").Ledger>}
   */
  async ledger(budget) {
    const stored = await this.#store.get(LEDGER);
    if (stored) return readLedger(stored);
    return beginLedger(checkLimit(budget, "budget", "the most that all your rounds together may cost"));
  }

  async hasLedger() {
    return Boolean(await this.#store.get(LEDGER));
  }

  /**
   * Change the ledger, one change at a time: otherwise one of two concurrent sessions would overwrite the other's spending.
   * Other pages of this site wait too, if the browser has locks. A change that throws leaves the ledger as it was.
   * @param {(ledger: import("./types.js").Ledger) => import("./types.js").Ledger} change @param {import("./types.js").Limit} [budget]
   */
  async updateLedger(change, budget) {
    const once = async () => { await this.#store.set(LEDGER, JSON.stringify(change(await this.ledger(budget)))); };
    const locks = globalThis.navigator?.locks;
    const alone = async () => { await (locks ? locks.request(LEDGER, once) : once()); };
    const pending = (turns.get(this.#turn) ?? Promise.resolve()).then(alone, alone);
    turns.set(this.#turn, pending);
    await pending;
  }

  /** The gateways' key lists that this person has seen, shared by all rounds. @returns {import("./relay-client.js").SeenKeys} */
  get seenKeys() {
    const load = async () => {
      const stored = await this.#store.get(GATEWAYS);
      return stored ? parse(stored) : {};
    };
    return { load, save: async (host, list) => this.#store.set(GATEWAYS, JSON.stringify({ ...await load(), [host]: list })) };
  }

  /** Return the last checkpoint of the round's board, shared by all rounds of a person, and a function that stores the next one. */
  async checkpoint(round) {
    const kind = round.cosigners.least ? "watched" : "checkpoint"; // witnesses lag behind the board
    const name = `coatcheck/${kind}/${round.terms.board.verifying}`;
    const stored = await this.#store.get(name);
    const before = stored ? parse(stored) : null;
    return {
      before: before && { size: before.size, root: unhex(before.root) },
      remember: async ({ size, root }) => {
        const newest = await this.#store.get(name); // another round of this person may have stored a newer one
        if (!newest || size >= parse(newest).size) await this.#store.set(name, JSON.stringify({ size, root: hex(root) }));
      },
    };
  }
}

/**
 * Reject an invalid limit before anything else happens.
 * @param {import("./types.js").Limit | undefined} limit @param {string} name @param {string} meaning @returns {import("./types.js").Limit}
 */
export function checkLimit(limit, name, meaning) {
  const { epsilon, delta } = limit ?? {};
  const good = typeof epsilon === "number" && epsilon > 0 && Number.isFinite(epsilon) && typeof delta === "number" && delta > 0 && delta < 1;
  if (!good) throw new Misuse(`give a \`${name}\`, ${meaning}, as { epsilon, delta } with an epsilon above 0 and a delta between 0 and 1`);
  return /** @type {import("./types.js").Limit} */ (limit);
}
