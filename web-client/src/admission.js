// Admission: what a person shows to a shuffler that does not admit everybody. SPEC section 6.
//
// A token of Privacy Pass (RFC 9577, RFC 9578 type 2) comes from an issuer that signed it blindly; the
// page gets it for the challenge of the round, which is the same for everybody.

import { base64, byte, concat, hex, unbase64, unhex, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { sha256 } from "./keys.js";

const TYPE = unsigned(2, 2);
const CONTEXT = utf8("coatcheck/v1/admission\0");
const TOKEN = 354; // type, nonce, digest of the challenge, id of the key, signature

const sized = (text) => concat(unsigned(text.length, 2), text);
const spelled = (raw) => base64(raw).replaceAll("+", "-").replaceAll("/", "_");
const unspelled = (text) => unbase64(text.replaceAll("-", "+").replaceAll("_", "/"));

/**
 * What a token for a shuffler of the round must answer (RFC 9577, section 2.1).
 * @param {import("./types.js").Round} round @param {number} [hop] @returns {Uint8Array}
 */
export function challenge(round, hop = 0) {
  const { admission, url } = round.terms.shufflers[hop];
  if (admission.kind !== "privacy-pass") throw new Refused("this shuffler does not admit people by Privacy Pass");
  const context = sha256(concat(CONTEXT, round.digest, byte(hop)));
  return concat(TYPE, sized(utf8(admission.issuer)), byte(context.length), context, sized(utf8(url.split("://")[1])));
}

/**
 * The challenge as `WWW-Authenticate` has it, for libraries that get tokens.
 * @param {import("./types.js").Round} round @param {number} [hop] @returns {string}
 */
export function demand(round, hop = 0) {
  const key = unhex(round.terms.shufflers[hop].admission.key ?? "");
  return `PrivateToken challenge="${spelled(challenge(round, hop))}", token-key="${spelled(key)}"`;
}

/**
 * The headers by which a shuffler admits the owner of a token; ask for them before you spend.
 * @param {import("./types.js").Round} round @param {string} [token] @param {number} [hop] @returns {[string, string][]}
 */
export function credential(round, token = "", hop = 0) {
  const { admission, name } = round.terms.shufflers[hop];
  if (admission.kind === "open") return [];
  if (admission.kind === "tokens") {
    if (!token) throw new Refused(`${name} admits who has a one-use token: ask its operator for one`);
    return [["coatcheck-token", token]];
  }
  checkToken(round, token, hop);
  return [["authorization", `PrivateToken token="${token}"`]];
}

/** Refuse a token for another round, shuffler or key; the shuffler checks the signature. */
function checkToken(round, token, hop) {
  const { admission, name } = round.terms.shufflers[hop];
  const raw = /^[\w-]{472}$/.test(token) ? unspelled(token) : new Uint8Array();
  const bound = concat(sha256(challenge(round, hop)), sha256(unhex(admission.key)));
  if (raw.length !== TOKEN || hex(raw.slice(0, 2)) !== hex(TYPE) || hex(raw.slice(34, 98)) !== hex(bound)) {
    throw new Refused(`${name} admits who has a Privacy Pass token of ${admission.issuer} for this round`);
  }
}

/**
 * What is shown to each shuffler, of tokens separated by commas; a shuffler could use up at another one what it is shown.
 * @param {import("./types.js").Round} round @param {string} token @returns {[string, string][][]}
 */
export function headersFor(round, token) {
  const hops = round.terms.shufflers.length;
  const given = token.split(",");
  const shown = given.filter(Boolean);
  if (given.length > hops || new Set(shown).size < shown.length) {
    throw new Misuse(`the round has ${hops} shufflers, and each takes a token of its own: give them in the order of the terms, separated by commas`);
  }
  return round.terms.shufflers.map((_, hop) => credential(round, given[hop] ?? "", hop));
}
