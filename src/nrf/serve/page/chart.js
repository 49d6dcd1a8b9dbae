// Charts as SVG, with a text alternative.
import { percent, short } from "/page/dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360, HEIGHT = 190, LEFT = 52, RIGHT = 12, TOP = 8, BOTTOM = 22;

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round numbers that cover a range, about `count` of them.
export function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found;
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low > high) return [0, 1];
  if (low === high) { const room = Math.abs(low) / 10 || 1; return [low - room, high + room]; }
  return [low, high];
}

// A path that leaves a gap where a value is not finite.
function path(points, x, y) {
  let text = "", open = false;
  for (const [step, value] of points) {
    if (value === null) { open = false; continue; }
    text += `${open ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!open && points.length === 1) text += "h2";
    open = true;
  }
  return text;
}

// series: [{name, colour, points: [[step, value or null]]}]; over: what the horizontal axis counts; limit: {value, text} of a level to mark
export function lineChart(title, series, { over = "iterations", limit = null } = {}) {
  const [x0, x1] = range(series.flatMap((s) => s.points.map((p) => p[0])));
  const [y0, y1] = range([...series.flatMap((s) => s.points.map((p) => p[1])), ...(limit ? [limit.value] : [])]);
  const x = (v) => LEFT + ((v - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const y = (v) => HEIGHT - BOTTOM - ((v - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  const ends = series.map((s) => `${s.name} ends at ${short(s.points[s.points.length - 1][1])}`);
  const label = `${title}, ${over} ${short(x0)} to ${short(x1)}: ${ends.join("; ")}${limit ? `; ${limit.text} is ${short(limit.value)}` : ""}`;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const v of ticks(y0, y1)) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }));
    svg.append(shape("text", { x: LEFT - 5, y: y(v) + 4, "text-anchor": "end" }, short(v)));
  }
  for (const v of ticks(x0, x1, 3)) svg.append(shape("text", { x: x(v), y: HEIGHT - 5, "text-anchor": "middle" }, short(v)));
  if (limit) {
    svg.append(shape("line", { class: "limit", x1: LEFT, x2: WIDTH - RIGHT, y1: y(limit.value), y2: y(limit.value) }));
    const room = y(limit.value) < TOP + 16 ? 13 : -5;
    svg.append(shape("text", { class: "limit-text", x: LEFT + 4, y: y(limit.value) + room }, limit.text));
  }
  for (const s of series) svg.append(shape("path", { class: `curve c${s.colour}`, d: path(s.points, x, y) }));
  return svg;
}

// Two histograms in one frame, as shares of their rows on a square-root scale, and a line at the threshold, which can be moved.
export class Histogram {
  static LEFT = 44;
  static RIGHT = 14;

  // parts: {rows, calibration} with counts of equal bins between the two ends of `extent`
  constructor(svg, parts, extent) {
    Object.assign(this, { svg, parts, extent, threshold: -Infinity });
    this.draw();
  }

  x(score) {
    const [low, high] = this.extent, { LEFT: left, RIGHT: right } = Histogram;
    return left + ((Math.min(Math.max(score, low), high) - low) / (high - low)) * (this.width - left - right);
  }

  // The score at a place of the screen.
  scoreAt(clientX) {
    const [low, high] = this.extent, { LEFT: left, RIGHT: right } = Histogram;
    const share = (clientX - this.svg.getBoundingClientRect().left - left) / (this.width - left - right);
    return low + Math.min(1, Math.max(0, share)) * (high - low);
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    this.width = Math.max(240, box.width);
    const height = Math.max(160, box.height), bottom = height - 22, top = 22;
    const shares = Object.fromEntries(Object.entries(this.parts).map(([name, counts]) => {
      const total = counts.reduce((sum, n) => sum + n, 0) || 1;
      return [name, counts.map((n) => n / total)];
    }));
    const most = Math.max(0.01, ...shares.rows, ...shares.calibration);
    const y = (share) => bottom - Math.sqrt(share / most) * (bottom - top);
    const steps = (values) => {
      const place = (i) => this.x(this.extent[0] + (i / values.length) * (this.extent[1] - this.extent[0])).toFixed(1);
      return `M${place(0)} ${bottom}${values.map((v, i) => `V${y(v).toFixed(1)}H${place(i + 1)}`).join("")}V${bottom}Z`;
    };
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    const left = Histogram.LEFT, right = this.width - Histogram.RIGHT;
    const levels = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1].filter((v) => v <= most && y(v) < bottom - 12);
    const kept = levels.filter((v, i) => i === levels.length - 1 || y(v) - y(levels[i + 1]) > 14);
    this.flag = shape("rect", { x: left, y: 0, width: 0, height });
    this.pass = shape("rect", { x: left, y: 0, width: 0, height });
    this.line = shape("line", { class: "threshold", y1: 6, y2: bottom });
    this.grip = shape("circle", { class: "grip", r: 5, cy: 6 });
    const rows = steps(shares.rows);
    this.svg.replaceChildren(
      clip("flagged-part", this.flag), clip("passed-part", this.pass),
      ...kept.flatMap((v) => [
        shape("line", { class: "grid", x1: left, x2: right, y1: y(v), y2: y(v) }),
        shape("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, percent(v)),
      ]),
      shape("path", { class: "calibration", d: steps(shares.calibration) }),
      shape("path", { class: "passed", d: rows, "clip-path": "url(#passed-part)" }),
      shape("path", { class: "flagged", d: rows, "clip-path": "url(#flagged-part)" }),
      shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      ...ticks(...this.extent, this.width < 480 ? 4 : 8).map((v) =>
        shape("text", { x: this.x(v), y: height - 6, "text-anchor": "middle" }, short(v))),
      this.line, this.grip,
    );
    this.move(this.threshold);
  }

  move(threshold) {
    this.threshold = threshold;
    const at = this.x(threshold);
    for (const [key, value] of [["x1", at], ["x2", at]]) this.line.setAttribute(key, value);
    this.grip.setAttribute("cx", at);
    this.flag.setAttribute("width", at - Histogram.LEFT);
    this.pass.setAttribute("x", at);
    this.pass.setAttribute("width", Math.max(0, this.width - Histogram.RIGHT - at));
  }
}

function clip(id, rectangle) {
  const made = shape("clipPath", { id });
  made.append(rectangle);
  return made;
}

// A bar from the middle or the left, for a cell of a table that says the number too.
export function bar(value, least, most) {
  const low = Math.min(0, least), width = Math.max(most - low, 1e-12), at = (v) => (100 * (v - low)) / width;
  const svg = shape("svg", { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(shape("rect", {
    class: value < 0 ? "less" : "more", x: at(Math.min(0, value)), width: Math.max(0.4, at(Math.max(0, value)) - at(Math.min(0, value))), y: 0, height: 10,
  }));
  return svg;
}
