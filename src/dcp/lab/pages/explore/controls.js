// Buttons, keys, the chart, the legend, the link and the saved picture.

import { drawChart } from "../shared/distance_chart.js";
import { all, byId, download, element } from "../shared/dom.js";
import { bytes } from "../shared/packing.js";
import { colour, connectTheme } from "../shared/theme.js";

const FIELDS = ["psi", "path", "none"];

export function connectControls(app) {
  const { data, state } = app;
  const redraw = () => { app.stale = true; press(); app.remember(); };
  const press = () => {
    for (const button of all("[data-field]")) button.setAttribute("aria-pressed", state.field === button.dataset.field);
    for (const button of all("[data-chart]")) button.setAttribute("aria-pressed", state.chart === button.dataset.chart);
    for (const button of all("[data-toggle]")) button.setAttribute("aria-pressed", state[button.dataset.toggle]);
  };
  describe(app);
  for (const button of all("[data-field]")) button.onclick = () => { state.field = button.dataset.field; redraw(); };
  for (const button of all("[data-chart]")) button.onclick = () => { state.chart = button.dataset.chart; redraw(); };
  for (const button of all("[data-toggle]")) button.onclick = () => { state[button.dataset.toggle] = !state[button.dataset.toggle]; redraw(); };
  const controls = {
    tellRunning() { byId("run").textContent = state.running ? "❚❚ Pause" : app.task ? "▶ Release" : "▶ Play"; },
    tellFrame(times) { tellFrame(times, app); },
  };
  const again = () => { app.restart(); app.run(true); app.remember(); };
  byId("run").onclick = () => { app.run(!state.running); app.remember(); };
  byId("back").onclick = again;
  byId("speed").value = String(state.speed);
  byId("speed").onchange = (event) => { state.speed = Number(event.target.value); app.remember(); };
  connectTheme(byId("theme"), redraw);
  connectEpisodes(app);
  byId("link").onclick = () => copyLink(app);
  byId("picture").onclick = () => savePicture(app);
  byId("help-button").onclick = () => byId("help").showModal();
  connectKeys(app, { redraw, again });
  press();
  controls.tellRunning();
  return controls;
}

function describe(app) {
  const { data, panels, trueField, task } = app, root = document.documentElement.style;
  byId("title").textContent = data.title;
  byId("lede").textContent = task
    ? "Drag the goal and watch the field turn. Pull the point as it walks: it recovers."
    : "Recorded episodes over the field that psi has learned. Drag the goal and watch the field turn.";
  const [height, width] = data.plane.high.map((h, i) => h - data.plane.low[i]), count = panels.length;
  byId("panels").style.setProperty("--columns", Math.min(count, width / height > 1.6 ? 2 : count));
  root.setProperty("--aspect", `${width} / ${height}`);
  root.setProperty("--widest", `calc(max(58vh, 300px) * ${(width / height).toFixed(4)})`);
  document.querySelector("main").classList.toggle("single", count === 1);
  byId("panels").style.setProperty("--phone-columns", count > 2 ? 2 : 1);
  all("[data-field='path']").forEach((button) => { button.hidden = !trueField; });
  all("[data-toggle='bursts']").forEach((button) => { button.hidden = !task; });
  all("[data-toggle='pool']").forEach((button) => { button.hidden = !panels.some((panel) => panel.pool || panel.recordings.some((r) => r.subgoals)); });
  byId("legend").replaceChildren(...legend(app));
}

function legend({ data, panels, trueField }) {
  const table = bytes(data.ramp), stop = (i) => `rgb(${table[3 * i]} ${table[3 * i + 1]} ${table[3 * i + 2]})`;
  const stops = [0, 64, 128, 191, 255].map(stop).join(", ");
  const entry = (style, text, kind = "") => element("span", {}, element("i", { style, class: kind }), text);
  const pool = panels.find((panel) => panel.pool)?.described.pool, subgoals = panels.some((panel) => panel.recordings.some((one) => one.subgoals));
  return [
    entry(`background: linear-gradient(90deg, ${stops})`, "near to far", "bar"),
    entry("background: var(--goal)", "goal"),
    panels.some((panel) => panel.described.sees_direction) && entry(`background: ${data.colours.direction}`, "the direction that the actor sees", "mark"),
    trueField && entry("background: var(--wrong)", "arrows that lead away from the goal by the true path", "mark"),
    pool && entry(`background: ${data.colours.subgoal}`, `pool (${pool.of}): larger is likelier to be commanded`),
    subgoals && entry(`background: ${data.colours.subgoal}`, "the subgoal that training would command"),
  ].filter(Boolean);
}

