// A small line chart in SVG on logarithmic axes.

const SPACE = "http://www.w3.org/2000/svg";
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 412, 12, 390];

function make(name, attributes, text) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const short = (value) => (value >= 1000 ? `${value / 1000}k` : String(value));

/** Name every curve where it ends, one above the other where they would touch. */
function labels(lines, { across, up }) {
  let last = Infinity;
  const ends = lines.map(({ name, on, points }) => ({ name, on, x: across(points[0][0]), y: up(points[0][1]) }));
  return ends.sort((a, b) => b.y - a.y).map(({ name, on, x, y }) => {
    last = Math.min(y - 4, last - 13);
    return make("text", { class: on ? "label on" : "label", x: x + 6, y: last }, name === "best" ? "recommended" : name);
  });
}

/** Draw lines `{name, on, points}`, a level across, and the place of the sliders. */
export function chart(svg, { x, y, lines, level, at }) {
  const share = ([low, high], value) => Math.log(Math.min(high, Math.max(low, value)) / low) / Math.log(high / low);
  const across = (value) => LEFT + share(x.range, value) * (RIGHT - LEFT);
  const up = (value) => BOTTOM - share(y.range, value) * (BOTTOM - TOP);
  const path = (points) => points.map(([a, b], n) => `${n ? "L" : "M"}${across(a).toFixed(1)} ${up(b).toFixed(1)}`).join("");
  const drawn = [
    ...x.ticks.flatMap((tick) => [
      make("line", { class: "grid", x1: across(tick), x2: across(tick), y1: TOP, y2: BOTTOM }),
      make("text", { x: across(tick), y: BOTTOM + 16, "text-anchor": "middle" }, short(tick)),
    ]),
    ...y.ticks.flatMap((tick) => [
      make("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: up(tick), y2: up(tick) }),
      make("text", { x: LEFT - 7, y: up(tick) + 4, "text-anchor": "end" }, short(tick)),
    ]),
    make("text", { x: RIGHT, y: BOTTOM + 33, "text-anchor": "end" }, x.label),
    make("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: up(level.value), y2: up(level.value), "stroke-dasharray": "4 4" }),
    make("text", { x: RIGHT - 4, y: up(level.value) - 5, "text-anchor": "end" }, level.label),
    ...[...lines].sort((a, b) => a.on - b.on).map((line) => make("path", { class: line.on ? "curve on" : "curve", d: path(line.points) })),
    ...labels(lines, { across, up }),
    make("circle", { class: "at", cx: across(at[0]), cy: up(at[1]), r: 6 }),
  ];
  svg.replaceChildren(...drawn);
}
