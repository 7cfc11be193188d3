// The page on which a person takes part from a browser. client.js does everything private; this file fetches,
// stores and shows. It stores the ticket before it sends the upload; a retry sends the same bytes.

import * as coatcheck from "./client.js";
import { digits } from "./figures.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
themed(() => {});

let offer = null; // the signed terms, the trusted keys and the relay, as the demo serves them
let relay = null; // every request to a role goes through it
let state = null;

const name = (digest) => `coatcheck/ticket/${digest}`;

function say(id, sentence, { bad = false } = {}) {
  $(id).hidden = false;
  $(id).textContent = sentence;
  $(id).classList.toggle("bad", bad);
}

/** Run `work`, and show its error, if any, as a sentence on the page. */
async function attempt(id, work) {
  try {
    await work();
  } catch (error) {
    say(id, error.message, { bad: true });
  }
}

async function request(path, options) {
  const reply = await fetch(path, options);
  if (reply.ok) return reply;
  const { sentence } = await reply.json();
  throw new coatcheck.Refused(sentence);
}

/** Notify the demo's server of what was sent, so that its page can show it. Only the demo does this. */
const notify = (path, body) => request(path, { method: "POST", body });
const json = (raw) => JSON.parse(coatcheck.text(raw));
const roundAt = ({ url }) => `${url}/rounds/${coatcheck.hex(state.round.digest)}`; // the terms name each role's address
const atBoard = () => roundAt(state.round.terms.board);
const limit = () => ({ epsilon: Number($("limit").value), delta: 1e-2, disclosures: Number($("disclosures").value) });
const now = () => Math.floor(Date.now() / 1000);

/** Wait for a random time within the terms' window, so that request times do not link requests. */
const waitRandomly = () => coatcheck.waitRandomly(coatcheck.windowOf(state.round, relay));

function invitationNow() {
  return coatcheck.examine(offer.signed, { group: $("group").value, trusted: offer.trusted, limit: limit(), now: now() });
}

const LEDGER = "coatcheck/ledger";

/** Return this browser's ledger; its first round fixes the limit. */
function ledger() {
  const stored = localStorage.getItem(LEDGER);
  return stored ? coatcheck.readLedger(stored) : coatcheck.beginLedger({ epsilon: Number($("total").value), delta: 1e-2 });
}

function showSpent() {
  const stored = localStorage.getItem(LEDGER);
  if (!stored) return;
  const book = coatcheck.readLedger(stored);
  $("total").value = book.epsilon;
  $("total").disabled = true;
  const [{ epsilon }, { epsilon: most }, told] = [coatcheck.spent(book), coatcheck.worst(book), coatcheck.disclosures(book)];
  const letters = told ? ` By letters at most ${told} candidates learned an answer about a place.` : "";
  const overdue = most > epsilon ? ` An outcome is overdue, which may make it ${most.toPrecision(4)}.` : "";
  $("spent").textContent = `Spent ε = ${epsilon.toPrecision(4)} of ${book.epsilon} in ${book.entries.length} round${book.entries.length > 1 ? "s" : ""}.${overdue}${letters}`;
}

function save(ticket) {
  state = { ...state, ticket };
  localStorage.setItem(name(coatcheck.hex(ticket.digest)), coatcheck.writeTicket(ticket));
  show();
}

async function show() {
  const hasTicket = Boolean(state?.ticket);
  $("collect").disabled = $("forget").disabled = $("fetch").disabled = !hasTicket;
  $("send").disabled = hasTicket;
  $("post").disabled = !state?.answer?.partners.length;
  $("settling").hidden = !state?.round.terms.settle;
  $("settle").disabled = !hasTicket;
  $("ticket").textContent = hasTicket ? `Address ${await coatcheck.addressOfTicket(state.ticket, state.round)}.` : "None yet.";
}

