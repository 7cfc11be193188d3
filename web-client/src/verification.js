// Verification of the board's log: it contains the expected leaves and has only grown. SPEC sections 9 and 18.

import { concat } from "./encoding.js";
import { Unavailable } from "./errors.js";
import { checkConsistency, checkInclusion } from "./merkle.js";
import * as messages from "./messages.js";

export const UNSEEN = "the witnesses have not cosigned this part of the board's log yet: try later";
export const ROUND_LEAF = Uint8Array.of(1);
export const LETTER_LEAF = Uint8Array.of(2);
const TERMS_LEAF = Uint8Array.of(3);
export const KEYS_LEAF = Uint8Array.of(4);

/**
 * Check leaves of the log, each `{ place, leaf, path }`, under a checkpoint of the board that continues the stored
 * one, `before`; `since` is the path from that one. If witnesses are demanded, the checkpoint is the signed note that
 * they cosigned. Return the checkpoint to store.
 * @param {{ place: number, leaf: Uint8Array, path: Uint8Array[] }[]} leaves
 * @param {import("./types.js").Round} round
 * @param {{ checkpoint: Uint8Array, since?: Uint8Array[] }} proof
 * @param {import("./types.js").Checkpoint | null} [before]
 * @returns {import("./types.js").Checkpoint}
 */
export function checkLogged(leaves, round, { checkpoint, since = [] }, before = null) {
  const point = messages.readCheckpoint(checkpoint, round);
  const { size, root } = point;
  if (before) checkConsistency({ old: before.size, oldRoot: before.root, size, root, path: since });
  for (const { place, leaf, path } of leaves) {
    if (round.cosigners.least && place >= size) {
      throw new Unavailable(UNSEEN);
    }
    checkInclusion(leaf, { place, size, root, path });
  }
  return point;
}

/**
 * Check that the board's signed log shows this bulletin to everybody, and has only grown since `before`.
 * `proof` holds the board's checkpoint, the bulletin's place with its path and, if `before` is given,
 * the path from it. Return the checkpoint to store.
 * @param {Uint8Array} raw
 * @param {import("./types.js").Round} round
 * @param {{ checkpoint: Uint8Array, place: number, path: Uint8Array[], since?: Uint8Array[] }} proof
 * @param {import("./types.js").Checkpoint | null} [before]
 * @returns {import("./types.js").Checkpoint}
 */
export function follow(raw, round, proof, before = null) {
  const { heading } = messages.readBulletin(raw, round);
  const { place, path } = proof;
  return checkLogged([{ place, path, leaf: concat(ROUND_LEAF, heading) }], round, proof, before);
}

/**
 * Check that the log contains the terms, with `proof.place` and `proof.path`; otherwise as in `follow`.
 * @param {import("./types.js").Round} round
 * @param {{ checkpoint: Uint8Array, place: number, path: Uint8Array[], since?: Uint8Array[] }} proof
 * @param {import("./types.js").Checkpoint | null} [before]
 * @returns {import("./types.js").Checkpoint}
 */
export function checkTerms(round, proof, before = null) {
  const { place, path } = proof;
  return checkLogged([{ place, path, leaf: concat(TERMS_LEAF, round.digest) }], round, proof, before);
}

/**
 * Check that the log contains postings, each `[place, posting]`, with `proof.paths`; otherwise as in `follow`.
 * @param {[number, Uint8Array][]} placed
 * @param {import("./types.js").Round} round
 * @param {{ checkpoint: Uint8Array, paths: Uint8Array[][], since?: Uint8Array[] }} proof
 * @param {import("./types.js").Checkpoint | null} [before]
 * @returns {import("./types.js").Checkpoint}
 */
export function checkPlaced(placed, round, proof, before = null) {
  const leaves = placed.map(([place, posting], at) => ({ place, leaf: concat(LETTER_LEAF, posting), path: proof.paths[at] }));
  return checkLogged(leaves, round, proof, before);
}
