// Agreement on terms: their signatures, and the keys that a person trusts, each in one role. SPEC section 6.
//
// If a key were trusted in every role, a server could name the board's key as a shuffler, or omit the one
// shuffler that would not help it.

import { unhex, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { checkSignature, sealingKey, verifyingKey } from "./keys.js";
import { HEX, check, readTerms } from "./terms.js";

const KEY = /^[0-9a-f]{64}$/;
const keys = (value) => Array.isArray(value) && value.every((key) => typeof key === "string" && KEY.test(key));
const several = (value) => Array.isArray(value) && value.every(keys);
const quorum = (value) => Array.isArray(value?.of) && value.of.every((member) => keys(member) || quorum(member));

/** Reject `trusted` if it does not have the expected shape. */
function checkShape(trusted) {
  const { server = [], shufflers = [], board = [], witnesses = [], anywhere = [] } = trusted ?? {};
  if (Array.isArray(trusted) || typeof trusted !== "object" || trusted === null
    || ![server, board, anywhere].every(keys) || !several(shufflers) || !(several(witnesses) || quorum(witnesses))) {
    throw new Misuse(
      "`trusted` must say in which role each key is trusted, in hex: { server: [key], shufflers: [[key]], board: [key] },"
      + " and witnesses: [[key]] if you demand some",
    );
  }
}

/**
 * Return who must have cosigned the board's log: `witnesses` as a list of which `demanded` (all by default) must, or as a
 * quorum of its own, `{ least, of }`, whose members may be quorums again.
 * @param {import("./types.js").Trusted} trusted @returns {import("./types.js").Quorum}
 */
function cosignersOf({ witnesses = [], demanded }) {
  if (!Array.isArray(witnesses)) return checkedQuorum(witnesses);
  return checkedQuorum({ least: demanded ?? witnesses.length, of: witnesses });
}

function checkedQuorum({ least, of }) {
  if (!Array.isArray(of) || !(Number.isInteger(least) && least >= 0 && least <= of.length)) {
    throw new Misuse(`the number of witnesses that you demand must be from 0 to that of \`witnesses\`, ${of?.length}; got ${least}`);
  }
  return { least, of: of.map((member) => (Array.isArray(member) ? member : checkedQuorum(member))) };
}

/**
 * Refuse terms that name an untrusted key in any role, or that omit a shuffler on which the person relies.
 * `trusted` is { server: [hex], shufflers: [[hex], ...], board: [hex] }, with one list per shuffler: its
 * keys, more than one during a key change. Keys in `anywhere: [hex]` are trusted in any role, which is
 * weaker. `cosignersOf` reads `witnesses`.
 * @param {{ server: any, shufflers: any[], board: any }} terms @param {import("./types.js").Trusted} trusted
 */
function checkTrust({ server, shufflers, board }, trusted) {
  checkShape(trusted);
  const relied = trusted.shufflers ?? [];
  const requireTrusted = (party, roleKeys, role) => {
    if (![...roleKeys, ...(trusted.anywhere ?? [])].includes(party.verifying)) {
      throw new Refused(
        `the key of ${party.name} in the terms is not one you trust as a ${role}: get the key from its owner`
        + " over another channel, compare, and add it to \`trusted\`",
      );
    }
  };
  requireTrusted(server, trusted.server ?? [], "server");
  for (const party of shufflers) requireTrusted(party, relied.flat(), "shuffler");
  requireTrusted(board, trusted.board ?? [], "board");
  const cascade = shufflers.map((party) => party.verifying);
  relied.forEach((shufflerKeys, at) => {
    if (!cascade.some((key) => shufflerKeys.includes(key))) {
      throw new Refused(
        `the terms omit shuffler ${at + 1} of the ${relied.length} that you rely on, which may be the`
        + " only honest one: ask for terms with all of them",
      );
    }
  });
}

/**
 * Check every signature and key of signed terms and return the round they describe.
 * `trusted` holds, by role, the verifying keys that the person got over another channel; see `checkTrust`.
 * @param {import("./types.js").SignedTerms} signed @param {import("./types.js").Trusted} trusted @returns {import("./types.js").Round}
 */
export function verifySignatures(signed, trusted) {
  check(signed, {
    document: (value) => typeof value === "string",
    server: HEX,
    shufflers: (value) => Array.isArray(value) && value.every((signature) => signature === null || HEX(signature)),
  });
  const round = readTerms(signed.document);
  const { server, shufflers, board } = round.terms;
  if (signed.shufflers.length !== shufflers.length || signed.shufflers.includes(null)) {
    throw new Refused("not every shuffler has signed these terms: wait until all have");
  }
  checkParty(server, signed.server, "server", round);
  shufflers.forEach((party, hop) => checkParty(party, signed.shufflers[hop], "shuffler", round));
  for (const party of [server, ...shufflers]) sealingKey(round.suite, unhex(party.sealing));
  verifyingKey(unhex(board.verifying));
  checkTrust(round.terms, trusted);
  round.cosigners = cosignersOf(trusted);
  return round;
}

function checkParty(party, signature, role, round) {
  const label = utf8(`coatcheck/v1/terms/${role}\0`);
  const message = new Uint8Array([...label, ...round.document]);
  checkSignature(unhex(party.verifying), unhex(signature), message, party.name);
}
