// Choosing an adversary: veil what it cannot see, print what the library says holds against it.

const $ = (id) => document.getElementById(id);
const DEMO = "Every dot is visible to you because you run the demo. Choose an adversary: what that one cannot see is veiled, and the guarantee that holds against it is printed here.";

export class Adversaries {
  constructor(sides) {
    this.sides = sides;
    this.asked = 0;
    $("adversaries").addEventListener("change", () => this.look());
    $("bad").addEventListener("change", () => this.look());
    this.sides.adversary.name = "all";
  }

  get name() {
    return document.querySelector('input[name="adversary"]:checked').value;
  }

  /** Ask the library, veil, print. */
  async look() {
    const { name, sides } = this;
    $("bad-row").hidden = name !== "server-and-people";
    document.body.dataset.adversary = name;
    for (const part of document.querySelectorAll("[data-sees]")) {
      const veiled = name !== "all" && !part.dataset.sees.split(" ").includes(name);
      part.classList.toggle("veiled", veiled);
      part.inert = veiled;
    }
    this.asked += 1;
    if (name === "all") {
      this.print({ name, corrupted: [], exposed: [] }, "", DEMO);
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
    this.print({ ...found, name }, `ε = ${digits(found.epsilon)}`, found.sentence);
  }

  print(adversary, epsilon, sentence) {
    $("promise-epsilon").textContent = epsilon;
    $("promise").textContent = sentence;
    this.sides.adversary = adversary;
    if (this.sides.round.terms) this.sides.people();
    this.sides.right.redraw();
  }
}

/** Round up to four digits, so that what is read is not more private than what holds. */
export function digits(value) {
  if (value === 0) return "0";
  const shown = Number(value.toPrecision(4));
  return String(shown >= value ? shown : Number((value * (1 + 5e-4)).toPrecision(4)));
}
