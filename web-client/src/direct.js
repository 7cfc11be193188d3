// Roles asked directly, without a relay: they see the network address of whoever asks. SPEC section 19.

import { taken } from "./answers.js";
import { concat } from "./bytes.js";
import { Refused, Unavailable } from "./errors.js";

const DOCUMENT = 1 << 20; // the most bytes of a document, a receipt or a proof
const BULK = 1 << 30; // the most of a bulletin
const PLAIN = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };

/** Asks roles by `ask`, which is the platform's function for requests; follows no redirect, holds no endless answer. */
export class Direct {
  #ask;

  /** @param {{ ask?: typeof globalThis.fetch }} [options] */
  constructor({ ask = globalThis.fetch } = {}) {
    this.#ask = ask;
  }

  /** Fetch a document. @param {string} url @returns {Promise<Uint8Array>} */
  get(url) {
    return this.#exchange(url, {}, DOCUMENT);
  }

  /** Fetch a long document. @param {string} url @returns {Promise<Uint8Array>} */
  whole(url) {
    return this.#exchange(url, {}, BULK);
  }

  /**
   * Send bytes and return the answer.
   * @param {string} url @param {Uint8Array} body @param {[string, string][]} [headers] @returns {Promise<Uint8Array>}
   */
  send(url, body, headers = []) {
    const lines = Object.fromEntries([["content-type", "application/octet-stream"], ...headers]);
    return this.#exchange(url, { method: "POST", headers: lines, body }, DOCUMENT);
  }

  async #exchange(url, options, most) {
    const ask = this.#ask; // the platform's function is nobody's method
    let answer;
    let content;
    try {
      answer = await ask(url, { ...options, ...PLAIN });
      content = await held(answer, most, url);
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Unavailable(`${new URL(url).origin} does not answer: check the address, or try later`);
    }
    return taken({ status: answer.status, content }).content;
  }
}

/**
 * Read an answer as long as it is not too long.
 * @param {Response} answer @param {number} most @param {string} url @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function held(answer, most, url) {
  const pieces = [];
  let size = 0;
  for (const reader = answer.body?.getReader(); reader;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new Refused(`${new URL(url).origin} answers with more than ${most} bytes: it is not read`);
    }
  }
  return concat(...pieces);
}
