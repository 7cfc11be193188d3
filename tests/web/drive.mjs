// Runs the committed bundle in Node: reads one JSON request from standard input, answers in JSON.

import { readFileSync } from "node:fs";
import * as c from "../../src/coatcheck/web/static/client.js";

const request = JSON.parse(readFileSync(0, "utf8"));
const invite = ({ signed, group, trusted, limit, now }) => c.examine(signed, { group, trusted, limit, now });

const verbs = {
  mechanism: ({ params, values }) => params.map((one) => {
    const r = c.randomizerOf(one);
    return {
      heads: String(r.heads), low: r.low, high: r.high, law: r.law(),
      points: values.map((value) => r.snap(value)),
      centers: values.map((value) => r.center(r.snap(value))),
      places: [r.low, r.high].map((report) => r.place(report)),
    };
  }),
  refusal: ({ params }) => { c.randomizerOf(params); },
  reports: ({ params, point, count }) => {
    const r = c.randomizerOf(params);
    const entropy = new c.Entropy();
    return Array.from({ length: count }, () => r.respond(point, entropy));
  },
  deltas: ({ asks }) => asks.map(({ law, crowd, epsilon }) => c.deltaAbove(law, crowd, epsilon)),
  amplify: ({ asks }) => asks.map(({ law, ...rest }) => c.amplify(law, rest)),
  settle: ({ signed, trusted }) => c.hex(c.settle(signed, trusted).digest),
  sealing: ({ suite, keys }) => keys.map((key) => attempt(() => c.sealingKey(c.suiteNamed(suite), c.unhex(key)))),
  verifying: ({ keys }) => keys.map((key) => attempt(() => c.verifyingKey(c.unhex(key)))),
  async pairs({ suite, seed }) {
    const keys = await c.keyPairs(c.suiteNamed(suite), c.unhex(seed));
    return { contact: c.hex(keys.contact), address: c.hex(keys.address) };
  },
  async open({ suite, key, bound, sealed }) {
    return c.hex(await c.unseal(c.unhex(sealed), { suite: c.suiteNamed(suite), key: c.unhex(key), bound: c.unhex(bound) }));
  },
  async join({ value, ...terms }) {
    const invitation = invite(terms);
    const { ticket, report } = await c.join(invitation, value);
    const address = await c.addressOfTicket(ticket, invitation.round);
    return { ticket: c.writeTicket(ticket), report, address, epsilon: invitation.epsilon };
  },
  async receipt({ ticket, receipt, ...terms }) {
    return c.writeTicket(c.keepReceipt(c.readTicket(ticket), c.unhex(receipt), invite(terms).round));
  },
  async collect({ ticket, bulletin, ...terms }) {
    const answer = await c.collect(c.readTicket(ticket), c.unhex(bulletin), invite(terms).round);
    return { values: answer.values, partners: answer.partners.map((one) => c.hex(one.contact)), places: answer.partners.map((one) => one.place ?? null) };
  },
  async write({ ticket, body, to, ...terms }) {
    const { posting, ticket: after } = await c.write(c.readTicket(ticket), c.utf8(body), c.unhex(to), invite(terms).round);
    return { posting: c.hex(posting), ticket: c.writeTicket(after) };
  },
  async read({ ticket, postings, ...terms }) {
    const inbox = await c.read(c.readTicket(ticket), postings.map(c.unhex), invite(terms).round);
    return { bodies: inbox.letters.map((one) => c.text(one.body)), refused: inbox.refused, ticket: c.writeTicket(inbox.ticket) };
  },
  inclusion: ({ proofs }) => proofs.map(({ leaf, place, size, root, path }) => attempt(
    () => c.checkInclusion(c.unhex(leaf), { place, size, root: c.unhex(root), path: path.map(c.unhex) }),
  )),
};

function attempt(check) {
  try {
    check();
    return null;
  } catch (error) {
    return error.message;
  }
}

try {
  const answer = await verbs[request.verb](request);
  process.stdout.write(JSON.stringify({ answer: answer ?? null }));
} catch (error) {
  process.stdout.write(JSON.stringify({ error: error.message, kind: error.constructor.name, stack: error.stack }));
}
