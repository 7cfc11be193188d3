// The ledger of one browser: its rounds, what they cost, and a limit on the sum.
//
// Adds epsilons and deltas, which is valid for any rounds; the Python ledger composes more tightly.
// Takes and returns plain data: the caller stores it before it sends anything. A round that did not end as
// promised costs the randomizer's local ε, for good: nothing lowers `spent`. While an outcome is overdue, the
// local ε is set aside: `worst` shows it, and `spend` leaves room for it.

import { hex, parse } from "./encoding.js";
import { Refused } from "./errors.js";
import { sha256 } from "./keys.js";

/** Begin a ledger with a limit on the cost of all rounds. @param {import("./types.js").Limit} limit @returns {import("./types.js").Ledger} */
export function beginLedger({ epsilon, delta }) {
  if (!(epsilon > 0 && Number.isFinite(epsilon) && delta > 0 && delta < 1)) {
    throw new Refused("a limit needs an `epsilon` above 0 and a `delta` between 0 and 1");
  }
  return { coatcheck: "browser-ledger/1", epsilon, delta, entries: [] };
}

/** @param {string} document @returns {import("./types.js").Ledger} */
export function readLedger(document) {
  const ledger = parse(document);
  const good = ledger?.coatcheck === "browser-ledger/1" && Array.isArray(ledger.entries)
    && ledger.entries.every(({ epsilon, delta, local, disclosures, until, end }) => (
      epsilon >= 0 && delta >= 0 && local >= 0 && disclosures >= 0 && until >= 0 && ["", "answered", "lost"].includes(end)));
  if (!good) throw new Refused("this is not a valid browser ledger: restore it from a backup before you join a round");
  return { ...beginLedger(ledger), entries: ledger.entries };
}

const seconds = () => Date.now() / 1000;

/** Add up entries, those that are lost with their local ε. */
function sum(entries, isLost) {
  const cost = (entry) => (isLost(entry) ? Math.max(entry.epsilon, entry.local) : entry.epsilon);
  return {
    epsilon: entries.reduce((total, entry) => total + cost(entry), 0),
    delta: entries.reduce((total, { delta }) => total + delta, 0),
  };
}

/**
 * Return the (ε, δ) of all rounds so far, by the outcomes that were recorded. It only rises.
 * @param {{ entries: any[] }} ledger @returns {import("./types.js").Limit}
 */
export function spent({ entries }) {
  return sum(entries, ({ end }) => end === "lost");
}

/**
 * Return what all rounds so far cost if every round whose outcome is overdue did not end as promised.
 * @param {{ entries: any[] }} ledger @param {number} [now] @returns {import("./types.js").Limit}
 */
export function worst({ entries }, now = seconds()) {
  return sum(entries, ({ end, until }) => end === "lost" || (!end && now >= until));
}

/** Return how many candidates may have learned an answer by letter, over all rounds; no ε covers them. */
export function disclosures({ entries }) {
  return entries.reduce((total, entry) => total + entry.disclosures, 0);
}

/**
 * Refuse to settle in a round that was entered without disclosures.
 * @param {import("./types.js").Ledger} ledger @param {import("./types.js").Ticket} ticket
 */
export function checkLetters({ entries }, ticket) {
  const entry = entries.find(({ round }) => round === hex(ticket.digest));
  if (entry && !entry.disclosures) {
    throw new Refused("you joined this round with a limit of 0 `disclosures`: letters would tell candidates about your place; do not settle in it");
  }
}

/**
 * Record the outcome of a round, as `outcomeOf` returns it, and return the ledger to store.
 * @param {import("./types.js").Ledger} ledger @param {import("./types.js").Ticket} ticket @param {import("./types.js").Outcome} outcome @returns {import("./types.js").Ledger}
 */
export function recordOutcome(ledger, ticket, { answered }) {
  const round = hex(ticket.digest);
  const closed = (entry) => ({ ...entry, end: answered && entry.end !== "lost" ? "answered" : "lost" });
  return { ...ledger, entries: ledger.entries.map((entry) => (entry.round === round ? closed(entry) : entry)) };
}

/**
 * Add a ticket's round and return the new ledger; refuse a round above the limit.
 * The same bytes again cost nothing; other bytes for the same round would be a second report.
 * @param {import("./types.js").Ledger} ledger @param {import("./types.js").Ticket} ticket @param {import("./types.js").Invitation} invitation @param {number} [now]
 * @returns {import("./types.js").Ledger}
 */
export function spend(ledger, ticket, invitation, now = seconds()) {
  const { epsilon, delta, local, letters } = invitation;
  const round = hex(ticket.digest);
  const content = hex(sha256(ticket.upload));
  const before = ledger.entries.find((entry) => entry.round === round);
  if (before) {
    if (before.content === content) return ledger;
    throw new Refused("you have joined this round before: a second report would cost its ε again; resend the stored upload");
  }
  const until = invitation.round.endDue;
  const entry = { round, content, name: ticket.round, epsilon, delta, local, disclosures: letters?.candidates ?? 0, until, end: "" };
  const entries = [...ledger.entries, entry];
  const after = worst({ entries }, now);
  if (after.epsilon > ledger.epsilon || after.delta > ledger.delta) {
    throw new Refused(
      `with this round you would have spent ε = ${after.epsilon.toPrecision(4)} of ${ledger.epsilon}`
      + ` (δ = ${after.delta.toPrecision(3)} of ${ledger.delta}); nothing was sent`,
    );
  }
  return { ...ledger, entries };
}
