// Runs the committed bundle in Node: answers each JSON request, a line of standard input, by one line.

import { createInterface } from "node:readline";
import * as c from "../../../src/coatcheck/demo/page/static/client.js";

const invite = ({ signed, group, trusted, limit, now }) => c.examine(signed, { group, trusted, limit, now });

const seed = (number) => new Uint8Array(32).fill(number);
const [SERVER, SHUFFLER, ALICE, BOB] = [1, 2, 10, 11];
const pairs = (number) => c.keyPairs(c.suiteNamed("x25519"), seed(number));
const parties = ({ server, shufflers, board }) => ({
  server: [server.verifying], shufflers: shufflers.map((party) => [party.verifying]), board: [board.verifying],
});

const plain = (digits) => c.text(c.unhex(digits));
const requestOf = ({ method, scheme, authority, path, headers, content }) => ({
  method: plain(method), scheme: plain(scheme), authority: plain(authority), path: plain(path), headers, content: c.unhex(content),
});
let GATEWAY = "";

/** Return the state machine of the person in a conversation. */
function speaker({ address, secret, cell, lists, asks, side, rings, digest, letter_size: letterSize }) {
  return new c.Settling(c.newProgress(cell, 0), {
    address: c.unhex(address),
    secret: c.unhex(secret),
    asks: side,
    lists: lists.map((list) => list.map(c.unhex)),
    steps: c.schedule(asks),
    digest: c.unhex(digest),
    rings: new c.Rings(rings.radii, rings.side, cell.length),
    letterSize,
  });
}

