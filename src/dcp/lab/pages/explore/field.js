// Distances over the plane: in psi-space, from psi_g's weights, and along true paths; and how well their orders agree.

import { isFree } from "../shared/maze_plan.js";
import { BLOCK } from "./network.js";
import { pulledBack } from "./policy.js";

export const SIDE = 128; // points of the grid along the plane's longer side
export const COARSE = 32; // of the one that is shown until the fine one is encoded
const SLICE = 12; // milliseconds of encoding between two frames

// Evenly spaced points, each in the middle of its pixel; index = row * columns + column.
export function makeGrid(plane, side = SIDE) {
  const size = plane.high.map((h, i) => h - plane.low[i]), pixel = Math.max(...size) / side;
  const [rows, columns] = size.map((s) => Math.round(s / pixel));
  const points = [];
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    points.push([plane.low[0] + ((i + 0.5) * size[0]) / rows, plane.low[1] + ((j + 0.5) * size[1]) / columns]);
  }
  const free = Int32Array.from(points.flatMap((point, k) => (isFree(plane, point) ? [k] : [])));
  return { rows, columns, points, free };
}

// psi_g of every free point of a grid, which no goal changes: encoded a slice of time at a time.
export class Encoding {
  constructor(policy, grid, goal) {
    Object.assign(this, { policy, grid, size: policy.psi.outputs, done: 0 });
    this.psi = new Float32Array(grid.free.length * this.size);
    this.rest = goal.slice(2); // what a goal has besides its place, such as a height
  }

  get complete() { return this.done === this.grid.free.length; }

  advance(milliseconds = SLICE) {
    const end = performance.now() + milliseconds, { free, points } = this.grid;
    while (!this.complete && performance.now() < end) {
      const count = Math.min(BLOCK, free.length - this.done), input = [];
      for (let k = 0; k < count; k++) input.push(...points[free[this.done + k]], ...this.rest);
      const found = this.policy.psi.runBlock(Float64Array.from(input), count);
      this.psi.set(found.subarray(0, count * this.size), this.done * this.size);
      this.done += count;
    }
    return this.complete;
  }

  // [free points]: the critic's distance from psi_g(point) to psi_g(goal)
  distances(goal) {
    const target = this.policy.encode(goal), { size, psi } = this, { metric } = this.policy, out = new Float32Array(this.grid.free.length);
    for (let k = 0; k < out.length; k++) out[k] = metric(psi, k * size, target, size);
    return out;
  }
}

// Arrows of the pulled-back direction at fixed places: psi_g's slopes there, which no goal changes.
export class Arrows {
  constructor(policy, places, goal) {
    this.policy = policy;
    this.at = places.map((place) => ({ place, ...policy.psi.runWithSlopes([...place, ...goal.slice(2)]) }));
  }

  // -> [{place, way}]: unit vectors
  towards(goal) {
    const target = this.policy.encode(goal).slice();
    return this.at.map((here) => ({ place: here.place, way: pulledBack(here, target), far: this.policy.between(here.value, target) }));
  }
}

// True path lengths over the same grid. What each point sees is found once, a slice of time at a time.
export class TrueField {
  constructor(paths, grid, places) {
    Object.assign(this, { paths, grid, places, seen: [] });
    this.wanted = [...Array.from(grid.free, (k) => grid.points[k]), ...places];
  }

  get complete() { return this.seen.length === this.wanted.length; }

  advance(milliseconds = SLICE) {
    const end = performance.now() + milliseconds;
    while (!this.complete && performance.now() < end) this.seen.push(this.paths.visible(...this.wanted[this.seen.length]));
    return this.complete;
  }

  // {lengths: [free points]}
  measure(goal) {
    const rest = this.paths.fromCorners(goal);
    return { lengths: Float32Array.from(this.grid.free, (_, k) => this.paths.path(this.wanted[k], this.seen[k], goal, rest).length) };
  }

  // [places]: the unit vectors at which the shortest paths begin
  ways(goal) {
    const rest = this.paths.fromCorners(goal), free = this.grid.free.length;
    return this.places.map((place, i) => {
      const { towards } = this.paths.path(place, this.seen[free + i], goal, rest);
      const way = [towards[0] - place[0], towards[1] - place[1]], length = Math.hypot(...way);
      return length > 0 ? way.map((w) => w / length) : [0, 0];
    });
  }
}

// The indices of non-negative float32 numbers, smallest first: a float's bits sort as it does.
function sorted(values) {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length), keys = new Float64Array(values.length);
  for (let i = 0; i < keys.length; i++) keys[i] = bits[i] * 65536 + i;
  keys.sort();
  const order = new Int32Array(keys.length);
  for (let i = 0; i < keys.length; i++) order[i] = keys[i] % 65536;
  return order;
}

// Ranks from 0; equal numbers share their mean rank.
export function ranks(values) {
  const order = sorted(values), out = new Float64Array(values.length);
  for (let from = 0; from < order.length; ) {
    let to = from;
    while (to + 1 < order.length && values[order[to + 1]] === values[order[from]]) to++;
    for (let k = from; k <= to; k++) out[order[k]] = (from + to) / 2;
    from = to + 1;
  }
  return out;
}

// Spearman's rank correlation; NaN where one of the two is constant.
export function rankCorrelation(a, b) {
  const finite = Int32Array.from(a.keys()).filter((i) => Number.isFinite(a[i]) && Number.isFinite(b[i]));
  const [x, y] = [a, b].map((values) => ranks(finite.length === values.length ? values : Float32Array.from(finite, (i) => values[i])));
  const mean = (finite.length - 1) / 2;
  let xy = 0, xx = 0, yy = 0;
  for (let i = 0; i < x.length; i++) { xy += (x[i] - mean) * (y[i] - mean); xx += (x[i] - mean) ** 2; yy += (y[i] - mean) ** 2; }
  return xy / Math.sqrt(xx * yy);
}

// The 1st and the 99th percentile: the colours' range, as in `dcp landscape`.
export function colourRange(values) {
  const gap = Math.max(1, Math.floor(values.length / 2000)); // a sample is enough for colours
  const sample = Float32Array.from({ length: Math.floor(values.length / gap) }, (_, i) => values[i * gap]).sort();
  const end = sample.findLastIndex(Number.isFinite) + 1, finite = sample.subarray(0, end);
  const at = (share) => finite[Math.round(share * (finite.length - 1))];
  const [low, high] = [at(0.01), at(0.99)];
  return high - low > 1e-6 ? [low, high] : [low - 0.5, high + 0.5];
}
