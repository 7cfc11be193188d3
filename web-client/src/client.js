// The client role: examine the terms, join once, collect the answer. SPEC section 12.
//
// Only `join` uses the value. The client recomputes every promise itself. This file does no input or
// output: `session.js` fetches and stores.

import { examined } from "./amplification.js";
import { disclosureOf } from "./candidates.js";
import { compare, concat, equal, hex, padded, unhex } from "./encoding.js";
import { Entropy } from "./entropy.js";
import { binding, seal, unseal } from "./envelope.js";
import { Misuse, Refused } from "./errors.js";
import { checkExposure } from "./exposure.js";
import { addressOf, decoySeed, keyPairs, sealingKey } from "./keys.js";
import { sameRound } from "./letters.js";
import * as messages from "./messages.js";
import { randomizerOf } from "./randomizers.js";
import { ADDRESS } from "./suites.js";
import { decoyTickets } from "./ticket.js";
import { verifySignatures } from "./agreement.js";

const DISCLOSURES = 40; // the most candidates who may learn an answer by letter, unless the limit says otherwise

/**
 * Check the terms for one group; refuse them if they promise less than `limit`. Uses nothing private. `now` in seconds since 1970.
 * @param {import("./types.js").SignedTerms} signed
 * @param {{ group: string, trusted: import("./types.js").Trusted, limit: import("./types.js").Limit, now: number }} options
 * @returns {import("./types.js").Invitation}
 */
export function examine(signed, { group, trusted, limit, now }) {
  const round = verifySignatures(signed, trusted);
  const number = round.group(group);
  const of = round.terms.groups[number];
  if (!(round.terms.opens <= now && now < round.terms.expires)) {
    throw new Refused("the round is not open at this time: ask for a newer round");
  }
  const randomizer = randomizerOf(of.randomizer);
  if (!randomizer.decodes.includes(of.decode)) {
    throw new Refused(`${randomizer.name} has no decode ${of.decode}: expected one of ${randomizer.decodes.join(", ")}`);
  }
  const size = messages.widths(randomizer).reduce((sum, width) => sum + width, 0);
  if (size !== of.payload_size) {
    throw new Refused(`\`payload_size\` in the terms is ${of.payload_size}, but reports of this randomizer have ${size} bytes: do not join`);
  }
  if (of.decoys && !randomizer.decoy) throw new Refused(`${randomizer.name} has no decoys, but the terms ask for them: do not join`);
  checkExposure(round, number);
  const { promise } = of;
  const law = { ...randomizer.law(), decoys: of.decoys };
  const delta = promise.delta - round.terms.trap_delta; // the rest is the probability that traps fail to detect replacement
  const epsilon = examined(law, promise, { crowd: of.minimum, delta }); // no slack against the person's limit
  if (epsilon > limit.epsilon || promise.delta > limit.delta) {
    throw new Refused(
      `the round costs (ε, δ) = (${epsilon.toPrecision(4)}, ${promise.delta}), your limit is`
      + ` (${limit.epsilon}, ${limit.delta}): wait for a larger crowd or raise the limit`,
    );
  }
  // The cost of the round if it does not end as promised: the randomizer's local ε.
  const local = law.epsilon;
  const { disclosures = DISCLOSURES } = limit;
  const letters = disclosures ? disclosureOf(round, number, axesOf(of.randomizer)) : null;
  if (letters && !(letters.candidates <= disclosures)) {
    throw new Refused(
      `by letters of this round up to ${letters.candidates} candidates may learn an answer about your place, your limit is`
      + ` ${disclosures}: raise \`disclosures\`, or set it to 0 and take part without settling`,
    );
  }
  return { round, group: number, of, randomizer, epsilon, delta: promise.delta, local, letters };
}

/** Return how many numbers a place has, from the parameters of its randomizer. */
function axesOf({ part, domain }) {
  return part ? axesOf(part) : domain.lo?.length ?? domain.dimension ?? 1;
}

