// The runs of a ledger as a table that sorts and filters.

import { byId, element, readData } from "../shared/dom.js";
import { shape } from "../shared/svg.js";

const runs = readData();
const columns = [
  ["env", "environment"], ["method", "method"], ["seed", "seed", true], ["steps", "steps", true],
  ["success_once", "success (%)", true], ["time_near_goal", "near goal (steps)", true], ["curve", "success over steps"],
  ["hours", "hours", true], ["by", "who"], ["added", "added"], ["processor", "processor"], ["folder", "folder"],
];
const shown = {
  steps: run => run.steps.toLocaleString("en") + (run.finished ? "" : " (unfinished)"),
  success_once: run => (100 * run.success_once).toFixed(1),
  time_near_goal: run => run.time_near_goal.toFixed(1),
  hours: run => run.hours.toFixed(1),
};
let sortedBy = ["env", 1];
for (const name of ["env", "method"]) {
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
  const [env, method, state, text] = ["env", "method", "state", "text"].map(id => byId(id).value.toLowerCase());
  const kept = runs.filter(run => (!env || run.env.toLowerCase() === env) && (!method || run.method.toLowerCase() === method)
    && (!state || String(run.finished) === state) && `${run.by} ${run.processor} ${run.folder}`.toLowerCase().includes(text));
  const [name, sign] = sortedBy;
  kept.sort((a, b) => sign * (a[name] > b[name] ? 1 : a[name] < b[name] ? -1 : 0) || a.method.localeCompare(b.method) || a.seed - b.seed);
  byId("rows").replaceChildren(...kept.map(run => element("tr", {}, ...columns.map(([name, , number]) => {
    const text = name === "curve" ? spark(run.curve) : name in shown ? shown[name](run) : run[name];
    return element("td", { class: number ? "number" : "" }, text);
  }))));
  byId("count").textContent = `${kept.length} of ${runs.length} runs`;
}
document.querySelector("form").oninput = draw;
document.querySelector("form").onsubmit = event => event.preventDefault();
draw();
