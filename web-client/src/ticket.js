// The ticket as JSON, in the format of the Python client. Its bytes are secret.

import { base64, parse, unbase64 } from "./encoding.js";
import { Refused } from "./errors.js";
import { readProgress, writeProgress } from "./settling.js";

/** @param {import("./types.js").Ticket} ticket @returns {string} */
export function writeTicket(ticket) {
  const seen = ticket.seen.map(([sender, counter]) => [base64(sender), counter]);
  const bytes = Object.fromEntries(
    ["digest", "seed", "upload", "receipt"].map((name) => [name, base64(ticket[name])]),
  );
  const [registrations, registered] = [ticket.registrations, ticket.registered].map((list) => list.map(base64));
  const settling = ticket.settling ? { settling: writeProgress(ticket.settling) } : {};
  return JSON.stringify({ coatcheck: "ticket/1", ...ticket, ...bytes, registrations, registered, seen, ...settling }, null, 1);
}

/** @param {string} document @returns {import("./types.js").Ticket} */
export function readTicket(document) {
  const raw = parse(document);
  if (raw.coatcheck !== "ticket/1") throw new Refused("this document is not a ticket");
  const { round, suite, group, written = 0, receipt = "" } = raw;
  const seen = (raw.seen ?? []).map(([sender, counter]) => [unbase64(sender), counter]);
  const digest = unbase64(raw.digest);
  const seed = unbase64(raw.seed);
  const [registrations, registered] = [raw.registrations, raw.registered].map((list) => (list ?? []).map(unbase64));
  if (digest.length !== 32 || seed.length !== 32) throw new Refused("this ticket is damaged: its digest and seed must have 32 bytes");
  const sent = { upload: unbase64(raw.upload), registrations, registered, receipt: unbase64(receipt) };
  const settling = raw.settling ? { settling: readProgress(raw.settling) } : {};
  return {
    round, digest, suite, group, seed, ...sent, written, seen, ...settling,
  };
}
