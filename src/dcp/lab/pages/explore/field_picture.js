// A field over the grid as a picture: colours, contours, and arrows of its directions.

import { contours } from "../vendor/d3_contour.js";
import { arrow } from "../shared/maze_plan.js";
import { bytes } from "../shared/packing.js";

const LEVELS = 11; // contours between the ends of the colours

export class FieldPicture {
  constructor(grid, ramp) {
    this.grid = grid;
    this.canvas = Object.assign(document.createElement("canvas"), { width: grid.columns, height: grid.rows });
    this.context = this.canvas.getContext("2d");
    this.image = new ImageData(grid.columns, grid.rows);
    const table = bytes(ramp), words = new Uint32Array(256), pixel = new Uint8Array(words.buffer);
    for (let i = 0; i < 256; i++) pixel.set([table[3 * i], table[3 * i + 1], table[3 * i + 2], 255], 4 * i);
    this.ramp = words;
    this.isDark = Array.from(words, (_, i) => 0.3 * table[3 * i] + 0.6 * table[3 * i + 1] + 0.1 * table[3 * i + 2] < 150);
    this.contourOf = [1, 2].map((gap) => contours().size([grid.columns, grid.rows].map((n) => Math.floor(n / gap))).smooth(true));
    this.nearest = nearestFree(grid);
  }

  // values: of the free points; while the goal is dragged, contours have half the resolution
  show(ofFree, range, withContours, dragging = false) {
    const values = this.spread(ofFree);
    this.range = range;
    const pixels = new Uint32Array(this.image.data.buffer);
    for (let k = 0; k < pixels.length; k++) pixels[k] = this.ramp[this.shade(values[k])];
    this.context.putImageData(this.image, 0, 0);
    const [low, high] = range;
    const levels = Array.from({ length: LEVELS }, (_, i) => low + ((i + 0.5) * (high - low)) / LEVELS);
    this.gap = dragging ? 2 : 1;
    const shown = dragging ? this.everySecond(values) : values, contourOf = this.contourOf[this.gap - 1];
    this.lines = withContours ? levels.map((level) => contourOf.contour(shown, level).coordinates) : [];
  }

  // The mean of each square of four: its middle lies where a pixel of twice the size has its own.
  everySecond(values) {
    const { rows, columns } = this.grid, out = new Float32Array(Math.floor(rows / 2) * Math.floor(columns / 2));
    for (let i = 0, k = 0; i + 1 < rows; i += 2) for (let j = 0, at = i * columns; j + 1 < columns; j += 2, at += 2, k++) {
      out[k] = (values[at] + values[at + 1] + values[at + columns] + values[at + columns + 1]) / 4;
    }
    return out;
  }

  shade(value) {
    const [low, high] = this.range, share = (value - low) / (high - low);
    return share >= 1 || !(share === share) ? 255 : share > 0 ? (255 * share) | 0 : 0;
  }

  // values of the free points -> of all: inside walls, those of the nearest free point
  spread(values) {
    const { free, points } = this.grid, out = new Float32Array(points.length);
    for (let k = 0; k < free.length; k++) out[free[k]] = values[k];
    for (let k = 0; k < out.length; k++) out[k] = out[this.nearest[k]];
    return out;
  }

  draw(c, plan) {
    c.imageSmoothingEnabled = true;
    c.imageSmoothingQuality = "high";
    c.drawImage(this.canvas, plan.left, plan.top, plan.width, plan.height);
    const path = new Path2D(), across = (this.gap * plan.width) / this.grid.columns, down = (this.gap * plan.height) / this.grid.rows;
    for (const polygons of this.lines) for (const polygon of polygons) for (const ring of polygon) {
      ring.forEach(([x, y], i) => path[i ? "lineTo" : "moveTo"](plan.left + x * across, plan.top + y * down));
    }
    c.strokeStyle = "rgb(255 255 255 / 0.55)";
    c.lineWidth = Math.max(1, plan.width / 520);
    c.lineJoin = "round";
    c.stroke(path);
  }

  // arrows: [{place, way, far, wrong}]; `long` in pixels
  drawArrows(c, plan, arrows, long, wrongColour) {
    for (const { place, way, far, wrong } of arrows) {
      if (!way[0] && !way[1]) continue;
      const onDark = this.range && this.isDark[this.shade(far)];
      const tail = place.map((p, i) => p - (way[i] * long) / 2 / plan.unit);
      arrow(c, plan, tail, way, long, long / 9, wrong ? wrongColour : onDark ? "rgb(255 255 255 / 0.85)" : "rgb(20 40 60 / 0.72)");
    }
  }
}

// For each grid point the nearest free one, by steps over the grid.
function nearestFree({ rows, columns, free }) {
  const nearest = new Int32Array(rows * columns).fill(-1), queue = Array.from(free);
  for (const k of queue) nearest[k] = k;
  for (let head = 0; head < queue.length; head++) {
    const k = queue[head], i = Math.floor(k / columns), j = k % columns;
    for (const [a, b] of [[i - 1, j], [i + 1, j], [i, j - 1], [i, j + 1]]) {
      const other = a * columns + b;
      if (a >= 0 && a < rows && b >= 0 && b < columns && nearest[other] < 0) { nearest[other] = nearest[k]; queue.push(other); }
    }
  }
  return nearest;
}
