// The registry of mechanisms that this client supports.
//
// The same mechanisms as coatcheck/randomizers, bit for bit in their parameters. The client refuses terms that
// name any other. No float carries a private value to the wire.

import { coin, fieldwise } from "./composed.js";
import { complete, domainOf } from "./domains.js";
import { Refused } from "./errors.js";
import { codebook, grid } from "./grid.js";
import { caps } from "./minkowski.js";
import { sphere } from "./sphere.js";

const MAX_LEARNED = 3; // dimensions in which reports can be decoded from the whole batch

const boxes = ({ p, dimension }) => p === Infinity || dimension === 1;
const median = (domain) => (boxes(domain) ? ["median"] : []);
const numeric = (domain) => !domain.labels;
const learned = ({ dimension }) => (dimension <= MAX_LEARNED ? ["learned", "learned-mean"] : []);

const KINDS = {
  minkowski: {
    make: (params, domain) => caps(params, domain, { bounded: false }),
    decodes: (domain) => ["project", ...median(domain), "unbiased", "raw", ...learned(domain)],
    stated: ["radius", "inset"],
  },
  bounded: {
    make: (params, domain) => caps(params, domain, { bounded: true }),
    decodes: (domain) => ["raw", ...median(domain), ...learned(domain)],
    stated: ["radius"],
  },
  grid: { make: grid, decodes: (domain) => [...(numeric(domain) ? ["median"] : []), "raw", ...learned(domain)], stated: ["cells"] },
  codebook: { make: codebook, decodes: () => ["raw"], stated: ["points", "weights", "closest"] },
  sphere: { make: sphere, decodes: () => ["unbiased", "project"], stated: ["size", "closest", "turns", "seed"] },
};

/**
 * Return the mechanism that the terms describe; refuse one that this client does not support.
 * @param {any} params @returns {import("./types.js").Randomizer}
 */
export function randomizerOf(params) {
  if (params?.name === "coin") return coin(params, randomizerOf);
  if (params?.name === "fieldwise") return fieldwise(params, randomizerOf);
  if (!Object.hasOwn(KINDS, params?.name ?? "")) {
    throw new Refused(
      `the round uses mechanism ${params?.name}; this client supports ${[...Object.keys(KINDS), "fieldwise", "coin"].join(", ")} only:`
      + " join with the command line",
    );
  }
  const { make, decodes, stated } = KINDS[params.name];
  complete(params, ["name", "domain", "epsilon", "decode", ...stated]);
  const domain = domainOf(params.domain);
  const mechanism = make(params, domain);
  if (!decodes(domain).includes(params.decode)) throw new Refused(`${params.name} has no decode ${params.decode} on this domain: expected one of ${decodes(domain).join(", ")}`);
  return { name: params.name, decodes: decodes(domain), ...mechanism, snap: domain.snap };
}
