// Letters between two people, and notices that everybody can read. SPEC sections 8, 12 and 15.
//
// A letter that begins with a zero byte belongs to settling; only settling reads it.

import { concat, equal, hex, unhex } from "./encoding.js";
import { binding, seal, unseal } from "./envelope.js";
import { Refused } from "./errors.js";
import { contactOf, keyPairs } from "./keys.js";
import * as messages from "./messages.js";
import { MARK } from "./settling.js";

export function sameRound(ticket, round) {
  if (!equal(ticket.digest, round.digest)) throw new Refused("this ticket belongs to another round: use the ticket of this one");
}

/**
 * Write a letter to a partner's contact. Return the posting, the bytes to post (the posting preceded by the contact,
 * which only partners know), and the updated ticket.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} body @param {Uint8Array} to @param {import("./types.js").Round} round
 * @param {any} [ticketKeys] the keys of the ticket's seed, if already derived
 * @returns {Promise<{ posting: Uint8Array, stamped: Uint8Array, ticket: import("./types.js").Ticket }>}
 */
export async function write(ticket, body, to, round, ticketKeys = null) {
  sameRound(ticket, round);
  const { suite, digest } = round;
  const partner = contactOf(suite, to);
  const keys = ticketKeys ?? await keyPairs(suite, ticket.seed);
  const text = messages.encodeLetter(round, { keys, recipient: partner.address, counter: ticket.written, body });
  const sealed = await seal(text, { suite, to: partner.sealing, bound: binding("letter", { digest, group: 0 }) });
  const posting = messages.encodePosting(round, partner.address, sealed);
  return { posting, stamped: concat(to, posting), ticket: { ...ticket, written: ticket.written + 1 } };
}

/** Write a notice: an unsealed letter to your own address. Everybody can read it and its sender. */
export function writeNotice(ticket, body, { round, keys }) {
  sameRound(ticket, round);
  const text = messages.encodeLetter(round, { keys, recipient: keys.address, counter: ticket.written, body });
  const posting = messages.encodePosting(round, keys.address, concat(text, new Uint8Array(round.suite.overhead)));
  return { posting, ticket: { ...ticket, written: ticket.written + 1 } };
}

/** Read a posting as a notice; return null if it is not one, or if its sender did not sign it. */
export function readNotice(raw, round) {
  const { overhead } = round.suite;
  if (raw.slice(-overhead).some((value) => value)) return null;
  try {
    const { recipient, sealed } = messages.decodePosting(raw, round);
    const letter = messages.decodeLetter(sealed.slice(0, -overhead), round, recipient);
    return equal(letter.sender.address, recipient) ? letter : null;
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

/**
 * Read the letters to the ticket's address; count forged, altered and repeated ones without reading them.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array[]} postings @param {import("./types.js").Round} round
 * @returns {Promise<{ letters: import("./types.js").Letter[], ticket: import("./types.js").Ticket, refused: number }>}
 */
export const read = (ticket, postings, round) => readInbox(ticket, postings, round, false);

/** Read only the letters of settling. */
export const readSettling = (ticket, postings, round, keys) => readInbox(ticket, postings, round, true, keys);

async function readInbox(ticket, postings, round, settling, ticketKeys = null) {
  sameRound(ticket, round);
  const keys = ticketKeys ?? await keyPairs(round.suite, ticket.seed);
  const bound = binding("letter", { digest: round.digest, group: 0 });
  const seen = new Set(ticket.seen.map(([sender, counter]) => `${hex(sender)}/${counter}`));
  /** @type {{ letters: import("./types.js").Letter[], ticket: import("./types.js").Ticket, refused: number }} */
  const inbox = { letters: [], ticket, refused: 0 };
  for (const raw of postings) {
    const posting = messages.decodePosting(raw, round);
    if (!equal(posting.recipient, keys.address) || readNotice(raw, round)) continue;
    try {
      const text = await unseal(posting.sealed, { suite: round.suite, key: keys.opening, bound });
      const letter = messages.decodeLetter(text, round, keys.address);
      if ((letter.body[0] === MARK) !== settling) continue;
      const mark = `${hex(letter.sender.address)}/${letter.counter}`;
      if (seen.has(mark)) throw new Refused("this letter is a repetition");
      seen.add(mark);
      inbox.letters.push(letter);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      inbox.refused += 1;
    }
  }
  const marks = [...seen].sort().map((mark) => [unhex(mark.split("/")[0]), Number(mark.split("/")[1])]);
  return { ...inbox, ticket: { ...ticket, seen: marks } };
}
