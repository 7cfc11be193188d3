// The state of the live round: a fold over the events that the server sends to the page.

export const PHASES = ["terms", "joined", "closing", "opened", "published", "collected", "settled", "letters"];

export class Round {
  constructor() {
    this.phase = null;
    this.terms = null;
    this.groups = [];
    this.places = [];
    this.joined = {};
    this.counts = [];
    this.opened = null;
    this.board = null;
    this.answers = {};
    this.settled = {};
    this.letters = [];
    this.service = null;
    this.noted = 0;
    this.sealed = 0;
    this.over = false;
    this.failed = null;
  }

  /** Apply one event. */
  take(event) {
    if (PHASES.includes(event.kind)) this.phase = event.kind;
    this.sealed = event.sealed ?? this.sealed;
    this[`on_${event.kind}`]?.(event);
  }

  on_terms(event) {
    Object.assign(this, { terms: event, groups: event.groups, places: event.places });
    this.counts = event.groups.map(() => 0);
  }

  on_joined({ people }) {
    for (const person of people) {
      this.joined[person.who] = person;
      this.counts[person.who[0]] += 1;
    }
  }

  on_noted({ count }) {
    this.noted = count;
  }

  on_opened({ groups }) {
    this.opened = groups;
  }

  on_published(event) {
    this.board = event;
  }

  on_collected({ people }) {
    for (const person of people) this.answers[person.who] = person;
  }

  on_letters({ letters }) {
    this.letters.push(...letters);
  }

  on_settled({ people, letters }) {
    for (const person of people) this.settled[person.who] = person.them;
    this.letters.push(...letters);
  }

  on_served({ service }) {
    this.service = service;
  }

  on_done() {
    this.over = true;
  }

  on_failed({ sentence }) {
    this.failed = sentence;
  }

  get people() {
    return this.groups.reduce((sum, group) => sum + group.people, 0);
  }

  get arrived() {
    return this.counts.reduce((sum, count) => sum + count, this.noted);
  }

  /** Return the distance between two places in metres. */
  metres(a, b) {
    const [wide, high] = this.terms.metres;
    return Math.hypot((a[0] - b[0]) * wide, (a[1] - b[1]) * high);
  }

  /** Return a place in words: metres from the south-west corner. */
  spelled([right, up]) {
    const [wide, high] = this.terms.metres;
    return `${Math.round(right * wide).toLocaleString("en")} m east, ${Math.round(up * high).toLocaleString("en")} m north`;
  }

  /** Return the name of a person of the demo. */
  named(who) {
    if (!who) return "somebody from a browser";
    if (this.terms.trilaterator && `${who}` === "0,0") return "Ada";
    if (`${who}` === `${this.terms.trilaterator}`) return "the trilaterator";
    return `${this.groups[who[0]].name.replace(/s$/, "")} ${who[1] + 1}`;
  }
}

/** Listen to the server's events about the round and its pace; a reconnection resumes where it stopped. */
export function listen({ event, pace }) {
  const source = new EventSource("/events");
  source.onmessage = ({ data }) => event(JSON.parse(data));
  source.addEventListener("pace", ({ data }) => pace(JSON.parse(data)));
  return source;
}
