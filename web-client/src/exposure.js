// Exposure: how many people the answers to corrupted people expose. They no longer hide others. SPEC section 20.
//
// The bounds are those of coatcheck/tasks. This client knows nothing about other tasks, and refuses their terms
// if these allow for corrupted people.

import { Refused } from "./errors.js";

const natural = (value) => Number.isInteger(value) && value >= 1;

function matching({ capacity = [1, 1], candidates = 1 }, [riders, drivers]) {
  const good = Array.isArray(capacity) && capacity.length === 2 && capacity.every(natural)
    && Math.min(...capacity) === 1;
  if (!good) throw new Refused("`capacity` in the terms must be two positive integers, one of them 1");
  if (!natural(candidates)) throw new Refused("`candidates` in the terms must be a positive integer");
  const named = candidates === 1 ? capacity : [2 * candidates, 2 * candidates]; // two lists
  return [[0, Math.min(named[0], drivers)], [Math.min(named[1], riders), 0]];
}

function others(most, people) {
  if (!natural(most)) throw new Refused("the terms must state how many other people an answer names, at least 1");
  return [[Math.max(0, Math.min(most, people - 1))]];
}

// For each task: how many groups it has, and how many of group h an answer in group g can expose.
const TASKS = {
  download: [1, (_, [people]) => [[Math.max(0, people - 1)]]],
  groups: [1, ({ size = 4 }, [people]) => others(size - 1, people)],
  learning: [1, () => [[0]]],
  neighbours: [1, ({ limit = 16 }, [people]) => others(limit, people)],
  similar: [1, ({ limit = 5 }, [people]) => others(limit, people)],
  standing: [1, () => [[0]]],
  "least-cost-matching": [2, matching],
  "maximum-matching": [2, matching],
};

/**
 * Return how many others an answer of a group names at most, whatever the size of the crowd.
 * @param {{ name: string, params?: any }} task @param {number} groups @param {number} number
 */
export function mostNamed({ name, params = {} }, groups, number) {
  const [expected, exposed] = Object.hasOwn(TASKS, name) ? TASKS[name] : [];
  const most = expected === groups
    ? exposed(params, Array(groups).fill(Infinity))[number].reduce((sum, count) => sum + count, 0) : Infinity;
  if (most === Infinity) throw new Refused(`this client does not know how many candidates an answer of task ${name} names: do not settle`);
  return most;
}

/**
 * Return how many reports of each group the answers to corrupted people can expose. SPEC S20.18.
 * @param {{ name: string, params?: any }} task
 * @param {{ minimum: number[], corrupted: number[], decoys: number[], shufflers: number, coins?: boolean }} crowd
 * @returns {number[]}
 */
export function exposure({ name, params = {} }, { minimum, corrupted, decoys, shufflers, coins = false }) {
  const sizes = minimum.map((people, g) => people * (1 + decoys[g])); // in reports
  const [groups, exposed] = Object.hasOwn(TASKS, name) ? TASKS[name] : [];
  if (groups !== sizes.length) {
    throw new Refused(
      `this client does not know whom the answers of task ${name} expose among these groups: join with the command line`,
    );
  }
  const exposures = exposed(params, sizes);
  if (coins && exposures.flat().some(Boolean)) {
    throw new Refused(`task ${name} names people in its answers, so everybody must report, but a group has a participation coin: do not join`);
  }
  // A corrupted person can submit a report in place of every decoy and every trap.
  const sum = (h) => corrupted.reduce((total, count, g) => total + (shufflers + decoys[g]) * count * exposures[g][h], 0);
  return sizes.map((size, h) => Math.min(size - corrupted[h] * (1 + decoys[h]), sum(h)));
}

/** Refuse terms whose answers can expose more people of a group than the terms state. */
export function checkExposure(round, number) {
  const { terms } = round;
  const corrupted = terms.groups.map((group) => group.promise.corrupted);
  const coins = terms.groups.some((group) => group.randomizer.name === "coin");
  if (!corrupted.some((count) => count > 0) && !coins) return; // only honest people read their answers
  const bound = exposure(terms.task, {
    minimum: terms.groups.map((group) => group.minimum),
    corrupted,
    decoys: terms.groups.map((group) => group.decoys),
    shufflers: terms.shufflers.length,
    coins,
  })[number];
  const { name, promise } = terms.groups[number];
  if (bound > promise.exposed) {
    throw new Refused(
      `answers can expose ${bound} reports of ${name}, but the terms allow for ${promise.exposed}: they do`
      + " not keep their promise; do not join",
    );
  }
}
