// A policy in the page: psi_g, and the actor where the page can run it. Goals have G numbers, states S.

import { makeMetric } from "./metrics.js";
import { Network } from "./network.js";

export class Policy {
  // networks: {psi_g, actor or null}; condition: a name of CONDITIONS; goalDims: where a state holds its goal
  constructor({ networks, condition, epsilon, metric }, goalDims) {
    this.metric = makeMetric(metric);
    this.psi = new Network(networks.psi_g, epsilon);
    this.actor = networks.actor ? new Network(networks.actor, epsilon) : null;
    this.condition = condition;
    this.goalDims = goalDims;
  }

  encode(goal) { return this.psi.run(goal); }

  distance(from, to) {
    return this.between(this.encode(from).slice(), this.encode(to));
  }

  // From one psi to another, by the critic's own distance.
  between(from, to) { return this.metric(from, 0, to, from.length); }

  // The way that the direction in psi-space points in the plane: J^T u as a unit vector, zero where there is none.
  direction(at, goal) {
    const target = this.encode(goal).slice();
    return pulledBack(this.psi.runWithSlopes(at), target);
  }

  achieved(state) { return this.goalDims.map((dim) => state[dim]); }

  action(state, goal) {
    return Array.from(this.actor.run([...state, ...CONDITIONS[this.condition](this, this.achieved(state), goal)]), Math.tanh);
  }

  // Algorithm 1, Direction: zero where the two places are one.
  directionAndMagnitude(achieved, goal) {
    const from = this.encode(achieved).slice(), to = this.encode(goal);
    const magnitude = apart(from, to), unit = magnitude > 0 ? 1 / magnitude : 0;
    return [...from.map((value, i) => (to[i] - value) * unit), magnitude];
  }
}

// What the actor sees of its goal: dcp.methods.conditions.
const CONDITIONS = {
  raw_goal: (policy, achieved, goal) => goal,
  direction: (policy, achieved, goal) => policy.directionAndMagnitude(achieved, goal),
  direction_and_goal: (policy, achieved, goal) => [...policy.directionAndMagnitude(achieved, goal), ...goal],
};

export function apart(a, b) {
  let square = 0;
  for (let i = 0; i < a.length; i++) square += (a[i] - b[i]) ** 2;
  return Math.sqrt(square);
}

export function pulledBack({ value, byX, byY }, target) {
  let x = 0, y = 0;
  for (let i = 0; i < value.length; i++) {
    const difference = target[i] - value[i];
    x += difference * byX[i];
    y += difference * byY[i];
  }
  const length = Math.hypot(x, y);
  return length > 0 ? [x / length, y / length] : [0, 0];
}
