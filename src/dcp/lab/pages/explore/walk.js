// A policy at work in the page: state, trail and distances, step by step.

import { apart } from "./policy.js";

export const BURST = { period: 100, length: 10 }; // the paper's: random actions in the last 10 of every 100 steps
const LONGEST = 3000; // steps that are remembered

// Numbers from 0 to 1 that depend only on step and axis, so that every policy gets the same burst.
function noise(step, axis) {
  let h = Math.imul(2 * step + axis + 1, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 4294967296;
}

export const isRandom = (step, burst = BURST) => step % burst.period >= burst.period - burst.length;

export class Walk {
  constructor(task, policy, threshold) { Object.assign(this, { task, policy, threshold }); }

  restart(places, goal) {
    this.state = this.task.stateAt(places);
    Object.assign(this, { steps: 0, arrived: null, trail: [], distances: [], psi: [], random: [], shoved: false });
    this.remember(goal);
  }

  aim() { this.arrived = null; } // another goal

  // `shove`: a move of the point that no action makes, or null; `bursts`: whether random actions come now and then
  step(goal, bursts, shove = null) {
    this.acting = bursts && isRandom(this.steps) ? [0, 1].map((axis) => 2 * noise(this.steps, axis) - 1) : null;
    const action = this.acting ?? this.policy.action(this.state, goal);
    this.state = this.task.step(this.state, action);
    if (shove) this.state = this.task.shove(this.state, shove);
    this.shoved = Boolean(shove);
    this.steps++;
    this.remember(goal);
    if (this.arrived === null && this.distances.at(-1) < this.threshold) this.arrived = this.steps;
  }

  remember(goal) {
    const achieved = this.policy.achieved(this.state);
    this.trail.push(achieved);
    this.distances.push(apart(achieved, goal));
    this.psi.push(this.policy.distance(achieved, goal));
    this.random.push(Boolean(this.acting));
    if (this.trail.length > LONGEST) for (const list of [this.trail, this.distances, this.psi, this.random]) list.shift();
  }

  // Where each thing is: [[x, y], ...] in the task's order.
  places() { return this.task.things.map(({ dims }) => dims.map((dim) => this.state[dim])); }

  get achieved() { return this.trail.at(-1); }
  get isResting() { return this.arrived !== null && this.steps > this.arrived + 60; }
}
