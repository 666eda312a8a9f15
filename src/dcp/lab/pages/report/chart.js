// One chart: a metric of one environment. Mean, 95% band and thin seeds of every chosen method.

import { humanCount, isNumber, ticks, timeUnit } from "../shared/numbers.js";
import { shape } from "../shared/svg.js";
import { DATA } from "./data.js";
import { state } from "./state.js";

export const MARGIN = { top: 10, right: 12, bottom: 26, left: 42 };
const LABEL_GAP = 14;
const FEW = 12;

export class Chart {
  constructor(host, curves, metric) {
    Object.assign(this, { host, curves, metric, cursor: null });
    this.svg = shape("svg", { class: "chart", tabindex: "0", role: "img" });
    host.append(this.svg);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  // -> the groups that are chosen and recorded this metric
  groups() {
    const chosen = this.curves.groups.filter((g) => state.shows("method", g.method) && g.metrics[this.metric.key]);
    return chosen.map((g) => ({ method: g.method, runs: g.runs, ...g.metrics[this.metric.key] }));
  }

  draw() {
    const width = this.host.clientWidth;
    if (!width) return; // hidden by a filter: drawn when it is shown
    this.shown = this.groups();
    this.measure(width, width < 380 ? 200 : 236);
    this.svg.replaceChildren(...this.axes());
    const clip = `clip-${this.curves.environment}-${this.metric.key}`;
    this.svg.append(shape("clipPath", { id: clip }, shape("rect", this.box(1.5))));
    const marks = shape("g", { "clip-path": `url(#${clip})` });
    for (const group of this.shown) marks.append(...this.seeds(group), ...this.band(group));
    for (const group of this.shown) marks.append(...this.mean(group));
    this.cursorMarks = shape("g", { class: "cursor" });
    this.svg.append(marks, ...this.labels(), this.cursorMarks);
    this.svg.setAttribute("aria-label", this.spoken());
  }

  measure(width, height) {
    const names = this.shown.map((g) => DATA.methods[g.method].name);
    this.labelled = width >= 380;
    const right = this.labelled ? 16 + 6.4 * Math.max(0, ...names.map((n) => Math.min(n.length, 14))) : MARGIN.right;
    Object.assign(this, { width, height, inner: { w: width - MARGIN.left - right, h: height - MARGIN.top - MARGIN.bottom } });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    const runs = this.shown.flatMap((g) => g.runs);
    this.xMax = Math.max(1e-9, ...runs.flatMap((r) => r[state.axis]).filter(isNumber)) * 1.01;
    this.yMax = this.top(runs);
  }

  // The scale's end: the largest possible value, or the largest one shown. A wide band does not squeeze the lines.
  top(runs) {
    const values = runs.flatMap((r) => r.values[this.metric.key] || []).filter(isNumber);
    const most = Math.max(...values, 0);
    const bands = this.shown.flatMap((g) => g.mean.map((m, i) => m + g.half[i])).filter(isNumber);
    if (this.metric.top && state.range === "full") return this.metric.top;
    const fitted = Math.max(most * 1.05, Math.min(Math.max(0, ...bands), most * 1.25)) || 1;
    return this.metric.top ? Math.min(fitted, this.metric.top) : fitted;
  }

  x(value) { return MARGIN.left + (this.inner.w * value) / this.xMax; }
  y(value) { return MARGIN.top + this.inner.h * (1 - value / this.yMax); }
  box(more) {
    return { x: MARGIN.left, y: MARGIN.top - more, width: this.inner.w + more, height: this.inner.h + 2 * more };
  }

  axes() {
    const parts = [];
    for (const value of ticks(this.yMax, 5)) {
      const y = this.y(value);
      parts.push(shape("line", { class: value ? "grid" : "base", x1: MARGIN.left, x2: MARGIN.left + this.inner.w, y1: y, y2: y }));
      parts.push(shape("text", { class: "tick", x: MARGIN.left - 7, y: y + 3.5, "text-anchor": "end" }, humanCount(value)));
    }
    const [size, , unit] = state.axis === "seconds" ? timeUnit(this.xMax) : [1, "", ""];
    const places = ticks(this.xMax / size, this.inner.w < 300 ? 3 : 5);
    places.forEach((value, i) => {
      const last = i === places.length - 1;
      const text = `${humanCount(value)} ${state.axis === "seconds" ? unit : last ? "steps" : ""}`.trim();
      const crowded = last && this.x(value * size) + 4 * text.length > this.width;
      const at = crowded ? this.width - 2 : this.x(value * size);
      parts.push(shape("text", { class: "tick", x: at, y: this.height - 8, "text-anchor": crowded ? "end" : "middle" }, text));
    });
    return parts;
  }

  // A gap in the record is a gap in the line; a point alone between gaps is a dot.
  path(xs, ys) {
    let path = "";
    let open = false;
    xs.forEach((at, i) => {
      const there = isNumber(at) && isNumber(ys[i]);
      if (there) path += `${open ? "L" : "M"}${this.x(at).toFixed(1)} ${this.y(ys[i]).toFixed(1)}`;
      const alone = there && !open && !(isNumber(xs[i + 1]) && isNumber(ys[i + 1]));
      if (alone) path += "h0.01";
      open = there;
    });
    return path;
  }

  seeds(group) {
    if (!state.seeds && group.mean.length) return [];
    const alone = group.runs.length === 1 ? " alone" : "";
    return group.runs.map((run) =>
      shape("path", { class: `seed m${group.method}${alone}`, d: this.path(run[state.axis], run.values[this.metric.key] || []) }));
  }

  // One ribbon for each stretch without a gap.
  band(group) {
    const ribbons = [];
    let stretch = [];
    const close = () => {
      if (stretch.length > 1) {
        const edge = (sign) => stretch.map(([x, m, h]) => `${this.x(x).toFixed(1)} ${this.y(m + sign * h).toFixed(1)}`);
        ribbons.push(`M${edge(1).join("L")}L${edge(-1).reverse().join("L")}Z`);
      }
      stretch = [];
    };
    group[state.axis].forEach((x, i) => {
      if ([x, group.mean[i], group.half[i]].every(isNumber)) stretch.push([x, group.mean[i], group.half[i]]);
      else close();
    });
    close();
    return ribbons.length ? [shape("path", { class: `band m${group.method}`, d: ribbons.join("") })] : [];
  }

  // Few evaluations are shown as dots too: what lies between them was not measured.
  mean(group) {
    const xs = group[state.axis];
    const dots = xs.length > FEW ? [] : xs.map((x, i) => [x, group.mean[i]]).filter((point) => point.every(isNumber));
    return [
      shape("path", { class: `mean m${group.method}`, d: this.path(xs, group.mean) }),
      ...dots.map(([x, y]) => shape("circle", { class: `measured m${group.method}`, cx: this.x(x), cy: this.y(y), r: 2.6 })),
    ];
  }

  // Each line is named at its end; names that would overlap are moved apart.
  labels() {
    if (!this.labelled) return [];
    const ends = this.shown.map((g) => ({ group: g, y: this.y(lastNumber(g.mean) ?? lastNumber(lastRun(g, this.metric.key)) ?? 0) }));
    ends.sort((a, b) => a.y - b.y);
    ends.forEach((end, i) => { if (i) end.y = Math.max(end.y, ends[i - 1].y + LABEL_GAP); });
    const low = MARGIN.top + this.inner.h;
    for (let i = ends.length - 1, limit = low; i >= 0; i -= 1, limit = ends[i + 1].y - LABEL_GAP) ends[i].y = Math.min(ends[i].y, limit);
    return ends.map(({ group, y }) => {
      const name = DATA.methods[group.method].name;
      const short = name.length > 14 ? `${name.slice(0, 13)}…` : name;
      return shape("text", { class: `label m${group.method}`, x: MARGIN.left + this.inner.w + 7, y: y + 4 }, short);
    });
  }

  spoken() {
    const parts = this.shown.map((g) => {
      const last = g.mean.length - 1;
      return `${DATA.methods[g.method].name} ${last < 0 ? "no mean" : interval(g.mean[last], g.half[last])}`;
    });
    return `${DATA.environments[this.curves.environment]}, ${this.metric.label}; at the end: ${parts.join(", ")}`;
  }
}

function lastNumber(values) {
  return values.filter(isNumber).pop();
}

function lastRun(group, metric) {
  return group.runs.map((run) => lastNumber(run.values[metric] || []));
}

export function interval(mean, half) {
  if (!isNumber(mean)) return "no number";
  return isNumber(half) ? `${mean.toFixed(1)} ± ${half.toFixed(1)}` : mean.toFixed(1);
}
