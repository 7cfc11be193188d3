// The terms of a round, parsed strictly, and the sizes that follow from them. SPEC section 6.

import { hex, parse, unhex, utf8 } from "./encoding.js";
import { Refused } from "./errors.js";
import { sha256 } from "./keys.js";
import { ADDRESS, suiteNamed } from "./suites.js";

const LIMIT = 1 << 16;
export const UPLOAD_HEAD = 52;
const REPORT_HEAD = 2;
const LETTER_FIXED = 1 + 8 + 2 + 64;

const matches = (pattern) => (value) => typeof value === "string" && pattern.test(value);
const whole = (low, high) => (value) => Number.isInteger(value) && value >= low && value <= high;
const between = (low, high) => (value) => typeof value === "number" && value > low && value < high;
const record = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const list = (low, high, fields) => (value) => Array.isArray(value) && value.length >= low
  && value.length <= high && value.every((entry) => check(entry, fields));
const nested = (fields) => (value) => check(value, fields);

const NAME = matches(/^[a-z0-9][a-z0-9-]{0,31}$/);
const TITLE = matches(/^[A-Za-z0-9][A-Za-z0-9 .:_-]{0,63}$/);
const KEY = matches(/^[0-9a-f]{64}$/);
export const HEX = (value) => matches(/^([0-9a-f]{2})+$/)(value) && value.length <= 4096;
const COUNT = whole(0, 2 ** 31 - 1);
const SECOND = whole(0, 2 ** 48);
const POSITIVE = (value) => between(0, Infinity)(value) && value <= 1e6;

const PORT = "(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?";
const HOST = "([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\\[[0-9a-f:.]+\\])";
const LOOPBACK = "(localhost|127\\.0\\.0\\.1|\\[::1\\])";
const ADDRESS_PATTERN = new RegExp(`^(https://${HOST}(?!:443$)|http://${LOOPBACK}(?!:80$))${PORT}$`);
const URL = (value) => matches(ADDRESS_PATTERN)(value) && value.length <= 256;

// The fields of each kind of admission besides its name.
const ISSUER = (value) => matches(new RegExp(`^${HOST}${PORT}$`))(value) && value.length <= 256;
// RSASSA-PSS with SHA-384 and a salt of 48 bytes, an odd modulus of 2,048 bits, exponent 65,537.
const ISSUER_KEY = matches(new RegExp(
  "^30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806"
  + "092a864886f70d010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
  + "[89a-f][0-9a-f]{510}[13579bdf]0203010001$",
));
const ADMISSIONS = { tokens: {}, "privacy-pass": { issuer: ISSUER, key: ISSUER_KEY }, open: {} };
const ADMISSION = (value) => record(value) && Object.hasOwn(ADMISSIONS, value.kind)
  && check(value, { kind: () => true, ...ADMISSIONS[value.kind] });

const NOTARY = { name: TITLE, verifying: KEY, url: URL };
const PARTY = { ...NOTARY, sealing: HEX };
const SHUFFLER = { ...PARTY, admission: ADMISSION };
const PROMISE = { epsilon: POSITIVE, delta: between(0, 1), "corrupted?": COUNT, "exposed?": COUNT };
const GROUP = {
  name: NAME,
  randomizer: record,
  decode: NAME,
  minimum: whole(1, 2 ** 31 - 1),
  payload_size: whole(1, 1 << 14),
  answer_size: whole(8, 1 << 20),
  promise: nested(PROMISE),
  "note_size?": whole(0, 1 << 10),
  "decoys?": whole(0, 8),
};
const SETTLE = {
  cell: POSITIVE,
  rings: (value) => Array.isArray(value) && value.length >= 1 && value.length <= 16 && value.every(POSITIVE),
  "asks?": (value) => Array.isArray(value) && value.length <= 2 && value.every(whole(1, 8)),
  "pause?": whole(1, 86_400),
  "spread?": (value) => typeof value === "number" && value >= 0 && value <= 86_400,
};
const TERMS = {
  coatcheck: (value) => value === "terms/1",
  round: TITLE,
  suite: (value) => value === "x25519" || value === "mlkem768-x25519",
  groups: list(1, 16, GROUP),
  task: nested({ name: NAME, "params?": (value) => record(value) && !Object.hasOwn(value, "name") }),
  server: nested(PARTY),
  shufflers: list(1, 8, SHUFFLER),
  board: nested(NOTARY),
  opens: SECOND,
  closes: SECOND,
  expires: SECOND,
  "grace?": whole(60, 86_400),
  "letter_size?": whole(0, 1 << 12),
  "trap_delta?": (value) => value === 0 || between(0, 0.5)(value),
  "settle?": nested(SETTLE),
  "window?": whole(1, 86_400),
};

/** Refuse a record with a missing, unknown or out-of-range field; a `?` marks optional fields. */
export function check(value, fields) {
  if (!record(value)) throw new Refused("the terms do not decode: expected a record");
  for (const name of Object.keys(value)) {
    if (!Object.hasOwn(fields, name) && !Object.hasOwn(fields, `${name}?`)) {
      throw new Refused(`the terms do not decode: unknown field ${name}`);
    }
  }
  for (const [marked, holds] of Object.entries(fields)) {
    const name = marked.replace("?", "");
    const absent = marked.endsWith("?") && !Object.hasOwn(value, name);
    if (!absent && !holds(value[name])) {
      throw new Refused(`the terms do not decode: field ${name} is missing or out of range`);
    }
  }
  return true;
}

