// Byte layouts: uploads, receipts, bulletins, answers, letters and checkpoints. SPEC sections 7 to 9.

import { big, byte, compare, concat, equal, padded, unhex, unsigned, utf8 } from "./encoding.js";
import { Misuse, Refused } from "./errors.js";
import { checkSignature, contactOf, sha256 } from "./keys.js";
import { checkInclusion, leafHash, nodeHash, rootOf } from "./merkle.js";
import { readCosignedCheckpoint } from "./signed-notes.js";
import { ADDRESS, DIGEST, SIGNATURE } from "./suites.js";
import { UPLOAD_HEAD } from "./terms.js";

const VERSION = 1;
const TALLY = 36;
const LEVELS = 10;
const HEAD = 8 + DIGEST;
const SERVER = 255;
// The reasons that each outcome can have, and their meaning.
const REASONS = { 1: [0], 2: [1, 3], 3: [1, 2, 4, 5] };
const REASON_TEXTS = {
  1: "too few valid reports were left",
  2: "too few traps arrived, so an earlier shuffler may have replaced reports",
  3: "its task could not compute answers in time",
  4: "a batch was not delivered in time",
  5: "its operator ended it",
};
const ANSWER_HEAD = 8;
const [VALUES, PARTNERS, LOCATED] = [1, 2, 3];
export const [ANSWERED, REFUSED, ABANDONED] = [1, 2, 3];
// A ticket's JSON does not distinguish larger counters.
const MOST = BigInt(Number.MAX_SAFE_INTEGER);

/** Return the size in bytes of each coordinate of a report. */
export function widths({ low, high }) {
  return low.map((least, j) => Math.max(1, Math.ceil((high[j] - least).toString(2).length / 8)));
}

/** Encode one report: each coordinate as its offset from the least value, big-endian. */
export function encodePayload(randomizer, report) {
  const sizes = widths(randomizer);
  return concat(...report.map((value, j) => unsigned(value - randomizer.low[j], sizes[j])));
}

/** Decode one report. */
export function decodePayload(randomizer, payload) {
  let at = 0;
  return widths(randomizer).map((size, j) => {
    const value = Number(big(payload.slice(at, at + size))) + randomizer.low[j];
    at += size;
    if (value > randomizer.high[j]) throw new Refused("this report is outside the randomizer's range");
    return value;
  });
}

export function encodeReport({ group, contact, payload, note }) {
  return concat(byte(VERSION, group), contact, payload, note);
}

export function encodeUpload(round, { group, id, body }) {
  return concat(byte(VERSION, round.suite.number, group, 0), round.digest, id, body);
}

/** Encode a trap registration for a later shuffler: a hash that reveals nothing about the trap's bytes. */
export function encodeRegistration(round, { hop, group, trap }) {
  const head = byte(VERSION, hop, group, 0);
  return concat(head, round.digest, commitment({ digest: round.digest, group, hop, trap }));
}

export function commitment({ digest, group, hop, trap }) {
  return sha256(concat(utf8("coatcheck/v1/trap\0"), byte(hop, group), digest, trap));
}

/** Check a shuffler's receipt for exactly these bytes, an upload or a registration. */
export function checkReceipt(raw, sent, round, hop = 0) {
  const expected = concat(byte(VERSION, 0, 0, 0), round.digest, sent.slice(36, UPLOAD_HEAD), sha256(sent));
  const start = expected.length + 2;
  const place = (raw[start - 2] << 8) | raw[start - 1];
  if (raw.length !== start + LEVELS * DIGEST + SIGNATURE || place >= 1 << LEVELS) {
    throw new Refused("this receipt has another size or version: ask the shuffler's operator");
  }
  if (!equal(raw.slice(0, expected.length), expected)) {
    throw new Refused("this receipt is for other bytes than you sent: do not rely on it");
  }
  let root = leafHash(expected);
  for (let level = 0; level < LEVELS; level += 1) {
    const other = raw.slice(start + level * DIGEST, start + (level + 1) * DIGEST);
    root = (place >> level) & 1 ? nodeHash(other, root) : nodeHash(root, other);
  }
  const { verifying, name } = round.terms.shufflers[hop];
  checkSignature(unhex(verifying), raw.slice(-SIGNATURE), concat(utf8("coatcheck/v1/receipt\0"), root), name);
}

