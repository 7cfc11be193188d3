// The page: wires the live round, the adversaries and the explorer together.

import { Adversaries } from "./adversaries.js";
import { Explorer } from "./explorer.js";
import { PHASES, Round, listen } from "./round.js";
import { Sides } from "./sides.js";
import { themed } from "./theme.js";

const $ = (id) => document.getElementById(id);
const round = new Round();
const sides = new Sides(round);
const adversaries = new Adversaries(sides);
const settled = [];

sides.onchoose = () => { if (adversaries.name !== "all") adversaries.look(); };

const SAID = {
  terms: () => `Round ${round.terms.round}: terms signed by the server and ${round.terms.shufflers} shuffler${round.terms.shufflers > 1 ? "s" : ""}; people may join.`,
  joined: () => `${round.arrived} of ${round.people} people have handed in a sealed report${round.noted ? `, ${round.noted} of them from a browser` : ""}.`,
  closing: () => "The shuffler has its crowd: it peels its layer, permutes and passes on.",
  opened: () => "The server has opened the batch and computes on noisy places.",
  published: () => "The board shows one sealed answer per address.",
  collected: () => "Everybody has collected and opened their own answer.",
  settled: () => `Candidates settle by letter who meets whom: ${Object.keys(round.settled).length} have ended.`,
  letters: () => "Partners exchange letters through the board.",
};

function tell() {
  const said = round.failed ?? (round.over ? "The round is over. Choose people, adversaries and sliders as you like." : SAID[round.phase]?.());
  if (said && $("status").textContent !== said) $("status").textContent = said;
  const now = PHASES.indexOf(round.phase);
  for (const [at, step] of [...$("phases").children].entries()) {
    step.classList.toggle("done", at < now || round.over);
    if (at === now && !round.over) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  }
  $("play").disabled = $("step").disabled = $("speed").disabled = round.over;
}

// Events may come by the hundred: draw once a frame.
let waiting = false;
listen(round, (event) => {
  settled.push(event);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    const kinds = new Map(settled.splice(0).map((one) => [one.kind, one]));
    for (const one of kinds.values()) sides.update(one);
    tell();
    document.body.dataset.phase = round.over ? "done" : round.phase ?? "";
  });
});

let playing = true;
async function order(what) {
  const speed = Number($("speed").value);
  const body = JSON.stringify({ ...what, speed });
  const reply = await fetch("/control", { method: "POST", body, headers: { "content-type": "application/json" } });
  ({ playing } = await reply.json());
  $("play").textContent = playing ? "Pause" : "Play";
}
$("play").addEventListener("click", () => order({ do: playing ? "pause" : "play" }));
$("step").addEventListener("click", () => order({ do: "step" }));
$("speed").addEventListener("change", () => { if (playing) order({ do: "play" }); });

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
});

const table = await fetch("/static/explorer.json");
export const explorer = new Explorer(await table.json());
export { sides, round };
