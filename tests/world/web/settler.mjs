// A browser's person, run in Node: joins a round, collects, settles by letter, and prints the partners.
//
// The ticket is a file; after a crash the same command resumes from it. `crash` says after how many postings
// the process ends, and whether it ends just before the next posting or just after it.

import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import * as c from "../../../src/coatcheck/demo/page/static/client.js";

const { url, group, value, words, trusted, ticket: path, crash } = JSON.parse(readFileSync(0, "utf8"));
const octets = { "content-type": "application/octet-stream" };
const bytes = async (reply) => new Uint8Array(await reply.arrayBuffer());
const rest = (seconds) => new Promise((awake) => { setTimeout(awake, 1000 * seconds); });

async function ask(where, options) {
  for (;;) {
    const reply = await fetch(where, options);
    if (reply.ok) return reply;
    if (![404, 425, 429, 503].includes(reply.status)) throw new Error(`${where}: ${reply.status} ${await reply.text()}`);
    await rest(0.2);
  }
}

function save(ticket) {
  writeFileSync(`${path}.new`, c.writeTicket(ticket));
  renameSync(`${path}.new`, path);
}

const { signed } = await (await ask(url)).json();
const limit = { epsilon: 64, delta: 0.01 };
const now = Math.floor(Date.now() / 1000);
const invitation = c.examine(signed, { group, trusted, limit, now });
const { round } = invitation;
const at = round.terms.board.url;
if (!existsSync(path)) {
  const { ticket } = await c.join(invitation, value);
  save(ticket);
  const receipt = await bytes(await ask(`${url}/uploads`, { method: "POST", body: ticket.upload, headers: octets }));
  save(c.addReceipt(ticket, receipt, round));
}
const ticket = c.readTicket(readFileSync(path, "utf8"));
const raw = await bytes(await ask(`${at}/rounds/${c.hex(round.digest)}/bulletin`));
const answer = await c.collect(ticket, raw, round);
let left = crash?.after ?? Infinity;
const peer = {
  get: async (where) => bytes(await ask(where)),
  async send(where, body) {
    if (left === 0 && crash.when === "before") process.exit(9);
    const reply = await bytes(await ask(where, { method: "POST", body, headers: octets }));
    if (left === 0) process.exit(9);
    left -= 1;
    return reply;
  },
};
const board = new c.BoardView(round, { peer });
const side = await c.settleByLetter(ticket, value, answer, {
  round, sizes: answer.sizes, words: c.utf8(words), board, save, look: 0.2, decoyAnswers: await c.decoyAnswers(ticket, raw, round),
});
console.log(JSON.stringify({
  address: c.hex(side.machine.address),
  partners: side.machine.partners.map(c.hex),
  words: side.words.map(({ body }) => c.text(body)),
  refused: side.refused,
}));
