// The two sides, a person and the server, and the roles between them, drawn from the state of the round.

import { ground, quarters } from "./city.js";
import { DotMap, diamond, disc, outlined, squares } from "./maps.js";
import { digits } from "./figures.js";
import { served } from "./served.js";

const $ = (id) => document.getElementById(id);
const SHOWN = 8;

export class Sides {
  constructor(round) {
    this.round = round;
    this.me = [0, 0];
    this.adversary = { name: "all", corrupted: [], exposed: [] };
    this.left = new DotMap($("person-map"), { strength: 0.6 });
    this.right = new DotMap($("server-map"));
    for (const map of [this.left, this.right]) Object.assign(map, { ground: () => ground(map, round.terms?.metres), names: quarters });
    this.left.marks = (context, map, color) => this.markPerson(context, map, color);
    this.right.marks = (context, map, color) => this.markKnown(context, map, color);
    $("person-map").addEventListener("click", (event) => {
      const dot = this.left.nearest(event);
      if (dot) this.choose(dot.who);
    });
    $("person-map").addEventListener("keydown", (event) => this.walk(event));
    $("who").addEventListener("change", ({ target }) => this.choose(target.value.split(",").map(Number)));
    addEventListener("resize", () => this.between());
    this.onchoose = () => {};
  }

  /** Redraw after an event. */
  update(event) {
    const { round } = this;
    if (event.kind === "terms") this.introduce();
    if (event.kind === "opened") this.open();
    if (event.kind === "served") {
      $("service").hidden = false;
      $("served").replaceChildren(...served(round.service));
    }
    if (round.terms) {
      this.people();
      this.between();
      this.person();
    }
  }

  /** Clear the display before another round begins. */
  reset() {
    this.left.show([]);
    this.right.show([]);
    $("service").hidden = true;
    $("rows").replaceChildren();
    $("server-note").textContent = "The server has opened nothing yet.";
    $("board-note").textContent = "Nothing is on the board yet.";
    $("witness-note").textContent = "It has seen nothing of this round yet.";
  }

  introduce() {
    const { round } = this;
    $("who").replaceChildren(...round.places.flatMap((places, group) => places.map((_, row) => {
      const option = document.createElement("option");
      option.value = `${group},${row}`;
      option.textContent = round.named([group, row]);
      return option;
    })));
    $("bars").replaceChildren(...round.groups.map((group, number) => {
      const bar = document.createElement("div");
      bar.className = number ? "bar two" : "bar";
      const label = document.createElement("label");
      const progress = document.createElement("progress");
      progress.max = group.minimum;
      label.append(document.createElement("span"), progress);
      bar.append(label);
      return bar;
    }));
    $("legend").replaceChildren(...this.legend());
    $("signed").replaceChildren(...this.signed());
  }

  /** Return the facts of the signed terms, on which everybody agreed before any report was sent. */
  signed() {
    const { terms, groups } = this.round;
    const fact = (name, value) => {
      const row = document.createElement("div");
      row.append(Object.assign(document.createElement("dt"), { textContent: name }));
      row.append(Object.assign(document.createElement("dd"), { textContent: value }));
      return row;
    };
    return [
      fact("Task", terms.task),
      fact("Mechanism", [...new Set(groups.map((group) => group.mechanism))].join(", ")),
      ...groups.map((group) => fact(`Promise to ${group.name}`, `ε = ${digits(group.epsilon)}, δ = ${group.delta.toExponential()}`)),
      ...groups.map((group) => fact(`Local ε of ${group.name}`, group.local.toPrecision(4))),
      fact("Digest", `${terms.digest.slice(0, 12)}…`),
    ];
  }

