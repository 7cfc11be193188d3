// A person takes part from a browser: everything private happens in client.js, here it is fetched,
// stored and shown. The ticket is stored before the upload is sent; a retry sends the same bytes.

import * as coatcheck from "./client.js";
import { digits } from "./figures.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
themed(() => {});

let known = null;
let relay = null; // everything to the roles goes through it, and nothing directly
let state = null;

const name = (digest) => `coatcheck/ticket/${digest}`;

function say(id, sentence, { bad = false } = {}) {
  $(id).hidden = false;
  $(id).textContent = sentence;
  $(id).classList.toggle("bad", bad);
}

/** Do something; what goes wrong becomes a sentence on the page. */
async function attempt(id, work) {
  try {
    await work();
  } catch (error) {
    say(id, error.message, { bad: true });
  }
}

async function ask(path, options) {
  const reply = await fetch(path, options);
  if (reply.ok) return reply;
  const { sentence } = await reply.json();
  throw new coatcheck.Refused(sentence);
}

/** Tell the demo's page what was sent, so that it can show it. A page of your own has no such thing. */
const tell = (path, body) => ask(path, { method: "POST", body });
const json = (raw) => JSON.parse(coatcheck.text(raw));
const here = ({ url }) => `${url}/rounds/${coatcheck.hex(state.round.digest)}`; // the terms say where a role is
const atBoard = () => here(state.round.terms.board);
const limit = () => ({ epsilon: Number($("limit").value), delta: 1e-2 });
const now = () => Math.floor(Date.now() / 1000);

/** Wait for a time drawn within the window of the terms, so that the relay's times say nothing. */
const linger = () => coatcheck.waitRandomly(coatcheck.windowOf(state.round, relay));

function invite() {
  return coatcheck.examine(known.signed, { group: $("group").value, trusted: known.trusted, limit: limit(), now: now() });
}

const LEDGER = "coatcheck/ledger";

/** The ledger of this browser; the limit is fixed when the first round is entered. */
function ledger() {
  const stored = localStorage.getItem(LEDGER);
  return stored ? coatcheck.readLedger(stored) : coatcheck.beginLedger({ epsilon: Number($("total").value), delta: 1e-2 });
}

function count() {
  const stored = localStorage.getItem(LEDGER);
  if (!stored) return;
  const book = coatcheck.readLedger(stored);
  $("total").value = book.epsilon;
  $("total").disabled = true;
  const { epsilon } = coatcheck.spent(book);
  $("spent").textContent = `Spent ε = ${epsilon.toPrecision(4)} of ${book.epsilon} in ${book.entries.length} round${book.entries.length > 1 ? "s" : ""}.`;
}

function keep(ticket) {
  state = { ...state, ticket };
  localStorage.setItem(name(coatcheck.hex(ticket.digest)), coatcheck.writeTicket(ticket));
  show();
}

async function show() {
  const there = Boolean(state?.ticket);
  $("collect").disabled = $("forget").disabled = $("fetch").disabled = !there;
  $("send").disabled = there;
  $("post").disabled = !state?.answer?.partners.length;
  $("settling").hidden = !state?.round.terms.settle;
  $("settle").disabled = !there;
  $("kept").textContent = there ? `Address ${await coatcheck.addressOfTicket(state.ticket, state.round)}.` : "None yet.";
}

/** Fetch the terms, check every signature, and say what they promise. */
async function begin() {
  known = await (await ask("/round")).json();
  const round = coatcheck.verifySignatures(known.signed, known.trusted);
  state = { round, ticket: null, answer: null };
  const asked = { first: here(round.terms.shufflers[0]), trusted: known.trusted, ask: (where, options) => fetch(where, options) };
  relay = new coatcheck.RelayClient(known.relay, asked);
  relay.level(JSON.stringify(known).length);
  $("group").replaceChildren(...round.terms.groups.map((group) => new Option(group.name, group.name)));
  const [first] = round.terms.groups;
  const { lo, hi } = first.randomizer.domain;
  $("latitude").value = ((lo[0] + hi[0]) / 2).toFixed(4);
  $("longitude").value = ((lo[1] + hi[1]) / 2).toFixed(4);
  const stored = localStorage.getItem(name(coatcheck.hex(round.digest)));
  if (stored) state.ticket = coatcheck.readTicket(stored);
  if (state.ticket) $("group").selectedIndex = state.ticket.group;
  count();
  promise();
  await show();
}

