// Puts the parts together.

import { all } from "../shared/dom.js";
import { connectTheme } from "../shared/theme.js";
import { Chart } from "./chart.js";
import { tip } from "./cursor.js";
import { DATA } from "./data.js";
import { connectPictures } from "./pictures.js";
import { applyFilters, connectFilters, connectSwitches } from "./state.js";
import { connectDownloads, connectTables, markWide } from "./tables.js";

const charts = all("[data-chart]").map((host) => {
  const curves = DATA.curves[Number(host.dataset.chart)];
  return new Chart(host, curves, DATA.metrics.find((metric) => metric.key === host.dataset.metric));
});

function redraw() {
  tip.hide();
  applyFilters();
  for (const chart of charts) chart.draw();
  markWide();
}

// The contents mark where the reader is.
function followReading() {
  const links = new Map(all("nav.contents a").map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.isIntersecting ? seen.add(entry.target.id) : seen.delete(entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) link.toggleAttribute("aria-current", id === first);
  }, { rootMargin: "-15% 0px -60% 0px" });
  for (const section of all("main > section")) watch.observe(section);
}

connectFilters(redraw);
connectSwitches(redraw);
connectTheme(document.getElementById("theme"));
connectTables();
connectDownloads();
connectPictures();
followReading();
redraw();
const body = document.querySelector("main");
let drawnWidth = body.clientWidth;
// If only the height changes, as after a filter, nothing is redrawn, and the values under the pointer stay.
new ResizeObserver(() => {
  if (body.clientWidth === drawnWidth) return;
  drawnWidth = body.clientWidth;
  requestAnimationFrame(redraw);
}).observe(body);
document.documentElement.dataset.ready = "yes";
