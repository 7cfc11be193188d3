// Which keys a person knows from elsewhere, and what for: a key is trusted in a role. SPEC section 6.
//
// If it were trusted as such, a server could have the board's key stand where a shuffler should, or
// leave out the one shuffler that would not help it.

import { Misuse, Refused } from "./errors.js";

/**
 * Refuse terms with a stranger in any role, or without a shuffler that is relied on.
 * `trusted` is { server: [hex], shufflers: [[hex], ...], board: [hex] }, with one list for each
 * shuffler: its keys, more than one while they change. `anywhere: [hex]` holds for any role, and is
 * weaker for it.
 */
export function checkTrust({ server, shufflers, board }, trusted) {
  if (Array.isArray(trusted) || typeof trusted !== "object" || trusted === null) {
    throw new Misuse("say in which role a key is trusted: { server: [..], shufflers: [[..]], board: [..] }");
  }
  const relied = trusted.shufflers ?? [];
  const known = (party, keys, role) => {
    if (![...keys, ...(trusted.anywhere ?? [])].includes(party.verifying)) {
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
  relied.forEach((keys, at) => {
    if (!cascade.some((key) => keys.includes(key))) {
      throw new Refused(
        `the terms leave out shuffler ${at + 1} of the ${relied.length} that you rely on: it may be the`
        + " only honest one; ask for terms with all of them",
      );
    }
  });
}
