// Runs the client's sources against hostile peers and in concurrent sessions: one line of JSON in, one line out.

import { createInterface } from "node:readline";
import * as c from "../../../web-client/src/index.js";
import { PersonStore } from "../../../web-client/src/store.js";
import { fileStore } from "../../../web-client/src/node.js";
import { pauseRule } from "../../../web-client/src/relay-client.js";

const nap = (seconds) => new Promise((awake) => { setTimeout(awake, 1000 * seconds); });
const BUDGET = { epsilon: 3, delta: 0.5 };

/** Return a slow store, like a browser's database. */
function slowStore() {
  const texts = new Map();
  return {
    async get(name) {
      const stored = texts.get(name) ?? null;
      await nap(0.01);
      return stored;
    },
    async set(name, text) {
      await nap(0.01);
      texts.set(name, text);
    },
  };
}

/** Return a store with the interface of a browser's Storage. */
function storage() {
  const texts = new Map();
  return { getItem: (name) => texts.get(name) ?? null, setItem: (name, text) => { texts.set(name, text); } };
}

const STORES = {
  slow: () => [slowStore()],
  storage: () => [storage()],
  files: ({ folder }) => [fileStore(folder), fileStore(`${folder}/../${folder.split("/").pop()}`)],
};

function failure(error) {
  return `${error.constructor.name}: ${error.message}`;
}

function person(number, round) {
  const seed = new Uint8Array(32).fill(number);
  const none = new Uint8Array();
  const ticket = { round: "r", digest: round.digest, suite: "x25519", group: 0, seed, upload: none, registrations: [], registered: [], receipt: none, written: 0, seen: [], decoys: [] };
  return { ticket, keys: c.keyPairs(round.suite, seed) };
}

