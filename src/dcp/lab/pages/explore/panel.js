// One policy: its field, its pool and what moves, on its own canvas.

import { element, fitCanvas } from "../shared/dom.js";
import { arrow, disc, freeSpace, makePlan, thing, trail, wallFaces } from "../shared/maze_plan.js";
import { colour, isDark } from "../shared/theme.js";
import { Arrows, Encoding, colourRange, rankCorrelation } from "./field.js";
import { FieldPicture } from "./field_picture.js";
import { Policy } from "./policy.js";
import { Pool } from "./pool.js";
import { Recording, drawBodies } from "./recording.js";
import { Walk } from "./walk.js";

export class Panel {
  constructor(app, described) {
    const policy = new Policy(described.policy, app.data.goal_dims), { goal } = app.state;
    Object.assign(this, { app, described, policy });
    this.coarse = new Encoding(policy, app.coarse, goal);
    this.encoding = new Encoding(policy, app.grid, goal);
    this.arrows = new Arrows(policy, app.arrowPlaces, goal);
    this.pool = described.pool && new Pool(described.pool, policy);
    this.recordings = described.episodes.map((episode) => new Recording(episode, policy));
    this.pictures = new Map([app.coarse, app.grid].map((grid) => [grid, new FieldPicture(grid, app.data.ramp)]));
    this.canvas = element("canvas", { tabindex: "0", role: "img" });
    this.facts = element("p", { class: "facts" });
    this.name = element("span", { class: "what" });
    const head = element("header", {}, element("i", { class: "dot", style: `--light: ${described.colour}; --dark: ${described.on_dark}` }), element("h2", {}), this.name);
    head.querySelector("h2").textContent = described.name;
    this.root = element("article", { class: "panel" }, head, element("div", { class: "stage" }, this.canvas), this.facts);
    this.name.textContent = described.label ? `${described.label} steps` : "";
    if (app.task) this.walk = new Walk(app.task, this.policy, app.data.threshold);
  }

  get tint() { return isDark() ? this.described.on_dark : this.described.colour; }
  get recording() { return this.recordings[this.app.state.episode] ?? null; }

  // What is at work now: {achieved, trail, places, poses, subgoal, arrived, steps, distance}
  moment() {
    const { app, walk, recording } = this;
    if (walk) {
      return { achieved: walk.achieved, trail: walk.trail, places: walk.places(), arrived: walk.arrived, steps: walk.steps,
               distance: walk.distances.at(-1), psi: walk.psi.at(-1), random: app.state.running && walk.random.at(-1) };
    }
    const moment = recording.moment(app.state.time);
    return { ...moment, trail: [...recording.trail.slice(0, moment.low + 1), moment.achieved], arrived: moment.reached ? recording.reached : null,
             steps: Math.round(Math.min(app.state.time, recording.last)), distance: Math.hypot(...moment.achieved.map((a, i) => a - app.state.goal[i])),
             psi: this.policy.distance(moment.achieved, app.state.goal), ended: app.state.time >= recording.last };
  }

  // Encode for a while, the coarse grid first. -> whether all is done
  encode(milliseconds) { return this.coarse.advance(milliseconds) && this.encoding.advance(milliseconds); }

  // Recompute what depends on the goal, the policy and the field that is chosen.
  updateField() {
    const { app } = this, { state, trueField } = app, encoding = this.encoding.complete ? this.encoding : this.coarse;
    this.distances = encoding.distances(state.goal);
    const showsPath = state.field === "path" && app.truth, shown = showsPath ? app.truth.lengths : this.distances;
    this.picture = this.pictures.get(showsPath ? app.grid : encoding.grid);
    if (state.field !== "none") this.picture.show(shown, colourRange(shown), state.contours, app.dragging);
    this.ways = this.arrows.towards(state.goal);
    if (trueField?.complete) this.ways.forEach((one, i) => { one.wrong = one.way[0] * app.trueWays[i][0] + one.way[1] * app.trueWays[i][1] <= 0; });
    if (showsPath) this.ways.forEach((one) => { one.far = this.picture.range[0]; });
  }

  // Spearman's, over the free points of the grid.
  updateRank() { this.rank = this.app.truth && this.encoding.complete ? rankCorrelation(this.distances, this.app.truth.lengths) : null; }

  draw() {
    const { app, canvas } = this, { data, state } = app, { width, height, ratio } = fitCanvas(canvas), c = canvas.getContext("2d");
    const plan = (this.plan = makePlan(data.plane, { x: 0, y: 0, width, height }));
    c.fillStyle = colour("--wall");
    c.fillRect(0, 0, width, height);
    const free = freeSpace(plan, data.plane);
    c.save();
    c.clip(free);
    if (state.field === "none") { c.fillStyle = colour("--free"); c.fillRect(0, 0, width, height); }
    else this.picture.draw(c, plan);
    if (state.arrows) this.picture.drawArrows(c, plan, this.ways, 0.62 * app.arrowGap * plan.unit, colour("--wrong"));
    c.restore();
    c.strokeStyle = colour("--face");
    c.lineWidth = 1.25 * ratio;
    if (data.plane.maze) c.stroke(wallFaces(plan, data.plane)); else this.drawWalls(c, plan);
    this.drawMarks(c, plan, ratio);
  }

