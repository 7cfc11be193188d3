// The page: wires the live round, its pace, the seats and the explorer together.

import { Adversaries } from "./adversaries.js";
import { Explorer } from "./explorer.js";
import { PHASES, Round, listen } from "./round.js";
import { headline } from "./served.js";
import { Sides } from "./sides.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
const round = new Round();
const sides = new Sides(round);
const adversaries = new Adversaries(sides);

sides.onchoose = () => { if (adversaries.asks) adversaries.look(); };

const QUESTIONS = {
  nearby: ["Who is near me? Find out, and tell nobody where you are.", "Apps that say who is near know where everybody is, and many of them leak it: a stranger who queries such an app from a few false places finds you to the metre. Here people find out who is near with a round of coatcheck, and no server learns where anybody is. One of the people attacks: take its seat below."],
  friends: ["Who is near me? A first look from noisy places alone.", "Everybody hands in a noisy place and learns who seems near; nobody can tell whose place was whose."],
  taxi: ["Which driver comes for me? Without a company that knows where I am.", "Riders and drivers hand in noisy places, are matched, and write to each other; nobody can tell whose place was whose."],
};
const STATUS = {
  terms: () => `${round.people} people are ready, and nobody has sent anything yet. The round waits for you.`,
  joined: () => `${round.arrived} of ${round.people} people have handed in a sealed report${round.noted ? `, ${round.noted} of them from a browser` : ""}.`,
  closing: () => "The shuffler has its crowd: it peels its layer, permutes the reports and passes them on.",
  opened: () => "The server has opened the batch and computes on noisy places.",
  published: () => "The board shows one sealed answer per address.",
  collected: () => "Everybody has collected and opened their own answer.",
  settled: () => `Candidates settle by sealed letters: ${Object.keys(round.settled).length} have finished.`,
  letters: () => "Partners exchange letters through the board.",
};

function showQuestion() {
  const [question, lead] = QUESTIONS[round.terms.demo] ?? QUESTIONS.taxi;
  $("question").textContent = question;
  $("lead").textContent = lead;
  const [group] = round.groups;
  $("plain").textContent = `The promise to everybody: ${group.plain}.`;
  $("in-full").textContent = group.full;
  $("seat-trilaterator").hidden = !round.terms.trilaterator;
}

function over() {
  return `The round is over. ${round.service ? `${headline(round.service)} ` : ""}Choose people and seats, replay it, or begin a new one.`;
}

function showStatus() {
  const sentence = round.failed ?? (round.over ? over() : STATUS[round.phase]?.());
  if (sentence && $("status").textContent !== sentence) $("status").textContent = sentence;
  const now = PHASES.indexOf(round.phase);
  for (const [at, step] of [...$("phases").children].entries()) {
    step.classList.toggle("done", at < now || round.over);
    if (at === now && !round.over) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  }
  control();
}

// -- the pace: the server's, or that of a replay of its events

const pace = { playing: false, speed: 1 };
let history = []; // every event of this round
let replay = null;

function control() {
  const over = round.over && !replay;
  const waits = ["terms", null].includes(round.phase) ? "Start the round" : "Play";
  $("play").textContent = replay ? "Skip to the end" : over ? "Replay" : pace.playing ? "Pause" : waits;
  $("play").disabled = !round.terms;
  $("step").disabled = $("speed").disabled = over || Boolean(replay);
  $("again").hidden = !over && !round.failed;
}

async function order(what) {
  const body = JSON.stringify({ ...what, speed: Number($("speed").value) });
  await fetch("/control", { method: "POST", body, headers: { "content-type": "application/json" } });
}

$("play").addEventListener("click", () => {
  if (replay) end();
  else if (round.over) again();
  else order({ do: pace.playing ? "pause" : "play" });
});
$("step").addEventListener("click", () => order({ do: "step" }));
$("speed").addEventListener("change", () => { if (pace.playing) order({ do: "play" }); });
$("again").addEventListener("click", () => order({ do: "again" }));

/** Replay the round from its events: crowds in three seconds, every other step in one. */
function again() {
  const events = history.filter(({ kind }) => kind !== "again");
  const counts = {};
  for (const { kind } of events) counts[kind] = (counts[kind] ?? 0) + 1;
  clear();
  replay = { events, at: 0, timer: 0, due: performance.now() };
  const turn = () => {
    while (replay && replay.at < replay.events.length && replay.due <= performance.now()) {
      const event = replay.events[replay.at];
      replay.at += 1;
      replay.due += counts[event.kind] > 4 ? 3000 / counts[event.kind] : 900;
      take(event);
    }
    if (!replay) return;
    if (replay.at === replay.events.length) replay = null;
    else replay.timer = setTimeout(turn, 30);
  };
  turn();
}

function end() {
  const { events, at, timer } = replay;
  clearTimeout(timer);
  replay = null;
  for (const event of events.slice(at)) take(event);
}

function clear() {
  Object.assign(round, new Round());
  sides.reset();
}

// Events may arrive by the hundred: draw once per frame.
const fresh = new Map();
function take(event) {
  if (event.kind === "again") clear();
  else round.take(event);
  const waiting = fresh.size > 0;
  fresh.set(event.kind, event);
  if (waiting) return;
  requestAnimationFrame(() => {
    const latest = [...fresh.values()];
    fresh.clear();
    for (const event of latest) {
      if (event.kind === "terms") showQuestion();
      sides.update(event);
    }
    showStatus();
    document.body.dataset.phase = round.over ? "done" : round.phase ?? "";
  });
}

listen({
  event: (event) => {
    if (event.kind === "again") {
      if (replay) clearTimeout(replay.timer);
      replay = null;
      history = [];
    }
    history.push(event);
    if (replay) replay.events.push(event);
    else take(event);
  },
  pace: (now) => {
    Object.assign(pace, now);
    const same = [...$("speed").options].find(({ value }) => Number(value) === now.speed);
    if (same) $("speed").value = same.value;
    document.body.dataset.pace = now.playing ? "playing" : "paused";
    control();
  },
});

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const label = button.textContent;
    await navigator.clipboard.writeText($(button.dataset.copy).textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

themed(() => {
  sides.left.redraw();
  sides.right.redraw();
  sides.between();
  adversaries.trilaterator.redraw();
});

const table = await fetch("/static/explorer.json");
export const explorer = new Explorer(await table.json());
export { sides, round };
