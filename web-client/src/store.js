// Where a person's things are kept: tickets, the ledger, boards' checkpoints, each a text under a name.
//
// A store has `get(name)` and `set(name, text)`, which may be asynchronous; `set` returns when the text is safe.
// A browser's localStorage can be given as it is. Whoever reads it can read the person's answers.
//
// What a person keeps: the ticket and the terms of a round, the ledger over all rounds, boards' checkpoints.

import { hex, parse, unhex } from "./encoding.js";
import { Misuse } from "./errors.js";
import { beginLedger, readLedger } from "./ledger.js";
import { readTicket, writeTicket } from "./ticket.js";

/**
 * @typedef {object} Store
 * @property {(name: string) => string | null | undefined | Promise<string | null | undefined>} get
 * @property {(name: string, text: string) => unknown} set
 * @property {object} [turn] the same object for all stores that keep the same things
 */

/** A store that is gone with the page or the process. @returns {Store} */
export function memoryStore() {
  const kept = new Map();
  return { get: (name) => kept.get(name) ?? null, set: (name, text) => { kept.set(name, text); } };
}

/** Take a store, or a browser's Storage. @param {Store | Storage} given @returns {Store} */
export function storeOf(given) {
  if (given && "getItem" in given && typeof given.getItem === "function") {
    return { get: (name) => given.getItem(name), set: (name, text) => given.setItem(name, text) };
  }
  if (given && typeof given.get === "function" && "set" in given && typeof given.set === "function") return /** @type {Store} */ (given);
  throw new Misuse("say where your ticket is kept, store: localStorage in a browser, fileStore(folder) in Node; a lost ticket is a lost answer");
}

const LEDGER = "coatcheck/ledger";

/** Who changes the ledger of a store at the moment: several visits may join at once. @type {WeakMap<object, Promise<unknown>>} */
const turns = new WeakMap();

/** One round's things in a store that all rounds of a person share. */
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

  /** The terms that were joined on, and the relay by which. @returns {Promise<any>} */
  async terms() {
    const kept = await this.#store.get(`coatcheck/terms/${this.#digest}`);
    return kept ? parse(kept) : null;
  }

  async saveTerms(terms) {
    await this.#store.set(`coatcheck/terms/${this.#digest}`, JSON.stringify(terms));
  }

  /** @returns {Promise<import("./types.js").Ticket | null>} */
  async ticket() {
    const kept = await this.#store.get(`coatcheck/ticket/${this.#digest}`);
    return kept ? readTicket(kept) : null;
  }

  async saveTicket(ticket) {
    await this.#store.set(`coatcheck/ticket/${this.#digest}`, writeTicket(ticket));
    return ticket;
  }

  /** Forget a ticket of which nothing has left. */
  async removeTicket() {
    await this.#store.set(`coatcheck/ticket/${this.#digest}`, "");
  }

  /**
   * The ledger, or one that begins with a budget.
   * @param {import("./types.js").Limit} [budget] @returns {Promise<import("./types.js").Ledger>}
   */
  async ledger(budget) {
    const kept = await this.#store.get(LEDGER);
    if (kept) return readLedger(kept);
    return beginLedger(checkLimit(budget, "budget: the most that all your rounds together may cost"));
  }

  async hasLedger() {
    return Boolean(await this.#store.get(LEDGER));
  }

  /**
   * Change the ledger, one after the other: of two visits that read it at once, one would forget what the other spent.
   * Other pages of this site wait too, where the browser has locks. What refuses leaves it as it was.
   * @param {(ledger: import("./types.js").Ledger) => import("./types.js").Ledger} change @param {import("./types.js").Limit} [budget]
   */
  async updateLedger(change, budget) {
    const once = async () => { await this.#store.set(LEDGER, JSON.stringify(change(await this.ledger(budget)))); };
    const locks = globalThis.navigator?.locks;
    const alone = async () => { await (locks ? locks.request(LEDGER, once) : once()); };
    const mine = (turns.get(this.#turn) ?? Promise.resolve()).then(alone, alone);
    turns.set(this.#turn, mine);
    await mine;
  }

  /** The last checkpoint of the round's board, for all rounds of a person, and how to keep the next one. */
  async checkpoint(round) {
    const kind = round.cosigners.demanded ? "watched" : "checkpoint"; // witnesses are a little behind
    const name = `coatcheck/${kind}/${round.terms.board.verifying}`;
    const kept = await this.#store.get(name);
    const before = kept ? parse(kept) : null;
    return {
      before: before && { size: before.size, root: unhex(before.root) },
      remember: async ({ size, root }) => {
        const newest = await this.#store.get(name); // another round of this person may have kept a newer one
        if (!newest || size >= parse(newest).size) await this.#store.set(name, JSON.stringify({ size, root: hex(root) }));
      },
    };
  }
}

/**
 * Refuse a limit that is none, before anything else is done.
 * @param {import("./types.js").Limit | undefined} limit @param {string} what @returns {import("./types.js").Limit}
 */
export function checkLimit(limit, what) {
  const { epsilon, delta } = limit ?? {};
  const good = typeof epsilon === "number" && epsilon > 0 && Number.isFinite(epsilon) && typeof delta === "number" && delta > 0 && delta < 1;
  if (!good) throw new Misuse(`give a ${what}, as { epsilon, delta } with an epsilon above 0 and a delta between 0 and 1`);
  return /** @type {import("./types.js").Limit} */ (limit);
}
