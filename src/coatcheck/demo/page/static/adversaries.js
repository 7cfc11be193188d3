// Taking a seat: veil what cannot be seen from it, print what the library says holds against it.

import { digits } from "./figures.js";
import { Trilaterator } from "./trilaterator.js";

const $ = (id) => document.getElementById(id);
const DEMO = "You run the demo, so you see every dot. Take a seat: what cannot be seen from there is veiled above.";
const TRILATERATOR = "It takes part as a person does, from places where it is not, and looks for Ada. It is told one-time addresses, and of each whether it is near.";

export class Adversaries {
  constructor(sides) {
    this.sides = sides;
    this.asked = 0;
    this.trilaterator = new Trilaterator(sides.round);
    // The page stays where it is: seats that move away under a mouse or an arrow key cannot be tried in turn.
    $("adversaries").addEventListener("change", () => this.look());
    $("see-round").addEventListener("click", () => $("phases").scrollIntoView({ block: "start" }));
    $("leave").addEventListener("click", () => {
      document.querySelector('input[name="adversary"][value="all"]').checked = true;
      this.look();
      $("adversaries").scrollIntoView({ block: "center" });
    });
    this.sides.adversary.name = "all";
  }

  get name() {
    return document.querySelector('input[name="adversary"]:checked').value;
  }

  /** Whether this seat is one that the library is asked about. */
  get asks() {
    return !["all", "trilaterator"].includes(this.name);
  }

  /** Ask the library, veil, print. */
  async look() {
    const { name, sides } = this;
    $("bad-row").hidden = name !== "server-and-people";
    document.body.dataset.adversary = name;
    const seat = document.querySelector('input[name="adversary"]:checked + span').textContent;
    $("seat-name").textContent = `Seen by: ${seat.toLowerCase()}.`;
    $("seated").hidden = !this.asks;
    $("see-round").hidden = !this.asks;
    for (const part of document.querySelectorAll("[data-sees]")) {
      const veiled = this.asks && !part.dataset.sees.split(" ").includes(name);
      part.classList.toggle("veiled", veiled);
      part.inert = veiled;
    }
    this.asked += 1;
    if (name === "trilaterator") await this.trilaterator.sit();
    else this.trilaterator.leave();
    if (!this.asks) {
      this.print({ name: "all", corrupted: [], exposed: [] }, "", name === "all" ? DEMO : TRILATERATOR);
      return;
    }
    const turn = this.asked;
    const people = Math.max(0, Math.floor(Number($("bad").value) || 0));
    const query = new URLSearchParams({ adversary: name, group: sides.me[0], people });
    const reply = await fetch(`/adversary?${query}`);
    const found = await reply.json();
    if (turn !== this.asked) return;
    if (!reply.ok) {
      this.print({ name, corrupted: [], exposed: [] }, "", found.sentence);
      return;
    }
    this.print({ ...found, name }, `ε = ${digits(found.epsilon)}`, `${found.plain[0].toUpperCase()}${found.plain.slice(1)}.`, found.sentence);
  }

  print(adversary, epsilon, line, sentence = "") {
    $("promise-epsilon").textContent = epsilon;
    $("seat-epsilon").textContent = epsilon && `${epsilon}: ${line}`;
    $("promise-line").textContent = line;
    $("promise").textContent = sentence;
    $("promise-long").hidden = !sentence;
    this.sides.adversary = adversary;
    if (this.sides.round.terms) this.sides.people();
    this.sides.right.redraw();
  }
}
