// Merkle trees (RFC 9162, section 2.1): the root over leaves, and the verification of paths.

import { byte, concat, equal } from "./encoding.js";
import { Refused } from "./errors.js";
import { sha256 } from "./keys.js";

export const leafHash = (leaf) => sha256(concat(byte(0), leaf));
export const nodeHash = (left, right) => sha256(concat(byte(1), left, right));

/** Return the root over all leaves. Folds complete subtrees as they fill, as in a binary counter. */
export function rootOf(leaves) {
  /** @type {{ hash: Uint8Array, size: number }[]} */
  const open = [];
  for (const leaf of leaves) {
    let node = { hash: leafHash(leaf), size: 1 };
    for (let left = open.at(-1); left?.size === node.size; left = open.at(-1)) {
      open.pop();
      node = { hash: nodeHash(left.hash, node.hash), size: 2 * node.size };
    }
    open.push(node);
  }
  if (!open.length) return sha256(new Uint8Array());
  return open.map((node) => node.hash).reduceRight((right, left) => nodeHash(left, right));
}

/** Refuse a path that does not lead from the leaf to the root (RFC 9162, 2.1.3.2). */
export function checkInclusion(leaf, { place, size, root, path }) {
  let fn = place;
  let sn = size - 1;
  let node = leafHash(leaf);
  let good = place >= 0 && place < size;
  for (const step of path) {
    good = good && sn > 0;
    if (fn % 2 === 1 || fn === sn) {
      node = nodeHash(step, node);
      while (fn && fn % 2 === 0) [fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)];
    } else {
      node = nodeHash(node, step);
    }
    [fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)];
  }
  if (!good || sn || !equal(node, root)) {
    throw new Refused("the entry is not under the signed root: do not rely on it");
  }
}

/** Refuse a new tree that does not begin with the old one (RFC 9162, 2.1.4.2). */
export function checkConsistency({ old, oldRoot, size, root, path }) {
  if (!consistent({ old, oldRoot, size, root, path })) {
    throw new Refused(
      "the board's log does not continue the one that it showed before: keep both checkpoints, together they prove it",
    );
  }
}

function consistent({ old, oldRoot, size, root, path }) {
  if (old > size) return false;
  if (old === 0 || old === size) {
    return !path.length && equal(oldRoot, old === 0 ? sha256(new Uint8Array()) : root);
  }
  const nodes = Number.isInteger(Math.log2(old)) ? [oldRoot, ...path] : path;
  if (!nodes.length) return false;
  let fn = old - 1;
  let sn = size - 1;
  while (fn % 2 === 1) [fn, sn] = [(fn - 1) / 2, Math.floor(sn / 2)];
  let [first] = nodes;
  let second = first;
  for (const step of nodes.slice(1)) {
    if (sn === 0) return false;
    if (fn % 2 === 1 || fn === sn) {
      first = nodeHash(step, first);
      second = nodeHash(step, second);
      while (fn && fn % 2 === 0) [fn, sn] = [fn / 2, Math.floor(sn / 2)];
    } else {
      second = nodeHash(second, step);
    }
    [fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)];
  }
  return equal(first, oldRoot) && equal(second, root) && sn === 0;
}