function promise() {
  const { of, epsilon, delta, local, randomizer, round } = invite();
  const flood = round.open
    ? ` Anybody may report in this round: against an outsider who floods it with reports, only the local ε = ${digits(local)} is proven.` : "";
  say("terms", `Signed by everybody whose key is known. Among at least ${of.minimum} ${of.name}, this browser finds ε = ${digits(epsilon)} at δ = ${delta} (promised: ${digits(of.promise.epsilon)}), by ${randomizer.name} response drawn here.${flood}`);
}

async function join() {
  // Where the round stands now: one that is over costs nothing.
  const { phase } = json(await relay.get(here(state.round.terms.shufflers[0]))).status;
  $("over").hidden = phase === "open";
  if (phase !== "open") throw new coatcheck.Refused(`the round takes no reports now, it is ${phase}: nothing was spent. Open a new round and take part in that one.`);
  const invitation = invite();
  const board = view();
  await coatcheck.retry(() => board.terms(), 30); // a witness may be a moment behind
  const value = [Number($("latitude").value), Number($("longitude").value)];
  const { ticket, report } = await coatcheck.join(invitation, value);
  const book = coatcheck.spend(ledger(), ticket, invitation);
  localStorage.setItem(LEDGER, JSON.stringify(book));
  count();
  keep(ticket);
  await send();
  say("joined", `Sent ${ticket.upload.length} sealed bytes with the lattice point (${report.join(", ")}); the shuffler's receipt holds. Your place itself was not sent and is not kept. Now let the round go on, on its page.`);
}

async function send() {
  await linger();
  const receipt = await relay.send(`${here(state.round.terms.shufflers[0])}/uploads`, state.ticket.upload);
  keep(coatcheck.addReceipt(state.ticket, receipt, state.round));
  await tell("/upload", state.ticket.upload);
}

async function collect() {
  if (!state.ticket.receipt.length) await send();
  const raw = await bulletin();
  const board = view();
  // The witnesses follow the board a moment later.
  const point = await coatcheck.retry(() => board.check(raw), 30);
  // The ledger first: what a round cost is known by how it ended.
  localStorage.setItem(LEDGER, JSON.stringify(coatcheck.recordOutcome(ledger(), state.ticket, coatcheck.outcomeOf(state.ticket, raw, state.round))));
  count();
  const answer = await coatcheck.collect(state.ticket, raw, state.round);
  state = { ...state, answer };
  const said = answer.partners.map((partner) => `${state.round.terms.groups[partner.group].name}: ${coatcheck.hex(partner.address)}`);
  const numbers = answer.values.map((value) => value.toPrecision(6));
  if (state.round.terms.settle) say("answer", `You have ${answer.partners.length + answer.second.length} candidates: settle with them by letter.`);
  else say("answer", said.length ? `Your partner among the ${said.join("; ")}` : numbers.length ? `Your answer: ${numbers.join(", ")}` : "No partner was left for you this time.");
  $("answer").append(` (The board's signed log of ${point.size} entries shows this bulletin to everybody.)`);
  await show();
}