/** Read a bulletin's heading from the bytes that begin with it, and check who signed the outcome. */
export function readHeading(raw, round) {
  const groups = round.terms.groups.length;
  const hops = round.terms.shufflers.length;
  const head = HEAD + groups * TALLY + (hops + 1) * DIGEST + SIGNATURE;
  const heading = raw.slice(0, head);
  const [version, outcome, reason, signer, count, batches, ...rest] = heading;
  if (raw.length < head || version !== VERSION || rest.slice(0, 2).some(Boolean) || count !== groups || batches !== hops || !REASONS[outcome]) {
    throw new Refused("this bulletin has another version or is truncated");
  }
  if (!equal(heading.slice(HEAD - DIGEST, HEAD), round.digest)) {
    throw new Refused("this bulletin is for other terms than this round's");
  }
  const speaker = signer === SERVER ? round.terms.server : round.terms.shufflers[signer];
  if (!speaker) throw new Refused("this outcome is signed by a shuffler that the round does not have");
  const label = utf8(signer === SERVER ? "coatcheck/v1/bulletin\0" : "coatcheck/v1/end\0");
  const signed = concat(label, heading.slice(0, -SIGNATURE));
  checkSignature(unhex(speaker.verifying), heading.slice(-SIGNATURE), signed, speaker.name);
  const tallies = readTallies(heading.slice(HEAD, HEAD + groups * TALLY));
  const sizes = outcome === ANSWERED ? tallies.map(remaining) : tallies.map(() => 0);
  const root = heading.slice(head - SIGNATURE - DIGEST, head - SIGNATURE);
  const roots = heading.slice(HEAD + groups * TALLY, HEAD + groups * TALLY + hops * DIGEST);
  const fields = { outcome, reason, signer, tallies, roots };
  return { ...fields, sizes, root, heading, flaw: flaw(fields, round), words: words(fields, speaker) };
}

/** Read a whole bulletin: check its heading, lengths, order and root. */
export function readBulletin(raw, round) {
  const head = readHeading(raw, round);
  const entries = cutEntries(raw, head.heading.length, round, head.sizes);
  if (!equal(rootOf(leavesOf(entries)), head.root)) {
    throw new Refused("the entries of this bulletin do not match its root: do not rely on it");
  }
  return { ...head, entries };
}

/** Check that a single entry has its size and belongs to the bulletin with this heading. */
export function checkEntry(entry, round, { group, head, place, path }) {
  if (entry.length !== round.entrySize(group)) throw new Refused("this entry does not have the size that the terms state");
  const size = head.sizes.reduce((sum, count) => sum + count, 0);
  checkInclusion(concat(byte(group), entry), { place, size, root: head.root, path });
}

/** Return how a heading contradicts itself, as a sentence; empty if it does not. */
function flaw({ outcome, reason, signer, tallies, roots }, round) {
  const short = tallies.some((tally, group) => {
    const { minimum, decoys } = round.terms.groups[group];
    return remaining(tally) < (1 + decoys) * minimum;
  });
  if (!REASONS[outcome].includes(reason)) return "its outcome cannot have this reason";
  if (outcome !== ABANDONED && signer !== SERVER) return "a shuffler signed an outcome that only the server can sign";
  if (outcome === ANSWERED && short) return "it answers a group with fewer reports than its minimum crowd hands in";
  if (outcome === REFUSED && short !== (reason === 1)) return "its reason contradicts its counts";
  const counted = tallies.some(({ received, dropped }) => received || dropped.some(Boolean)) || roots.some(Boolean);
  return outcome === ABANDONED && counted ? "it has counts, but the round was abandoned" : "";
}

/** Return the outcome of a round as a sentence. */
function words({ outcome, reason, signer }, speaker) {
  if (outcome === ANSWERED) return "the round is answered";
  const verb = outcome === REFUSED ? "refused" : "abandoned";
  return `the ${signer === SERVER ? "server" : "shuffler"} ${speaker.name} ${verb} the round: ${REASON_TEXTS[reason] ?? "the reason is unknown"}`;
}

const remaining = ({ received, dropped }) => received - dropped.reduce((sum, count) => sum + count, 0);

function readTallies(raw) {
  const numbers = [];
  for (let at = 0; at < raw.length; at += 4) numbers.push(Number(big(raw.slice(at, at + 4))));
  const tallies = [];
  for (let at = 0; at < numbers.length; at += TALLY / 4) {
    tallies.push({ received: numbers[at], dropped: numbers.slice(at + 1, at + TALLY / 4) });
  }
  if (tallies.some((tally) => remaining(tally) < 0)) throw new Refused("a tally drops more reports than it received");
  return tallies;
}

function cutEntries(raw, start, round, sizes) {
  let at = start;
  const entries = sizes.map((count, group) => {
    const size = round.entrySize(group);
    const list = Array.from({ length: count }, (_, row) => raw.slice(at + row * size, at + (row + 1) * size));
    at += count * size;
    for (let row = 1; row < list.length; row += 1) {
      if (compare(list[row - 1].slice(0, ADDRESS), list[row].slice(0, ADDRESS)) >= 0) {
        throw new Refused("the entries of this bulletin are not sorted by address");
      }
    }
    return list;
  });
  if (at !== raw.length) throw new Refused("the length of this bulletin does not match its counts");
  return entries;
}

function* leavesOf(entries) {
  for (const [group, list] of entries.entries()) {
    for (const entry of list) yield concat(byte(group), entry);
  }
}