// What a client does with each kind of vector; `round` is the round that all records belong to.
const kinds = {
  challenge({ input }) {
    const round = c.readTerms(input.document);
    return { challenge: c.hex(c.admission.challenge(round, input.hop)), header: c.admission.demand(round, input.hop) };
  },
  terms({ input }, { terms }) {
    const round = c.verifySignatures(input, parties(terms));
    const sizes = round.terms.groups.map((_, group) => group);
    return {
      digest: c.hex(round.digest), upload_sizes: sizes.map((group) => round.uploadSize(group)),
      entry_sizes: sizes.map((group) => round.entrySize(group)), letter_size: round.letterSize(),
    };
  },
  async keys({ input, suite, decoy }) {
    const own = c.unhex(input);
    const keys = await c.keyPairs(c.suiteNamed(suite), decoy ? c.decoySeed(own, decoy) : own);
    return { contact: c.hex(keys.contact), address: c.hex(keys.address) };
  },
  contact: ({ input, suite }) => ({ address: c.hex(c.contactOf(c.suiteNamed(suite), c.unhex(input)).address) }),
  binding({ input: { purpose, digest, group, hop, upload } }) {
    return { info: c.hex(c.binding(purpose.toLowerCase(), { digest: c.unhex(digest), group, hop, upload: c.unhex(upload) })) };
  },
  law({ input }) {
    const law = c.randomizerOf(input.params).law();
    return { epsilon: law.epsilon, kinds: c.kindsOf(law) };
  },
  crowd({ input: { params, decoys, crowd, epsilon } }) {
    return { delta: c.deltaAbove({ ...c.randomizerOf(params).law(), decoys }, crowd, epsilon) };
  },
  promise({ input: { params, decoys, promise, minimum, delta, trap_delta, ...crowd } }) {
    c.examined({ ...c.randomizerOf(params).law(), decoys }, { ...crowd, epsilon: promise }, { crowd: minimum, delta: delta - trap_delta });
    return {};
  },
  exposure({ input: { task, params, minimum, corrupted, decoys, shufflers } }) {
    return { exposed: c.exposure({ name: task, params }, { minimum, corrupted, decoys, shufflers }) };
  },
  mechanism: ({ input }) => {
    const r = c.randomizerOf(input.params);
    return { heads: String(r.heads), low: r.low, high: r.high, near: input.points.map((point) => r.center(point)) };
  },
  coin: ({ input }) => {
    const r = c.randomizerOf(input);
    return { heads: String(r.heads), low: r.low, high: r.high, payload: c.messages.widths(r).reduce((sum, width) => sum + width, 0) };
  },
  fields: ({ input }) => {
    const r = c.randomizerOf(input.params);
    return {
      heads: r.parts.map((part) => String(part.heads)), low: r.low, high: r.high,
      payload: c.messages.widths(r).reduce((sum, width) => sum + width, 0), near: input.points.map((point) => r.center(point)),
    };
  },
  directions: ({ input }) => {
    const r = c.randomizerOf(input.params);
    const near = (turn) => input.points.map((point) => r.center(point, turn).sort((a, b) => a - b));
    return { heads: String(r.heads), high: r.high, near: input.turns.map(near) };
  },
  payload: ({ input, low, high }) => ({ report: c.messages.decodePayload({ low, high }, c.unhex(input)) }),
  async upload({ input }, round) {
    const { suite, digest } = round;
    const raw = c.unhex(input);
    const [group, id] = [raw[2], raw.slice(36, 52)];
    const outer = c.binding("layer", { digest, group, upload: id });
    const item = await c.unseal(raw.slice(52), { suite, key: (await pairs(SHUFFLER)).opening, bound: outer });
    const inner = c.binding("report", { digest, group });
    const report = await c.unseal(item, { suite, key: (await pairs(SERVER)).opening, bound: inner });
    return { group, id: c.hex(id), item: c.hex(item), report: c.hex(report) };
  },
  receipt({ input }, round, upload) {
    const raw = c.unhex(input);
    c.messages.checkReceipt(raw, upload, round);
    return { digest: c.hex(raw.slice(4, 36)), id: c.hex(raw.slice(36, 52)), content: c.hex(raw.slice(52, 84)) };
  },
  commitment: ({ input: { digest, trap, ...rest } }) => (
    { commitment: c.hex(c.messages.commitment({ digest: c.unhex(digest), trap: c.unhex(trap), ...rest })) }
  ),
  answer({ input }, round) {
    const { values, shared, partners, second } = c.messages.decodeAnswer(c.unhex(input), round);
    const plain = (list) => list.map(({ group, contact, payload }) => [group, c.hex(contact), c.hex(payload)]);
    return { values, shared, partners: plain(partners), second: plain(second) };
  },
  async bulletin({ input }, round) {
    const document = c.messages.readBulletin(c.unhex(input), round);
    const alice = await pairs(ALICE);
    const entry = document.entries[0].find((row) => c.hex(row.slice(0, 16)) === c.hex(alice.address));
    const bound = c.binding("answer", { digest: round.digest, group: 0 });
    const answer = entry ? await c.unseal(entry.slice(16), { suite: round.suite, key: alice.opening, bound }) : new Uint8Array();
    const { outcome, reason, signer, flaw } = document;
    return { outcome, reason, who: signer, flawless: !flaw, root: c.hex(document.heading.slice(-96, -64)), answer: c.hex(answer) };
  },
  async posting({ input }, round) {
    const posting = c.messages.decodePosting(c.unhex(input), round);
    const bob = await pairs(BOB);
    const bound = c.binding("letter", { digest: round.digest, group: 0 });
    const text = await c.unseal(posting.sealed, { suite: round.suite, key: bob.opening, bound });
    const letter = c.messages.decodeLetter(text, round, bob.address);
    return { sender: c.hex(letter.sender.address), counter: letter.counter, body: c.hex(letter.body) };
  },
  checkpoint({ input }, round) {
    const { size, root } = c.messages.readCheckpoint(c.unhex(input), round);
    return { size, root: c.hex(root) };
  },
  watched({ input, witnesses, demanded }, { terms }) {
    const quorum = Array.isArray(witnesses) ? { least: demanded, of: witnesses } : witnesses;
    const { size, root } = c.readCosignedCheckpoint(c.unhex(input), terms.board.verifying, quorum);
    return { size, root: c.hex(root) };
  },
  "binary-http": ({ input, of, fields }) => {
    if (of === "request") return { ...fields, written: c.hex(c.obliviousHttp.encodeRequest(requestOf(fields))) === input };
    const response = c.obliviousHttp.decodeResponse(c.unhex(input));
    return { ...response, content: c.hex(response.content) };
  },
  "gateway-keys": ({ input }) => {
    const { number, key, aead } = c.obliviousHttp.readKeys(c.unhex(input));
    return { number, key: c.hex(key), aead };
  },
  async oblivious({ input, fields: { text, answer } }) {
    // The one-time key is made from the cipher's number 32 times, as the vectors' is.
    const { key } = c.obliviousHttp.readKeys(c.unhex(GATEWAY));
    const aead = c.unhex(input)[6];
    const sealed = await c.obliviousHttp.sealRequest(c.unhex(text), { number: 7, key, aead }, seed(aead).buffer);
    if (c.hex(sealed.raw) !== input) throw new Error("sealed to other bytes");
    if (c.text(await sealed.open(c.unhex(answer))) !== "answer") throw new Error("opened to other bytes");
    return { text, answer };
  },
  cell: ({ input: { place, scale, side } }) => ({ cell: c.cellOf(place, scale, side) }),
  rings({ input: { radii, side, axes } }) {
    const rings = new c.Rings(radii, side, axes);
    return { width: rings.width, around: rings.around.map(({ offset, ring }) => [...offset, ring]), table_size: rings.tableSize };
  },
  nobody: ({ input: { secret, axes } }) => ({ cell: c.cellOfNobody(c.unhex(secret), axes) }),
  point({ input: { text, point: raw, secret } }) {
    const point = raw ? c.readPoint(c.unhex(raw)) : c.hashToPoint(c.unhex(text));
    const factor = new c.Factor(c.unhex(secret));
    const [written, multiple, base] = [point, factor.times(point), factor.point].map((one) => c.hex(one.toBytes(true)));
    return { point: written, multiple, factor: base };
  },
  conversation({ input }) {
    const machine = speaker(input);
    const [written, ready] = [[], []];
    for (const { do: what, words, sender, body } of input.events) {
      if (what === "speak") {
        ready.push(machine.ready());
        written.push(machine.speak(c.unhex(words)).map(([to, text]) => [c.hex(to), c.hex(text)]));
      } else {
        machine[what === "notice" ? "notice" : "receive"](c.unhex(sender), c.unhex(body));
      }
    }
    const { words, dropped } = machine.progress;
    const texts = Object.fromEntries(Object.entries(words).map(([sender, text]) => [sender, c.hex(text)]));
    return { written, ready, partners: machine.partners.map(c.hex), words: texts, dropped };
  },
  root: ({ input }) => ({ root: c.hex(c.rootOf(input.map(c.unhex))) }),
  logged({ input: { checkpoint, place, path } }, round) {
    const { size, root } = c.checkTerms(round, { checkpoint: c.unhex(checkpoint), place, path: path.map(c.unhex) });
    return { size, root: c.hex(root) };
  },
  inclusion({ input: { leaf, place, size, root, path } }) {
    c.checkInclusion(c.unhex(leaf), { place, size, root: c.unhex(root), path: path.map(c.unhex) });
    return {};
  },
  consistency({ input }) {
    const { old, new: size, path } = input;
    const [oldRoot, root] = [input.old_root, input.new_root].map(c.unhex);
    c.checkConsistency({ old, oldRoot, size, root, path: path.map(c.unhex) });
    return {};
  },
};

