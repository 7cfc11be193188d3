// Randomizers made of others: one per field of a product, or behind a participation coin. SPEC section 13.
//
// The same mechanisms as coatcheck/randomizers/composed.py. The fields share the budget, and their reports stand side by side.

import { TOSSES, fraction } from "./biased-coin.js";
import { complete, domainOf } from "./domains.js";
import { Misuse, Refused } from "./errors.js";

const MAX_NUMBERS = 1024; // of a report
const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const same = (value, other) => JSON.stringify(sorted(value)) === JSON.stringify(sorted(other));
const sorted = (value) => (isRecord(value) ? Object.keys(value).sort().map((key) => [key, sorted(value[key])]) : value);

/** Return the names of a product's fields, in order. */
function fieldsOf(domain) {
  if (!isRecord(domain) || domain.kind !== "product") throw new Refused("fieldwise response needs a product domain, but the terms describe another kind");
  complete(domain, ["kind", "fields", "shares"]);
  const { fields, shares } = domain;
  const names = isRecord(fields) ? Object.keys(fields) : [];
  const good = names.length > 0 && isRecord(shares) && Object.keys(shares).length === names.length
    && names.every((name) => Object.hasOwn(shares, name) && Number.isFinite(shares[name]) && shares[name] > 0);
  if (!good) throw new Refused("a product needs at least one field, and a share above 0 for each: these terms are invalid");
  // JavaScript moves integer names to the front, but the report follows the order of the fields.
  const number = names.find((name) => /^(0|[1-9][0-9]*)$/.test(name));
  if (number !== undefined) throw new Refused(`a field is called ${number}, and JavaScript does not keep the order of fields named by numbers: join with the command line`);
  return names;
}

/** Return a mechanism for a product: one per field, in order. `make` builds a mechanism from its parameters. */
export function fieldwise(params, make) {
  complete(params, ["name", "domain", "parts"]);
  const { domain, parts } = params;
  const names = fieldsOf(domain);
  if (!isRecord(parts) || !same(Object.keys(parts), names)) {
    throw new Refused(`the terms must give one mechanism for each of the fields ${names.join(", ")}, in that order`);
  }
  const fields = names.map((name) => {
    const { dimension } = domainOf(domain.fields[name]);
    if (parts[name]?.name === "coin") throw new Refused(`field ${name} has a participation coin: a coin must apply to the whole report`);
    const part = make(parts[name]);
    if (!same(parts[name].domain, domain.fields[name])) throw new Refused(`the mechanism of field ${name} has another domain than the field`);
    return { name, part, dimension, width: part.low.length };
  });
  const low = fields.flatMap(({ part }) => part.low);
  if (low.length > MAX_NUMBERS) throw new Refused(`a report must have at most ${MAX_NUMBERS} numbers, got ${low.length}`);
  /** Apply `work` to each field and to its slice of a list in which the fields stand side by side. */
  const each = (list, size, work) => {
    let at = 0;
    return fields.map((field) => work(field, list.slice(at, (at += field[size]))));
  };
  return {
    name: "fieldwise",
    decodes: ["raw", "learned", "learned-mean"],
    parts: fields.map(({ part }) => part),
    low,
    high: fields.flatMap(({ part }) => part.high),
    snap(value) {
      if (!isRecord(value) || !same(Object.keys(value).sort(), [...names].sort())) {
        throw new Misuse(`the value must have exactly the fields ${names.join(", ")}`);
      }
      return fields.flatMap(({ name, part }) => part.snap(value[name]));
    },
    respond: (point, entropy) => each(point, "dimension", ({ part }, coordinates) => part.respond(coordinates, entropy)).flat(),
    center: (point, turn) => each(point, "dimension", ({ part }, coordinates) => part.center(coordinates, turn)),
    law() {
      const laws = fields.map(({ part }) => part.law());
      const sum = laws.reduce((total, { epsilon }) => total + epsilon, 0);
      return { epsilon: sum * (1 + laws.length * 2 ** -52), fields: laws };
    },
    place: (report) => Object.fromEntries(each(report, "width", ({ name, part }, numbers) => [name, part.place(numbers)])),
  };
}

/** Return a mechanism that reports by its part with probability `rate`, and otherwise reports silence. */
export function coin(params, make) {
  complete(params, ["name", "part", "rate"]);
  const { rate } = params;
  if (typeof rate !== "number" || !(rate >= 2 ** -32 && rate < 1)) {
    throw new Refused(`the \`rate\` of a participation coin must be from 2^-32 to below 1, got ${rate}`);
  }
  if (params.part?.name === "coin") throw new Refused("a participation coin cannot contain another one");
  const part = make(params.part);
  const [top, bottom] = fraction(rate);
  const heads = (TOSSES * top) / bottom; // never above the rate: reporting less often reveals no more
  const silence = [0, ...part.low];
  return {
    ...part,
    name: "coin",
    heads,
    low: silence,
    high: [1, ...part.high],
    respond(point, entropy) {
      // The part's report is always drawn, so that the running time does not reveal how the coin fell.
      const speaks = entropy.coin(heads);
      const report = part.respond(point, entropy);
      return speaks ? [1, ...report] : silence;
    },
    law: () => ({ ...part.law(), rate }),
    place: (report) => (report[0] ? part.place(report.slice(1)) : null),
  };
}
