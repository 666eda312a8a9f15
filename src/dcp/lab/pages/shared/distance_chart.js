// Distance to the goal over time: one line per policy, the threshold dashed, a random burst shaded.

import { fitCanvas } from "./dom.js";
import { ticks } from "./numbers.js";
import { colour } from "./theme.js";

// lines: [{values, steps, colour, random}]; now: the step that is shown, or null; threshold null: none;
// shortest: steps that the axis has at least
export function drawChart(canvas, lines, now, threshold, shortest = 1) {
  const { width, height, ratio } = fitCanvas(canvas), c = canvas.getContext("2d");
  c.clearRect(0, 0, width, height);
  const left = 34 * ratio, bottom = height - 16 * ratio, top = 6 * ratio;
  const longest = Math.max(shortest, ...lines.map((line) => line.steps.at(-1) ?? 0));
  const highest = 1.05 * Math.max(threshold ?? 0, ...lines.map((line) => line.values.reduce((a, b) => Math.max(a, b), 0)), 1e-6);
  const x = (step) => left + (step / longest) * (width - left - 4 * ratio), y = (value) => bottom - (value / highest) * (bottom - top);
  c.font = `${11 * ratio}px system-ui, sans-serif`;
  c.fillStyle = colour("--faint");
  c.textBaseline = "middle";
  c.textAlign = "right";
  for (const value of ticks(highest, 3)) {
    c.fillText(`${Number(value.toPrecision(3))}`, left - 6 * ratio, y(value));
    c.fillRect(left, y(value), width - left, value ? 0.4 * ratio : ratio);
  }
  c.textBaseline = "bottom";
  c.fillText(`step ${longest}`, width - 4 * ratio, height);
  drawBursts(c, lines[0], x, top, bottom);
  if (threshold) {
    c.strokeStyle = colour("--goal");
    c.lineWidth = ratio;
    c.setLineDash([4 * ratio, 4 * ratio]);
    c.beginPath(); c.moveTo(left, y(threshold)); c.lineTo(width, y(threshold)); c.stroke();
    c.setLineDash([]);
  }
  for (const line of lines) {
    c.strokeStyle = line.colour;
    c.lineWidth = 2 * ratio;
    c.lineJoin = "round";
    c.beginPath();
    line.values.forEach((value, i) => c.lineTo(x(line.steps[i]), y(value)));
    c.stroke();
  }
  if (now !== null) { c.fillStyle = colour("--ink"); c.fillRect(x(Math.min(now, longest)) - ratio / 2, top, ratio, bottom - top); }
  return { toStep: (px) => Math.max(0, ((px * ratio - left) / (width - left - 4 * ratio)) * longest) };
}

function drawBursts(c, line, x, top, bottom) {
  if (!line?.random) return;
  c.fillStyle = colour("--burst");
  line.random.forEach((random, i) => { if (random) c.fillRect(x(line.steps[i] - 1), top, x(1) - x(0) + 0.5, bottom - top); });
}