/** Decode an answer strictly: version, counts, and zeros to the end. */
export function decodeAnswer(raw, round) {
  const [version, kind] = raw;
  const count = Number(big(raw.slice(2, 4)));
  const shared = Number(big(raw.slice(4, 6)));
  if (version !== VERSION || ![VALUES, PARTNERS, LOCATED].includes(kind) || raw[6] || raw[7]) {
    throw new Refused("this answer has another version");
  }
  if (kind === VALUES) {
    const view = new DataView(raw.buffer, raw.byteOffset);
    checkPadding(raw, ANSWER_HEAD + 8 * (count + shared));
    const numbers = Array.from({ length: count + shared }, (_, j) => view.getFloat64(ANSWER_HEAD + 8 * j));
    return { values: numbers.slice(0, count), shared: numbers.slice(count), partners: [], second: [] };
  }
  if (shared > count || !count) throw new Refused("this answer has another version");
  const people = readPartners(raw, count, round, kind === LOCATED);
  const first = count - shared; // the last ones are candidates for a second pass
  return { values: [], shared: [], partners: people.slice(0, first), second: people.slice(first) };
}

function readPartners(raw, count, round, located) {
  let at = ANSWER_HEAD;
  const partners = Array.from({ length: count }, () => {
    const group = raw[at];
    if (at >= raw.length || group >= round.terms.groups.length) throw new Refused("this answer is truncated");
    const keys = at + 1 + round.suite.contact;
    const end = keys + (located ? round.terms.groups[group].payload_size : 0);
    const contact = raw.slice(at + 1, keys);
    const payload = raw.slice(keys, end);
    at = end;
    return { group, contact, payload };
  });
  checkPadding(raw, at);
  return partners;
}

function checkPadding(raw, end) {
  if (end > raw.length || raw.slice(end).some((value) => value)) {
    throw new Refused("this answer is truncated or not padded with zeros");
  }
}

function signedLetter(round, sender, recipient, rest) {
  return concat(utf8("coatcheck/v1/letter\0"), round.digest, sender, recipient, rest);
}

/** Encode a letter with its signature inside, bound to round, sender, recipient and counter. */
export function encodeLetter(round, { keys, recipient, counter, body }) {
  const capacity = round.terms.letter_size;
  if (body.length > capacity) throw new Misuse(`a letter of this round must have at most ${capacity} bytes, got ${body.length}`);
  const rest = concat(unsigned(counter, 8), unsigned(body.length, 2), padded(body, capacity));
  const signature = keys.sign(signedLetter(round, keys.address, recipient, rest));
  return concat(byte(VERSION), keys.contact, rest, signature);
}

/** Decode a letter and check that its sender wrote it for this recipient in this round. */
export function decodeLetter(raw, round, recipient) {
  const size = round.suite.contact;
  const capacity = round.terms.letter_size;
  if (raw.length !== 1 + size + 10 + capacity + SIGNATURE || raw[0] !== VERSION) {
    throw new Refused("this letter has another version or size");
  }
  const sender = contactOf(round.suite, raw.slice(1, 1 + size));
  const rest = raw.slice(1 + size, -SIGNATURE);
  const text = signedLetter(round, sender.address, recipient, rest);
  checkSignature(sender.verifying, raw.slice(-SIGNATURE), text, "the sender");
  const length = Number(big(rest.slice(8, 10)));
  if (length > capacity || rest.slice(10 + length).some((value) => value)) {
    throw new Refused("this letter is not padded with zeros");
  }
  const counter = big(rest.slice(0, 8));
  if (counter > MOST) throw new Refused("this letter's counter is too large");
  return { sender, counter: Number(counter), body: rest.slice(10, 10 + length) };
}

export function encodePosting(round, recipient, sealed) {
  return concat(byte(VERSION, 0, 0, 0), round.digest, recipient, sealed);
}

export function postingSize(round) {
  return 4 + DIGEST + ADDRESS + round.letterSize();
}

export function decodePosting(raw, round) {
  const head = 4 + DIGEST;
  if (raw.length !== postingSize(round) || !equal(raw.slice(0, head), concat(byte(VERSION, 0, 0, 0), round.digest))) {
    throw new Refused("this posting has another version or belongs to another round");
  }
  return { recipient: raw.slice(head, head + ADDRESS), sealed: raw.slice(head + ADDRESS) };
}

/** Return the address to which a posting is sent. */
export const recipientOf = (raw) => raw.slice(4 + DIGEST, 4 + DIGEST + ADDRESS);

/**
 * Read the board's signed checkpoint: the number of leaves in its log, and their root. If witnesses are demanded,
 * the checkpoint must be the signed note that they cosigned.
 */
export function readCheckpoint(raw, round) {
  if (round.cosigners.least) return readCosignedCheckpoint(raw, round.terms.board.verifying, round.cosigners);
  if (raw.length !== 44 + SIGNATURE || !equal(raw.slice(0, 4), byte(VERSION, 0, 0, 0))) {
    throw new Refused("a checkpoint must have 108 bytes and begin with its version");
  }
  const message = concat(utf8("coatcheck/v1/checkpoint\0"), raw.slice(0, -SIGNATURE));
  const { verifying, name } = round.terms.board;
  checkSignature(unhex(verifying), raw.slice(-SIGNATURE), message, name);
  return { size: Number(big(raw.slice(4, 12))), root: raw.slice(12, 44) };
}
