// The page checks itself against what Python computed from the same weights, and against a walk that Python took.

import { makeTask } from "./dynamics.js";
import { Policy } from "./policy.js";

const largest = (a, b) => a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);

// -> {actions, distances, ways, walk}: the largest differences; walk is that of the places after these steps
export function selfCheck(data) {
  const found = { actions: 0, distances: 0, ways: 0, walk: 0 };
  const worst = (name, difference) => { found[name] = Math.max(found[name], difference); };
  for (const described of data.policies) {
    const policy = new Policy(described.policy, data.goal_dims);
    checkPolicy(policy, described.policy.check, worst);
    if (described.walk) worst("walk", walkDifference(data, policy, described.walk, data.goal));
  }
  return found;
}

function checkPolicy(policy, { at, goals, distances, ways, states, actions }, worst) {
  at.forEach((place, i) => worst("distances", Math.abs(policy.distance(place, goals[i]) - distances[i]) / Math.max(1, distances[i])));
  ways.forEach((way, i) => worst("ways", largest(policy.direction(at[i], goals[i]), way)));
  states?.forEach((state, i) => worst("actions", largest(policy.action(state, goals[i]), actions[i])));
}

// Walk as Python did, from its first state. -> the largest difference of a state
export function walkDifference(data, policy, walk, goal) {
  const task = makeTask(data.task, data.plane.maze);
  let state = walk[0], most = 0;
  for (const wanted of walk.slice(1)) {
    state = task.step(state, policy.action(state, goal));
    most = Math.max(most, largest(state, wanted));
  }
  return most;
}
