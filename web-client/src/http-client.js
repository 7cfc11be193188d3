// HTTP client without a relay, and the retries and status checks that both clients share. SPEC section 19.
//
// Without a relay, the roles see the person's network address.

import { concat, text } from "./encoding.js";
import { Refused, Unavailable } from "./errors.js";

const PAUSE = 0.25; // seconds before the second try
const LONGEST = 5;

/** Wait. @param {number} seconds @returns {Promise<void>} */
export const wait = (seconds) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

/**
 * Run `work`, and again after each `Unavailable`, for at most `seconds`. `draw` turns the pause that is due into the actual one.
 * @template T
 * @param {() => Promise<T>} work @param {number} seconds @param {{ growth?: number, draw?: (due: number) => number }} [options] @returns {Promise<T>}
 */
export async function retry(work, seconds, { growth = 2, draw = (due) => due } = {}) {
  const end = Date.now() + 1000 * seconds;
  for (let pause = PAUSE; ; pause = Math.min(LONGEST, pause * growth)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Unavailable) || Date.now() + 1000 * pause > end) throw error;
    }
    await wait(draw(pause));
  }
}

const LATER = [408, 425, 429, 500, 502, 503, 504, 507];

/** Return a role's answer if its status is a success; otherwise throw the role's own message. */
export function checkStatus(answer) {
  if (answer.status >= 200 && answer.status < 300) return answer;
  let detail = `the role answered with status ${answer.status}`;
  try {
    detail = JSON.parse(text(answer.content)).detail ?? detail;
  } catch {
    // not a problem document: only the status is known
  }
  const Kind = LATER.includes(answer.status) ? Unavailable : Refused;
  throw Object.assign(new Kind(detail), { status: answer.status });
}

const DOCUMENT = 1 << 20; // the most bytes of a document, a receipt or a proof
const BULK = 1 << 30; // the most of a bulletin
const PLAIN = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };

/** HTTP client over the platform's `fetch`. Follows no redirect and limits the size of answers. */
export class DirectClient {
  #fetch;

  /** @param {{ fetch?: typeof globalThis.fetch }} [options] */
  constructor({ fetch = globalThis.fetch } = {}) {
    this.#fetch = fetch;
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
    const fetch = this.#fetch; // must be called without a receiver
    let answer;
    let content;
    try {
      answer = await fetch(url, { ...options, ...PLAIN });
      content = await readBody(answer, most, url);
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Unavailable(`${new URL(url).origin} does not answer: check the address or try later`);
    }
    return checkStatus({ status: answer.status, content }).content;
  }
}

/**
 * Read the body of an answer; refuse more than `most` bytes.
 * @param {Response} answer @param {number} most @param {string} url @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function readBody(answer, most, url) {
  const pieces = [];
  let size = 0;
  for (const reader = answer.body?.getReader(); reader;) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new Refused(`${new URL(url).origin} answers with more than ${most} bytes, which is not read: ask its operator`);
    }
  }
  return concat(...pieces);
}
