// The ticket as JSON, in the format of the Python client. Its bytes are secret.

import { base64, parse, unbase64 } from "./encoding.js";
import { Refused } from "./errors.js";
import { decoySeed } from "./keys.js";
import { readProgress, writeProgress } from "./settling.js";

/** @param {import("./types.js").Ticket} ticket @returns {string} */
export function writeTicket(ticket) {
  const bytes = Object.fromEntries(
    ["digest", "seed", "upload", "receipt"].map((name) => [name, base64(ticket[name])]),
  );
  const [registrations, registered] = [ticket.registrations, ticket.registered].map((list) => list.map(base64));
  const letters = { ...writeLetters(ticket), decoys: ticket.decoys.map(writeLetters) };
  return JSON.stringify({ coatcheck: "ticket/1", ...ticket, ...bytes, registrations, registered, ...letters }, null, 1);
}

/** Return what a ticket stores of the letters of one address, as JSON writes it. @param {any} letters */
function writeLetters({ written, seen, settling }) {
  const listed = seen.map(([sender, counter]) => [base64(sender), counter]);
  return { written, seen: listed, ...(settling ? { settling: writeProgress(settling) } : {}) };
}

/** @param {any} letters @returns {any} */
function readLetters({ written = 0, seen = [], settling }) {
  const listed = seen.map(([sender, counter]) => [unbase64(sender), counter]);
  return { written, seen: listed, ...(settling ? { settling: readProgress(settling) } : {}) };
}

/**
 * Return each decoy as a ticket of its own, to open its answer and to write its letters. `withLetters` stores them.
 * @param {import("./types.js").Ticket} ticket @returns {import("./types.js").Ticket[]}
 */
export function decoyTickets({ round, digest, suite, group, seed, decoys }) {
  const none = { upload: new Uint8Array(), registrations: [], registered: [], receipt: new Uint8Array(), decoys: [] };
  return decoys.map((letters, n) => ({ round, digest, suite, group, seed: decoySeed(seed, n + 1), ...none, ...letters }));
}

/**
 * Return the ticket with the letters of another version of it, or of one of its decoys, numbered from 0.
 * @param {import("./types.js").Ticket} ticket @param {import("./types.js").Ticket} changed @param {number | null} [number]
 * @returns {import("./types.js").Ticket}
 */
export function withLetters(ticket, { written, seen, settling }, number = null) {
  const letters = { written, seen, ...(settling ? { settling } : {}) };
  if (number === null) return { ...ticket, ...letters };
  return { ...ticket, decoys: ticket.decoys.map((stored, n) => (n === number ? letters : stored)) };
}

/** @param {string} document @returns {import("./types.js").Ticket} */
export function readTicket(document) {
  const raw = parse(document);
  if (raw.coatcheck !== "ticket/1") throw new Refused("this document is not a ticket");
  const { round, suite, group, receipt = "" } = raw;
  const digest = unbase64(raw.digest);
  const seed = unbase64(raw.seed);
  const [registrations, registered] = [raw.registrations, raw.registered].map((list) => (list ?? []).map(unbase64));
  if (digest.length !== 32 || seed.length !== 32) throw new Refused("this ticket is damaged: its digest and seed must have 32 bytes");
  const sent = { upload: unbase64(raw.upload), registrations, registered, receipt: unbase64(receipt) };
  return {
    round, digest, suite, group, seed, ...sent, ...readLetters(raw), decoys: (raw.decoys ?? []).map(readLetters),
  };
}
