// Fieldwise response: one mechanism per field of a product, which share the budget. SPEC section 13.
//
// The fields' reports stand side by side, as in coatcheck/randomizers/fieldwise.py.

import { TOSSES, fraction } from "./biased-coin.js";
import { complete, domainOf } from "./domains.js";
import { Misuse, Refused } from "./errors.js";

const MAX_NUMBERS = 1024; // of a report
const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const same = (one, other) => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other));
const sorted = (value) => (isRecord(value) ? Object.keys(value).sort().map((key) => [key, sorted(value[key])]) : value);

/** The names of a product's fields, in order. */
function fieldsOf(domain) {
  if (!isRecord(domain) || domain.kind !== "product") throw new Refused("fieldwise response works on a product, and the terms describe none");
  complete(domain, ["kind", "fields", "shares"]);
  const { fields, shares } = domain;
  const names = isRecord(fields) ? Object.keys(fields) : [];
  const good = names.length > 0 && isRecord(shares) && Object.keys(shares).length === names.length
    && names.every((name) => Object.hasOwn(shares, name) && Number.isFinite(shares[name]) && shares[name] > 0);
  if (!good) throw new Refused("the terms describe no product: at least one field, and a share above 0 of each");
  // JavaScript puts names that are whole numbers first, and the order of the fields is that of the report.
  const number = names.find((name) => /^(0|[1-9][0-9]*)$/.test(name));
  if (number !== undefined) throw new Refused(`a field is called ${number}, and fields named by numbers lose their order here: join with the command line`);
  return names;
}

/** A mechanism for every field, in the product's order; `make` makes one of its parameters. */
export function fieldwise(params, make) {
  complete(params, ["name", "domain", "parts"]);
  const { domain, parts } = params;
  const names = fieldsOf(domain);
  if (!isRecord(parts) || !same(Object.keys(parts), names)) {
    throw new Refused(`the terms give no mechanism for each of the fields ${names.join(", ")}, in that order`);
  }
  const fields = names.map((name) => {
    const { dimension } = domainOf(domain.fields[name]);
    if (parts[name]?.name === "coin") throw new Refused(`field ${name} has a coin: a coin stands before the whole report`);
    const part = make(parts[name]);
    if (!same(parts[name].domain, domain.fields[name])) throw new Refused(`the mechanism of field ${name} is made for another domain`);
    return { name, part, dimension, width: part.low.length };
  });
  const low = fields.flatMap(({ part }) => part.low);
  if (low.length > MAX_NUMBERS) throw new Refused(`a report has at most ${MAX_NUMBERS} numbers, this one has ${low.length}`);
  /** What `work` makes of each field and of its numbers in a list where fields stand side by side. */
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
        throw new Misuse(`a value has the fields ${names.join(", ")} here: give each of them, and no other`);
      }
      return fields.flatMap(({ name, part }) => part.snap(value[name]));
    },
    respond: (point, entropy) => each(point, "dimension", ({ part }, own) => part.respond(own, entropy)).flat(),
    center: (point, turn) => each(point, "dimension", ({ part }, own) => part.center(own, turn)),
    law() {
      const laws = fields.map(({ part }) => part.law());
      const sum = laws.reduce((total, { epsilon }) => total + epsilon, 0);
      return { epsilon: sum * (1 + laws.length * 2 ** -52), fields: laws };
    },
    place: (report) => Object.fromEntries(each(report, "width", ({ name, part }, own) => [name, part.place(own)])),
  };
}

/** Speak by the part with chance `rate`, else be silent; silence is a report like any other. */
export function coin(params, make) {
  complete(params, ["name", "part", "rate"]);
  const { rate } = params;
  if (typeof rate !== "number" || !(rate >= 2 ** -32 && rate < 1)) {
    throw new Refused(`a coin has a rate from 2^-32 to below 1, this one has ${rate}`);
  }
  if (params.part?.name === "coin") throw new Refused("a coin stands before one mechanism, not before a coin");
  const part = make(params.part);
  const [top, bottom] = fraction(rate);
  const heads = (TOSSES * top) / bottom; // never above the rate: speaking less often reveals no more
  const silence = [0, ...part.low];
  return {
    ...part,
    name: "coin",
    heads,
    low: silence,
    high: [1, ...part.high],
    respond(point, entropy) {
      // The part's report is always made, so that the work does not tell how the coin fell.
      const speaks = entropy.coin(heads);
      const made = part.respond(point, entropy);
      return speaks ? [1, ...made] : silence;
    },
    law: () => ({ ...part.law(), rate }),
    place: (report) => (report[0] ? part.place(report.slice(1)) : null),
  };
}
