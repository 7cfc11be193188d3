// Everything through a relay: requests sealed to the roles' gateways, and never one sent directly.
//
// The page gives `ask`, which is the browser's own function for requests; this file names nobody but
// the relay to it. The relay hands out the gateways' keys; the roles' signatures on them count. SPEC
// section 17.
//
// Times that say nothing: through a relay a person asks at moments drawn at random. SPEC section 17.
//
// A relay and a role that both keep times could join requests that follow each other at once. Waiting
// without a relay would hide nothing, so nobody waits then.

import { concat, unhex, unsigned, utf8 } from "./encoding.js";
import { Entropy } from "./entropy.js";
import { Misuse, Refused, Unavailable } from "./errors.js";
import { readBody, wait, checkStatus } from "./http-client.js";
import { checkSignature } from "./keys.js";
import { decodeResponse, encodeRequest, messageSize, OVERHEAD, readKeys, sealRequest, SIZES } from "./oblivious-http.js";

const AROUND = 256; // bytes that what surrounds a content may take
const LEVELS = 3; // how many sizes messages are leveled to; longer ones have their own
const PIECE = SIZES[3] - AROUND;
const MOST = 1 << 30;
const REQUEST_MEDIA = "message/ohttp-req";
const KEYS_MEDIA = "application/ohttp-keys";
const REGISTRIES = ["ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "nom", "or", "org"];
const OHTTP_KEY = "http-problem-types#ohttp-key";

/**
 * Asks roles through a relay, and connects to nobody else, whatever fails. `first` is the round's
 * address at its first shuffler; a role is a board unless `know` says that it is a shuffler. `trusted`
 * is as in `examine`.
 */
export class RelayClient {
  #url;
  #shufflers;
  #trusted;
  #ask;
  #known = new Map();
  #least = SIZES[0];

  /**
   * @param {string} url
   * @param {{ first: string, trusted: import("./types.js").Trusted, ask?: typeof globalThis.fetch }} options
   */
  constructor(url, { first, trusted, ask = globalThis.fetch }) {
    this.#url = originOf(url);
    if (url.replace(/\/$/, "") !== this.#url) throw new Misuse(`${url} is no relay: give https://HOST[:PORT] without a path`);
    this.#shufflers = new Set([new URL(first).origin]);
    this.#trusted = trusted;
    this.#ask = ask;
  }

  /** Learn from the terms where the shufflers of a cascade are. */
  know(urls) {
    for (const url of urls) this.#shufflers.add(new URL(url).origin);
  }

  /** Give every message from now on the size that one of so many bytes needs. */
  level(size) {
    this.#least = SIZES.slice(0, LEVELS).find((rung) => size + AROUND <= rung) ?? SIZES[LEVELS - 1];
  }

  /** Fetch a document. @param {string} url @returns {Promise<Uint8Array>} */
  async get(url) {
    return checkStatus(await this.#exchange("GET", url)).content;
  }

  /** Fetch a long document, in pieces of one size. @param {string} url @returns {Promise<Uint8Array>} */
  async whole(url) {
    const pieces = [];
    for (let size = 0; ;) {
      const range = `bytes=${size}-${size + PIECE - 1}`;
      const { status, headers, content } = checkStatus(await this.#exchange("GET", url, { headers: [["range", range]] }));
      pieces.push(content);
      size += content.length;
      const total = Number(new Map(headers).get("content-range")?.split("/")[1] ?? 0);
      if (status !== 206 || size >= total) return concat(...pieces);
      if (total > MOST || !content.length) throw new Refused("the board's answer does not end: it is not read");
    }
  }

  /**
   * Send bytes and return the answer.
   * @param {string} url @param {Uint8Array} content @param {[string, string][]} [headers] @returns {Promise<Uint8Array>}
   */
  async send(url, content, headers = []) {
    /** @type {[string, string][]} */
    const lines = [["content-type", "application/octet-stream"], ...headers];
    return checkStatus(await this.#exchange("POST", url, { headers: lines, content })).content;
  }

  /**
   * Ask once; if the gateway has other keys by now, once more with those.
   * @param {string} method @param {string} url @param {{ headers?: [string, string][], content?: Uint8Array }} [options]
   */
  async #exchange(method, url, { headers = [], content } = {}) {
    const { origin, protocol, host, pathname, search } = new URL(url);
    /** @type {[string, string][]} */
    const lines = [...headers, ["coatcheck-padding", `${this.#least}`]];
    const asked = { method, scheme: protocol.slice(0, -1), authority: host, path: pathname + search, headers: lines, content };
    const size = messageSize(Math.max(encodeRequest(asked).length, this.#least - OVERHEAD), OVERHEAD);
    const request = encodeRequest(asked, size);
    for (let turn = 0; turn < 2; turn += 1) {
      const sealed = await sealRequest(request, await this.#config(origin, host));
      const answer = await this.#at(host, { method: "POST", headers: { "content-type": REQUEST_MEDIA }, body: sealed.raw });
      const raw = await this.#read(answer);
      if (answer.ok) return decodeResponse(await sealed.open(raw));
      // The gateway opened nothing, so that asking again is no repetition.
      if (answer.status !== 400 || !new TextDecoder().decode(raw).includes(OHTTP_KEY)) break;
      this.#known.delete(origin);
    }
    throw new Unavailable(`the relay does not reach ${host} now: try later; nothing is sent around the relay`);
  }

  async #config(origin, host) {
    const now = Date.now() / 1000;
    if (!(this.#known.get(origin)?.until > now)) {
      checkApart(new URL(this.#url).hostname, new URL(origin).hostname);
      const answer = await this.#at(host, { headers: { accept: KEYS_MEDIA } });
      if (!answer.ok) throw new Unavailable(`the relay has no keys of ${host}: try later; nothing is sent around the relay`);
      const raw = await this.#read(answer);
      const told = answer.headers.get("coatcheck-until") ?? "";
      const until = /^[0-9]{1,16}$/.test(told) ? Number(told) : NaN;
      const signatures = (answer.headers.get("coatcheck-signatures") ?? "").split(", ");
      if (!Number.isSafeInteger(until)) throw new Refused(`the relay does not say when the keys for ${host} end`);
      this.#checkSigned(raw, until, signatures, origin);
      if (!(until > now)) throw new Refused(`the relay's keys for ${host} are of yesterday: try later`);
      this.#known.set(origin, { until, config: readKeys(raw) });
    }
    return this.#known.get(origin).config;
  }

  #checkSigned(raw, until, signatures, origin) {
    const { shufflers = [], board = [], anywhere = [] } = this.#trusted;
    const keys = [...(this.#shufflers.has(origin) ? shufflers.flat() : board), ...anywhere];
    const message = concat(utf8("coatcheck/v1/gateway\0"), unsigned(until, 8), raw);
    const holds = (key, signature) => {
      try {
        checkSignature(unhex(key), unhex(signature), message);
        return true;
      } catch {
        return false;
      }
    };
    if (!keys.some((key) => signatures.some((signature) => holds(key, signature)))) {
      throw new Refused(`the relay's keys for ${origin} are signed by nobody you trust in that role: nothing was sent`);
    }
  }

  /** Read what the relay answers: no message is longer than the largest of the ladder. */
  async #read(answer) {
    try {
      return await readBody(answer, SIZES[SIZES.length - 1], this.#url);
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Unavailable(`the relay ${this.#url} hangs up: try later; nothing is sent around it`);
    }
  }

  /** @param {string} host @param {{ method?: string, headers: Record<string, string>, body?: Uint8Array<ArrayBuffer> }} request */
  async #at(host, { method = "GET", headers, body }) {
    const ask = this.#ask; // the platform's function is nobody's method
    /** @type {RequestInit} */
    const plain = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
    try {
      return await ask(`${this.#url}/gateways/${host}`, { method, headers, body, ...plain });
    } catch {
      throw new Unavailable(`the relay ${this.#url} does not answer: try later; nothing is sent around it`);
    }
  }
}

function originOf(url) {
  try {
    return new URL(url).origin;
  } catch {
    return "";
  }
}

/** Refuse a relay in the domain of the role it is to hide people from; this machine is for practice. */
function checkApart(one, two) {
  const loopback = (host) => host === "localhost" || host === "[::1]" || /^127\./.test(host);
  const number = (host) => /^[0-9.]+$/.test(host) || host.startsWith("[");
  if (loopback(one) || loopback(two)) return;
  if (one === two || (!number(one) && !number(two) && domain(one) === domain(two))) {
    throw new Misuse(`the relay ${one} and the role ${two} belong to one operator, who would see both who asks and what is asked: use a relay of somebody else`);
  }
}

function domain(host) {
  const labels = host.replace(/\.$/, "").split(".");
  // The last two labels of a.co.uk are a registry's and nobody's own; those of a.b.io are b's.
  const registry = labels.length > 2 && labels.at(-1).length === 2 && REGISTRIES.includes(labels.at(-2));
  return labels.slice(registry ? -3 : -2).join(".");
}

/** The share of a pause of settling within which the letters of a step are posted. */
export const STEP = 0.25;

/**
 * The seconds within which the times of a person's requests are drawn; 0 for at once.
 * @param {{ terms: any }} round @param {unknown} peer @returns {number}
 */
export const windowOf = ({ terms }, peer) => (peer instanceof RelayClient ? terms.window ?? 0 : 0);

/** Draw a time evenly between nothing and so many seconds. @param {number} seconds @param {Entropy} [entropy] @returns {number} */
export const randomTime = (seconds, entropy = new Entropy()) => Number(entropy.integer(BigInt(Math.trunc(1000 * seconds)) + 1n)) / 1000;

/**
 * Wait for a time drawn evenly between nothing and so many seconds.
 * @param {number} seconds @param {{ entropy?: Entropy, sleep?: (seconds: number) => Promise<void> }} [options] @returns {Promise<void>}
 */
export async function waitRandomly(seconds, { entropy = new Entropy(), sleep = wait } = {}) {
  if (seconds) await sleep(randomTime(seconds, entropy));
}

/**
 * The pause before the next look, of the one that is due; through a relay it is drawn, from nothing to at least the window.
 * @param {{ terms: any }} round @param {unknown} peer @returns {(due: number) => number}
 */
export const pauseRule = (round, peer) => (due) => (peer instanceof RelayClient ? randomTime(Math.max(2 * due, windowOf(round, peer))) : due);
