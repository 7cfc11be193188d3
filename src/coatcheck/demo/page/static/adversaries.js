// The adversaries' seats: veil what a seat cannot see, and print the library's guarantee against it.

import { digits } from "./figures.js";
import { Trilaterator } from "./trilaterator.js";

const $ = (id) => document.getElementById(id);
const DEMO = "You run the demo, so you see every dot. Take a seat: the page then veils what that seat cannot see.";
const TRILATERATOR = "It takes part as a person does, from places where it is not, and looks for Ada. Its answers contain one-time addresses, and whether each of them is near.";

export class Adversaries {
  constructor(sides) {
    this.sides = sides;
    this.turn = 0;
    this.trilaterator = new Trilaterator(sides.round);
    // Do not scroll: seats that move away under a mouse or an arrow key cannot be tried one after another.
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

  /** Whether this seat has a guarantee that the library computes. */
  get asks() {
    return !["all", "trilaterator"].includes(this.name);
  }

  /** Veil what the chosen seat cannot see, and fetch and print the guarantee. */
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
    this.turn += 1;
    if (name === "trilaterator") await this.trilaterator.sit();
    else this.trilaterator.leave();
    if (!this.asks) {
      this.print({ name: "all", corrupted: [], exposed: [] }, "", name === "all" ? DEMO : TRILATERATOR);
      return;
    }
    const { turn } = this;
    const people = Math.max(0, Math.floor(Number($("bad").value) || 0));
    const query = new URLSearchParams({ adversary: name, group: sides.me[0], people });
    const reply = await fetch(`/adversary?${query}`);
    const guarantee = await reply.json();
    if (turn !== this.turn) return; // a later choice has replaced this one
    if (!reply.ok) {
      this.print({ name, corrupted: [], exposed: [] }, "", guarantee.sentence);
      return;
    }
    const { epsilon, plain, sentence } = guarantee;
    this.print({ ...guarantee, name }, `ε = ${digits(epsilon)}`, `${plain[0].toUpperCase()}${plain.slice(1)}.`, sentence);
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
