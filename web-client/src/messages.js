// What is inside the seals, as fixed-size records, and the few bytes outside. SPEC sections 7 to 9.

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
// The reasons that an outcome can have, and what they mean.
const REASONS = { 1: [0], 2: [1, 3], 3: [1, 2, 4, 5] };
const WHY = {
  1: "too few good reports were left to hide among",
  2: "too few traps came through, so somebody before it may have replaced reports",
  3: "its task could not answer these reports in time",
  4: "a batch was not handed on in time",
  5: "its operator ended it",
};
const ANSWER_HEAD = 8;
const [VALUES, PARTNERS, LOCATED] = [1, 2, 3];
export const [ANSWERED, REFUSED, ABANDONED] = [1, 2, 3];
// Counters above would not survive a ticket's JSON, where two could become one.
const MOST = BigInt(Number.MAX_SAFE_INTEGER);

/** Bytes of each coordinate of a report. */
export function widths({ low, high }) {
  return low.map((least, j) => Math.max(1, Math.ceil((high[j] - least).toString(2).length / 8)));
}

/** Write one report: each coordinate an offset from its least value, big-endian. */
export function encodePayload(randomizer, report) {
  const sizes = widths(randomizer);
  return concat(...report.map((value, j) => unsigned(value - randomizer.low[j], sizes[j])));
}

/** Read one report, or refuse it. */
export function decodePayload(randomizer, payload) {
  let at = 0;
  return widths(randomizer).map((size, j) => {
    const value = Number(big(payload.slice(at, at + size))) + randomizer.low[j];
    at += size;
    if (value > randomizer.high[j]) throw new Refused("this report is out of its domain");
    return value;
  });
}

export function encodeReport({ group, contact, payload, note }) {
  return concat(byte(VERSION, group), contact, payload, note);
}

export function encodeUpload(round, { group, id, body }) {
  return concat(byte(VERSION, round.suite.number, group, 0), round.digest, id, body);
}

/** Write what a later shuffler is told of a trap: a hash that says nothing about its bytes. */
export function encodeRegistration(round, { hop, group, trap }) {
  const head = byte(VERSION, hop, group, 0);
  return concat(head, round.digest, commitment({ digest: round.digest, group, hop, trap }));
}

export function commitment({ digest, group, hop, trap }) {
  return sha256(concat(utf8("coatcheck/v1/trap\0"), byte(hop, group), digest, trap));
}

/** Check a shuffler's word that it holds exactly these bytes, an upload or a registration. */
export function checkReceipt(raw, sent, round, hop = 0) {
  const expected = concat(byte(VERSION, 0, 0, 0), round.digest, sent.slice(36, UPLOAD_HEAD), sha256(sent));
  const start = expected.length + 2;
  const place = (raw[start - 2] << 8) | raw[start - 1];
  if (raw.length !== start + LEVELS * DIGEST + SIGNATURE || place >= 1 << LEVELS) {
    throw new Refused("this receipt is of another size or version");
  }
  if (!equal(raw.slice(0, expected.length), expected)) {
    throw new Refused("this receipt is for other bytes than you handed in");
  }
  let found = leafHash(expected);
  for (let level = 0; level < LEVELS; level += 1) {
    const other = raw.slice(start + level * DIGEST, start + (level + 1) * DIGEST);
    found = (place >> level) & 1 ? nodeHash(other, found) : nodeHash(found, other);
  }
  const { verifying, name } = round.terms.shufflers[hop];
  checkSignature(unhex(verifying), raw.slice(-SIGNATURE), concat(utf8("coatcheck/v1/receipt\0"), found), name);
}