function tellFrame(times, { grid }) {
  if (!times.length) return;
  const mean = times.reduce((a, b) => a + b, 0) / times.length;
  byId("frame").textContent = `field ${grid.rows} × ${grid.columns}, ${mean.toFixed(1)} ms per frame`;
}

function connectEpisodes(app) {
  byId("scrub-row").hidden = byId("episode-choice").hidden = Boolean(app.task);
  if (app.task) return;
  const count = Math.min(...app.panels.map((panel) => panel.recordings.length));
  for (let i = 0; i < count; i++) byId("episode").add(new Option(String(i + 1), String(i)));
  byId("episode").value = String(app.state.episode);
  byId("episode").onchange = (event) => { app.chooseEpisode(Number(event.target.value)); app.run(true); app.remember(); };
  byId("scrub").oninput = (event) => { app.state.time = Number(event.target.value) * app.lastStep; app.stale = true; app.run(false); };
  byId("chart").onclick = (event) => { app.state.time = Math.min(app.lastStep, app.chartScale.toStep(event.offsetX)); app.stale = true; };
}

export function drawCharts(app) {
  const { panels, state, task, data } = app;
  const lines = panels.map(({ walk, recording, tint }) => {
    if (!walk) return { values: recording[state.chart === "psi" ? "psiDistances" : "distances"](state.goal), steps: recording.steps, colour: tint };
    const values = state.chart === "psi" ? walk.psi : walk.distances, first = walk.steps - values.length + 1;
    return { values, steps: values.map((_, i) => first + i), colour: tint, random: walk.random };
  });
  app.chartScale = drawChart(byId("chart"), lines, task ? null : state.time, state.chart === "psi" ? null : data.threshold, task ? 60 : 1);
  if (!task) byId("scrub").value = state.time / app.lastStep;
}

function connectKeys(app, { redraw, again }) {
  const { state, data } = app, cell = (data.plane.maze?.scale ?? (data.plane.high[0] - data.plane.low[0]) / 10) / 8;
  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const toggle = (name) => () => { if (!document.querySelector(`[data-toggle='${name}']`).hidden) { state[name] = !state[name]; redraw(); } };
  const KEYS = {
    " ": () => byId("run").click(), r: again, a: toggle("arrows"), c: toggle("contours"), b: toggle("bursts"), p: toggle("pool"),
    f: () => { const shown = FIELDS.filter((f) => f !== "path" || app.trueField); state.field = shown[(shown.indexOf(state.field) + 1) % shown.length]; redraw(); },
    l: () => byId("link").click(), s: () => byId("picture").click(),
    t: () => byId("theme").click(), "?": () => byId("help").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT)$/.test(event.target.tagName) || byId("help").open) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    const move = MOVES[event.key], key = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (move) {
      const from = event.shiftKey && app.task ? state.places.at(-1) : state.goal, to = move.map((m, i) => from[i] + m * cell);
      if (event.shiftKey && app.task) app.setStart(state.places.length - 1, to); else app.setGoal(to);
      app.remember();
    } else if (key) key();
    if (move || key) event.preventDefault();
  });
}

function say(text) {
  const line = byId("said");
  line.textContent = text;
  line.classList.add("shown");
  clearTimeout(line.timer);
  line.timer = setTimeout(() => line.classList.remove("shown"), 2200);
}

async function copyLink(app) {
  app.remember();
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link to this view is copied.");
  } catch {
    say("The link to this view is in the address bar.");
  }
}

// The panels side by side as one PNG, with their names and what they measure.
function savePicture(app) {
  const canvases = app.panels.map((panel) => panel.canvas), gap = 24, head = 64, foot = 46;
  const width = canvases.reduce((sum, one) => sum + one.width + gap, gap), height = head + foot + Math.max(...canvases.map((one) => one.height));
  const sheet = Object.assign(document.createElement("canvas"), { width, height }), c = sheet.getContext("2d");
  c.fillStyle = colour("--ground");
  c.fillRect(0, 0, width, height);
  let left = gap;
  for (const { canvas, described, tint, name, facts } of app.panels) {
    c.drawImage(canvas, left, head);
    c.fillStyle = tint;
    c.beginPath(); c.arc(left + 10, head - 28, 9, 0, 7); c.fill();
    c.fillStyle = colour("--ink");
    c.font = "600 26px system-ui, sans-serif";
    c.fillText(`${described.name}  ${name.textContent}`, left + 28, head - 19);
    c.fillStyle = colour("--soft");
    c.font = "18px system-ui, sans-serif";
    c.fillText([...facts.children].slice(0, 2).map((fact) => fact.textContent).join(" · "), left, head + canvas.height + 28);
    left += canvas.width + gap;
  }
  sheet.toBlob((blob) => download(`${app.data.env}.png`, blob));
  say("The picture is saved.");
}