  // Fixed boxes of a task without a maze.
  drawWalls(c, plan) {
    for (const geom of this.app.data.scene?.geoms ?? []) {
      if (geom.body >= 0 || geom.type !== "box") continue;
      c.fillStyle = colour("--wall");
      c.fillRect(plan.u(geom.pos[1] - geom.size[1]), plan.v(geom.pos[0] - geom.size[0]), 2 * geom.size[1] * plan.unit, 2 * geom.size[0] * plan.unit);
    }
  }

  drawMarks(c, plan, ratio) {
    const { app, described, tint } = this, { data, state } = app, now = (this.now = this.moment());
    const handle = Math.max(data.threshold, (7 * ratio) / plan.unit);
    if (state.pool && this.pool) this.drawPool(c, plan, ratio, now.achieved);
    trail(c, plan, now.trail, colour("--halo"), 5.5 * ratio);
    trail(c, plan, now.trail, tint, 2.75 * ratio);
    if (app.task) for (const place of state.places) this.mark(c, plan, place, (4.5 * ratio) / plan.unit, null, colour("--ink"), ratio);
    this.mark(c, plan, state.goal, handle, colour("--goal"), colour("--halo"), ratio);
    disc(c, plan, state.goal, handle + (4.5 * ratio) / plan.unit, null, colour("--goal"));
    if (now.subgoal && state.pool) this.mark(c, plan, now.subgoal, 0.8 * handle, data.colours.subgoal, colour("--halo"), ratio);
    if (app.task) this.drawThings(c, plan, ratio, now, tint);
    else this.drawRecorded(c, plan, ratio, now, tint);
    const way = this.policy.direction([...now.achieved], state.goal);
    if (described.sees_direction && (way[0] || way[1]) && now.distance > data.threshold) {
      for (const [wide, paint] of [[7, colour("--halo")], [3.5, data.colours.direction]]) arrow(c, plan, now.achieved, way, 30 * ratio, wide * ratio, paint);
    }
  }

  mark(c, plan, place, radius, fill, rim, ratio) { c.lineWidth = 2 * ratio; disc(c, plan, place, radius, fill, rim); }

  drawThings(c, plan, ratio, now, tint) {
    this.app.task.things.forEach((one, i) => {
      const size = Math.max(one.size, one.acts ? (6 * ratio) / plan.unit : 0);
      thing(c, plan, { ...one, size: size + (2 * ratio) / plan.unit }, now.places[i], colour("--halo"));
      thing(c, plan, { ...one, size }, now.places[i], one.acts ? tint : this.app.data.colours.pushed);
      if (one.acts && now.random) this.mark(c, plan, now.places[i], size + (6 * ratio) / plan.unit, null, colour("--burst-ring"), ratio);
    });
  }

  drawRecorded(c, plan, ratio, now, tint) {
    const { scene, colours } = this.app.data;
    if (scene && now.poses) drawBodies(c, plan, scene.geoms, now.poses, (geom) => (geom.acts ? tint : colours.pushed), colour("--halo"));
    else this.mark(c, plan, now.achieved, (6 * ratio) / plan.unit, tint, colour("--halo"), ratio);
  }

  drawPool(c, plan, ratio, achieved) {
    const scored = this.pool.scored([...achieved], this.app.state.goal), most = scored[0].chance;
    for (const { state, chance } of scored.slice().reverse()) {
      c.globalAlpha = 0.45 + 0.5 * Math.sqrt(chance / most);
      c.lineWidth = ratio;
      disc(c, plan, state, ((1.8 + 5.5 * Math.sqrt(chance / most)) * ratio) / plan.unit, this.app.data.colours.subgoal, colour("--halo"));
    }
    c.globalAlpha = 1;
  }

  tell() {
    const { now, rank, ways, app } = this, facts = [];
    const nearer = app.trueField?.complete ? ways.filter((one) => !one.wrong).length / ways.length : null;
    if (rank !== null && rank !== undefined) facts.push(["rank correlation", Number.isFinite(rank) ? rank.toFixed(2) : "–"]);
    if (nearer !== null) facts.push(["arrows that lead nearer", `${Math.round(100 * nearer)}%`]);
    facts.push(["step", now.steps], ["distance", now.distance.toFixed(2)], ["psi-distance", now.psi.toFixed(1)]);
    const outcome = now.arrived !== null ? `arrived at step ${now.arrived}` : now.ended ? "not reached" : "";
    const key = JSON.stringify([facts, outcome]);
    if (key === this.told) return;
    this.told = key;
    this.facts.replaceChildren(...facts.map(([name, value]) => {
      const fact = element("span", {}, `${name} `, element("b", {}));
      fact.querySelector("b").textContent = value;
      return fact;
    }));
    if (outcome) this.facts.append(element("span", { class: now.arrived !== null ? "arrived" : "missed" }, outcome));
    this.canvas.setAttribute("aria-label", `${this.described.name}: ${facts.map((f) => f.join(" ")).join(", ")} ${outcome}. Arrow keys move the goal.`);
  }
}