/** Read the head of a bulletin from the bytes that begin with it, and check who signed how the round ended. */
export function readHeading(raw, round) {
  const groups = round.terms.groups.length;
  const hops = round.terms.shufflers.length;
  const head = HEAD + groups * TALLY + (hops + 1) * DIGEST + SIGNATURE;
  const heading = raw.slice(0, head);
  const [version, outcome, reason, who, count, batches, ...rest] = heading;
  if (raw.length < head || version !== VERSION || rest.slice(0, 2).some(Boolean) || count !== groups || batches !== hops || !REASONS[outcome]) {
    throw new Refused("this bulletin is of another version or cut off");
  }
  if (!equal(heading.slice(HEAD - DIGEST, HEAD), round.digest)) {
    throw new Refused("this bulletin is for other terms than this round's");
  }
  const speaker = who === SERVER ? round.terms.server : round.terms.shufflers[who];
  if (!speaker) throw new Refused("this end is signed by a shuffler that the round does not have");
  const label = utf8(who === SERVER ? "coatcheck/v1/bulletin\0" : "coatcheck/v1/end\0");
  const signed = concat(label, heading.slice(0, -SIGNATURE));
  checkSignature(unhex(speaker.verifying), heading.slice(-SIGNATURE), signed, speaker.name);
  const tallies = readTallies(heading.slice(HEAD, HEAD + groups * TALLY));
  const sizes = outcome === ANSWERED ? tallies.map(kept) : tallies.map(() => 0);
  const root = heading.slice(head - SIGNATURE - DIGEST, head - SIGNATURE);
  const roots = heading.slice(HEAD + groups * TALLY, HEAD + groups * TALLY + hops * DIGEST);
  const end = { outcome, reason, who, tallies, roots };
  return { ...end, sizes, root, heading, flaw: flaw(end, round), words: words(end, speaker) };
}

/** Read a whole bulletin: its head, lengths, order and root. */
export function readBulletin(raw, round) {
  const head = readHeading(raw, round);
  const entries = cutEntries(raw, head.heading.length, round, head.sizes);
  if (!equal(rootOf(leavesOf(entries)), head.root)) {
    throw new Refused("the entries of this bulletin are not the ones its root stands for");
  }
  return { ...head, entries };
}

/** Check that a single entry has its size and belongs to the bulletin with this head. */
export function checkEntry(entry, round, { group, head, place, path }) {
  if (entry.length !== round.entrySize(group)) throw new Refused("this entry does not have the size of the terms");
  const size = head.sizes.reduce((sum, one) => sum + one, 0);
  checkInclusion(concat(byte(group), entry), { place, size, root: head.root, path });
}

/** Say which of its own numbers a heading breaks; empty if none. */
function flaw({ outcome, reason, who, tallies, roots }, round) {
  const short = tallies.some((tally, group) => kept(tally) < round.terms.groups[group].minimum);
  if (!REASONS[outcome].includes(reason)) return "its outcome has another reason than such an outcome can have";
  if (outcome !== ABANDONED && who !== SERVER) return "a shuffler says what only the server can";
  if (outcome === ANSWERED && short) return "it answers a group that kept fewer than its minimum";
  if (outcome === REFUSED && short !== (reason === 1)) return "its reason is not what its counts say";
  const counted = tallies.some(({ received, dropped }) => received || dropped.some(Boolean)) || roots.some(Boolean);
  return outcome === ABANDONED && counted ? "it tells counts of a round that was given up" : "";
}

/** Tell in words how a round ended. */
function words({ outcome, reason, who }, speaker) {
  if (outcome === ANSWERED) return "the round is answered";
  const did = outcome === REFUSED ? "refused" : "abandoned";
  return `the ${who === SERVER ? "server" : "shuffler"} ${speaker.name} ${did} the round: ${WHY[reason] ?? "for no known reason"}`;
}

const kept = ({ received, dropped }) => received - dropped.reduce((sum, one) => sum + one, 0);

function readTallies(raw) {
  const numbers = [];
  for (let at = 0; at < raw.length; at += 4) numbers.push(Number(big(raw.slice(at, at + 4))));
  const tallies = [];
  for (let at = 0; at < numbers.length; at += TALLY / 4) {
    tallies.push({ received: numbers[at], dropped: numbers.slice(at + 1, at + TALLY / 4) });
  }
  if (tallies.some((tally) => kept(tally) < 0)) throw new Refused("a tally drops more reports than came in");
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
  if (at !== raw.length) throw new Refused("this bulletin is not as long as its counts say");
  return entries;
}

function* leavesOf(entries) {
  for (const [group, list] of entries.entries()) {
    for (const entry of list) yield concat(byte(group), entry);
  }
}

