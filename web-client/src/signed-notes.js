// Signed notes (C2SP): the board's checkpoint as witnesses cosign it. SPEC section 18.
//
// The same rules as coatcheck/protocol/notes.py and verification.py: signatures of strangers are passed
// over, one of a known key that does not hold refuses the note.

import { big, byte, concat, equal, unbase64, unhex, utf8 } from "./encoding.js";
import { Refused, Unavailable } from "./errors.js";
import { checkSignature, sha256 } from "./keys.js";

const ED25519 = 1;
const COSIGNATURE = 4;
const ID = 4;
const TIME = 8;
const HASH = 32;
const LINES = 64; // the most signatures that are read; C2SP asks for at least 16
const DASH = "\u2014 ";
const NAME = /^[^\p{White_Space}+\x00-\x1f\x7f]{1,255}$/u;
const NUMBER = /^(0|[1-9][0-9]{0,17})$/;
const BASE64 = /^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Read standard base64; what is none gives nothing. */
const unspelled = (text) => (BASE64.test(text) ? unbase64(text) : new Uint8Array());

/** Who may sign a note: a name with an Ed25519 key, for texts or for cosignatures. */
const noteKey = (name, raw, kind = ED25519) => (
  { name, raw, kind, id: sha256(concat(utf8(`${name}\n`), byte(kind), raw)).slice(0, ID) }
);

/** Read a note strictly: its text, and the signatures under it; none is checked yet. */
export function readSignedNote(raw) {
  let whole;
  try {
    whole = decoder.decode(raw);
  } catch {
    throw new Refused("this note is no text");
  }
  const cut = whole.lastIndexOf("\n\n");
  const lines = whole.slice(cut + 2);
  if (cut < 0 || !lines.endsWith("\n") || /[\x00-\x09\x0b-\x1f]/.test(whole)) {
    throw new Refused("this is no note: a text, an empty line, and signatures");
  }
  const listed = lines.split("\n").slice(0, -1);
  if (listed.length < 1 || listed.length > LINES) throw new Refused(`a note has 1 to ${LINES} signatures`);
  return { text: whole.slice(0, cut + 1), signatures: listed.map(readLine) };
}

function readLine(line) {
  const rest = line.startsWith(DASH) ? line.slice(DASH.length) : "";
  const at = rest.indexOf(" ");
  const name = rest.slice(0, at);
  const raw = unspelled(rest.slice(at + 1));
  if (at < 0 || !NAME.test(name) || raw.length <= ID) throw new Refused("a signature of this note is none");
  return { name, id: raw.slice(0, ID), made: raw.slice(ID) };
}

/** Whether one of these keys signed; a signature of theirs that does not hold refuses the note. */
function isSigned({ text, signatures }, keys) {
  let found = false;
  for (const { name, id, made } of signatures) {
    const key = keys.find((one) => one.name === name && equal(one.id, id));
    if (!key) continue;
    check(key, text, made);
    found = true;
  }
  return found;
}

function check({ name, raw, kind }, text, made) {
  if (kind === ED25519) return checkSignature(raw, made, utf8(text), name);
  const message = utf8(`cosignature/v1\ntime ${big(made.slice(0, TIME))}\n${text}`);
  return checkSignature(raw, made.slice(TIME), message, name);
}

/** Read the text of a checkpoint; lines after the third are allowed, and left out. */
export function readLogCheckpoint(text) {
  const lines = text.split("\n");
  if (lines.length < 4 || !lines[0] || !NUMBER.test(lines[1])) {
    throw new Refused("this note is no checkpoint: origin, size and root");
  }
  const root = unspelled(lines[2]);
  const size = Number(lines[1]);
  if (root.length !== HASH || !Number.isSafeInteger(size)) {
    throw new Refused("the root of this checkpoint is no hash, or its size no number of leaves");
  }
  return { origin: lines[0], size, root };
}

/**
 * Check a checkpoint that is a note: the board signed it, and enough witnesses cosigned it. `witnesses` has
 * the keys of each in hex, more than one while they change. Whoever has the word of one honest witness sees
 * the log that this witness has seen grow, also at the first visit.
 */
export function readCosignedCheckpoint(raw, board, { witnesses, demanded }) {
  const note = readSignedNote(raw);
  const key = noteKey(`coatcheck.example/board/${board}`, unhex(board));
  const { origin, size, root } = readLogCheckpoint(note.text);
  if (origin !== key.name || !isSigned(note, [key])) {
    throw new Refused("this checkpoint is not of the board that the terms name");
  }
  const names = [...new Set(note.signatures.map(({ name }) => name))];
  const known = (keys) => names.flatMap((name) => keys.map((one) => noteKey(name, unhex(one), COSIGNATURE)));
  const word = witnesses.filter((keys) => isSigned(note, known(keys))).length;
  if (word < demanded) {
    throw new Unavailable(
      `${word} of your witnesses have cosigned the board's log, you demand ${demanded}: wait, and do not rely`
      + " on it before",
    );
  }
  return { size, root };
}