/** Fetch the round's end; if there is none yet, say by when there must be, or who owes it. */
async function bulletin() {
  try {
    await relay.get(`${atBoard()}/heading`); // that there is an end; what it is comes after a while
    await linger();
    return await relay.whole(`${atBoard()}/bulletin`);
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  const due = state.round.endDue;
  const by = new Date(due * 1000).toISOString();
  if (now() < due) throw new coatcheck.Refused(`the round has not ended, and must by ${by}: your ticket waits`);
  count();
  throw new coatcheck.Refused(`the board shows no signed end of this round, due by ${by}: the server ${state.round.terms.server.name} owes it; your ledger counts the round with its local ε until then`);
}

/** The board as this browser follows it: witnesses are demanded, and the last checkpoint is kept. */
function view() {
  const key = `coatcheck/checkpoint/${state.round.terms.board.verifying}`;
  const kept = JSON.parse(localStorage.getItem(key));
  return new coatcheck.BoardView(state.round, {
    peer: relay,
    before: kept && { size: kept.size, root: coatcheck.unhex(kept.root) },
    remember: ({ size, root }) => localStorage.setItem(key, JSON.stringify({ size, root: coatcheck.hex(root) })),
  });
}

async function post(event) {
  event.preventDefault();
  const [partner] = state.answer.partners;
  const { posting, stamped, ticket } = await coatcheck.write(state.ticket, coatcheck.utf8($("body").value), partner.contact, state.round);
  keep(ticket);
  await linger();
  await relay.send(`${atBoard()}/letters`, stamped);
  await tell("/letters", posting);
  item(`to your partner: ${$("body").value}`, "mine");
  $("body").value = "";
  say("mailed", "Signed, sealed and posted; who wrote it does not show on the board.");
}

async function receive() {
  await linger();
  const posted = await view().letters(0, await coatcheck.addressOfTicket(state.ticket, state.round));
  const inbox = await coatcheck.read(state.ticket, posted, state.round);
  keep(inbox.ticket);
  for (const letter of inbox.letters) item(`from your partner: ${coatcheck.text(letter.body)}`, "");
  // A letter read before is on the board for ever; the ticket remembers and it is not read twice.
  say("mailed", inbox.letters.length ? `${inbox.letters.length} new.` : "No new letter.");
}

/** Settle with the candidates of the answer; a page that is opened again goes on from the ticket. */
async function settle() {
  if (!state.answer) await collect();
  say("settled", "Letters go back and forth. This takes as long as the slowest of your candidates.");
  const { round, answer } = state;
  const place = [Number($("latitude").value), Number($("longitude").value)];
  const words = coatcheck.utf8($("words").value);
  const side = await coatcheck.settleByLetter(state.ticket, place, answer, { round, sizes: answer.sizes, words, board: view(), save: keep });
  const found = side.machine.partners.map(coatcheck.hex);
  say("settled", found.length ? `You meet ${found.join(", ")}.` : "Nobody was left for you this time.");
  for (const { body } of side.words) item(`from your partner: ${coatcheck.text(body)}`, "");
}

function item(text, kind) {
  const one = document.createElement("li");
  one.textContent = text;
  one.className = kind;
  $("letters").querySelector(".none")?.remove();
  $("letters").append(one);
}

/** Have the demo begin another round, and wait for its terms. */
async function fresh() {
  const before = known.signed.document;
  await tell("/control", JSON.stringify({ do: "again" }));
  say("joined", "The round goes to its end, and a new one opens …");
  while ((await (await ask("/round")).json()).signed.document === before) await new Promise((done) => { setTimeout(done, 300); });
  $("over").hidden = true;
  await begin();
  say("joined", "A new round is open and waits for you.");
}

function forget() {
  localStorage.removeItem(name(coatcheck.hex(state.round.digest)));
  state = { ...state, ticket: null, answer: null };
  show();
}

$("join").addEventListener("submit", (event) => {
  event.preventDefault();
  attempt("joined", join);
});
for (const id of ["limit", "group"]) $(id).addEventListener("change", () => attempt("terms", async () => promise()));
$("fresh").addEventListener("click", () => attempt("joined", fresh));
$("collect").addEventListener("click", () => attempt("answer", collect));
$("settle").addEventListener("click", () => attempt("settled", settle));
$("mail").addEventListener("submit", (event) => attempt("mailed", () => post(event)));
$("fetch").addEventListener("click", () => attempt("mailed", receive));
$("forget").addEventListener("click", forget);
await attempt("terms", begin);