/** Read an answer strictly: version, counts, and zeros to the end. */
export function decodeAnswer(raw, round) {
  const [version, kind] = raw;
  const count = Number(big(raw.slice(2, 4)));
  const shared = Number(big(raw.slice(4, 6)));
  if (version !== VERSION || ![VALUES, PARTNERS, LOCATED].includes(kind) || raw[6] || raw[7]) {
    throw new Refused("this answer is of another version");
  }
  if (kind === VALUES) {
    const view = new DataView(raw.buffer, raw.byteOffset);
    checkPadding(raw, ANSWER_HEAD + 8 * (count + shared));
    const numbers = Array.from({ length: count + shared }, (_, j) => view.getFloat64(ANSWER_HEAD + 8 * j));
    return { values: numbers.slice(0, count), shared: numbers.slice(count), partners: [], second: [] };
  }
  if (shared > count || !count) throw new Refused("this answer is of another version");
  const named = readPartners(raw, count, round, kind === LOCATED);
  const first = count - shared; // the last ones are candidates for a second pass
  return { values: [], shared: [], partners: named.slice(0, first), second: named.slice(first) };
}

function readPartners(raw, count, round, located) {
  let at = ANSWER_HEAD;
  const partners = Array.from({ length: count }, () => {
    const group = raw[at];
    if (at >= raw.length || group >= round.terms.groups.length) throw new Refused("this answer is cut off");
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
    throw new Refused("this answer is cut off, or is not padded with zeros");
  }
}

function signedLetter(round, sender, recipient, rest) {
  return concat(utf8("coatcheck/v1/letter\0"), round.digest, sender, recipient, rest);
}

/** Write a letter with its signature inside, bound to round, sender, recipient and counter. */
export function encodeLetter(round, { keys, recipient, counter, body }) {
  const room = round.terms.letter_size;
  if (body.length > room) throw new Misuse(`a letter of this round has at most ${room} bytes, this one has ${body.length}`);
  const rest = concat(unsigned(counter, 8), unsigned(body.length, 2), padded(body, room));
  const signature = keys.sign(signedLetter(round, keys.address, recipient, rest));
  return concat(byte(VERSION), keys.contact, rest, signature);
}

/** Read a letter and check that its sender wrote it for this recipient in this round. */
export function decodeLetter(raw, round, recipient) {
  const size = round.suite.contact;
  const room = round.terms.letter_size;
  if (raw.length !== 1 + size + 10 + room + SIGNATURE || raw[0] !== VERSION) {
    throw new Refused("this letter is of another version or size");
  }
  const sender = contactOf(round.suite, raw.slice(1, 1 + size));
  const rest = raw.slice(1 + size, -SIGNATURE);
  const text = signedLetter(round, sender.address, recipient, rest);
  checkSignature(sender.verifying, raw.slice(-SIGNATURE), text, "the sender");
  const length = Number(big(rest.slice(8, 10)));
  if (length > room || rest.slice(10 + length).some((value) => value)) {
    throw new Refused("this letter is not padded with zeros");
  }
  const counter = big(rest.slice(0, 8));
  if (counter > MOST) throw new Refused("this letter has a counter that no ticket holds");
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
    throw new Refused("this posting is of another version or another round");
  }
  return { recipient: raw.slice(head, head + ADDRESS), sealed: raw.slice(head + ADDRESS) };
}

/** Whom a posting is for. */
export const recipientOf = (raw) => raw.slice(4 + DIGEST, 4 + DIGEST + ADDRESS);

/**
 * Read the board's signed word on all it ever showed: how many leaves, and the root over them. Where witnesses
 * are demanded, it is the note that they cosigned, and nothing else will do.
 */
export function readCheckpoint(raw, round) {
  if (round.cosigners.demanded) return readCosignedCheckpoint(raw, round.terms.board.verifying, round.cosigners);
  if (raw.length !== 44 + SIGNATURE || !equal(raw.slice(0, 4), byte(VERSION, 0, 0, 0))) {
    throw new Refused("a checkpoint has 108 bytes and begins with its version");
  }
  const message = concat(utf8("coatcheck/v1/checkpoint\0"), raw.slice(0, -SIGNATURE));
  const { verifying, name } = round.terms.board;
  checkSignature(unhex(verifying), raw.slice(-SIGNATURE), message, name);
  return { size: Number(big(raw.slice(4, 12))), root: raw.slice(12, 44) };
}
