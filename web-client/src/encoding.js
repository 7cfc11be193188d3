// Encoding of bytes as text and integers, and strict JSON.
//
// `parse` refuses a document with a repeated field, because two readers may differ on which one counts.

import { Refused } from "./errors.js";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export const utf8 = (text) => encoder.encode(text);
/** @param {Uint8Array} bytes @returns {string} */
export const text = (bytes) => decoder.decode(bytes);
export const byte = (...values) => Uint8Array.from(values);

/** @param {...Uint8Array} parts @returns {Uint8Array<ArrayBuffer>} */
export function concat(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export function equal(a, b) {
  return a.length === b.length && a.every((value, place) => value === b[place]);
}

/** Compare bytes in Python's order. */
export function compare(a, b) {
  const shared = Math.min(a.length, b.length);
  for (let at = 0; at < shared; at += 1) {
    if (a[at] !== b[at]) return a[at] - b[at];
  }
  return a.length - b.length;
}

/** @param {Uint8Array} bytes @returns {string} */
export function hex(bytes) {
  return Array.from(bytes, (value) => value.toString(16).padStart(2, "0")).join("");
}

/** @param {string} digits @returns {Uint8Array<ArrayBuffer>} */
export function unhex(digits) {
  if (typeof digits !== "string" || !/^([0-9a-f]{2})*$/.test(digits)) {
    throw new Refused("expected lower-case hexadecimal digits, two per byte");
  }
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** @param {Uint8Array} bytes @returns {string} */
export function base64(bytes) {
  let binary = "";
  for (const value of bytes) binary += String.fromCharCode(value);
  return btoa(binary);
}

/** @param {string} encoded @returns {Uint8Array<ArrayBuffer>} */
export function unbase64(encoded) {
  try {
    return Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
  } catch {
    throw new Refused("expected base64");
  }
}

/** Read an unsigned big-endian integer. */
export function big(bytes) {
  return bytes.reduce((sum, value) => (sum << 8n) | BigInt(value), 0n);
}

/** Write an unsigned integer in `size` bytes, big-endian. */
export function unsigned(value, size) {
  const bytes = new Uint8Array(size);
  let rest = BigInt(value);
  for (let at = size - 1; at >= 0; at -= 1) {
    bytes[at] = Number(rest & 255n);
    rest >>= 8n;
  }
  if (rest) throw new Refused(`${value} does not fit in ${size} bytes`);
  return bytes;
}

export function padded(bytes, size) {
  const whole = new Uint8Array(size);
  whole.set(bytes);
  return whole;
}

const TOKEN = /\s*(?:([{}[\],:])|("(?:[^"\\]|\\.)*")|([^\s{}[\],:"]+))/gy;

/** Parse a document; refuse invalid JSON and repeated fields. */
export function parse(document) {
  let parsed;
  try {
    parsed = JSON.parse(document);
  } catch (error) {
    throw new Refused(`the document does not decode: ${/** @type {Error} */ (error).message}`);
  }
  refuseRepeatedFields(document);
  return parsed;
}

/** Refuse repeated fields in a document that is valid JSON. */
function refuseRepeatedFields(document) {
  const open = [];
  let name = null;
  for (const [, mark, string] of document.matchAll(TOKEN)) {
    if (mark === "{") open.push(new Set());
    else if (mark === "[") open.push(null);
    else if (mark === "}" || mark === "]") open.pop();
    else if (mark === ":") addName(open.at(-1), name);
    name = string === undefined ? null : JSON.parse(string);
  }
}

function addName(names, name) {
  if (names.has(name)) throw new Refused(`the document does not decode: field ${name} is repeated`);
  names.add(name);
}
