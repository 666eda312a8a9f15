// How a point moves: dcp.envs.point_tasks, with its numbers. States are rounded to float32 after each step, as there.

export function makeTask(task, maze) {
  return task.kind === "maze" ? new PointMaze(task, maze) : new PointPushing(task, maze);
}

const clip = (action) => action.map((a) => Math.min(1, Math.max(-1, a)));
const rounded = (state) => state.map(Math.fround);

// Move a disc; walls block each axis by itself, so that it slides along them. -> {position, blocked}
export function slide({ rows, scale }, radius, [x, y], move) {
  const position = [x, y], blocked = [false, false], body = radius * (1 - 1e-3), half = 0.5 * scale;
  const cell = (value) => Math.floor(value / scale + 0.5);
  for (const axis of [0, 1]) {
    const sign = Math.sign(move[axis]), along = position[axis] + move[axis];
    const front = cell(along + sign * radius), side = position[1 - axis];
    const beside = [cell(side - body), cell(side + body)];
    const hit = sign !== 0 && beside.some((other) => (axis === 0 ? rows[front]?.[other] : rows[other]?.[front]) === "#");
    position[axis] = hit ? front * scale - sign * half - sign * radius : along;
    blocked[axis] = hit;
  }
  return { position, blocked };
}

class PointMaze {
  constructor(task, maze) { Object.assign(this, { task, maze, things: [{ shape: "disc", size: task.radius, acts: true, dims: [0, 1] }] }); }

  stateAt([place]) { return rounded(this.task.inertia ? [...place, 0, 0] : [...place]); }

  step(state, action) {
    const { inertia, friction, force, speed, radius } = this.task, pushed = clip(action);
    const velocity = pushed.map((a, i) => (inertia ? friction * state[2 + i] + force * a : speed * a));
    const { position, blocked } = slide(this.maze, radius, state, velocity);
    return rounded(inertia ? [...position, ...velocity.map((v, i) => (blocked[i] ? 0 : v))] : position);
  }

  // The place of a thing after a shove that no action makes.
  shove(state, move) {
    return rounded([...slide(this.maze, this.task.radius, state, move).position, ...state.slice(2)]);
  }
}

// A point that pushes a disc or a square; nothing has momentum.
class PointPushing {
  constructor(task, maze) { Object.assign(this, { task, maze, things: task.things }); }

  stateAt([thing, point]) { return rounded([...point, ...thing, thing[0] - point[0], thing[1] - point[1]]); }

  step(state, action) {
    const { substeps, speed } = this.task;
    return this.moved(state, clip(action).map((a) => (speed / substeps) * a), substeps);
  }

  shove(state, move) { return this.moved(state, move.map((m) => m / this.task.substeps), this.task.substeps); }

  moved(state, move, substeps) {
    let point = state.slice(0, 2), thing = state.slice(2, 4);
    for (let i = 0; i < substeps; i++) [point, thing] = this.substep(point, thing, move);
    return this.stateAt([thing, point]);
  }

  substep(point, thing, move) {
    const { radius, size, tolerance } = this.task, go = (r, from, by) => slide(this.maze, r, from, by).position;
    let moved = go(radius, point, move);
    let pushed = this.carried(point, thing, [moved[0] - point[0], moved[1] - point[1]]);
    let [depth, normal] = this.touching(moved, pushed);
    pushed = go(size, pushed, normal.map((n) => depth * n));
    [depth, normal] = this.touching(moved, pushed);
    moved = go(radius, moved, normal.map((n) => -depth * n));
    return this.touching(moved, pushed)[0] <= tolerance ? [moved, pushed] : [point, thing];
  }

  carried(point, thing, move) {
    if (!this.task.sticks || !(this.touching(point, thing, this.task.reach)[0] > 0)) return thing;
    return slide(this.maze, this.task.size, thing, move).position;
  }

  // -> how deep the point lies in the thing, and the unit normal towards the thing
  touching(point, thing, gap = 0) {
    const { shape, size, radius } = this.task;
    const nearest = shape === "disc" ? thing : thing.map((t, i) => Math.min(t + size, Math.max(t - size, point[i])));
    const offset = nearest.map((n, i) => n - point[i]), distance = Math.hypot(...offset);
    const reach = radius + gap + (shape === "disc" ? size : 0);
    return [Math.max(reach - distance, 0), distance > 0 ? offset.map((o) => o / distance) : [1, 0]];
  }
}