/** Terms with the exact bytes from which they were parsed. */
export class Round {
  /** @param {any} terms @param {Uint8Array} document */
  constructor(terms, document) {
    this.terms = { letter_size: 256, grace: 3600, trap_delta: 0, ...terms };
    this.terms.groups = terms.groups.map((group) => ({
      note_size: 0,
      decoys: 0,
      ...group,
      promise: { corrupted: 0, exposed: 0, ...group.promise },
    }));
    this.document = document;
    this.digest = sha256(document);
    this.suite = suiteNamed(this.terms.suite);
    /** @type {import("./types.js").Quorum} */
    this.cosigners = { least: 0, of: [] }; // who must have cosigned the board's log; `verifySignatures` sets it
  }

  /** The round's public address: at the first shuffler. */
  get address() {
    return `${this.terms.shufflers[0].url}/rounds/${hex(this.digest)}`;
  }

  /** The round's address at the board. */
  get atBoard() {
    return `${this.terms.board.url}/rounds/${hex(this.digest)}`;
  }

  /** The address of the board's checkpoint, or of the cosigned one if witnesses are demanded. */
  get checkpointAt() {
    return `${this.terms.board.url}${this.cosigners.least ? "/log" : ""}/checkpoint`;
  }

  /** Whether anybody may report. The promise then assumes that outsiders do not flood the round. */
  get open() {
    return this.terms.shufflers.some((party) => party.admission.kind === "open");
  }

  group(name) {
    const names = this.terms.groups.map((group) => group.name);
    if (!names.includes(name)) {
      throw new Refused(`the round has no group ${name}: choose one of ${names.join(", ")}`);
    }
    return names.indexOf(name);
  }

  reportSize(group) {
    const of = this.terms.groups[group];
    return REPORT_HEAD + this.suite.contact + of.payload_size + of.note_size;
  }

  /** Return the size of an item that enters the shuffler at `hop`; after the last hop, of a sealed report. */
  itemSize(group, hop) {
    return this.reportSize(group) + (1 + this.terms.shufflers.length - hop) * this.suite.overhead;
  }

  /** How many items an upload has: the report and its decoys, and a trap for each later shuffler. */
  itemsEach(group) {
    return this.terms.shufflers.length + this.terms.groups[group].decoys;
  }

  uploadSize(group) {
    return UPLOAD_HEAD + this.itemsEach(group) * this.itemSize(group, 0);
  }

  entrySize(group) {
    return ADDRESS + this.terms.groups[group].answer_size + this.suite.overhead;
  }

  /** The time by which the board must show the round's outcome, in seconds since 1970. */
  get endDue() {
    return this.terms.expires + this.terms.grace;
  }

  letterSize() {
    return LETTER_FIXED + this.suite.contact + this.terms.letter_size + this.suite.overhead;
  }
}

/**
 * Parse a document strictly; refuse wrong sizes and ranges, unknown and repeated fields.
 * @param {string} document @returns {Round}
 */
export function readTerms(document) {
  const bytes = utf8(document);
  if (bytes.length > LIMIT) throw new Refused(`the terms must have at most ${LIMIT} bytes, got ${bytes.length}`);
  const terms = parse(document);
  check(terms, TERMS);
  const round = new Round(terms, bytes);
  checkConsistent(round);
  return round;
}

function distinct(what, values) {
  if (new Set(values).size < values.length) throw new Refused(`the terms repeat one of their ${what}: each must be different`);
}

function checkConsistent(round) {
  const { terms } = round;
  distinct("groups", terms.groups.map((group) => group.name));
  // One party in two roles could combine what the protocol separates.
  const parties = [terms.server, ...terms.shufflers];
  distinct("keys", [...parties, terms.board].map((party) => party.verifying));
  distinct("addresses", [...parties, terms.board].map((party) => party.url));
  distinct("keys", parties.map((party) => party.sealing));
  if (!(terms.opens < terms.closes && terms.closes <= terms.expires)) {
    throw new Refused("the terms must have `opens` before `closes`, and `closes` not after `expires`");
  }
  const least = Math.min(...terms.groups.map((group) => group.promise.delta));
  if (terms.shufflers.length > 1 ? !(terms.trap_delta > 0 && terms.trap_delta < least) : terms.trap_delta) {
    throw new Refused("`trap_delta` must be above 0 and below every promise's `delta` with several shufflers, and 0 with one");
  }
  for (const { name, admission } of terms.shufflers.slice(1)) {
    // Made-up people could register there, and its traps would count them.
    if (admission.kind === "open") throw new Refused(`shuffler ${name} counts people by their traps but admits anybody: do not join`);
  }
  if (terms.settle?.spread > (terms.settle?.pause ?? 60)) {
    throw new Refused("`spread` of `settle` must be at most its `pause`: later letters would come too late; do not join");
  }
  for (const { name, minimum, promise, decoys, note_size: note } of terms.groups) {
    if (decoys && note) throw new Refused(`group ${name} has \`decoys\`, so its \`note_size\` must be 0: do not join`);
    if (promise.corrupted + Math.ceil(promise.exposed / Math.max(1, decoys)) >= minimum) {
      throw new Refused(`in group ${name}, \`corrupted\` plus \`exposed\` must be below \`minimum\`: do not join`);
    }
  }
}
