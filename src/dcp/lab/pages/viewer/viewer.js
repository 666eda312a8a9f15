// What both views share: the data, the clock, the controls, the chart. A view draws one policy into one part of the
// canvas: view.draw(context of this page, parts), where a part is {x, y, width, height, shown: [{policy, moment}]}.

import { drawChart } from "../shared/distance_chart.js";
import { byId, fitCanvas, readData } from "../shared/dom.js";
import { unpack } from "../shared/packing.js";
import { connectTheme } from "../shared/theme.js";

export const data = readData();

for (const policy of data.policies)
  for (const episode of policy.episodes)
    for (const name of ["achieved", "poses", "directions", "subgoals"]) episode[name] = unpack(episode[name]);

function mix(array, low, high, share) {
  if (!array) return null;
  const a = array.at(low), b = array.at(high), out = new Float32Array(a.length);
  for (let i = 0; i < a.length; i++) out[i] = a[i] + share * (b[i] - a[i]);
  return out;
}

// The state of one policy at a time in environment steps, between two stored ones by interpolation.
function momentOf(policy, time) {
  const episode = policy.episodes[state.episode];
  const steps = episode.steps, t = Math.min(time, steps[steps.length - 1]);
  let low = Math.min(Math.floor(t / data.stride), steps.length - 1);
  while (low > 0 && steps[low] > t) low--;
  const high = Math.min(low + 1, steps.length - 1);
  const share = high === low ? 0 : (t - steps[low]) / (steps[high] - steps[low]);
  const achieved = mix(episode.achieved, low, high, share);
  let square = 0;
  for (let i = 0; i < achieved.length; i++) square += (achieved[i] - episode.goal[i]) ** 2;
  return {
    time: t, low, high, share, achieved, goal: episode.goal, distance: Math.sqrt(square),
    poses: mix(episode.poses, low, high, share),
    direction: state.direction && episode.directions ? mix(episode.directions, low, high, share) : null,
    subgoal: state.subgoal && episode.subgoals ? episode.subgoals.at(low) : null,
    trail: state.trail ? episode.achieved : null,
    reached: episode.reached !== null && t >= episode.reached, episode,
  };
}

export const state = { episode: 0, time: 0, playing: true, speed: 1, layout: "beside", camera: "fixed",
                direction: true, subgoal: true, trail: true };
const lastStep = () => Math.max(1, ...data.policies.map((s) => s.episodes[state.episode].steps.at(-1)));

// Parts of the canvas: one for each policy, or one for all.
function parts(width, height) {
  const moments = data.policies.map((policy, index) => ({ policy, index, moment: momentOf(policy, state.time) }));
  if (state.layout === "over") return [{ x: 0, y: 0, width, height, shown: moments }];
  const each = width / moments.length;
  return moments.map((m, i) => ({ x: i * each, y: 0, width: each - (i < moments.length - 1 ? 2 : 0), height, shown: [m] }));
}

export function goalsOf(part) { // each once: policies overlaid on one episode share theirs
  const goals = part.shown.map(({ moment }) => moment.goal);
  return goals.filter((goal, i) => goals.findIndex((other) => other.every((x, k) => x === goal[k])) === i);
}

function label(part) {
  return part.shown.map(({ policy, index, moment }) => {
    const dot = state.layout === "over" ? `<span style="color:${data.tints[index]}">● </span>` : "";
    const outcome = moment.reached ? `<span class="reached">reached at step ${moment.episode.reached}</span>`
      : moment.time >= moment.episode.steps.at(-1) ? "not reached" : "";
    const clean = policy.title.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
    const rate = policy.rate ? `<span class="rate">${policy.rate}</span>` : "";
    return `<b>${dot}${clean}</b>${rate}step ${Math.round(moment.time)} · distance ${moment.distance.toFixed(2)} ${outcome}`;
  }).join("<br>");
}

