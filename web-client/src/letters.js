// Letters between two people: written, sealed, read, each once; and notices that all can read.
//
// A letter that begins with a zero byte belongs to settling and is read by nothing else. SPEC
// sections 8, 12 and 15.

import { concat, equal, hex, unhex } from "./encoding.js";
import { binding, seal, unseal } from "./envelope.js";
import { Refused } from "./errors.js";
import { contactOf, keyPairs } from "./keys.js";
import * as messages from "./messages.js";
import { MARK } from "./settling.js";

export function sameRound(ticket, round) {
  if (!equal(ticket.digest, round.digest)) throw new Refused("this ticket is of another round");
}

/**
 * Write a letter to a partner's contact: the posting, what is handed in (the contact before it, which only
 * partners know), and the ticket after it.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array} body @param {Uint8Array} to @param {import("./types.js").Round} round
 * @param {any} [known] the keys of the ticket's seed, if they are at hand
 * @returns {Promise<{ posting: Uint8Array, stamped: Uint8Array, ticket: import("./types.js").Ticket }>}
 */
export async function write(ticket, body, to, round, known = null) {
  sameRound(ticket, round);
  const { suite, digest } = round;
  const partner = contactOf(suite, to);
  const keys = known ?? await keyPairs(suite, ticket.seed);
  const text = messages.encodeLetter(round, { keys, recipient: partner.address, counter: ticket.written, body });
  const sealed = await seal(text, { suite, to: partner.sealing, bound: binding("letter", { digest, group: 0 }) });
  const posting = messages.encodePosting(round, partner.address, sealed);
  return { posting, stamped: concat(to, posting), ticket: { ...ticket, written: ticket.written + 1 } };
}

/** Write a letter to oneself that is not sealed: everybody can read it, and who wrote it. */
export function writeNotice(ticket, body, { round, keys }) {
  sameRound(ticket, round);
  const text = messages.encodeLetter(round, { keys, recipient: keys.address, counter: ticket.written, body });
  const posting = messages.encodePosting(round, keys.address, concat(text, new Uint8Array(round.suite.overhead)));
  return { posting, ticket: { ...ticket, written: ticket.written + 1 } };
}

/** Read a posting as a notice; null if it is none, or not signed by whom it is from. */
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
 * Read the letters to one's own address; forged, altered and repeated ones are counted, not read.
 * @param {import("./types.js").Ticket} ticket @param {Uint8Array[]} postings @param {import("./types.js").Round} round
 * @returns {Promise<{ letters: import("./types.js").Letter[], ticket: import("./types.js").Ticket, refused: number }>}
 */
export const read = (ticket, postings, round) => gathered(ticket, postings, round, false);

/** Read only those of settling. */
export const readSettling = (ticket, postings, round, keys) => gathered(ticket, postings, round, true, keys);

async function gathered(ticket, postings, round, settling, known = null) {
  sameRound(ticket, round);
  const keys = known ?? await keyPairs(round.suite, ticket.seed);
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
      if (seen.has(mark)) throw new Refused("this letter was read before");
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
