// Which keys a person knows from elsewhere, and what for: a key is trusted in a role. SPEC section 6.
//
// If it were trusted as such, a server could have the board's key stand where a shuffler should, or
// leave out the one shuffler that would not help it.

import { Misuse, Refused } from "./errors.js";

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
export function watchedBy({ witnesses = [], demanded = witnesses.length }) {
  if (!(Number.isInteger(demanded) && demanded >= 0 && demanded <= witnesses.length)) {
    throw new Misuse(`you name ${witnesses.length} witnesses: of these, ${demanded} cannot be demanded`);
  }
  return { witnesses, demanded };
}

/**
 * Refuse terms with a stranger in any role, or without a shuffler that is relied on.
 * `trusted` is { server: [hex], shufflers: [[hex], ...], board: [hex] }, with one list for each
 * shuffler: its keys, more than one while they change. `anywhere: [hex]` holds for any role, and is
 * weaker for it. `witnesses: [[hex], ...]` is read by `watchedBy`.
 * @param {{ server: any, shufflers: any[], board: any }} terms @param {import("./types.js").Trusted} trusted
 */
export function checkTrust({ server, shufflers, board }, trusted) {
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
