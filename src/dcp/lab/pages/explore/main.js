// Puts the parts together: the state, the panels, and a loop that recomputes what changed.

import { byId, readData } from "../shared/dom.js";
import { nearestFree } from "../shared/maze_plan.js";
import { setTheme } from "../shared/theme.js";
import { connectControls, drawCharts } from "./controls.js";
import { connectDragging } from "./dragging.js";
import { makeTask } from "./dynamics.js";
import { COARSE, TrueField, makeGrid } from "./field.js";
import { Panel } from "./panel.js";
import { TruePaths } from "./true_paths.js";
import { firstState, readFragment, toFragment } from "./view_state.js";

const SHOVE = 2.5; // actions' worth of force with which the pointer pulls the point
const RANK_EVERY = 150; // milliseconds
const OFF_WALLS = 0.01; // cells between a goal and a wall

class App {
  constructor(data) {
    this.data = data;
    this.state = firstState(data);
    this.grid = makeGrid(data.plane);
    this.coarse = makeGrid(data.plane, COARSE);
    [this.arrowPlaces, this.arrowGap] = arrowPlaces(data.plane, this.grid);
    this.task = data.task && makeTask(data.task, data.plane.maze);
    this.trueField = data.paths && new TrueField(new TruePaths(data.paths), this.grid, this.arrowPlaces);
    this.panels = data.policies.map((described) => new Panel(this, described));
    this.times = []; // milliseconds of the last frames that recomputed the field
    Object.assign(this, { fieldKey: "", push: null, dragging: false, stale: true, ranked: 0, owed: 0 });
  }