/**
 * Randomize a value once, seal the report in layers, and return the ticket that holds the bytes.
 * The caller stores the ticket, sends each of `ticket.registrations` to the later shufflers in order, then
 * sends `ticket.upload`. After a failure it sends the same bytes again: fresh noise would be a second report.
 * @param {import("./types.js").Invitation} invitation
 * @param {import("./types.js").Value} value
 * @param {{ entropy?: Entropy, note?: Uint8Array }} [options]
 * @returns {Promise<{ ticket: import("./types.js").Ticket, report: number[] }>}
 */
export async function join(invitation, value, { entropy = new Entropy(), note = new Uint8Array() } = {}) {
  const { round, group, of, randomizer } = invitation;
  if (note.length > of.note_size) throw new Misuse(`\`note\` must have at most ${of.note_size} bytes in this round, got ${note.length}`);
  const report = randomizer.respond(randomizer.snap(value), entropy);
  const seed = entropy.token(32);
  const texts = [];
  for (let number = 0; number <= of.decoys; number += 1) { // the report, then its decoys
    const { contact } = await keyPairs(round.suite, number ? decoySeed(seed, number) : seed);
    const payload = messages.encodePayload(randomizer, number ? /** @type {any} */ (randomizer).decoy(entropy) : report);
    texts.push(messages.encodeReport({ group, contact, payload, note: padded(note, of.note_size) }));
  }
  const { upload, registrations } = await wrap(texts, round, group, entropy);
  const { digest, suite } = round;
  const ticket = {
    round: round.terms.round, digest, suite: suite.name, group, seed, upload, registrations, registered: [],
    receipt: new Uint8Array(), written: 0, seen: [],
    decoys: texts.slice(1).map(() => ({ written: 0, seen: [] })),
  };
  return { ticket, report };
}

/** Seal a report and its decoys to the server and the cascade, with one trap beside them for every later shuffler. */
async function wrap(texts, round, group, entropy) {
  const { terms, suite, digest } = round;
  const id = entropy.token(16);
  const server = sealingKey(suite, unhex(terms.server.sealing));
  const items = [];
  for (const text of texts) {
    const report = await seal(text, { suite, to: server, bound: binding("report", { digest, group }) });
    items.push(await layered(report, round, { group, id, last: terms.shufflers.length - 1 }));
  }
  const registrations = [];
  for (let hop = 1; hop < terms.shufflers.length; hop += 1) {
    const trap = entropy.token(round.itemSize(group, hop + 1));
    items.push(await layered(trap, round, { group, id, last: hop }));
    registrations.push(messages.encodeRegistration(round, { hop, group, trap }));
  }
  const body = concat(...entropy.shuffled(items));
  return { upload: messages.encodeUpload(round, { group, id, body }), registrations };
}

/** Seal bytes to each shuffler from the one at `last` down to the first. */
async function layered(text, round, { group, id, last }) {
  const { terms, suite, digest } = round;
  let body = text;
  for (let hop = last; hop >= 0; hop -= 1) {
    const upload = hop === 0 ? id : new Uint8Array(16);
    const to = sealingKey(suite, unhex(terms.shufflers[hop].sealing));
    body = await seal(body, { suite, to, bound: binding("layer", { digest, group, hop, upload }) });
  }
  return body;
}

/**
 * Check the first shuffler's receipt and add it to the ticket.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} receipt @param {import("./types.js").Round} round @returns {import("./types.js").Ticket}
 */
export function addReceipt(ticket, receipt, round) {
  sameRound(ticket, round);
  messages.checkReceipt(receipt, ticket.upload, round);
  return { ...ticket, receipt };
}

/**
 * Check the next later shuffler's receipt that the ticket lacks, and add it to the ticket.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} receipt @param {import("./types.js").Round} round @returns {import("./types.js").Ticket}
 */
export function addRegistrationReceipt(ticket, receipt, round) {
  sameRound(ticket, round);
  const hop = ticket.registered.length + 1;
  messages.checkReceipt(receipt, ticket.registrations[hop - 1], round, hop);
  return { ...ticket, registered: [...ticket.registered, receipt] };
}

/** Return the ticket's one-time address, in hex. @param {import("./types.js").Ticket} ticket @param {import("./types.js").Round} round @returns {Promise<string>} */
export async function addressOfTicket(ticket, round) {
  return hex((await keyPairs(round.suite, ticket.seed)).address);
}