/** Fetch the terms, check every signature, and show what they promise. */
async function begin() {
  offer = await (await request("/round")).json();
  const round = coatcheck.verifySignatures(offer.signed, offer.trusted);
  state = { round, ticket: null, answer: null };
  const options = { first: roundAt(round.terms.shufflers[0]), trusted: offer.trusted };
  relay = new coatcheck.RelayClient(offer.relay, options);
  relay.level(JSON.stringify(offer).length);
  $("group").replaceChildren(...round.terms.groups.map((group) => new Option(group.name, group.name)));
  const [first] = round.terms.groups;
  const { lo, hi } = first.randomizer.domain;
  $("latitude").value = ((lo[0] + hi[0]) / 2).toFixed(4);
  $("longitude").value = ((lo[1] + hi[1]) / 2).toFixed(4);
  const stored = localStorage.getItem(name(coatcheck.hex(round.digest)));
  if (stored) state.ticket = coatcheck.readTicket(stored);
  if (state.ticket) $("group").selectedIndex = state.ticket.group;
  showSpent();
  promise();
  await show();
}

function promise() {
  const invitation = invitationNow();
  const { of, epsilon, delta, local, randomizer, round } = invitation;
  const flood = round.open
    ? ` Anybody may report in this round: against an outsider who floods it with reports, only the local ε = ${digits(local)} is proven.` : "";
  say("terms", `Signed by the server and every shuffler, with keys that this page trusts. Among at least ${of.minimum} ${of.name}, this browser computes ε = ${digits(epsilon)} at δ = ${delta} (promised: ${digits(of.promise.epsilon)}), by ${randomizer.name} response drawn here.${flood}`);
  $("telling").hidden = !round.terms.settle;
  $("disclosure").textContent = coatcheck.disclosureText(invitation);
}

async function join() {
  // Check the phase first: a round that is over must cost nothing.
  const { phase } = json(await relay.get(roundAt(state.round.terms.shufflers[0]))).status;
  $("over").hidden = phase === "open";
  if (phase !== "open") throw new coatcheck.Refused(`the round takes no reports now, its phase is ${phase}: nothing was spent. Open a new round and take part in it.`);
  const invitation = invitationNow();
  const board = view();
  await coatcheck.retry(() => board.terms(), 30); // witnesses may lag behind the board
  const value = [Number($("latitude").value), Number($("longitude").value)];
  const { ticket, report } = await coatcheck.join(invitation, value);
  const book = coatcheck.spend(ledger(), ticket, invitation);
  localStorage.setItem(LEDGER, JSON.stringify(book));
  showSpent();
  save(ticket);
  await send();
  say("joined", `Sent ${ticket.upload.length} sealed bytes with the lattice point (${report.join(", ")}); the shuffler's receipt is valid. Your place itself was not sent and is not stored. Now let the round continue on its page.`);
}

async function send() {
  await waitRandomly();
  const receipt = await relay.send(`${roundAt(state.round.terms.shufflers[0])}/uploads`, state.ticket.upload);
  save(coatcheck.addReceipt(state.ticket, receipt, state.round));
  await notify("/upload", state.ticket.upload);
}

async function collect() {
  if (!state.ticket.receipt.length) await send();
  const raw = await bulletin();
  const board = view();
  // Witnesses may lag behind the board.
  const point = await coatcheck.retry(() => board.check(raw), 30);
  // The ledger first: the outcome decides what the round cost.
  localStorage.setItem(LEDGER, JSON.stringify(coatcheck.recordOutcome(ledger(), state.ticket, coatcheck.outcomeOf(state.ticket, raw, state.round))));
  showSpent();
  const answer = await coatcheck.collect(state.ticket, raw, state.round);
  state = { ...state, answer, decoyAnswers: await coatcheck.decoyAnswers(state.ticket, raw, state.round) };
  const partners = answer.partners.map((partner) => `${state.round.terms.groups[partner.group].name}: ${coatcheck.hex(partner.address)}`);
  const numbers = answer.values.map((value) => value.toPrecision(6));
  if (state.round.terms.settle) say("answer", `You have ${answer.partners.length + answer.second.length} candidates: settle with them by letter.`);
  else say("answer", partners.length ? `Your partner among the ${partners.join("; ")}` : numbers.length ? `Your answer: ${numbers.join(", ")}` : "No partner was left for you this time.");
  $("answer").append(` (The board's signed log of ${point.size} entries shows this bulletin to everybody.)`);
  await show();
}

