// What one browser has spent: a list of rounds with a limit on their sum, which refuses in time.
//
// Adds epsilons and deltas up, which holds for any rounds; the Python ledger composes more closely.
// Plain data in and out: whoever calls stores it before anything is sent.

import { hex } from "./bytes.js";
import { Refused } from "./errors.js";
import { parse } from "./json.js";
import { sha256 } from "./keys.js";

export function beginLedger({ epsilon, delta }) {
  if (!(epsilon > 0 && Number.isFinite(epsilon) && delta > 0 && delta < 1)) {
    throw new Refused("a limit needs an ε above 0 and a δ between 0 and 1");
  }
  return { coatcheck: "browser-ledger/1", epsilon, delta, entries: [] };
}

export function readLedger(spelled) {
  const ledger = parse(spelled);
  const good = ledger?.coatcheck === "browser-ledger/1" && Array.isArray(ledger.entries)
    && ledger.entries.every(({ epsilon, delta }) => epsilon >= 0 && delta >= 0);
  if (!good) throw new Refused("this is no ledger of a browser: do not join before it is mended");
  return { ...beginLedger(ledger), entries: ledger.entries };
}

/** The (ε, δ) of all rounds so far. */
export function spent(ledger) {
  const sum = (name) => ledger.entries.reduce((total, entry) => total + entry[name], 0);
  return { epsilon: sum("epsilon"), delta: sum("delta") };
}

/**
 * Enter a ticket and return the ledger after it, or refuse with nothing changed.
 * The same bytes again cost nothing; other bytes for the same round would be a second draw.
 */
export function spend(ledger, ticket, { epsilon, delta }) {
  const round = hex(ticket.digest);
  const content = hex(sha256(ticket.upload));
  const before = ledger.entries.find((entry) => entry.round === round);
  if (before) {
    if (before.content === content) return ledger;
    throw new Refused("you have joined this round before: another report would cost once more");
  }
  const entries = [...ledger.entries, { round, content, name: ticket.round, epsilon, delta }];
  const after = spent({ entries });
  if (after.epsilon > ledger.epsilon * (1 + 1e-9) || after.delta > ledger.delta * (1 + 1e-9)) {
    throw new Refused(
      `with this round you would have spent ε = ${after.epsilon.toPrecision(4)} of ${ledger.epsilon}`
      + ` (δ = ${after.delta.toPrecision(3)} of ${ledger.delta}): nothing was sent`,
    );
  }
  return { ...ledger, entries };
}
