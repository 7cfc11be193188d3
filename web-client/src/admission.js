// Admission: the credentials that a person sends to a shuffler that does not admit everybody. SPEC section 6.
//
// An issuer signs a Privacy Pass token (RFC 9577, RFC 9578 type 2) blindly. The page requests it for the
// round's challenge, which is the same for everybody.

import { base64, byte, concat, hex, unbase64, unhex, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sha256 } from "./keys.js";

const TYPE = unsigned(2, 2);
const CONTEXT = utf8("coatcheck/v1/admission\0");
const TOKEN = 354; // type, nonce, digest of the challenge, id of the key, signature

const sized = (text) => concat(unsigned(text.length, 2), text);
const toBase64Url = (raw) => base64(raw).replaceAll("+", "-").replaceAll("/", "_");
const fromBase64Url = (text) => unbase64(text.replaceAll("-", "+").replaceAll("_", "/"));

/**
 * Return the challenge that a token for this shuffler must answer (RFC 9577, section 2.1).
 * @param {import("./types.js").Round} round @param {number} [hop] @returns {Uint8Array}
 */
export function challenge(round, hop = 0) {
  const { admission, url } = round.terms.shufflers[hop];
  if (admission.kind !== "privacy-pass") throw new Refused("this shuffler does not use Privacy Pass: its terms name another kind of admission");
  const context = sha256(concat(CONTEXT, round.digest, byte(hop)));
  return concat(TYPE, sized(utf8(admission.issuer)), byte(context.length), context, sized(utf8(url.split("://")[1])));
}

/**
 * Return the challenge as a `WWW-Authenticate` header, for libraries that request tokens.
 * @param {import("./types.js").Round} round @param {number} [hop] @returns {string}
 */
export function demand(round, hop = 0) {
  const key = unhex(round.terms.shufflers[hop].admission.key ?? "");
  return `PrivateToken challenge="${toBase64Url(challenge(round, hop))}", token-key="${toBase64Url(key)}"`;
}

/**
 * Return the headers by which a shuffler admits the owner of a token. Call this before you spend.
 * @param {import("./types.js").Round} round @param {string} [token] @param {number} [hop] @returns {[string, string][]}
 */
export function credential(round, token = "", hop = 0) {
  const { admission, name } = round.terms.shufflers[hop];
  if (admission.kind === "open") return [];
  if (admission.kind === "tokens") {
    if (!token) throw new Refused(`shuffler ${name} requires a one-use token: ask its operator for one`);
    return [["coatcheck-token", token]];
  }
  checkToken(round, token, hop);
  return [["authorization", `PrivateToken token="${token}"`]];
}

/** Refuse a token for another round, shuffler or key. The shuffler verifies its signature. */
function checkToken(round, token, hop) {
  const { admission, name } = round.terms.shufflers[hop];
  const raw = /^[\w-]{472}$/.test(token) ? fromBase64Url(token) : new Uint8Array();
  const bound = concat(sha256(challenge(round, hop)), sha256(unhex(admission.key)));
  if (raw.length !== TOKEN || hex(raw.slice(0, 2)) !== hex(TYPE) || hex(raw.slice(34, 98)) !== hex(bound)) {
    throw new Refused(`shuffler ${name} requires a Privacy Pass token of ${admission.issuer} for this round: request one from that issuer`);
  }
}

/**
 * Return the headers for each shuffler, from tokens separated by commas. Each shuffler needs a separate token: it could spend
 * the token that it receives at another shuffler.
 * @param {import("./types.js").Round} round @param {string} token @returns {[string, string][][]}
 */
export function headersFor(round, token) {
  const hops = round.terms.shufflers.length;
  const tokens = token.split(",");
  const filled = tokens.filter(Boolean);
  if (tokens.length > hops || new Set(filled).size < filled.length) {
    throw new Misuse(`the round has ${hops} shufflers, and each needs a separate token: give them in the order of the terms, separated by commas`);
  }
  return round.terms.shufflers.map((_, hop) => credential(round, tokens[hop] ?? "", hop));
}
