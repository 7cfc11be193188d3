// The explorer: draws curves from a table while a slider moves, and fetches the exact plan on release.

import { chart } from "./charts.js";

const $ = (id) => document.getElementById(id);
const log = (low, high) => ({
  to: (share) => low * (high / low) ** share,
  from: (value) => Math.log(value / low) / Math.log(high / low),
});
const metres = (value) => (value < 1000 ? `${Math.round(value)} m` : `${(value / 1000).toFixed(2)} km`);

/** Round to two significant digits. */
const rounded = (value) => Number(value.toPrecision(2));

export class Explorer {
  constructor(table) {
    this.table = table;
    const { crowds, epsilons } = table;
    this.crowd = log(crowds[0], crowds.at(-1));
    this.epsilon = log(epsilons[0], epsilons.at(-1));
    for (const id of ["crowd", "epsilon"]) Object.assign($(id), { min: 0, max: 1, step: 0.005 });
    $("crowd").value = this.crowd.from(4000);
    $("epsilon").value = this.epsilon.from(1);
    $("knobs").addEventListener("input", () => this.sketch());
    $("knobs").addEventListener("change", () => this.exact());
    $("knobs").addEventListener("submit", (event) => event.preventDefault());
    this.turn = 0;
    this.sketch();
    this.exact();
  }

  get knobs() {
    return {
      crowd: rounded(this.crowd.to(Number($("crowd").value))),
      epsilon: rounded(this.epsilon.to(Number($("epsilon").value))),
      share: Number($("share").value),
      mechanism: document.querySelector('input[name="mechanism"]:checked').value,
    };
  }

  /** Interpolate a figure of the table, linearly in the logarithms of crowd and epsilon. */
  look(what, name, people, epsilon) {
    const { crowds, epsilons, mechanisms } = this.table;
    const [i, u] = place(crowds, people);
    const [j, v] = place(epsilons, epsilon);
    const cell = (a, b) => {
      const row = this.table[what][a][b];
      if (name !== "best") return Math.log(row[mechanisms.indexOf(name)]);
      const errors = this.table.errors[a][b];
      return Math.log(row[errors.indexOf(Math.min(...errors))]);
    };
    const along = (a) => (1 - v) * cell(a, j) + v * cell(a, j + 1);
    return Math.exp((1 - u) * along(i) + u * along(i + 1));
  }

  /** Show figures and curves from the table, without a request. */
  sketch() {
    const { crowd, epsilon, share, mechanism } = this.knobs;
    const people = Math.max(this.table.crowds[0], crowd * (1 - share));
    $("crowd-out").textContent = crowd.toLocaleString("en");
    $("epsilon-out").textContent = String(epsilon);
    $("share-out").textContent = `${Math.round(share * 100)} %`;
    $("crowd").setAttribute("aria-valuetext", `${crowd} people`);
    $("epsilon").setAttribute("aria-valuetext", `epsilon ${epsilon}`);
    this.figures(this.look("errors", mechanism, people, epsilon), this.look("locals", mechanism, people, epsilon), "about, from the table");
    stale(true);
    this.curves({ people, epsilon, mechanism });
  }

  figures(error, local, how) {
    $("x-error").textContent = metres(error);
    $("x-local").textContent = local.toPrecision(3);
    $("x-exact").textContent = how;
  }

  /** Fetch the exact plan, which the library computes. */
  async exact() {
    this.turn += 1;
    const { turn } = this;
    const { crowd, epsilon, share } = this.knobs;
    $("x-exact").textContent = "the library computes the exact figure …";
    stale(true);
    const reply = await fetch(`/explore?${new URLSearchParams({ crowd, epsilon, share })}`);
    const answer = await reply.json();
    if (turn !== this.turn) return; // a later setting has replaced this one
    if (!reply.ok) {
      $("plan").textContent = answer.sentence;
      return;
    }
    this.print(answer);
  }

  /** Show the library's exact answer. */
  print({ designs, plan, promise, command, python }) {
    const { crowd, epsilon, share, mechanism } = this.knobs;
    const design = designs.find((candidate) => candidate.mechanism === mechanism) ?? designs[0];
    this.figures(design.error, design.local_epsilon, `exact, by the library: ${design.mechanism}, decoded by ${design.decode}`);
    stale(false);
    $("plan").textContent = `${plan}\n\n${promise}`;
    $("command").textContent = command;
    $("python").textContent = python;
    $("knobs").dataset.exact = JSON.stringify({ crowd, epsilon, share, error: design.error, local: design.local_epsilon, name: design.mechanism });
  }

  curves({ people, epsilon, mechanism }) {
    const { crowds, epsilons, mechanisms, blind } = this.table;
    const names = ["best", ...mechanisms].filter((name) => name === mechanism || name !== "best");
    const lines = (points) => names.map((name) => ({ name, on: name === mechanism, points: points(name) }));
    chart($("chart-error"), {
      x: { range: [epsilons[0], epsilons.at(-1)], ticks: [0.1, 0.2, 0.5, 1, 2, 4], label: "promised ε" },
      y: { range: [200, 4000], ticks: [200, 500, 1000, 2000, 4000], label: "metres" },
      lines: lines((name) => epsilons.map((at) => [at, this.look("errors", name, people, at)])),
      level: { value: blind, label: `no report at all: ${metres(blind)}` },
      at: [epsilon, this.look("errors", mechanism, people, epsilon)],
      corner: "left",
    });
    chart($("chart-amp"), {
      x: { range: [crowds[0], crowds.at(-1)], ticks: [100, 1000, 10000, 100000], label: "people" },
      y: { range: [0.1, 16], ticks: [0.1, 0.25, 0.5, 1, 2, 4, 8, 16], label: "local ε" },
      lines: lines((name) => crowds.map((at) => [at, this.look("locals", name, at, epsilon)])),
      level: { value: epsilon, label: `promised ε = ${epsilon}` },
      at: [people, this.look("locals", mechanism, people, epsilon)],
      corner: "right",
    });
    this.numbers(people, names);
  }

  /** Show every number of the curves as a table. */
  numbers(people, names) {
    const row = (tag, cells) => {
      const line = document.createElement("tr");
      line.append(...cells.map((text, at) => {
        const cell = document.createElement(tag === "th" || at === 0 ? "th" : "td");
        if (cell.tagName === "TH") cell.scope = tag === "th" ? "col" : "row";
        cell.textContent = text;
        return cell;
      }));
      return line;
    };
    $("numbers").replaceChildren(
      row("th", ["promised ε", ...names.flatMap((name) => [`${name}: error`, `${name}: local ε`])]),
      ...this.table.epsilons.map((at) => row("td", [
        String(at),
        ...names.flatMap((name) => [metres(this.look("errors", name, people, at)), this.look("locals", name, people, at).toPrecision(3)]),
      ])),
    );
  }
}

/** Grey out the figures of earlier slider positions until the library has answered. */
function stale(is) {
  $("exact-plan").classList.toggle("stale", is);
  $("exact-plan").setAttribute("aria-busy", String(is));
}

/** Return the interval of a sorted list that contains a value, and how far along it the value lies. */
function place(list, value) {
  const bounded = Math.min(list.at(-1), Math.max(list[0], value));
  const at = Math.min(list.length - 2, Math.max(0, list.findLastIndex((entry) => entry <= bounded)));
  return [at, Math.log(bounded / list[at]) / Math.log(list[at + 1] / list[at])];
}
