// Times that say nothing: through a relay a person asks at moments drawn at random. SPEC section 17.
//
// A relay and a role that both keep times could join requests that follow each other at once. Waiting
// without a relay would hide nothing, so nobody waits then.

import { Entropy } from "./entropy.js";
import { rest } from "./patience.js";
import { Relay } from "./relay.js";

/** The share of a pause of settling within which the letters of a step are posted. */
export const STEP = 0.25;

/**
 * The seconds within which the times of a person's requests are drawn; 0 for at once.
 * @param {{ terms: any }} round @param {unknown} peer @returns {number}
 */
export const windowOf = ({ terms }, peer) => (peer instanceof Relay ? terms.window ?? 0 : 0);

/** Draw a time evenly between nothing and so many seconds. @param {number} seconds @param {Entropy} [entropy] @returns {number} */
export const drawn = (seconds, entropy = new Entropy()) => Number(entropy.integer(BigInt(Math.trunc(1000 * seconds)) + 1n)) / 1000;

/**
 * Wait for a time drawn evenly between nothing and so many seconds.
 * @param {number} seconds @param {{ entropy?: Entropy, sleep?: (seconds: number) => Promise<void> }} [options] @returns {Promise<void>}
 */
export async function linger(seconds, { entropy = new Entropy(), sleep = rest } = {}) {
  if (seconds) await sleep(drawn(seconds, entropy));
}

/**
 * The pause before the next look, of the one that is due; through a relay it is drawn, from nothing to at least the window.
 * @param {{ terms: any }} round @param {unknown} peer @returns {(due: number) => number}
 */
export const pauses = (round, peer) => (due) => (peer instanceof Relay ? drawn(Math.max(2 * due, windowOf(round, peer))) : due);