const verbs = {
  /** Several sessions record a round of ε = 2 at once; the ledger has room for one. */
  async ledgers({ kind, folder }) {
    const stores = STORES[kind]({ folder });
    const storeAt = (at) => new PersonStore(stores[at % stores.length], `${at}`.repeat(64));
    const enter = (name) => (book) => {
      if (book.entries.length) throw new c.Refused("spent");
      return { ...book, entries: [{ round: name, epsilon: 2, delta: 0.1, local: 2, disclosures: 0, until: 9e9, end: "" }] };
    };
    const done = await Promise.allSettled([0, 1, 2, 3].map((at) => storeAt(at).updateLedger(enter(`${at}`), BUDGET)));
    return { entered: done.filter(({ status }) => status === "fulfilled").length, rounds: (await storeAt(0).ledger()).entries.map(({ round }) => round) };
  },
  async written({ folder }) {
    const store = fileStore(folder);
    const texts = Array.from({ length: 20 }, (_, at) => `${at}`.repeat(50_000));
    await Promise.all(texts.map((text) => store.set("name", text)));
    return texts.includes(await store.get("name"));
  },
  async remembered() {
    const [store, round] = [slowStore(), { cosigners: {}, terms: { board: { verifying: "00" } } }];
    const [first, second] = await Promise.all(["0", "1"].map((digest) => new PersonStore(store, digest).checkpoint(round)));
    for (const [checkpoint, size] of [[first, 5], [second, 9], [first, 7]]) await checkpoint.remember({ size, root: new Uint8Array(32) });
    return (await new PersonStore(store, "2").checkpoint(round)).before.size;
  },
  async endless({ first, trusted }) {
    let sent = 0;
    const body = () => new ReadableStream({ pull(out) { sent += 1; if (sent > 200) out.close(); else out.enqueue(new Uint8Array(1 << 20)); } });
    const relay = new c.RelayClient("https://relay.example", { first, trusted, fetch: async () => new Response(body()) });
    return [await relay.get(first).catch(failure), sent];
  },
  async until({ first, trusted, values }) {
    const answering = (value) => async () => new Response(new Uint8Array(45), { headers: { "coatcheck-until": value, "coatcheck-signatures": "00" } });
    return Promise.all(values.map((value) => new c.RelayClient("https://relay.example", { first, trusted, fetch: answering(value) }).get(first).catch(failure)));
  },
  /** Request through a relay that gives these lists, one after the other, and a gateway that opens nothing. */
  async lists({ first, trusted, sessions }) {
    const { seenKeys } = new PersonStore(c.memoryStore(), "0".repeat(64));
    const replies = [];
    for (const lists of sessions) {
      const answering = async (_, { method }) => {
        if (method === "POST") return new Response('{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}', { status: 400 });
        const { keys, until, signatures } = lists.shift();
        return new Response(c.unhex(keys), { headers: { "coatcheck-until": `${until}`, "coatcheck-signatures": signatures } });
      };
      const relay = new c.RelayClient("https://relay.example", { first, trusted, fetch: answering, seen: seenKeys });
      while (lists.length) replies.push(await relay.get(first).catch(failure));
    }
    return replies;
  },
  async apart({ pairs, trusted }) {
    const failing = async () => { throw new Error("a request was sent"); };
    return Promise.all(pairs.map(([relay, role]) => new c.RelayClient(relay, { first: `${role}/rounds/0`, trusted, fetch: failing }).get(`${role}/x`).catch((error) => error.constructor.name)));
  },
  drawn({ window, due, count }) {
    const relay = new c.RelayClient("https://relay.example", { first: "https://a.example/rounds/0", trusted: {} });
    const drawn = pauseRule({ terms: { window } }, relay);
    return { drawn: Array.from({ length: count }, () => drawn(due)), plain: pauseRule({ terms: { window } }, {})(due) };
  },
  /** Join through a real relay, and poll for an outcome that is never published. */
  async looks({ url, relay, trusted }) {
    const times = [];
    const timed = (where, options) => { times.push(Date.now()); return fetch(where, options); };
    const session = new c.Session(url, { trusted, relay, fetch: timed, store: c.memoryStore() });
    await session.join([0.2, 0.3], { group: "riders", limit: { epsilon: 9, delta: 1e-3 }, budget: { epsilon: 9, delta: 1e-3 } });
    times.length = 0;
    await session.collect({ patience: 9 }).catch(() => {});
    return times.slice(1).map((time, at) => (time - times[at]) / 1000);
  },
  async strange({ document }) {
    const round = c.readTerms(document);
    const board = (get) => new c.BoardView(round, { peer: { get, send: get } });
    const posted = (text) => board(async () => c.utf8(text)).post([new Uint8Array(1)]).catch(failure);
    const size = c.messages.postingSize(round);
    const piece = new Uint8Array(1);
    const page = { length: size * 500_000, slice: () => piece };
    return [await posted("no JSON"), await posted('{"place":-1}'), await posted('{"place":1e300}'), await board(async () => page).letters(0).catch(failure)];
  },
  cells: ({ places }) => places.map(([place, scale, side]) => {
    try {
      return c.cellOf(place, scale, side);
    } catch (error) {
      return error.constructor.name;
    }
  }),
  axes: ({ sizes }) => sizes.map(([radius, axes]) => {
    try {
      return new c.Rings([radius], 1, axes).around.length;
    } catch (error) {
      return error.constructor.name;
    }
  }),
  /** Settle with two candidates on a board that accepts letters for one of them only, or hides the person's own notice. */
  async settle({ document, full, patience }) {
    const round = c.readTerms(document);
    const [{ ticket }, ...others] = [1, 2, 3].map((number) => person(number, round));
    const contacts = await Promise.all(others.map(async ({ keys }) => (await keys).contact));
    const [accepted, answer] = [[], { partners: contacts.map((contact) => ({ contact })), second: [] }];
    const board = {
      window: 0, pause: (due) => due, letters: async () => [], prove: async () => {},
      async post(stamped) {
        if (stamped.some((letter) => c.hex(letter).startsWith(c.hex(contacts[0])) && full)) throw new c.Refused("full");
        accepted.push(...stamped.map((letter) => contacts.findIndex((contact) => c.hex(letter).startsWith(c.hex(contact)))));
        return 7;
      },
    };
    const options = { round, sizes: [3, 4], words: new Uint8Array(), board, save: () => {}, look: 0.1, patience };
    const end = await c.settleByLetter(ticket, [0.5, 0.5], answer, options).catch(failure);
    return { end, taken: accepted };
  },
};

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