/** Fetch the bulletin; if there is none yet, say when it is due, or which server failed to publish it. */
async function bulletin() {
  try {
    await relay.get(`${atBoard()}/heading`); // only whether there is an outcome; the bulletin follows after a random time
    await waitRandomly();
    return await relay.whole(`${atBoard()}/bulletin`);
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  const due = state.round.endDue;
  const by = new Date(due * 1000).toISOString();
  if (now() < due) throw new coatcheck.Refused(`the round has not ended; its outcome is due by ${by}: keep your ticket and try later`);
  showSpent();
  throw new coatcheck.Refused(`the board shows no signed outcome of this round, which was due by ${by}: ask the operator of the server ${state.round.terms.server.name}; until it appears, your ledger sets its local ε aside`);
}

/** Return this browser's view of the board, which demands witnesses and stores the last checkpoint. */
function view() {
  const key = `coatcheck/checkpoint/${state.round.terms.board.verifying}`;
  const checkpoint = JSON.parse(localStorage.getItem(key));
  return new coatcheck.BoardView(state.round, {
    peer: relay,
    before: checkpoint && { size: checkpoint.size, root: coatcheck.unhex(checkpoint.root) },
    remember: ({ size, root }) => localStorage.setItem(key, JSON.stringify({ size, root: coatcheck.hex(root) })),
  });
}

async function post(event) {
  event.preventDefault();
  const [partner] = state.answer.partners;
  const { posting, stamped, ticket } = await coatcheck.write(state.ticket, coatcheck.utf8($("body").value), partner.contact, state.round);
  save(ticket);
  await waitRandomly();
  await relay.send(`${atBoard()}/letters`, stamped);
  await notify("/letters", posting);
  item(`to your partner: ${$("body").value}`, "own");
  $("body").value = "";
  say("mailed", "Signed, sealed and posted; the board does not show who wrote it.");
}

async function receive() {
  await waitRandomly();
  const posted = await view().letters(0, await coatcheck.addressOfTicket(state.ticket, state.round));
  const inbox = await coatcheck.read(state.ticket, posted, state.round);
  save(inbox.ticket);
  for (const letter of inbox.letters) item(`from your partner: ${coatcheck.text(letter.body)}`, "");
  // Letters stay on the board; the ticket records the ones already read.
  say("mailed", inbox.letters.length ? `${inbox.letters.length} new.` : "No new letter.");
}

/** Settle with the candidates of the answer, or resume from the ticket. */
async function settle() {
  coatcheck.checkLetters(ledger(), state.ticket);
  if (!state.answer) await collect();
  say("settled", "Letters go back and forth. This takes as long as the slowest of your candidates.");
  const { round, answer, decoyAnswers } = state;
  const place = [Number($("latitude").value), Number($("longitude").value)];
  const words = coatcheck.utf8($("words").value);
  const side = await coatcheck.settleByLetter(state.ticket, place, answer, { round, sizes: answer.sizes, words, board: view(), save, decoyAnswers });
  const partners = side.machine.partners.map(coatcheck.hex);
  say("settled", partners.length ? `You meet ${partners.join(", ")}.` : "Nobody was left for you this time.");
  for (const { body } of side.words) item(`from your partner: ${coatcheck.text(body)}`, "");
}

function item(text, kind) {
  const entry = document.createElement("li");
  entry.textContent = text;
  entry.className = kind;
  $("letters").querySelector(".none")?.remove();
  $("letters").append(entry);
}

/** Let the demo begin another round, and wait for its terms. */
async function fresh() {
  const before = offer.signed.document;
  await notify("/control", JSON.stringify({ do: "again" }));
  say("joined", "The round is finishing, and a new one opens …");
  while ((await (await request("/round")).json()).signed.document === before) await new Promise((done) => { setTimeout(done, 300); });
  $("over").hidden = true;
  await begin();
  say("joined", "A new round is open: take part above.");
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
for (const id of ["limit", "group", "disclosures"]) $(id).addEventListener("change", () => attempt("terms", async () => promise()));
$("fresh").addEventListener("click", () => attempt("joined", fresh));
$("collect").addEventListener("click", () => attempt("answer", collect));
$("settle").addEventListener("click", () => attempt("settled", settle));
$("mail").addEventListener("submit", (event) => attempt("mailed", () => post(event)));
$("fetch").addEventListener("click", () => attempt("mailed", receive));
$("forget").addEventListener("click", forget);
await attempt("terms", begin);
