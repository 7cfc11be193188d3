// A small line chart in SVG on logarithmic axes.

const SPACE = "http://www.w3.org/2000/svg";
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 412, 12, 390];
const KEY = 132;

function make(name, attributes, text) {
  const node = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

const short = (value) => (value >= 1000 ? `${value / 1000}k` : String(value));

/** Name every curve beside a piece of it, in the corner at the bottom that curves leave free. */
function key(lines, side) {
  const [left, top] = [side === "left" ? LEFT + 6 : RIGHT - KEY, BOTTOM - 8 - 17 * lines.length];
  return [
    make("rect", { class: "key", x: left, y: top, width: KEY - 6, height: 17 * lines.length + 4 }),
    ...lines.flatMap(({ name, on }, row) => {
      const y = top + 17 * row + 10;
      return [
        make("path", { class: style(name, on), d: `M${left + 4} ${y}h26` }),
        make("text", { class: on ? "label on" : "label", x: left + 36, y: y + 4 }, name === "best" ? "recommended" : name),
      ];
    }),
  ];
}

const style = (name, on) => `curve ${name}${on ? " on" : ""}`;

/** Name a level under its line, or above it where the axis is. */
function named({ value, label }, up) {
  const y = up(value) + 14;
  return make("text", { class: "level", x: LEFT + 6, y: y > BOTTOM - 2 ? y - 20 : y }, label);
}

/** Draw lines `{name, on, points}`, a level across, and the place of the sliders. */
export function chart(svg, { x, y, lines, level, at, corner }) {
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
    corner === "left"
      ? make("text", { x: RIGHT - 4, y: up(level.value) - 5, "text-anchor": "end" }, level.label)
      : named(level, up),
    ...[...lines].sort((a, b) => a.on - b.on).map((line) => make("path", { class: style(line.name, line.on), d: path(line.points) })),
    ...key(lines, corner),
    make("circle", { class: "at", cx: across(at[0]), cy: up(at[1]), r: 6 }),
  ];
  svg.replaceChildren(...drawn);
}