const verbs = {
  async vectors({ cases, signed, upload }) {
    GATEWAY = cases.find(({ kind }) => kind === "gateway-keys")?.input;
    const round = c.verifySignatures(signed, parties(JSON.parse(signed.document)));
    const outcomes = [];
    for (const vector of cases) {
      try {
        outcomes.push({ fields: await kinds[vector.kind](vector, round, c.unhex(upload)) });
      } catch (error) {
        outcomes.push({ refused: error instanceof c.Refused, sentence: error.message });
      }
    }
    return outcomes;
  },
  mechanism: ({ params, values }) => params.map((entry) => {
    const r = c.randomizerOf(entry);
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
  settle: ({ signed, trusted }) => c.hex(c.verifySignatures(signed, trusted).digest),
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
    return c.writeTicket(c.addReceipt(c.readTicket(ticket), c.unhex(receipt), invite(terms).round));
  },
  async registered({ ticket, receipt, ...terms }) {
    return c.writeTicket(c.addRegistrationReceipt(c.readTicket(ticket), c.unhex(receipt), invite(terms).round));
  },
  async collect({ ticket, bulletin, ...terms }) {
    const { round } = invite(terms);
    const [stored, raw] = [c.readTicket(ticket), c.unhex(bulletin)];
    const answer = await c.collect(stored, raw, round);
    const named = ({ partners }) => partners.map(({ contact }) => c.hex(contact));
    const decoys = (await c.decoyAnswers(stored, raw, round)).map((shown) => shown && named(shown));
    return { values: answer.values, partners: named(answer), decoys, places: answer.partners.map(({ place }) => place ?? null) };
  },
  async write({ ticket, body, to, ...terms }) {
    const { posting, ticket: after } = await c.write(c.readTicket(ticket), c.utf8(body), c.unhex(to), invite(terms).round);
    return { posting: c.hex(posting), ticket: c.writeTicket(after) };
  },
  async read({ ticket, postings, ...terms }) {
    const inbox = await c.read(c.readTicket(ticket), postings.map(c.unhex), invite(terms).round);
    return { bodies: inbox.letters.map((letter) => c.text(letter.body)), refused: inbox.refused, ticket: c.writeTicket(inbox.ticket) };
  },
  follow({ bulletin, proof, before, ...terms }) {
    const { round } = invite(terms);
    const steps = (list) => list.map(c.unhex);
    const paths = { checkpoint: c.unhex(proof.checkpoint), place: proof.place, path: steps(proof.path), since: steps(proof.since) };
    const stored = before && { size: before.size, root: c.unhex(before.root) };
    const { size, root } = c.follow(c.unhex(bulletin), round, paths, stored);
    return { size, root: c.hex(root) };
  },
  async joinByToken({ value, offer, group, trusted, limit, token }) {
    const { signed } = JSON.parse(offer);
    const invitation = c.examine(signed, { group, trusted, limit, now: Math.floor(Date.now() / 1000) });
    const { round } = invitation;
    const credential = c.admission.credential(round, token);
    const { ticket } = await c.join(invitation, value);
    const options = { method: "POST", headers: Object.fromEntries(credential), body: ticket.upload, redirect: "error" };
    const answer = await fetch(`${round.address}/uploads`, options);
    const receipt = new Uint8Array(await answer.arrayBuffer());
    return { ticket: c.writeTicket(c.addReceipt(ticket, receipt, round)), status: answer.status };
  },
  async joinByRelay({ value, relay, url, group, trusted, limit }) {
    const names = [];
    const peers = tapped(relay, url, trusted, names);
    const raw = await peers.get(url);
    peers.level(raw.length);
    const { signed } = JSON.parse(c.text(raw));
    const now = Math.floor(Date.now() / 1000);
    const invitation = c.examine(signed, { group, trusted, limit, now });
    const { ticket } = await c.join(invitation, value);
    const receipt = await peers.send(`${invitation.round.address}/uploads`, ticket.upload);
    return { ticket: c.writeTicket(c.addReceipt(ticket, receipt, invitation.round)), signed, names };
  },
  async collectByRelay({ ticket, relay, url, signed, trusted, body }) {
    const names = [];
    const peers = tapped(relay, url, trusted, names);
    const round = c.verifySignatures(signed, trusted);
    const at = round.atBoard;
    const bulletin = await peers.whole(`${at}/bulletin`);
    const stored = c.readTicket(ticket);
    const answer = await c.collect(stored, bulletin, round);
    const { stamped, ticket: written } = await c.write(stored, c.utf8(body), answer.partners[0].contact, round);
    await peers.send(`${at}/letters`, stamped);
    return { partners: answer.partners.map(({ contact }) => c.hex(contact)), ticket: c.writeTicket(written), bulletin: c.hex(bulletin), names };
  },
  async getByRelay({ relay, url, board, trusted }) {
    const names = [];
    await tapped(relay, url, trusted, names).get(`${board}/checkpoint`);
    return names;
  },
  async lingered({ seconds, count }) {
    const waits = [];
    for (let turn = 0; turn < count; turn += 1) await c.waitRandomly(seconds, { sleep: async (time) => { waits.push(time); } });
    return waits;
  },
  windows({ relay, url, trusted, window }) {
    const round = { terms: { window } };
    return [c.windowOf(round, tapped(relay, url, trusted, [])), c.windowOf(round, { get() {} }), c.windowOf({ terms: {} }, tapped(relay, url, trusted, []))];
  },
  ledger: ({ limit, tickets, costs }) => {
    let ledger = c.beginLedger(limit);
    return tickets.map((ticket, at) => attempt(() => {
      ledger = c.readLedger(JSON.stringify(c.spend(ledger, c.readTicket(ticket), costs[at], 0)));
    }) ?? c.spent(ledger).epsilon);
  },
  disclosure: ({ terms, axes }) => {
    const letters = c.disclosureOf({ terms }, 0, axes);
    const unknown = { ...terms, task: { name: "own", params: {} } };
    const [ticket, cost] = [{ digest: c.unhex("aa"), upload: c.unhex("aa"), round: "r" }, { epsilon: 1, delta: 1e-3, local: 2, round: { endDue: 9 } }];
    const enter = (told) => c.spend(c.beginLedger({ epsilon: 2, delta: 0.1 }), ticket, { ...cost, letters: told }, 0);
    return {
      letters, text: c.disclosureText({ letters, local: 1 }), unknown: attempt(() => c.disclosureOf({ terms: unknown }, 0, axes)),
      silent: c.disclosureOf({ terms: { ...terms, settle: undefined } }, 0, axes),
      entered: attempt(() => c.checkLetters(enter(null), ticket)), allowed: attempt(() => c.checkLetters(enter(letters), ticket)) ?? null,
    };
  },
  /** Play books of rounds and ends; return what is spent, and the worst, after every event. */
  books: ({ limit, books }) => books.map((events) => {
    let ledger = c.beginLedger(limit);
    return events.map(({ round, cost, answered, now }) => {
      const ticket = { digest: c.unhex(round), upload: c.unhex(round), round };
      if (cost) attempt(() => { ledger = c.spend(ledger, ticket, cost, now); });
      else ledger = c.recordOutcome(ledger, ticket, { answered });
      ledger = c.readLedger(JSON.stringify(ledger));
      return [c.spent(ledger), c.worst(ledger, now)].map(({ epsilon, delta }) => [epsilon, delta]);
    });
  }),
  charged: ({ ticket, bulletin, times, ...terms }) => {
    const invitation = invite(terms);
    const stored = c.readTicket(ticket);
    let ledger = c.spend(c.beginLedger({ epsilon: 100, delta: 0.5 }), stored, invitation, 0);
    const ended = bulletin && c.outcomeOf(stored, c.unhex(bulletin), invitation.round);
    if (ended) ledger = c.recordOutcome(ledger, stored, ended);
    ledger = c.readLedger(JSON.stringify(ledger));
    const { epsilon, local } = invitation;
    return { epsilon, local, words: ended?.words ?? "", spent: c.spent(ledger).epsilon, worst: times.map((time) => c.worst(ledger, time).epsilon) };
  },
  proofs: ({ proofs }) => proofs.map(({ leaf, place, size, root, path }) => attempt(
    () => c.checkInclusion(c.unhex(leaf), { place, size, root: c.unhex(root), path: path.map(c.unhex) }),
  )),
};

/** Return a client through a relay that records every origin to which it connects. */
function tapped(relay, first, trusted, names) {
  const recording = (where, options) => {
    names.push(new URL(where).origin);
    return fetch(where, options);
  };
  return new c.RelayClient(relay, { first, trusted, fetch: recording });
}

function attempt(check) {
  try {
    check();
    return null;
  } catch (error) {
    return error.message;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let reply;
  try {
    reply = { answer: (await verbs[request.verb](request)) ?? null };
  } catch (error) {
    reply = { error: error.message, kind: error.constructor.name, stack: error.stack };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
