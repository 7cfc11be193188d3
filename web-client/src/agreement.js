// Which keys a person knows from elsewhere, and what for: a key is trusted in a role. SPEC section 6.
//
// If it were trusted as such, a server could have the board's key stand where a shuffler should, or
// leave out the one shuffler that would not help it.

import { unhex, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { checkSignature, sealingKey, verifyingKey } from "./keys.js";
import { HEX, check, readTerms } from "./terms.js";

const KEY = /^[0-9a-f]{64}$/;
const keys = (value) => Array.isArray(value) && value.every((one) => typeof one === "string" && KEY.test(one));
const several = (value) => Array.isArray(value) && value.every(keys);

/** Refuse what is no trust at all, before anything is checked by it. */
function checkShape(trusted) {
  const { server = [], shufflers = [], board = [], witnesses = [], anywhere = [] } = trusted ?? {};
  if (Array.isArray(trusted) || typeof trusted !== "object" || trusted === null
    || ![server, board, anywhere].every(keys) || ![shufflers, witnesses].every(several)) {
    throw new Misuse(
      "say in which role a key is trusted, in hex: { server: [key], shufflers: [[key]], board: [key] },"
      + " and witnesses: [[key]] if you demand some",
    );
  }
}

/**
 * The witnesses that must have cosigned the board's log: all that are named, or as many as `demanded` says.
 * @param {import("./types.js").Trusted} trusted
 */
function cosignersOf({ witnesses = [], demanded = witnesses.length }) {
  if (!(Number.isInteger(demanded) && demanded >= 0 && demanded <= witnesses.length)) {
    throw new Misuse(`you name ${witnesses.length} witnesses: of these, ${demanded} cannot be demanded`);
  }
  return { witnesses, demanded };
}

/**
 * Refuse terms with a stranger in any role, or without a shuffler that is relied on.
 * `trusted` is { server: [hex], shufflers: [[hex], ...], board: [hex] }, with one list for each
 * shuffler: its keys, more than one while they change. `anywhere: [hex]` holds for any role, and is
 * weaker for it. `witnesses: [[hex], ...]` is read by `cosignersOf`.
 * @param {{ server: any, shufflers: any[], board: any }} terms @param {import("./types.js").Trusted} trusted
 */
function checkTrust({ server, shufflers, board }, trusted) {
  checkShape(trusted);
  const relied = trusted.shufflers ?? [];
  const known = (party, mine, role) => {
    if (![...mine, ...(trusted.anywhere ?? [])].includes(party.verifying)) {
      throw new Refused(
        `the key of ${party.name} in the terms is not one you trust as a ${role}: get it from them by`
        + " another way, compare, and add it",
      );
    }
  };
  known(server, trusted.server ?? [], "server");
  for (const party of shufflers) known(party, relied.flat(), "shuffler");
  known(board, trusted.board ?? [], "board");
  const cascade = shufflers.map((party) => party.verifying);
  relied.forEach((mine, at) => {
    if (!cascade.some((key) => mine.includes(key))) {
      throw new Refused(
        `the terms leave out shuffler ${at + 1} of the ${relied.length} that you rely on: it may be the`
        + " only honest one; ask for terms with all of them",
      );
    }
  });
}

/**
 * Check every signature and key of signed terms and return the round they describe.
 * `trusted` holds the verifying keys that the person knows from elsewhere, by role; see `checkTrust`.
 * @param {import("./types.js").SignedTerms} signed @param {import("./types.js").Trusted} trusted @returns {import("./types.js").Round}
 */
export function verifySignatures(signed, trusted) {
  check(signed, {
    document: (value) => typeof value === "string",
    server: HEX,
    shufflers: (value) => Array.isArray(value) && value.every((one) => one === null || HEX(one)),
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
