// Signed notes (C2SP): the board's checkpoint with the witnesses' cosignatures. SPEC section 18.
//
// The same rules as coatcheck/protocol/log/signed_notes.py: ignore signatures of unknown keys; refuse a note with an
// invalid signature of a known key.

import { big, byte, concat, equal, unbase64, unhex, utf8 } from "./encoding.js";
import { Refused, Unavailable } from "./errors.js";
import { checkSignature, sha256 } from "./keys.js";

const ED25519 = 1;
const COSIGNATURE = 4;
const ID = 4;
const TIME = 8;
const HASH = 32;
const LINES = 64; // the most signatures that the client reads; C2SP requires at least 16
const DASH = "\u2014 ";
const NAME = /^[^\p{White_Space}+\x00-\x1f\x7f]{1,255}$/u;
const NUMBER = /^(0|[1-9][0-9]{0,17})$/;
const BASE64 = /^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decode standard base64; return no bytes if it is invalid. */
const decoded = (text) => (BASE64.test(text) ? unbase64(text) : new Uint8Array());

/** Return a note's verifier key: a name with an Ed25519 key, for texts or for cosignatures. */
const noteKey = (name, raw, kind = ED25519) => (
  { name, raw, kind, id: sha256(concat(utf8(`${name}\n`), byte(kind), raw)).slice(0, ID) }
);

/** Parse a note strictly into its text and signatures, without verifying them. */
export function readSignedNote(raw) {
  let whole;
  try {
    whole = decoder.decode(raw);
  } catch {
    throw new Refused("this signed note is not valid UTF-8");
  }
  const cut = whole.lastIndexOf("\n\n");
  const lines = whole.slice(cut + 2);
  if (cut < 0 || !lines.endsWith("\n") || /[\x00-\x09\x0b-\x1f]/.test(whole)) {
    throw new Refused("a signed note must be a text, an empty line, and signatures");
  }
  const signatureLines = lines.split("\n").slice(0, -1);
  if (signatureLines.length < 1 || signatureLines.length > LINES) throw new Refused(`a signed note must have 1 to ${LINES} signatures, got ${signatureLines.length}`);
  return { text: whole.slice(0, cut + 1), signatures: signatureLines.map(readLine) };
}

function readLine(line) {
  const rest = line.startsWith(DASH) ? line.slice(DASH.length) : "";
  const at = rest.indexOf(" ");
  const name = rest.slice(0, at);
  const raw = decoded(rest.slice(at + 1));
  if (at < 0 || !NAME.test(name) || raw.length <= ID) throw new Refused("a signature line of this note is malformed");
  return { name, id: raw.slice(0, ID), signature: raw.slice(ID) };
}

/** Return whether one of these keys signed; refuse the note if a signature of theirs is invalid. */
function isSigned({ text, signatures }, keys) {
  let signed = false;
  for (const { name, id, signature } of signatures) {
    const key = keys.find((candidate) => candidate.name === name && equal(candidate.id, id));
    if (!key) continue;
    check(key, text, signature);
    signed = true;
  }
  return signed;
}

function check({ name, raw, kind }, text, signature) {
  if (kind === ED25519) return checkSignature(raw, signature, utf8(text), name);
  const message = utf8(`cosignature/v1\ntime ${big(signature.slice(0, TIME))}\n${text}`);
  return checkSignature(raw, signature.slice(TIME), message, name);
}

/** Parse the text of a checkpoint; ignore lines after the third. */
export function readLogCheckpoint(text) {
  const lines = text.split("\n");
  if (lines.length < 4 || !lines[0] || !NUMBER.test(lines[1])) {
    throw new Refused("a checkpoint must have an origin, a size and a root");
  }
  const root = decoded(lines[2]);
  const size = Number(lines[1]);
  if (root.length !== HASH || !Number.isSafeInteger(size)) {
    throw new Refused("the root of this checkpoint is not a hash, or its size is too large");
  }
  return { origin: lines[0], size, root };
}

/**
 * Read a checkpoint that is a signed note, and check that the board signed it and enough witnesses cosigned it.
 * With the cosignature of one honest witness, a client sees the log that this witness has followed, even in its first
 * session.
 * @param {import("./types.js").Quorum} quorum
 */
export function readCosignedCheckpoint(raw, board, quorum) {
  const note = readSignedNote(raw);
  const key = noteKey(`coatcheck.example/board/${board}`, unhex(board));
  const { origin, size, root } = readLogCheckpoint(note.text);
  if (origin !== key.name || !isSigned(note, [key])) {
    throw new Refused("this checkpoint is not signed by the board that the terms name");
  }
  const names = [...new Set(note.signatures.map(({ name }) => name))];
  const cosigners = (keys) => names.flatMap((name) => keys.map((witness) => noteKey(name, unhex(witness), COSIGNATURE)));
  const count = ({ of }) => of.filter((member) => (
    Array.isArray(member) ? isSigned(note, cosigners(member)) : count(member) >= member.least)).length;
  const cosigned = count(quorum);
  if (cosigned < quorum.least) {
    throw new Unavailable(
      `${cosigned} of your witnesses (or groups of them) have cosigned the board's log, but you demand ${quorum.least}: try later`,
    );
  }
  return { size, root };
}
