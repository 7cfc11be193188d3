// Where a person's things are kept: tickets, the ledger, boards' checkpoints, each a text under a name.
//
// A store has `get(name)` and `set(name, text)`, which may be asynchronous; `set` returns when the text is safe.
// A browser's localStorage can be given as it is. Whoever reads it can read the person's answers.

import { Misuse } from "./errors.js";

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
