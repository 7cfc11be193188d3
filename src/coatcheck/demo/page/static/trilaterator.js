// The trilaterator's seat: an app that rounds distances on the left, coatcheck on the right.

import { ground, quarters } from "./city.js";
import { DotMap, disc, outlined } from "./maps.js";

const $ = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");
const LASTS = 6000;
const whole = (value) => Math.round(value).toLocaleString("en");
const length = (value) => (value < 1000 ? `${whole(value)} m` : `${(value / 1000).toFixed(2)} km`);
const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

export class Trilaterator {
  constructor(round) {
    this.round = round;
    this.story = null;
    this.share = 0;
    $("attack-again").addEventListener("click", () => this.play());
  }

  /** Show the seat and play the attack; fetch it the first time. */
  async sit() {
    $("trilaterator").hidden = false;
    if (!this.story) {
      this.story = await (await fetch("/trilateration")).json();
      this.left = this.map("app-map", (...drawn) => this.app(...drawn));
      this.right = this.map("here-map", (...drawn) => this.here(...drawn));
      this.ledger();
    }
    this.play();
  }

  leave() {
    $("trilaterator").hidden = true;
    cancelAnimationFrame(this.frame);
  }

  map(id, marks) {
    const map = new DotMap($(id), { margin: 0.02 });
    Object.assign(map, { ground: () => ground(map, this.round.terms?.metres), names: quarters, marks });
    return map;
  }

  play() {
    cancelAnimationFrame(this.frame);
    const began = performance.now();
    const turn = (now) => {
      this.share = still.matches ? 1 : Math.min(1, (now - began) / LASTS);
      this.left.redraw();
      this.right.redraw();
      this.tell();
      if (this.share < 1) this.frame = requestAnimationFrame(turn);
    };
    turn(began);
  }

  /** Return how many entries of a list the animation shows at this moment. */
  shown(list) {
    return Math.ceil(Math.min(1, this.share * 1.15) * list.length);
  }

  redraw() {
    this.left?.redraw();
    this.right?.redraw();
  }

  metres(map, value) {
    return (value / this.round.terms.metres[0]) * map.canvas.width * (1 - 2 * map.margin);
  }

  app(context, map, color) {
    const { asked: questions, circles, guess } = this.story.app;
    const ada = this.round.places[0][0];
    const count = this.shown(questions);
    context.globalAlpha = 0.75;
    for (const [at, [place]] of questions.slice(0, count).entries()) dot(context, map, place, (at === count - 1 ? 5 : 2.2), color("--second"));
    context.globalAlpha = 1;
    for (const [center, radius] of circles.slice(0, Math.max(0, Math.ceil((this.share - 0.45) * 6)))) {
      const [x, y] = map.at(center);
      context.beginPath();
      context.arc(x, y, this.metres(map, radius), 0, 2 * Math.PI);
      context.strokeStyle = color("--second");
      context.lineWidth = 2 * map.ratio;
      context.stroke();
      dot(context, map, center, 4, color("--second"));
    }
    person(context, map, ada, color, "Ada");
    if (this.share === 1) cross(context, map, guess, color("--ink"));
  }

  here(context, map, color) {
    const { rounds, guess } = this.story.coatcheck;
    const { terms, places } = this.round;
    for (const { claimed, near } of rounds.slice(0, this.shown(rounds))) {
      const [x, y] = map.at(claimed);
      context.beginPath();
      context.arc(x, y, this.metres(map, 0.9 * terms.radius), 0, 2 * Math.PI);
      context.fillStyle = color("--second");
      context.globalAlpha = 0.06 + 0.015 * near;
      context.fill();
      context.globalAlpha = 1;
      context.strokeStyle = color("--second");
      context.lineWidth = 1.5 * map.ratio;
      context.stroke();
      dot(context, map, claimed, 4, color("--second"));
      label(context, map, claimed, `${near} near`, color);
    }
    person(context, map, places[0][0], color, "Ada");
    if (this.share === 1) {
      cross(context, map, guess, color("--ink"));
      label(context, map, guess, "best guess", color);
    }
  }

  tell() {
    const { app, coatcheck } = this.story;
    const [question, joined] = [this.shown(app.asked), this.shown(coatcheck.rounds)];
    const [, last] = app.asked[Math.max(0, question - 1)];
    const now = coatcheck.rounds[Math.max(0, joined - 1)];
    $("app-note").textContent = this.share < 1
      ? `Question ${question} from a false place: “Ada is ${whole(last)} m away”, rounded to ${whole(app.step_m)} m.`
      : `Found after ${app.asked.length} questions, ${app.error_m.toFixed(1)} m off: where the rounded distance flips, the attacker knows the true distance, and three circles meet in one point.`;
    $("here-note").textContent = this.share < 1
      ? `Round ${joined} from a false place: ${now.candidates} one-time addresses, ${now.near} near, ${now.candidates - now.near} not. Nothing says whose they are.`
      : `After ${coatcheck.rounds.length} rounds its best guess is ${length(coatcheck.error_m)} off. That point has ${percent(coatcheck.found)} of the crowd within ${coatcheck.within_m} m, and no point has more than ${percent(coatcheck.bound)}: Ada is one of these people, and nothing says which. If she signs with her name, each round reveals one yes or no: at most ${percent(coatcheck.bound_if_named)} after ${coatcheck.rounds.length}.`;
  }

  ledger() {
    const { limit, spent, refused } = this.story.ledger;
    const entry = (text, share, kind) => {
      const item = document.createElement("li");
      const bar = Object.assign(document.createElement("progress"), { max: 1, value: share });
      bar.setAttribute("aria-label", text);
      item.append(Object.assign(document.createElement("span"), { textContent: text }), bar);
      item.className = kind;
      return item;
    };
    $("ledger").replaceChildren(
      ...spent.map((epsilon, at) => entry(`after round ${at + 1}: ${epsilon < limit ? `ε = ${epsilon.toFixed(2)} of ${limit}` : `still within ε = ${limit}`}`, epsilon / limit, "")),
      ...(refused ? [entry(`round ${spent.length + 1}: refused, nothing was sent`, 1, "refused")] : []),
    );
    $("ledger-note").textContent = "The ledger is a file on Ada’s device. It adds up what all her rounds could reveal to the server, and refuses a round that would exceed her limit.";
  }
}

function dot(context, map, place, size, ink) {
  context.beginPath();
  disc(context, ...map.at(place), size * map.ratio);
  context.fillStyle = ink;
  context.fill();
}

function cross(context, map, place, ink) {
  const [x, y] = map.at(place);
  const r = 7 * map.ratio;
  context.beginPath();
  for (const [a, b] of [[-1, -1], [-1, 1]]) {
    context.moveTo(x + a * r, y + b * r);
    context.lineTo(x - a * r, y - b * r);
  }
  outlined(context, ink, paper(), 2.4 * map.ratio);
}

function person(context, map, place, color, name) {
  dot(context, map, place, 5, color("--me"));
  label(context, map, place, name, color);
}

function label(context, map, place, text, color) {
  const [x, y] = map.at(place);
  context.font = `600 ${11 * map.ratio}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = "left";
  context.lineWidth = 3 * map.ratio;
  context.strokeStyle = paper();
  context.fillStyle = color("--ink");
  context.strokeText(text, x + 8 * map.ratio, y - 6 * map.ratio);
  context.fillText(text, x + 8 * map.ratio, y - 6 * map.ratio);
}

const paper = () => getComputedStyle(document.documentElement).getPropertyValue("--card").trim();
