// The runs of a ledger as a table that sorts and filters.

import { byId, element, readData } from "../shared/dom.js";
import { shape } from "../shared/svg.js";

const runs = readData();
const columns = [
  ["env", "environment"], ["layout", "evaluated on"], ["method", "method"], ["success_once", "success (%)", true],
  ["time_near_goal", "near goal (steps)", true], ["steps", "steps", true], ["updates", "updates", true],
  ["minutes", "minutes", true], ["seed", "seed", true], ["curve", "success over steps"], ["evaluated", "evaluated"],
  ["by", "who"], ["added", "added"], ["processor", "processor"], ["folder", "folder"],
];
const whole = number => number === null ? "" : number.toLocaleString("en", { maximumFractionDigits: 0 });
const shown = {
  steps: run => whole(run.steps) + (run.finished ? "" : " (unfinished)"),
  updates: run => whole(run.updates),
  success_once: run => run.success_once === null ? "" : (100 * run.success_once).toFixed(1),
  time_near_goal: run => run.time_near_goal.toFixed(1),
  minutes: run => whole(run.minutes),
};
let sortedBy = ["env", 1]; // within it by time near the goal
for (const name of ["env", "layout", "method", "evaluated"]) {
  const values = [...new Set(runs.map(run => run[name]))].sort();
  byId(name).append(new Option("all", ""), ...values.map(value => new Option(value, value)));
}
for (const [name, title, number] of columns) {
  const button = element("button", { type: "button" }, title);
  button.onclick = () => { sortedBy = [name, sortedBy[0] === name ? -sortedBy[1] : 1]; draw(); };
  byId("head").append(element("th", { class: number ? "number" : "" }, button));
}
function spark(curve) {
  const last = Math.max(...curve.map(point => point[0]), 1);
  const points = curve.map(([x, y]) => `${(88 * x / last + 1).toFixed(1)},${(21 - 20 * y).toFixed(1)}`).join(" ");
  return shape("svg", { width: 90, height: 22, role: "img" }, shape("polyline", { points }));
}
function draw() {
  const chosen = ["env", "layout", "method", "evaluated"].filter(id => byId(id).value);
  const text = byId("text").value.toLowerCase();
  const kept = runs.filter(run => chosen.every(id => run[id] === byId(id).value) && `${run.by} ${run.processor} ${run.folder}`.toLowerCase().includes(text));
  const [name, sign] = sortedBy;
  const value = run => run[name] ?? -Infinity;
  kept.sort((a, b) => sign * (value(a) > value(b) ? 1 : value(a) < value(b) ? -1 : 0) || b.time_near_goal - a.time_near_goal);
  byId("rows").replaceChildren(...kept.map(run => element("tr", { class: run.folder ? "" : "other" }, ...columns.map(([name, , number]) => {
    const text = name === "curve" ? (run.curve.length ? spark(run.curve) : "") : name in shown ? shown[name](run) : run[name];
    return element("td", { class: number ? "number" : "" }, text);
  }))));
  byId("count").textContent = `${kept.length} of ${runs.length} runs`;
}
document.querySelector("form").oninput = draw;
document.querySelector("form").onsubmit = event => event.preventDefault();
draw();
