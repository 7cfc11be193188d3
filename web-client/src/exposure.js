// Whom answers to corrupted people expose: those no longer hide others. SPEC section 12.
//
// The same bounds as the tasks of coatcheck/tasks state; of a task that is not here nothing is
// known, so terms that reckon with corrupted people are refused.

import { Refused } from "./errors.js";

const natural = (value) => Number.isInteger(value) && value >= 1;

function matching({ capacity = [1, 1], candidates = 1 }, [riders, drivers]) {
  const good = Array.isArray(capacity) && capacity.length === 2 && capacity.every(natural)
    && Math.min(...capacity) === 1;
  if (!good) throw new Refused("the terms give no capacity that a matching can have");
  if (!natural(candidates)) throw new Refused("the terms give no number of candidates");
  const told = candidates === 1 ? capacity : [2 * candidates, 2 * candidates]; // two lists
  return [[0, Math.min(told[0], drivers)], [Math.min(told[1], riders), 0]];
}

function others(most, people) {
  if (!natural(most)) throw new Refused("the terms do not say how many others an answer names");
  return [[Math.max(0, Math.min(most, people - 1))]];
}

// For each task how many groups it has, and how many of group h an answer in group g can expose.
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

/** Refuse terms whose answers would give away more people of a group than they say. */
export function checkExposure({ terms }, number) {
  const corrupted = terms.groups.map((group) => group.promise.corrupted);
  const coins = terms.groups.some((group) => group.randomizer.name === "coin");
  if (!corrupted.some((count) => count > 0) && !coins) return; // answers to honest people are read by nobody else
  const { name, params = {} } = terms.task;
  const [groups, exposed] = Object.hasOwn(TASKS, name) ? TASKS[name] : [];
  if (groups !== terms.groups.length) {
    throw new Refused(
      `cannot tell whom the answers of task ${name} expose among these groups: join with the command line`,
    );
  }
  const sizes = terms.groups.map((group) => group.minimum);
  const told = exposed(params, sizes);
  if (coins && told.flat().some(Boolean)) {
    throw new Refused(`task ${name} names people in its answers, so that everybody has to speak, and a group has a coin: do not join`);
  }
  // In a cascade a corrupted person can hand in a report in place of every trap.
  const each = terms.shufflers.length;
  const sum = corrupted.reduce((total, count, g) => total + each * count * told[g][number], 0);
  const bound = Math.min(sizes[number] - corrupted[number], sum);
  const { name: group, promise } = terms.groups[number];
  if (bound > promise.exposed) {
    throw new Refused(
      `answers can expose ${bound} members of ${group}, the terms admit ${promise.exposed}: their`
      + " promise is not kept",
    );
  }
}
