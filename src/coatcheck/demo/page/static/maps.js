// Maps on a canvas: thousands of moving dots, drawn in one pass per frame.
//
// Coordinates are shares of the box, right and up. Groups differ in shape as well as in color, so that
// either is enough to distinguish them.

const FLIGHT = 1100;
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class DotMap {
  constructor(canvas, { margin = 0.06, strength = 0.85 } = {}) {
    this.canvas = canvas;
    this.margin = margin;
    this.strength = strength;
    this.dots = [];
    this.marks = null;
    this.ground = null;
    this.names = null;
    this.began = 0;
    this.frames = [];
    this.waiting = false;
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  resize() {
    const ratio = Math.min(2, devicePixelRatio || 1);
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    this.ratio = ratio;
    this.redraw();
  }

  /** Return the pixel on the canvas for a place in the box. */
  at([right, up]) {
    const inner = 1 - 2 * this.margin;
    return [
      (this.margin + right * inner) * this.canvas.width,
      (this.margin + (1 - up) * inner) * this.canvas.height,
    ];
  }

  /** Show dots `{place, group, from?, faint?, ring?}`; those with `from` fly in. */
  show(dots, { fly = false } = {}) {
    this.dots = spread(dots);
    this.began = fly && !still.matches ? performance.now() : -Infinity;
    this.redraw();
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame((now) => this.draw(now));
  }

  draw(now) {
    this.waiting = false;
    const start = performance.now();
    const context = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    if (this.ground) context.drawImage(this.ground(), 0, 0);
    else this.lattice(context, color("--line"));
    const share = Math.min(1, Math.max(0, (now - this.began) / FLIGHT));
    const eased = 1 - (1 - share) ** 3;
    for (const group of [0, 1]) this.dotsOf(context, group, color(group ? "--second" : "--first"), eased);
    this.names?.(context, this, color);
    this.marks?.(context, this, color);
    this.frames.push(performance.now() - start);
    if (this.frames.length > 240) this.frames.shift();
    if (share < 1) this.redraw();
  }

  lattice(context, ink) {
    context.strokeStyle = ink;
    context.lineWidth = this.ratio;
    context.beginPath();
    for (let line = 0; line <= 8; line += 1) {
      const [x, y] = this.at([line / 8, line / 8]);
      const [left, bottom] = this.at([0, 0]);
      const [right, top] = this.at([1, 1]);
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      context.moveTo(left, y);
      context.lineTo(right, y);
    }
    context.stroke();
  }

  dotsOf(context, group, ink, eased) {
    const size = (this.dots.length > 1500 ? 2 : 3.2) * this.ratio;
    const stamp = stampOf(group, size, ink);
    const half = stamp.width / 2;
    for (const faint of [true, false]) {
      context.globalAlpha = faint ? this.strength / 3 : this.strength;
      for (const dot of this.dots) {
        if (dot.group !== group || Boolean(dot.faint) !== faint) continue;
        const [x, y] = this.moved(dot, eased);
        context.drawImage(stamp, Math.round(x - half), Math.round(y - half));
      }
    }
    context.globalAlpha = 1;
  }

  moved(dot, eased) {
    const [x, y] = this.at(dot.place);
    if (!dot.from || eased === 1) return [x + dot.dx * this.ratio, y + dot.dy * this.ratio];
    const [a, b] = this.at(dot.from);
    return [a + (x + dot.dx * this.ratio - a) * eased, b + (y + dot.dy * this.ratio - b) * eased];
  }

  /** Return the dot nearest to a pointer, within a finger's width. */
  nearest(event) {
    const bounds = this.canvas.getBoundingClientRect();
    const x = (event.clientX - bounds.left) * this.ratio;
    const y = (event.clientY - bounds.top) * this.ratio;
    let [best, least] = [null, (24 * this.ratio) ** 2];
    for (const dot of this.dots) {
      const [a, b] = this.moved(dot, 1);
      const apart = (a - x) ** 2 + (b - y) ** 2;
      if (apart < least) [best, least] = [dot, apart];
    }
    return best;
  }
}

const stamps = {};

/** Return one dot as a picture: drawing it thousands of times is far cheaper than filling one path of thousands. */
function stampOf(group, size, ink) {
  const key = `${group}/${size}/${ink}`;
  if (!stamps[key]) {
    const side = Math.ceil(2.6 * size) + 2;
    const stamp = Object.assign(document.createElement("canvas"), { width: side, height: side });
    const context = stamp.getContext("2d");
    context.beginPath();
    if (group) diamond(context, side / 2, side / 2, size * 1.25);
    else disc(context, side / 2, side / 2, size);
    context.fillStyle = ink;
    context.fill();
    stamps[key] = stamp;
  }
  return stamps[key];
}

/** Move reports from one cell apart, on a sunflower's spiral, so that all of them are visible. */
function spread(dots) {
  const seen = {};
  for (const dot of dots) {
    const key = `${dot.place}`;
    const turn = (seen[key] = (seen[key] ?? -1) + 1);
    const out = 4.6 * Math.sqrt(turn);
    dot.dx = out * Math.cos(turn * 2.39996);
    dot.dy = out * Math.sin(turn * 2.39996);
  }
  return dots;
}

export function disc(context, x, y, size) {
  context.moveTo(x + size, y);
  context.arc(x, y, size, 0, 2 * Math.PI);
}

export function diamond(context, x, y, size) {
  context.moveTo(x, y - size);
  context.lineTo(x + size, y);
  context.lineTo(x, y + size);
  context.lineTo(x - size, y);
  context.closePath();
}

/** Stroke a path over a wider one in the color of the paper, so that it is visible in any crowd. */
export function outlined(context, ink, paper, width) {
  for (const [color, wide] of [[paper, width * 2.2], [ink, width]]) {
    context.strokeStyle = color;
    context.lineWidth = wide;
    context.stroke();
  }
}

/** Fill a canvas with `count` of `total` equal little squares. */
export function squares(canvas, count, total, name) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  const height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const side = Math.max(2, Math.floor(Math.sqrt((width * height) / Math.max(1, total))));
  const across = Math.max(1, Math.floor(width / side));
  const context = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  context.clearRect(0, 0, width, height);
  for (let at = 0; at < total; at += 1) {
    context.fillStyle = style.getPropertyValue(at < count ? name : "--wash").trim();
    context.fillRect((at % across) * side, Math.floor(at / across) * side, side - ratio, side - ratio);
  }
}