/**
 * Return the outcome of a round from a bulletin or its heading: whether it was answered with its crowd, and a sentence.
 * Record it in the ledger (`recordOutcome`) before anything else.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} raw @param {import("./types.js").Round} round @returns {import("./types.js").Outcome}
 */
export function outcomeOf(ticket, raw, round) {
  sameRound(ticket, round);
  const { outcome, flaw, tallies, words } = messages.readHeading(raw, round);
  const denied = outcome === messages.REFUSED && ticket.receipt.length && !tallies[ticket.group].received;
  const contradiction = flaw || (denied ? "it counts no report of your group, but you have a receipt for yours" : "");
  if (contradiction) return { answered: false, words: `the heading of this round contradicts itself: ${contradiction}; do not rely on it` };
  return { answered: outcome === messages.ANSWERED, words };
}

/**
 * Check the bytes of a bulletin, then find and open the answer to this ticket.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} raw @param {import("./types.js").Round} round @returns {Promise<import("./types.js").Answer>}
 */
export async function collect(ticket, raw, round) {
  const outcome = outcomeOf(ticket, raw, round);
  if (!outcome.answered) throw new Refused(`${outcome.words}; nobody gets an answer`);
  const answer = await answerTo(ticket, messages.readBulletin(raw, round), round);
  if (!answer) {
    const proof = ticket.receipt.length ? "your receipt proves" : "you have no receipt to prove";
    throw new Refused(`your address ${await addressOfTicket(ticket, round)} is not on the board; ${proof} that the shuffler received your report`);
  }
  return answer;
}

/**
 * Open the answer to each decoy in the bytes of a bulletin, for its letters; null for one that is not on the board.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} raw @param {import("./types.js").Round} round
 * @returns {Promise<(import("./types.js").Answer | null)[]>}
 */
export async function decoyAnswers(ticket, raw, round) {
  const bulletin = messages.readBulletin(raw, round);
  return Promise.all(decoyTickets(ticket).map((decoy) => answerTo(decoy, bulletin, round)));
}

async function answerTo(ticket, bulletin, round) {
  const keys = await keyPairs(round.suite, ticket.seed);
  const entry = find(bulletin.entries[ticket.group], keys.address);
  return entry ? opened(ticket, entry, bulletin.sizes, { round, keys }) : null;
}

/**
 * Open the answer to this ticket in a single entry that `BoardView.entry` has checked.
 * @param {import("./types.js").Ticket} ticket @param {{ heading: Uint8Array, entry: Uint8Array }} shown
 * @param {import("./types.js").Round} round @returns {Promise<import("./types.js").Answer>}
 */
export async function openEntry(ticket, { heading, entry }, round) {
  const outcome = outcomeOf(ticket, heading, round);
  if (!outcome.answered) throw new Refused(`${outcome.words}; nobody gets an answer`);
  const keys = await keyPairs(round.suite, ticket.seed);
  if (!equal(entry.slice(0, ADDRESS), keys.address)) throw new Refused("the board returned another entry than yours: do not rely on it");
  return opened(ticket, entry, messages.readHeading(heading, round).sizes, { round, keys });
}

async function opened(ticket, entry, sizes, { round, keys }) {
  const bound = binding("answer", { digest: round.digest, group: ticket.group });
  const sealed = entry.slice(ADDRESS);
  const answer = messages.decodeAnswer(await unseal(sealed, { suite: round.suite, key: keys.opening, bound }), round);
  return { ...answer, sizes, partners: answer.partners.map((partner) => described(partner, round)) };
}

function find(entries, address) {
  let low = 0;
  let high = entries.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(entries[middle].slice(0, ADDRESS), address) < 0) low = middle + 1;
    else high = middle;
  }
  return low < entries.length && equal(entries[low].slice(0, ADDRESS), address) ? entries[low] : null;
}

/** Add a partner's address and, if the answer contains it, the reported place. */
function described(partner, round) {
  const address = addressOf(round.suite, partner.contact);
  if (!partner.payload.length) return { ...partner, address };
  const randomizer = randomizerOf(round.terms.groups[partner.group].randomizer);
  const report = messages.decodePayload(randomizer, partner.payload);
  return { ...partner, address, report, place: randomizer.place(report) };
}