  begin() {
    const asked = readFragment(location.hash, this.state);
    if (asked.theme) setTheme(asked.theme);
    this.state.places = this.state.places.map((place, index) => this.freeStart(index, place));
    byId("panels").append(...this.panels.map((panel) => panel.root));
    for (const panel of this.panels) connectDragging(panel, this);
    if (!this.task) this.chooseEpisode(this.state.episode, asked.step === null);
    if (asked.goal) this.state.goal = this.freeGoal(asked.goal); // an episode has its own
    this.restart();
    if (asked.step !== null) this.goTo(asked.step);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.state.running = asked.step === null && !calm;
    this.controls = connectControls(this);
    new ResizeObserver(() => { this.stale = true; }).observe(byId("panels"));
    let before = performance.now();
    const frame = (now) => {
      this.advance(Math.min(now - before, 100));
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  // What the reader changes. A goal or start in a wall moves to the nearest free place.

  freeGoal(place) { return [...nearestFree(this.data.plane, place.slice(0, 2), OFF_WALLS * (this.data.plane.maze?.scale ?? 1)), ...this.state.goal.slice(2)]; }
  freeStart(index, place) { return nearestFree(this.data.plane, place, this.task.things[index].size); }

  setGoal(place) {
    this.state.goal = this.freeGoal(place);
    for (const panel of this.panels) panel.walk?.aim();
    this.stale = true;
  }

  setStart(index, place) {
    this.state.places[index] = this.freeStart(index, place);
    this.restart();
  }

  chooseEpisode(index, fromStart = true) {
    const count = Math.min(...this.panels.map((panel) => panel.recordings.length));
    this.state.episode = Math.min(Math.max(0, index), count - 1);
    this.state.goal = [...this.panels[0].recording.goal];
    if (fromStart) this.state.time = 0;
    this.stale = true;
  }

  restart() {
    for (const panel of this.panels) panel.walk?.restart(this.state.places, this.state.goal);
    this.state.time = 0;
    this.owed = 0;
    this.stale = true;
  }

  // Advance by this many steps, as if they had been watched.
  goTo(step) {
    if (!this.task) this.state.time = Math.min(step, this.lastStep);
    for (const panel of this.panels) {
      if (!panel.walk) continue;
      panel.walk.restart(this.state.places, this.state.goal);
      for (let i = 0; i < Math.min(step, 2000); i++) panel.walk.step(this.state.goal, this.state.bursts);
    }
    this.stale = true;
  }

  run(on) {
    if (on && !this.task && this.state.time >= this.lastStep) this.state.time = 0;
    this.state.running = on;
    this.controls.tellRunning();
  }

  get lastStep() { return Math.max(...this.panels.map((panel) => panel.recording.last)); }
  get step() { return this.task ? Math.max(...this.panels.map((panel) => panel.walk.steps)) : this.state.time; }

  // The view as a link's fragment.
  fragment() { return toFragment(this.state, this.step, document.documentElement.dataset.theme); }
  remember() {
    try { history.replaceState(null, "", `#${this.fragment()}`); } catch { location.hash = this.fragment(); }
  }

  // The loop.

  advance(milliseconds) {
    this.compute();
    if (this.state.running) this.walkOn(milliseconds);
    if (!this.stale) return;
    const since = performance.now();
    const key = this.fieldChanged();
    if (key) this.updateFields(key);
    for (const panel of this.panels) panel.draw();
    if (key) this.times = [...this.times.slice(-59), performance.now() - since];
    this.updateRanks();
    for (const panel of this.panels) panel.tell();
    drawCharts(this);
    this.controls.tellFrame(this.times);
    this.stale = this.waiting;
  }

  // Whether something is still being computed.

  get waiting() { return this.panels.some((panel) => !panel.encoding.complete) || Boolean(this.trueField && !this.trueField.complete) || this.rankKey !== this.fieldKey; }

  compute() {
    const pending = this.panels.filter((panel) => !panel.encoding.complete);
    for (const panel of pending) panel.encode(24 / pending.length);
    if (!pending.length) this.trueField?.advance();
  }

  walkOn(milliseconds) {
    if (!this.task) {
      const time = Math.min(this.lastStep, this.state.time + (milliseconds / 1000) * this.data.steps_per_second * this.state.speed);
      this.stale ||= time !== this.state.time;
      this.state.time = time;
      if (time >= this.lastStep) this.run(false);
      return;
    }
    this.owed += (milliseconds / 1000) * this.data.steps_per_second * this.state.speed;
    for (; this.owed >= 1; this.owed--) {
      for (const panel of this.panels) {
        const shove = this.push?.panel === panel ? this.shove(panel) : null;
        if (panel.walk.isResting && !shove) continue;
        panel.walk.step(this.state.goal, this.state.bursts, shove);
        this.stale = true;
      }
    }
  }

  shove(panel) {
    const acting = this.task.things.findIndex((one) => one.acts), from = panel.walk.places()[acting];
    const pull = this.push.place.map((p, i) => p - from[i]), length = Math.hypot(...pull), most = SHOVE * this.data.task.speed;
    return length > most ? pull.map((p) => (p * most) / length) : pull;
  }

  fieldChanged() {
    const { goal, field, contours } = this.state;
    const key = JSON.stringify([goal, field, contours, this.dragging, this.trueField?.complete, this.panels.map((p) => [p.coarse.complete, p.encoding.complete])]);
    return key === this.fieldKey ? null : key;
  }

  updateFields(key) {
    this.fieldKey = key;
    if (this.trueField?.complete) {
      this.trueWays = this.trueField.ways(this.state.goal);
      if (this.state.field === "path") this.truth = this.trueField.measure(this.state.goal);
    }
    for (const panel of this.panels) panel.updateField();
  }

  // Ranks need all true lengths: less often while the goal moves.
  updateRanks() {
    if (this.rankKey === this.fieldKey || (this.dragging && performance.now() - this.ranked < RANK_EVERY)) return;
    this.ranked = performance.now();
    this.rankKey = this.fieldKey;
    if (!this.trueField?.complete) return;
    if (this.state.field !== "path") this.truth = this.trueField.measure(this.state.goal);
    for (const panel of this.panels) panel.updateRank();
  }
}

// Evenly over the free cells, off their faces; of a plane without a maze, over all of it. -> [places, gap]
function arrowPlaces(plane, grid) {
  const places = [];
  if (!plane.maze) {
    const gap = (plane.high[0] - plane.low[0]) / 16;
    for (let i = 0; i < 16; i++) for (let j = 0; j < 16; j++) places.push([plane.low[0] + (i + 0.5) * gap, plane.low[1] + (j + 0.5) * gap]);
    return [places, gap];
  }
  const { rows, scale } = plane.maze, per = Math.max(rows.length, rows[0].length) <= 6 ? 4 : Math.max(rows.length, rows[0].length) <= 9 ? 3 : 2;
  rows.forEach((row, i) => [...row].forEach((kind, j) => {
    if (kind === "#") return;
    for (let a = 0; a < per; a++) for (let b = 0; b < per; b++) places.push([i, j].map((cell, k) => scale * (cell - 0.5 + ([a, b][k] + 0.5) / per)));
  }));
  return [places, scale / per];
}

const app = new App(readData());
app.begin();
window.dcpExplore = app;
document.documentElement.dataset.ready = "yes";