  legend() {
    const mark = (name, color, shape) => {
      const item = document.createElement("li");
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "0 0 14 14");
      svg.setAttribute("aria-hidden", "true");
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", shape);
      path.style.fill = color.startsWith("ring") ? "none" : `var(--${color})`;
      path.style.stroke = color.startsWith("ring") ? "var(--me)" : "none";
      path.style.strokeWidth = "2.5";
      svg.append(path);
      item.append(svg, name);
      return item;
    };
    const round_ = "M7 2a5 5 0 1 0 .01 0z";
    const [first, second] = this.round.groups.map((group) => group.name);
    return [
      mark(first, "first", round_),
      ...(second ? [mark(second, "second", "M7 1l6 6-6 6-6-6z")] : []),
      mark("the person on the left", "ring", round_),
      mark("the noisy place that was sent", "me", "M3 3h8v8H3z"),
      mark("the partner in the answer", "good", "M1 6h12v2.5H1z"),
      mark("corrupted person", "ink", "M2.500 1L7 5.500 11.500 1 13 2.500 8.500 7 13 11.500 11.500 13 7 8.500 2.500 13 1 11.500 5.500 7 1 2.500z"),
    ];
  }

  /** Left map: true places, faint before a person joins. From an adversary's seat, only corrupted people. */
  people() {
    const { round } = this;
    const corrupted = new Set(this.adversary.corrupted.map(String));
    const dots = round.places.flatMap((places, group) => places.map((place, row) => ({
      place, group, who: [group, row], faint: !round.joined[[group, row]],
    })));
    this.left.show(this.adversary.name === "all" ? dots : dots.filter(({ who }) => corrupted.has(`${who}`)));
  }

  /** Right map: the reports that the server opened, flying in from the shuffler. */
  open() {
    const { round } = this;
    const dots = round.opened.flatMap(({ places, addresses }, group) => places.map((place, row) => ({
      place, group, from: [-0.06, 0.5], address: addresses[row],
    })));
    this.right.show(dots, { fly: true });
    const counted = round.opened.map(({ places }, group) => `${places.length} ${round.groups[group].name}`);
    $("server-note").textContent = `Opened ${counted.join(" and ")}: noisy places and one-time addresses, no names.`;
    const [first] = round.opened;
    $("rows").replaceChildren(...first.places.slice(0, SHOWN).map((place, row) => line([
      `${row + 1}`, `${first.addresses[row].slice(0, 16)}…`, round.spelled(place),
    ])));
  }

  between() {
    const { round } = this;
    if (!round.terms) return;
    $("count").textContent = round.arrived.toLocaleString("en");
    const minimum = round.groups.reduce((sum, group) => sum + group.minimum, 0);
    $("needed").textContent = `of ${minimum.toLocaleString("en")} needed`;
    for (const [number, bar] of [...$("bars").children].entries()) {
      const { name, minimum: least } = round.groups[number];
      bar.querySelector("progress").value = Math.min(round.counts[number], least);
      bar.querySelector("span").textContent = `${name}: ${round.counts[number]} of at least ${least}`;
    }
    const released = round.phase && !["terms", "joined"].includes(round.phase);
    squares($("uploads"), released ? 0 : round.arrived, round.people, "--soft");
    const sizes = [...new Set(round.groups.map((group) => group.upload_bytes))].join(" or ");
    $("uploads-note").textContent = released
      ? "Permuted, passed on and deleted: the shuffler holds nothing any more."
      : `Uploads of ${sizes} bytes each. They come from the relay's address. The shuffler opens its own layer only.`;
    $("sealed").textContent = round.sealed.toLocaleString("en");
    this.board();
  }

  board() {
    const { board, people } = this.round;
    const count = board ? board.entries.reduce((sum, entries) => sum + entries, 0) : 0;
    $("entries").textContent = count.toLocaleString("en");
    squares($("board"), count, people, "--good");
    if (!board) return;
    const kilobytes = Math.round(board.bytes / 1024).toLocaleString("en");
    $("board-note").textContent = `Sorted by address, ${kilobytes} kB, the same for everybody. Root ${board.root.slice(0, 16)}…`;
    const { size, root } = board.witnessed;
    $("witness-note").textContent = `It cosigned a log of ${size} ${size > 1 ? "entries" : "entry"} with root ${root.slice(0, 16)}…, and cosigns only logs that continue it. It sees roots, and no data of any person.`;
  }

  // -- one person

  choose(who) {
    if (!this.round.places[who[0]]?.[who[1]]) return;
    this.me = who;
    this.person();
    this.left.redraw();
    this.right.redraw();
    this.onchoose(who);
  }

  /** Move the choice to the nearest person in the direction of an arrow key. */
  walk(event) {
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!way || !this.round.terms) return;
    event.preventDefault();
    const [x, y] = this.round.places[this.me[0]][this.me[1]];
    let [best, least] = [null, Infinity];
    for (const { who, place } of this.left.dots) {
      const [dx, dy] = [place[0] - x, place[1] - y];
      const along = dx * way[0] + dy * way[1];
      const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      if (along > 1e-6 && along + 2 * aside < least) [best, least] = [who, along + 2 * aside];
    }
    if (best) this.choose(best);
  }

  person() {
    const { round, me } = this;
    const place = round.places[me[0]][me[1]];
    const sent = round.joined[me];
    $("who").value = `${me}`;
    $("person-name").textContent = `One person: ${round.named(me)}`;
    $("fact-true").textContent = round.spelled(place);
    const off = (to) => `${Math.round(round.metres(place, to)).toLocaleString("en")} m off`;
    $("fact-sent").textContent = sent
      ? `${round.spelled(sent.sent)}, ${off(sent.sent)}`
      : "nothing yet";
    $("fact-thought").textContent = sent ? `${round.spelled(sent.thought)}, ${off(sent.thought)}` : "nothing yet";
    $("fact-ticket").replaceChildren(sent ? mono(`address ${sent.address}`) : "none yet");
    $("fact-answer").replaceChildren(...this.answer());
    this.mail();
  }

  answer() {
    const { round, me } = this;
    const answer = round.answers[me];
    if (!answer) return [round.board ? "sealed on the board" : "not yet"];
    if (!answer.partners.length) return ["no partner for this person this time"];
    const settled = round.settled[me];
    if (answer.candidates && !settled) return [`${answer.candidates} candidates, who settle by letter`];
    if (settled && !settled.length) return [`nobody: of ${answer.candidates} candidates who seemed near, none is`];
    const here = round.places[me[0]][me[1]];
    return (settled ?? answer.them).map((who, at) => {
      const apart = who ? `, really ${Math.round(round.metres(here, round.places[who[0]][who[1]])).toLocaleString("en")} m away` : "";
      const line = document.createElement("span");
      line.append(`${round.named(who)}${apart} `, settled ? `by letter, of ${answer.candidates} candidates` : mono(answer.partners[at]));
      return line;
    });
  }

  mail() {
    const { round, me } = this;
    const same = (who) => who && `${who}` === `${me}`;
    const letters = round.letters.filter((letter) => same(letter.from) || same(letter.to));
    if (!letters.length) {
      $("letters").replaceChildren(item("None yet.", "none"));
      return;
    }
    $("letters").replaceChildren(...letters.map((letter) => (same(letter.from)
      ? item(`to ${round.named(letter.to)}: ${letter.body}`, "own")
      : item(`from ${round.named(letter.from)}: ${letter.body}`, ""))));
  }

  // -- marks on the maps

  markPerson(context, map, color) {
    const { round, me } = this;
    if (!round.terms) return;
    const place = round.places[me[0]][me[1]];
    const partners = (round.settled[me] ?? round.answers[me]?.them ?? []).filter(Boolean);
    const sent = round.joined[me];
    const all = this.adversary.name === "all";
    for (const [group, row] of all ? partners : []) this.link(context, map, place, round.places[group][row], color("--good"), group);
    if (all && sent) this.arrow(context, map, place, sent.sent, color("--me"));
    if (all) this.ring(context, map, place, color("--me"), me[0]);
    for (const who of this.adversary.corrupted) this.cross(context, map, round.places[who[0]][who[1]], color("--ink"));
  }

  /** Mark on the server's map only what the adversary can link: corrupted people, and the people whom their answers name. */
  markKnown(context, map, color) {
    const { round } = this;
    const everybody = this.adversary.name === "all";
    const find = (who) => map.dots.find((dot) => dot.address === round.joined[who]?.address);
    for (const who of this.adversary.corrupted) {
      const dot = find(who);
      if (dot) this.cross(context, map, dot.place, color("--ink"), dot);
    }
    for (const who of this.adversary.exposed) {
      const dot = find(who);
      if (dot) this.ring(context, map, dot.place, color("--ink"), dot.group, dot);
    }
    const own = everybody && find(this.me);
    if (own) this.ring(context, map, own.place, color("--me"), own.group, own);
  }

  where(map, place, dot) {
    const [x, y] = map.at(place);
    return dot ? [x + dot.dx * map.ratio, y + dot.dy * map.ratio] : [x, y];
  }

  ring(context, map, place, ink, group, dot) {
    const [x, y] = this.where(map, place, dot);
    context.beginPath();
    (group ? diamond : disc)(context, x, y, (group ? 10 : 8) * map.ratio);
    outlined(context, ink, paper(), 3 * map.ratio);
  }

  cross(context, map, place, ink, dot) {
    const [x, y] = this.where(map, place, dot);
    const r = 5 * map.ratio;
    context.beginPath();
    context.moveTo(x - r, y - r);
    context.lineTo(x + r, y + r);
    context.moveTo(x + r, y - r);
    context.lineTo(x - r, y + r);
    context.strokeStyle = ink;
    context.lineWidth = 2 * map.ratio;
    context.stroke();
  }

  arrow(context, map, from, to, ink) {
    const [a, b] = map.at(from);
    const [x, y] = map.at(to);
    context.setLineDash([5 * map.ratio, 4 * map.ratio]);
    context.beginPath();
    context.moveTo(a, b);
    context.lineTo(x, y);
    outlined(context, ink, paper(), 1.8 * map.ratio);
    context.setLineDash([]);
    context.beginPath();
    context.rect(x - 4 * map.ratio, y - 4 * map.ratio, 8 * map.ratio, 8 * map.ratio);
    context.fillStyle = ink;
    context.fill();
  }

  link(context, map, from, to, ink, group) {
    context.beginPath();
    context.moveTo(...map.at(from));
    context.lineTo(...map.at(to));
    outlined(context, ink, paper(), 3 * map.ratio);
    this.ring(context, map, to, ink, group);
  }
}

const paper = () => getComputedStyle(document.documentElement).getPropertyValue("--card").trim();

function mono(text) {
  const code = document.createElement("code");
  code.textContent = text;
  return code;
}

function item(text, name) {
  const entry = document.createElement("li");
  entry.textContent = text;
  entry.className = name;
  return entry;
}

function line(cells) {
  const row = document.createElement("tr");
  row.append(...cells.map((text) => {
    const cell = document.createElement("td");
    cell.textContent = text;
    return cell;
  }));
  row.children[1].className = "mono";
  return row;
}
