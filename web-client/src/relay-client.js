// HTTP client through a relay: requests sealed to the roles' gateways, at random times. SPEC section 17.
//
// The page supplies the browser's `fetch`; this file calls it with the relay's address only. The relay
// passes on the gateways' keys; the client accepts keys that a trusted role signed, one list per day: a gateway that
// gave each person keys of their own could tell them apart.
//
// A relay and a role that both record times could link requests that follow each other immediately, so the client
// draws request times at random. Waiting without a relay would hide nothing, so the client does not wait then.

import { concat, hex, unhex, unsigned, utf8 } from "./encoding.js";
import { Entropy } from "./entropy.js";
import { Misuse, Refused, Unavailable } from "./errors.js";
import { readBody, wait, checkStatus } from "./http-client.js";
import { checkSignature } from "./keys.js";
import { decodeResponse, encodeRequest, messageSize, OVERHEAD, readKeys, sealRequest, SIZES } from "./oblivious-http.js";

const AROUND = 256; // bytes reserved for what surrounds a content
const LEVELS = 3; // how many of the sizes `level` may choose; longer messages use the larger ones
const PIECE = SIZES[3] - AROUND;
const MOST = 1 << 30;
const REQUEST_MEDIA = "message/ohttp-req";
const KEYS_MEDIA = "application/ohttp-keys";
const REGISTRIES = ["ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "mil", "ne", "net", "nom", "or", "org"];
const OHTTP_KEY = "http-problem-types#ohttp-key";
const PERIOD = 86_400; // seconds for which a gateway has one list of keys: a day of UTC
const SLACK = 3_600; // seconds by which a clock may differ before a list counts as early or ended

/**
 * The newest key list of a gateway: the keys in hex, and when their day ends.
 * @typedef {{ keys: string, until: number, signatures: string[] }} KeyList
 * Where the lists that a person has seen are stored, by the gateway's host.
 * @typedef {{ load: () => Promise<Record<string, KeyList>>, save: (host: string, list: KeyList) => Promise<unknown> }} SeenKeys
 */

/** Return a place for lists that is lost with the page. @returns {SeenKeys} */
function listsInMemory() {
  /** @type {Record<string, KeyList>} */
  const lists = {};
  return { load: async () => lists, save: async (host, list) => { lists[host] = list; } };
}

/**
 * HTTP client that connects to the relay only, whatever fails. `first` is the round's address at its first
 * shuffler. Every other role counts as a board unless `know` names it as a shuffler. `trusted` is as in `examine`.
 * `seen` is where the gateways' key lists stay, by default as long as this object.
 */
export class RelayClient {
  #url;
  #shufflers;
  #trusted;
  #fetch;
  #seen;
  #configs = new Map();
  #signers = new Map();
  /** @type {((list: Uint8Array, peer: RelayClient) => Promise<unknown>) | null} */
  #check = null;
  #least = SIZES[0];

  /**
   * @param {string} url
   * @param {{ first: string, trusted: import("./types.js").Trusted, fetch?: typeof globalThis.fetch, seen?: SeenKeys }} options
   */
  constructor(url, { first, trusted, fetch = globalThis.fetch, seen = listsInMemory() }) {
    this.#url = originOf(url);
    if (url.replace(/\/$/, "") !== this.#url) throw new Misuse(`\`relay\` must be https://HOST[:PORT] without a path, got ${url}`);
    this.#shufflers = new Set([new URL(first).origin]);
    this.#trusted = trusted;
    this.#fetch = fetch;
    this.#seen = seen;
  }

  /** Add the shufflers of a cascade, as the terms name them. */
  know(urls) {
    for (const url of urls) this.#shufflers.add(new URL(url).origin);
  }

  /**
   * From now on, use a key list only after `check` has found it in the board's log. `signers` are the roles' addresses
   * and verifying keys, from the terms.
   * @param {(list: Uint8Array, peer: RelayClient) => Promise<unknown>} check @param {[string, string][]} signers
   */
  checkLists(check, signers) {
    this.#check = check;
    this.#signers = new Map(signers.map(([url, key]) => [new URL(url).origin, key]));
  }

  /** Check the lists of all roles of the terms now, so that no request to the board goes with one to a shuffler later. */
  async findLists() {
    for (const origin of this.#signers.keys()) await this.#config(origin, new URL(origin).host);
  }

  /** From now on, pad every message to the size that one of `size` bytes needs. */
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
      if (total > MOST || !content.length) throw new Refused("the board's answer does not end and is not read: ask its operator");
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
   * Send a request; if a new day of the gateway has begun, send it once more with the new key.
   * @param {string} method @param {string} url @param {{ headers?: [string, string][], content?: Uint8Array }} [options]
   */
  async #exchange(method, url, { headers = [], content } = {}) {
    const { origin, protocol, host, pathname, search } = new URL(url);
    /** @type {[string, string][]} */
    const lines = [...headers, ["coatcheck-padding", `${this.#least}`]];
    const request = { method, scheme: protocol.slice(0, -1), authority: host, path: pathname + search, headers: lines, content };
    const size = messageSize(Math.max(encodeRequest(request).length, this.#least - OVERHEAD), OVERHEAD);
    const encoded = encodeRequest(request, size);
    for (let turn = 0; turn < 2; turn += 1) {
      const { until, config } = await this.#config(origin, host);
      const sealed = await sealRequest(encoded, config);
      const answer = await this.#at(host, { method: "POST", headers: { "content-type": REQUEST_MEDIA }, body: sealed.raw });
      const raw = await this.#read(answer);
      if (answer.ok) return decodeResponse(await sealed.open(raw));
      // The gateway opened nothing, so sending again is not a repetition.
      if (answer.status !== 400 || !new TextDecoder().decode(raw).includes(OHTTP_KEY)) break;
      const next = await this.#fetchKeys(origin, host, { fresh: true });
      if (next.until === until) throw new Unavailable(`${host} does not open requests under its key of today: try later, at the latest tomorrow`);
    }
    throw new Unavailable(`the relay cannot reach ${host} now: try later; nothing was sent directly`);
  }

  async #config(origin, host) {
    let current = this.#configs.get(origin);
    if (!(current?.until > Date.now() / 1000)) current = await this.#fetchKeys(origin, host);
    const signer = this.#signers.get(origin);
    if (this.#check && signer && !current.logged) {
      await this.#check(current.listing(signer), this.#unchecked());
      current.logged = true;
    }
    return current;
  }

  /** Return a client for the check itself, whose requests carry nothing of a person. */
  #unchecked() {
    const peer = new RelayClient(this.#url, { first: this.#url, trusted: this.#trusted, fetch: this.#fetch, seen: this.#seen });
    peer.#shufflers = this.#shufflers;
    peer.#least = this.#least;
    return peer;
  }

  /** Take the list that this person has seen, or the relay's; never a second one of a day. */
  async #fetchKeys(origin, host, { fresh = false } = {}) {
    checkApart(new URL(this.#url).hostname, new URL(origin).hostname);
    const now = Date.now() / 1000;
    const before = (await this.#seen.load())[host];
    const list = !fresh && before?.until > now ? before : await this.#listOfRelay(host);
    const { until } = list;
    const signed = this.#checkSigned(unhex(list.keys), until, list.signatures, origin);
    if (!(until - PERIOD - SLACK <= now && now < until + SLACK)) {
      throw new Unavailable(`the relay's keys for ${host} are not for today: check your clock, or try later`);
    }
    const newest = (await this.#seen.load())[host]; // another round of this person may have stored one meanwhile
    if (until < newest?.until) throw new Refused(`the relay gives an older key list of ${host} than before: nothing was sent; use another relay`);
    if (until === newest?.until && list.keys !== newest.keys) {
      throw new Refused(`${host} has signed two key lists for one day, which could tell people apart: nothing was sent; do not use this role`);
    }
    await this.#seen.save(host, list);
    const listing = (signer) => {
      const { key, signature } = signed.find((one) => one.key === signer) ?? signed[0];
      return concat(Uint8Array.of(1, 0, 0, 0), unhex(key), unsigned(until, 8), unhex(signature), unhex(list.keys));
    };
    const current = { until, config: readKeys(unhex(list.keys)), listing, logged: false };
    this.#configs.set(origin, current);
    return current;
  }

  /** Fetch a gateway's list from the relay. @returns {Promise<KeyList>} */
  async #listOfRelay(host) {
    const answer = await this.#at(host, { headers: { accept: KEYS_MEDIA } });
    if (!answer.ok) throw new Unavailable(`the relay has no keys of ${host}: try later; nothing was sent directly`);
    const keys = hex(await this.#read(answer));
    const header = answer.headers.get("coatcheck-until") ?? "";
    const until = /^[0-9]{1,16}$/.test(header) ? Number(header) : NaN;
    const signatures = (answer.headers.get("coatcheck-signatures") ?? "").split(", ");
    if (!Number.isSafeInteger(until) || until % PERIOD) {
      throw new Refused(`the relay did not say for which day the keys for ${host} are: use another relay`);
    }
    return { keys, until, signatures };
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
    const signed = keys.flatMap((key) => signatures.filter((signature) => holds(key, signature)).map((signature) => ({ key, signature })));
    if (!signed.length) throw new Refused(`no key that you trust in that role signed the relay's keys for ${origin}: nothing was sent`);
    return signed;
  }

  /** Read the relay's answer, at most the largest of `SIZES`. */
  async #read(answer) {
    try {
      return await readBody(answer, SIZES[SIZES.length - 1], this.#url);
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Unavailable(`the relay ${this.#url} closed the connection: try later; nothing was sent directly`);
    }
  }

  /** @param {string} host @param {{ method?: string, headers: Record<string, string>, body?: Uint8Array<ArrayBuffer> }} request */
  async #at(host, { method = "GET", headers, body }) {
    const fetch = this.#fetch; // must be called without a receiver
    /** @type {RequestInit} */
    const plain = { cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
    try {
      return await fetch(`${this.#url}/gateways/${host}`, { method, headers, body, ...plain });
    } catch {
      throw new Unavailable(`the relay ${this.#url} does not answer: try later; nothing was sent directly`);
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

/** Reject a relay in the same domain as the role from which it should hide people; loopback addresses are for practice. */
function checkApart(relay, role) {
  const loopback = (host) => host === "localhost" || host === "[::1]" || /^127\./.test(host);
  const number = (host) => /^[0-9.]+$/.test(host) || host.startsWith("[");
  if (loopback(relay) || loopback(role)) return;
  if (relay === role || (!number(relay) && !number(role) && domain(relay) === domain(role))) {
    throw new Misuse(`the relay ${relay} and the role ${role} belong to one operator, who would see both who asks and what is asked: use a relay of another operator`);
  }
}

function domain(host) {
  const labels = host.replace(/\.$/, "").split(".");
  // The last two labels of a.co.uk belong to a registry; those of a.b.io belong to b.
  const registry = labels.length > 2 && labels.at(-1).length === 2 && REGISTRIES.includes(labels.at(-2));
  return labels.slice(registry ? -3 : -2).join(".");
}

/**
 * Return the seconds within which request times are drawn; 0 means at once.
 * @param {{ terms: any }} round @param {unknown} peer @returns {number}
 */
export const windowOf = ({ terms }, peer) => (peer instanceof RelayClient ? terms.window ?? 0 : 0);

/** Draw a time uniformly between 0 and `seconds`. @param {number} seconds @param {Entropy} [entropy] @returns {number} */
export const randomTime = (seconds, entropy = new Entropy()) => Number(entropy.integer(BigInt(Math.trunc(1000 * seconds)) + 1n)) / 1000;

/**
 * Wait for a time drawn uniformly between 0 and `seconds`.
 * @param {number} seconds @param {{ entropy?: Entropy, sleep?: (seconds: number) => Promise<void> }} [options] @returns {Promise<void>}
 */
export async function waitRandomly(seconds, { entropy = new Entropy(), sleep = wait } = {}) {
  if (seconds) await sleep(randomTime(seconds, entropy));
}

/**
 * Return the rule for the pause before the next request. Through a relay the pause is drawn, from 0 to at least the window.
 * @param {{ terms: any }} round @param {unknown} peer @returns {(due: number) => number}
 */
export const pauseRule = (round, peer) => (due) => (peer instanceof RelayClient ? randomTime(Math.max(2 * due, windowOf(round, peer))) : due);
