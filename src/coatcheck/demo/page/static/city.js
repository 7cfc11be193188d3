// The ground under the dots: the demo city's streets, or tiles from the server that `--tiles` names.
//
// Painted once per size and theme onto a separate canvas; a map then draws it in one call.

const city = await (await fetch("/city")).json();
const painted = new Map();
const tiles = new Map();

/** Return the ground as a picture for a map; paint it on first use. */
export function ground(map, metres) {
  const { width, height } = map.canvas;
  const key = `${width}/${height}/${document.documentElement.dataset.theme}/${tiles.size}/${metres}`;
  if (!painted.has(key)) {
    if (painted.size > 12) painted.clear();
    const picture = Object.assign(document.createElement("canvas"), { width, height });
    paint(picture.getContext("2d"), map, metres);
    painted.set(key, picture);
  }
  return painted.get(key);
}

function paint(context, map, metres) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const unit = map.ratio;
  const small = map.canvas.width / unit < 330;
  context.lineCap = context.lineJoin = "round";
  const trace = (points) => {
    context.beginPath();
    for (const point of points) context.lineTo(...map.at(point));
  };
  if (city.tiles) tiled(context, map);
  for (const { line } of city.parks ?? []) {
    trace(line);
    context.fillStyle = color("--park");
    context.fill();
  }
  if (city.river) {
    trace(city.river.line);
    context.strokeStyle = color("--water");
    context.lineWidth = 20 * unit;
    context.stroke();
  }
  for (const [kind, wide, ink] of [["lane", 1.6, "--street"], ["avenue", 5.4, "--line"], ["avenue", 3.6, "--street"]]) {
    context.strokeStyle = color(ink);
    context.lineWidth = wide * unit;
    for (const street of city.streets ?? []) {
      if (street.kind !== kind) continue;
      trace(street.line);
      context.stroke();
    }
  }
  const write = writer(context, unit, color("--wash"));
  if (!small) {
    for (const { name, line } of (city.streets ?? []).filter((street) => street.name)) {
      along(context, map, line, (at) => write(name, at, 9.5, color("--soft")));
    }
    for (const { name, line } of city.parks ?? []) {
      const middle = [0, 1].map((axis) => line.reduce((sum, point) => sum + point[axis], 0) / line.length);
      write(name, map.at(middle), 9.5, color("--good"));
    }
  }
  if (metres?.length) scaleBar(context, map, metres, write, color("--ink"));
}

/** Write the names of the quarters above the dots: below a crowd they would be illegible. */
export function quarters(context, map, color) {
  const write = writer(context, map.ratio, color("--wash"));
  const size = map.canvas.width / map.ratio < 330 ? 9 : 11.5;
  for (const { name, at } of city.quarters ?? []) write(name.toUpperCase(), map.at(at), size, color("--ink"), "600");
}

/** Return a function that writes centered text with a rim in the color of the ground. */
function writer(context, unit, rim) {
  context.textAlign = "center";
  context.lineJoin = "round";
  return (text, at, size, ink, weight = "") => {
    context.font = `${weight} ${size * unit}px system-ui, "DejaVu Sans", sans-serif`;
    context.lineWidth = 3 * unit;
    context.strokeStyle = rim;
    context.fillStyle = ink;
    context.strokeText(text, ...at);
    context.fillText(text, ...at);
  };
}

/** Write along the middle of a street, rotated to its direction. */
function along(context, map, line, write) {
  const middle = Math.floor(line.length / 3);
  const [a, b] = map.at(line[middle]);
  const [c, d] = map.at(line[middle + 1] ?? line[middle - 1]);
  const turn = Math.atan2(d - b, c - a);
  context.save();
  context.translate((a + c) / 2, (b + d) / 2);
  context.rotate(Math.abs(turn) > Math.PI / 2 ? turn + Math.PI : turn);
  write([0, -6 * map.ratio]);
  context.restore();
}

/** Draw a scale bar at the lower left: the power of ten closest to an eighth of the width. */
function scaleBar(context, map, metres, write, ink) {
  const [left, bottom] = map.at([0, 0]);
  const [right] = map.at([1, 0]);
  const each = (right - left) / metres[0];
  const length = 10 ** Math.round(Math.log10(metres[0] / 8));
  const [x, y] = [left + 4 * map.ratio, bottom + 5 * map.ratio];
  context.strokeStyle = ink;
  context.lineWidth = 2 * map.ratio;
  context.beginPath();
  for (const [a, b] of [[0, -4], [0, 0], [length * each, 0], [length * each, -4]]) context.lineTo(x + a, y + b * map.ratio);
  context.stroke();
  write(length >= 1000 ? `${length / 1000} km` : `${length} m`, [x + (length * each) / 2, y - 4 * map.ratio], 10, ink, "600");
}

/** Draw the Web Mercator tiles that cover the box. */
function tiled(context, map) {
  const [[south, west], [north, east]] = city.corners;
  const zoom = Math.max(1, Math.min(18, Math.round(Math.log2((map.canvas.width / 256) * (360 / (east - west))))));
  const count = 2 ** zoom;
  const across = (longitude) => ((longitude + 180) / 360) * count;
  const down = (latitude) => ((1 - Math.asinh(Math.tan((latitude * Math.PI) / 180)) / Math.PI) / 2) * count;
  const [left, right, top, bottom] = [across(west), across(east), down(north), down(south)];
  const at = (x, y) => map.at([(x - left) / (right - left), 1 - (y - top) / (bottom - top)]);
  for (let x = Math.floor(left); x <= right; x += 1) {
    for (let y = Math.floor(top); y <= bottom; y += 1) {
      const address = city.tiles.replace("{z}", zoom).replace("{x}", x).replace("{y}", y);
      const picture = tiles.get(address);
      if (picture) context.drawImage(picture, ...at(x, y), at(x + 1, y)[0] - at(x, y)[0], at(x, y + 1)[1] - at(x, y)[1]);
      else load(address, map);
    }
  }
}

const requested = new Set();

function load(address, map) {
  if (requested.has(address)) return;
  requested.add(address);
  const picture = new Image();
  picture.onload = () => {
    tiles.set(address, picture);
    map.redraw();
  };
  picture.src = address;
}
