// What the reader sees, in one object, and as the link's fragment: #goal=6,1&start=1,1&field=path&step=40

const SWITCHES = ["arrows", "contours", "pool", "bursts"];
const rounded = (place) => place.map((value) => Number(value.toFixed(3)));

export function firstState(data) {
  const things = data.task ? thingsOf(data.task).map(({ dims }) => dims.map((dim) => data.state[dim])) : [];
  return {
    goal: [...data.goal], places: things, field: "psi", arrows: true, contours: true, pool: false, bursts: false,
    running: true, episode: 0, time: 0, speed: 1, chart: "straight",
  };
}

export const thingsOf = (task) => task.things ?? [{ shape: "disc", size: task.radius, acts: true, dims: [0, 1] }];

export function toFragment(state, step, theme) {
  const parts = { goal: rounded(state.goal).join(",") };
  if (state.places.length) parts.start = rounded(state.places.flat()).join(",");
  if (state.field !== "psi") parts.field = state.field;
  for (const name of SWITCHES) parts[name] = state[name] ? 1 : 0;
  if (state.episode) parts.episode = state.episode;
  if (state.speed !== 1) parts.speed = state.speed;
  if (state.chart !== "straight") parts.chart = state.chart;
  if (theme) parts.theme = theme;
  parts.step = Math.round(step);
  return new URLSearchParams(parts).toString().replaceAll("%2C", ",");
}

// Change `state` as a fragment says; what is not a number or not known is passed over. -> {goal, step, theme}
export function readFragment(text, state) {
  const asked = new URLSearchParams(text.replace(/^#/, ""));
  const numbers = (name) => asked.get(name)?.split(",").map(Number) ?? [];
  const goal = numbers("goal"), start = numbers("start");
  if (start.length && start.length === 2 * state.places.length && start.every(Number.isFinite)) {
    state.places = state.places.map((_, i) => start.slice(2 * i, 2 * i + 2));
  }
  if (["psi", "path", "none"].includes(asked.get("field"))) state.field = asked.get("field");
  if (["straight", "psi"].includes(asked.get("chart"))) state.chart = asked.get("chart");
  for (const name of SWITCHES) if (asked.has(name)) state[name] = asked.get(name) === "1";
  for (const name of ["episode", "speed"]) if (asked.has(name) && Number(asked.get(name)) >= 0) state[name] = Number(asked.get(name));
  const step = asked.has("step") ? Number(asked.get("step")) : null;
  const isGoal = goal.length === state.goal.length && goal.every(Number.isFinite);
  return { goal: isGoal ? goal : null, step: Number.isFinite(step) ? step : null, theme: asked.get("theme") };
}
