// Patience: asking again, ever more rarely, while somebody is away.

import { Unavailable } from "./errors.js";

const PAUSE = 0.25; // seconds before the second try
const LONGEST = 5;

/** @param {number} seconds @returns {Promise<void>} */
export const rest = (seconds) => new Promise((awake) => { setTimeout(awake, 1000 * seconds); });

/**
 * Do something until it is done; what is `Unavailable` is tried again for so many seconds. `draw` makes a pause of the one that is due.
 * @template T
 * @param {() => Promise<T>} work @param {number} seconds @param {{ growth?: number, draw?: (due: number) => number }} [options] @returns {Promise<T>}
 */
export async function patiently(work, seconds, { growth = 2, draw = (due) => due } = {}) {
  const end = Date.now() + 1000 * seconds;
  for (let pause = PAUSE; ; pause = Math.min(LONGEST, pause * growth)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Unavailable) || Date.now() + 1000 * pause > end) throw error;
    }
    await rest(draw(pause));
  }
}
