// A recorded episode, and its bodies seen from above.

import { unpack } from "../shared/packing.js";
import { apart } from "./policy.js";

export class Recording {
  constructor(episode, policy) {
    Object.assign(this, { policy, goal: episode.goal, reached: episode.reached, steps: episode.steps });
    for (const name of ["achieved", "subgoals", "poses"]) this[name] = unpack(episode[name]);
    this.trail = episode.steps.map((_, i) => this.achieved.at(i));
  }

  get last() { return this.steps.at(-1); }

  // Distances along the episode to any goal: straight ones, or in psi-space.
  distances(goal) { return this.trail.map((at) => apart(at, goal)); }

  psiDistances(goal) {
    const target = this.policy.encode(goal).slice();
    return this.trail.map((at) => this.policy.between(this.policy.encode(at), target));
  }

  moment(time) {
    const t = Math.min(time, this.last);
    let low = this.steps.findLastIndex((step) => step <= t);
    const high = Math.min(low + 1, this.steps.length - 1);
    const share = high === low ? 0 : (t - this.steps[low]) / (this.steps[high] - this.steps[low]);
    const mixed = (array) => array && array.at(low).map((a, i) => a + share * (array.at(high)[i] - a));
    return { low, achieved: mixed(this.achieved), poses: mixed(this.poses), subgoal: this.subgoals?.at(low) ?? null,
             reached: this.reached !== null && t >= this.reached };
  }
}

// Quaternions are w, x, y, z, as MuJoCo's.
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
function rotate(q, v) {
  const length = Math.hypot(...q) || 1, [w, ...axis] = Array.from(q, (c) => c / length);
  const t = cross(axis, v).map((c, i) => c + w * v[i]);
  return cross(axis, t).map((c, i) => v[i] + 2 * c);
}

// Draw every geom as its shadow from straight above, the lowest first.
export function drawBodies(c, plan, geoms, poses, colourOf, rim) {
  const placed = geoms.filter((geom) => geom.body >= 0).map((geom) => {
    const pose = poses.subarray(7 * geom.body, 7 * geom.body + 7), turn = pose.subarray(3);
    const inWorld = (v) => rotate(turn, v).map((x, i) => x + pose[i]);
    return { geom, at: inWorld(geom.pos), point: (v) => inWorld(rotate(geom.quat, v).map((x, i) => x + geom.pos[i])) };
  });
  placed.sort((a, b) => a.at[2] - b.at[2]);
  for (const grow of [Math.max(1, 0.02 * plan.unit), 0]) { // first the rim of all, then the bodies
    for (const one of placed) drawGeom(c, plan, one, grow ? rim : colourOf(one.geom), grow);
  }
}

function drawGeom(c, plan, { geom, at, point }, colour, grow) {
  const [a, b] = geom.size, pixel = ([x, y]) => [plan.u(y), plan.v(x)];
  c.fillStyle = c.strokeStyle = colour;
  c.lineJoin = "round";
  c.beginPath();
  if (geom.type === "capsule" || geom.type === "cylinder") {
    c.lineCap = "round";
    c.lineWidth = 2 * a * plan.unit + 2 * grow;
    c.moveTo(...pixel(point([0, 0, -b])));
    c.lineTo(...pixel(point([0, 0, b + 1e-6])));
    c.stroke();
  } else if (geom.type === "box") {
    const corners = [];
    for (const i of [-1, 1]) for (const j of [-1, 1]) for (const k of [-1, 1]) corners.push(pixel(point([i * a, j * b, k * geom.size[2]])));
    hull(corners).forEach((corner) => c.lineTo(...corner));
    c.closePath();
    c.fill();
    if (grow) { c.lineWidth = 2 * grow; c.stroke(); }
  } else {
    c.arc(...pixel(at), a * plan.unit + grow, 0, 2 * Math.PI);
    c.fill();
  }
}

// The convex hull of points of the screen, in order.
function hull(points) {
  const sorted = [...points].sort((p, q) => p[0] - q[0] || p[1] - q[1]);
  const half = (list) => {
    const chain = [];
    for (const p of list) {
      while (chain.length > 1 && turn(chain.at(-2), chain.at(-1), p) <= 0) chain.pop();
      chain.push(p);
    }
    return chain.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}

const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