function showLabels(all) {
  const holder = byId("labels");
  while (holder.children.length < all.length) holder.appendChild(document.createElement("div"));
  while (holder.children.length > all.length) holder.lastChild.remove();
  all.forEach((part, i) => {
    holder.children[i].style.left = `${part.x / (window.devicePixelRatio || 1) + 10}px`;
    holder.children[i].innerHTML = label(part);
  });
}

function drawDistances() {
  const lines = data.policies.map((policy, i) => {
    const { steps, achieved, goal } = policy.episodes[state.episode];
    return { steps, colour: data.tints[i], values: steps.map((_, k) => Math.hypot(...goal.map((g, n) => achieved.at(k)[n] - g))) };
  });
  return drawChart(byId("chart"), lines, state.time, data.threshold);
}

let chart = null; // its scale

function setUp(view) {
  connectTheme(byId("theme"));
  byId("title").textContent = data.title;
  const names = { goal: "goal", direction: "direction that the actor sees", subgoal: "subgoal that training would command" };
  const has = { goal: true };
  for (const name of ["direction", "subgoal"]) {
    has[name] = data.policies.some((s) => s.episodes.some((e) => e[`${name}s`]));
    byId(`${name}-choice`).hidden = !has[name];
    byId(name).onchange = (event) => { state[name] = event.target.checked; };
  }
  byId("trail").onchange = (event) => { state.trail = event.target.checked; };
  byId("legend").innerHTML = Object.keys(names).filter((n) => has[n])
    .map((n) => `<span><i style="background:${data.colours[n]}"></i>${names[n]}</span>`).join("");
  byId("layout-choice").hidden = data.policies.length < 2;
  byId("camera-choice").hidden = data.kind !== "bodies";
  byId("help").textContent = view.help;
  const episodes = data.policies[0].episodes.length;
  byId("episode-choice").hidden = episodes < 2;
  for (let i = 0; i < episodes; i++) byId("episode").add(new Option(String(i + 1), String(i)));
  byId("episode").onchange = (event) => { state.episode = Number(event.target.value); go(0); };
  byId("layout").onchange = (event) => { state.layout = event.target.value; };
  byId("camera").onchange = (event) => { state.camera = event.target.value; view.resetCamera?.(); };
  byId("speed").onchange = (event) => { state.speed = Number(event.target.value); };
  byId("scrub").oninput = (event) => { go(Number(event.target.value) * lastStep()); play(false); };
  byId("chart").onclick = (event) => go(chart.toStep(event.offsetX));
  byId("play").onclick = () => play(!state.playing);
  document.onkeydown = (event) => {
    if (event.target.tagName === "SELECT") return;
    if (event.key === " ") { play(!state.playing); event.preventDefault(); }
    if (event.key === "ArrowLeft") go(state.time - data.stride);
    if (event.key === "ArrowRight") go(state.time + data.stride);
  };
}

function go(time) { state.time = Math.max(0, Math.min(lastStep(), time)); }

function play(on) {
  if (on && state.time >= lastStep()) go(0);
  state.playing = on;
}

export function start(view) {
  setUp(view);
  const asked = new URLSearchParams(location.hash.slice(1)); // #step=100&camera=top&layout=over&episode=1 and so on
  for (const name of ["layout", "camera", "episode"]) if (asked.has(name)) {
    byId(name).value = asked.get(name);
    byId(name).onchange({ target: byId(name) });
  }
  if (asked.has("step")) { go(Number(asked.get("step"))); play(false); }
  let before = performance.now();
  function frame(now) {
    if (state.playing) go(state.time + ((now - before) / 1000) * data.steps_per_second * state.speed);
    if (state.time >= lastStep()) state.playing = false;
    before = now;
    const { width, height } = fitCanvas(byId("view"));
    const all = parts(width, height);
    view.draw(all);
    showLabels(all);
    chart = drawDistances();
    byId("scrub").value = state.time / lastStep();
    byId("time").textContent = `step ${Math.round(state.time)} of ${lastStep()}`;
    byId("play").textContent = state.playing ? "❚❚" : "▶";
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);
}
