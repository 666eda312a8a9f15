// What a chart says under the pointer, or under the arrow keys.

import { element } from "../shared/dom.js";
import { humanCount, humanTime, isNumber, nearest } from "../shared/numbers.js";
import { shape } from "../shared/svg.js";
import { Chart, MARGIN, interval } from "./chart.js";
import { DATA } from "./data.js";
import { state } from "./state.js";

const REACH = 28; // pixels: an evaluation further away than this is not under the pointer

Object.assign(Chart.prototype, {
  point(event) {
    const at = event.clientX - this.svg.getBoundingClientRect().left;
    this.show(((at - MARGIN.left) / this.inner.w) * this.xMax, event);
  },

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.leave();
    if (!step) return;
    event.preventDefault();
    const places = [...new Set(this.shown.flatMap((g) => this.places(g)))].sort((a, b) => a - b);
    const now = this.cursor === null ? (step > 0 ? -1 : places.length) : nearest(places, this.cursor);
    const next = places[Math.min(places.length - 1, Math.max(0, now + step))];
    if (next !== undefined) this.show(next, null);
  },

  // Where this group was evaluated: the mean's places, or without a mean those of its runs.
  places(group) {
    const own = group[state.axis];
    return (own.length ? own : group.runs.flatMap((run) => run[state.axis])).filter(isNumber);
  },

  // -> for each chosen method its evaluation nearest to x, if one is near
  near(x) {
    const spread = Math.max(REACH, (0.6 * this.inner.w) / Math.max(1, ...this.shown.map((g) => this.places(g).length)));
    const found = this.shown.map((group) => {
      const i = nearest(group[state.axis], x);
      const seeds = group.runs.map((run) => this.seedAt(run, group, i, x)).filter(Boolean);
      const place = i < 0 ? seeds[0]?.x : group[state.axis][i];
      return { group, i, place, seeds, mean: group.mean[i], half: group.half[i] };
    });
    return found.filter((f) => isNumber(f.place) && Math.abs(this.x(f.place) - this.x(x)) <= spread);
  },

  seedAt(run, group, i, x) {
    const j = i < 0 ? nearest(run[state.axis], x) : run.steps.indexOf(group.steps[i]);
    const value = (run.values[this.metric.key] || [])[j];
    return j < 0 || value === undefined ? null : { x: run[state.axis][j], value, seed: run.seed };
  },

  show(x, event) {
    const found = this.near(x);
    if (!found.length) return this.leave();
    const main = found.reduce((a, b) => (Math.abs(b.place - x) < Math.abs(a.place - x) ? b : a));
    this.cursor = main.place;
    const at = this.x(main.place);
    this.cursorMarks.replaceChildren(shape("line", { x1: at, x2: at, y1: MARGIN.top, y2: MARGIN.top + this.inner.h }));
    for (const f of found) {
      for (const seed of f.seeds) this.dot(seed.x, seed.value, f.group.method, 1.8);
      this.dot(f.place, f.mean, f.group.method, 4);
    }
    found.sort((a, b) => (isNumber(b.mean) ? b.mean : -1) - (isNumber(a.mean) ? a.mean : -1));
    tip.fill(this.tipRows(found, main));
    const box = this.svg.getBoundingClientRect();
    tip.place(box.left + at, event ? event.clientY : box.top + MARGIN.top + 20);
  },

  dot(x, value, method, r) {
    if (!isNumber(x) || !isNumber(value) || value > this.yMax * 1.02) return;
    this.cursorMarks.append(shape("circle", { class: `m${method}`, cx: this.x(x), cy: this.y(value), r }));
  },

  tipRows(found, main) {
    const where = (f) => (state.axis === "steps" ? `${humanCount(f.place)} steps` : humanTime(f.place));
    const rows = [element("div", { class: "tip-head" }, where(main) + this.otherAxis(found))];
    for (const f of found) {
      const name = DATA.methods[f.group.method].name + (f.place === main.place || state.axis === "seconds" ? "" : ` at ${where(f)}`);
      rows.push(element("i", { class: `swatch m${f.group.method}` }), element("span", {}, name));
      rows.push(element("b", {}, f.i < 0 ? "no mean" : interval(f.mean, f.half)));
      const values = f.seeds.map((s) => (isNumber(s.value) ? s.value.toFixed(1) : "–")).join("  ");
      if (f.group.runs.length > 1 && f.group.runs.length <= 12) rows.push(element("small", {}, `seeds  ${values}`));
    }
    return rows;
  },

  // Methods get there at different times: the span from the first to the last.
  otherAxis(found) {
    const steps = state.axis === "steps";
    const values = found.map((f) => (steps ? f.group.seconds : f.group.steps)[f.i]).filter(isNumber);
    if (!values.length) return "";
    const [low, high] = [Math.min(...values), Math.max(...values)].map((v) => (steps ? humanTime(v) : `${humanCount(v)} steps`));
    return ` · ${low === high ? low : `${low} to ${high}`}`;
  },

  leave() {
    this.cursor = null;
    this.cursorMarks?.replaceChildren();
    tip.hide();
  },
});

export const tip = {
  node: document.getElementById("tip"),
  fill(rows) { this.node.replaceChildren(...rows); this.node.hidden = false; },
  hide() { this.node.hidden = true; },
  place(x, y) {
    const { width, height } = this.node.getBoundingClientRect();
    const left = x - width - 16 < 6 || x < innerWidth * 0.25 ? x + 16 : x - width - 16;
    this.node.style.left = `${Math.max(6, Math.min(left, innerWidth - width - 6))}px`;
    this.node.style.top = `${Math.max(6, Math.min(y - height / 2, innerHeight - height - 6))}px`;
  },
};
