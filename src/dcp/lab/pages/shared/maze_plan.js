// A maze from above on a canvas: x (row) runs downwards, y (column) to the right, as in the maze's text.

// Where the plane from `low` to `high` lies in a box of pixels: as large as fits, centred.
export function makePlan({ low, high }, box, margin = 0) {
  const unit = Math.min((box.width - 2 * margin) / (high[1] - low[1]), (box.height - 2 * margin) / (high[0] - low[0]));
  const left = box.x + (box.width - unit * (high[1] - low[1])) / 2, top = box.y + (box.height - unit * (high[0] - low[0])) / 2;
  return {
    unit, left, top, width: unit * (high[1] - low[1]), height: unit * (high[0] - low[0]),
    u: (y) => left + (y - low[1]) * unit,
    v: (x) => top + (x - low[0]) * unit,
    at: (u, v) => [low[0] + (v - top) / unit, low[1] + (u - left) / unit],
  };
}

// The free cells, as one path; of a plane without a maze, all of it.
export function freeSpace(plan, { maze, low, high }) {
  const path = new Path2D();
  if (!maze) path.rect(plan.u(low[1]), plan.v(low[0]), plan.width, plan.height);
  eachCell(maze, (i, j) => {
    if (maze.rows[i][j] === "#") return;
    const [u, v, side] = [plan.u((j - 0.5) * maze.scale), plan.v((i - 0.5) * maze.scale), plan.unit * maze.scale];
    path.rect(u - 0.3, v - 0.3, side + 0.6, side + 0.6); // no seam between cells
  });
  return path;
}

// The lines between free cells and walls.
export function wallFaces(plan, { maze }) {
  const path = new Path2D();
  const line = (x0, y0, x1, y1) => { path.moveTo(plan.u(y0 * maze.scale), plan.v(x0 * maze.scale)); path.lineTo(plan.u(y1 * maze.scale), plan.v(x1 * maze.scale)); };
  eachCell(maze, (i, j) => {
    if (maze.rows[i][j] === "#") return;
    const wall = (a, b) => (maze.rows[a]?.[b] ?? "#") === "#";
    if (wall(i - 1, j)) line(i - 0.5, j - 0.5, i - 0.5, j + 0.5);
    if (wall(i + 1, j)) line(i + 0.5, j - 0.5, i + 0.5, j + 0.5);
    if (wall(i, j - 1)) line(i - 0.5, j - 0.5, i + 0.5, j - 0.5);
    if (wall(i, j + 1)) line(i - 0.5, j + 0.5, i + 0.5, j + 0.5);
  });
  return path;
}

function eachCell(maze, visit) {
  for (let i = 0; i < (maze?.rows.length ?? 0); i++) for (let j = 0; j < maze.rows[i].length; j++) visit(i, j);
}

export function isFree({ maze }, [x, y]) {
  return !maze || (maze.rows[Math.floor(x / maze.scale + 0.5)]?.[Math.floor(y / maze.scale + 0.5)] ?? "#") !== "#";
}

// The place nearest to one where a square of half side `room` touches no wall; without a maze, nearest in the plane.
// Each of its coordinates is the place's own, or next to the face of a cell.
export function nearestFree(plane, place, room) {
  const { maze, low, high } = plane;
  if (!maze) return place.map((p, i) => Math.min(high[i], Math.max(low[i], p)));
  const body = room * (1 - 1e-3), fits = ([x, y]) => [-body, body].every((a) => [-body, body].every((b) => isFree(plane, [x + a, y + b])));
  if (fits(place)) return [...place];
  const along = (count, p) => [p, ...Array.from({ length: count }, (_, k) => [(k + 0.5) * maze.scale - room, (k + 0.5) * maze.scale + room]).flat()];
  let best = place, least = Infinity;
  for (const x of along(maze.rows.length, place[0])) for (const y of along(maze.rows[0].length, place[1])) {
    const far = Math.hypot(x - place[0], y - place[1]);
    if (far < least && fits([x, y])) [best, least] = [[x, y], far];
  }
  return [...best];
}

// Marks. Places are [x, y] of the plane, sizes its units.

export function disc(c, plan, [x, y], radius, fill, rim) {
  c.beginPath();
  c.arc(plan.u(y), plan.v(x), Math.max(radius * plan.unit, 0.5), 0, 2 * Math.PI);
  if (fill) { c.fillStyle = fill; c.fill(); }
  if (rim) { c.strokeStyle = rim; c.stroke(); }
}

export function square(c, plan, [x, y], half, fill) {
  c.fillStyle = fill;
  c.fillRect(plan.u(y - half), plan.v(x - half), 2 * half * plan.unit, 2 * half * plan.unit);
}

export function thing(c, plan, { shape, size }, place, fill) {
  if (shape === "square") square(c, plan, place, size, fill); else disc(c, plan, place, size, fill);
}

export function trail(c, plan, points, colour, width) {
  c.strokeStyle = colour;
  c.lineWidth = width;
  c.lineJoin = c.lineCap = "round";
  c.beginPath();
  for (const [x, y] of points) c.lineTo(plan.u(y), plan.v(x));
  c.stroke();
}

// From a place along a direction of the plane; `long` and `wide` in pixels.
export function arrow(c, plan, [x, y], [down, right], long, wide, colour) {
  c.save();
  c.translate(plan.u(y), plan.v(x));
  c.rotate(Math.atan2(down, right));
  c.strokeStyle = c.fillStyle = colour;
  c.lineWidth = wide;
  c.lineCap = "butt";
  const neck = 0.66 * long, half = 0.19 * long;
  c.beginPath(); c.moveTo(0, 0); c.lineTo(neck, 0); c.stroke();
  c.beginPath(); c.moveTo(long, 0); c.lineTo(neck, half); c.lineTo(neck, -half); c.fill();
  c.restore();
}
