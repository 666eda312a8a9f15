// A point in a maze, in the plane: x (row) runs downwards, y (column) to the right.

function mazeView(canvas) {
  const c = canvas.getContext("2d"), maze = data.maze, rim = 0.5 - maze.border;

  function draw(all) {
    c.fillStyle = data.colours.wall;
    c.fillRect(0, 0, canvas.width, canvas.height);
    for (const part of all) drawPart(part);
    c.fillStyle = "#fff";
    for (const part of all.slice(1)) c.fillRect(part.x - 2, 0, 2, canvas.height);
  }

  function drawPart(part) {
    const columns = maze.rows[0].length - 1 - 2 * rim, rows = maze.rows.length - 1 - 2 * rim;
    const cell = Math.min(part.width / (columns + 0.2), part.height / (rows + 0.2));
    const left = part.x + (part.width - columns * cell) / 2, top = part.y + (part.height - rows * cell) / 2;
    const u = (y) => left + (y / maze.scale - rim) * cell, v = (x) => top + (x / maze.scale - rim) * cell;
    c.save();
    c.beginPath(); c.rect(part.x, part.y, part.width, part.height); c.clip();
    c.fillStyle = data.colours.free;
    maze.rows.forEach((row, i) => [...row].forEach((kind, j) => {
      if (kind !== "#") c.fillRect(u((j - 0.5) * maze.scale) - 0.5, v((i - 0.5) * maze.scale) - 0.5, cell + 1, cell + 1);
    }));
    const disc = (p, radius, colour) => {
      c.fillStyle = colour; c.beginPath(); c.arc(u(p[1]), v(p[0]), radius, 0, 7); c.fill();
    };
    const reach = (data.threshold / maze.scale) * cell;
    for (const goal of goalsOf(part)) disc(goal, reach, data.colours.goal);
    for (const one of part.shown) drawPoint(one, u, v, cell, reach, disc, part.shown.length > 1);
    c.restore();
  }

  function drawPoint({ moment, index }, u, v, cell, reach, disc, several) {
    const at = moment.achieved, tint = several ? data.tints[index] : data.colours.body;
    if (moment.subgoal) disc(moment.subgoal, 0.8 * reach, data.colours.subgoal);
    if (moment.trail) {
      c.strokeStyle = several ? tint : data.colours.trail;
      c.globalAlpha = several ? 0.5 : 1;
      c.lineWidth = cell / 24; c.lineJoin = c.lineCap = "round";
      c.beginPath();
      for (let i = 0; i <= moment.low; i++) { const p = moment.trail.at(i); c.lineTo(u(p[1]), v(p[0])); }
      c.lineTo(u(at[1]), v(at[0]));
      c.stroke();
      c.globalAlpha = 1;
    }
    data.things.forEach((thing, k) => drawThing(thing, moment.poses.subarray(2 * k, 2 * k + 2), u, v, cell, disc, tint));
    if (moment.direction && Math.hypot(...moment.direction) > 0) arrow(u(at[1]), v(at[0]), moment.direction, cell);
    if (!data.things.length) disc(at, 0.085 * cell, tint);
    else goalRim(moment.goal, u, v, reach);
  }

  function drawThing(thing, at, u, v, cell, disc, tint) {
    const half = (thing.size / maze.scale) * cell, colour = thing.acts ? tint : data.colours.pushed;
    if (thing.shape === "disc") return disc(at, half, colour);
    c.fillStyle = colour;
    c.fillRect(u(at[1]) - half, v(at[0]) - half, 2 * half, 2 * half);
  }

  function goalRim(goal, u, v, reach) {  // what is pushed may cover the goal
    c.strokeStyle = data.colours.goal; c.lineWidth = 2;
    c.beginPath(); c.arc(u(goal[1]), v(goal[0]), reach, 0, 7); c.stroke();
  }

  function arrow(x, y, [down, right], cell) {
    c.save();
    c.translate(x, y);
    c.rotate(Math.atan2(down, right));
    c.strokeStyle = c.fillStyle = data.colours.direction;
    c.lineWidth = cell / 18;
    c.beginPath(); c.moveTo(0, 0); c.lineTo(0.26 * cell, 0); c.stroke();
    c.beginPath(); c.moveTo(0.38 * cell, 0); c.lineTo(0.26 * cell, 0.072 * cell); c.lineTo(0.26 * cell, -0.072 * cell); c.fill();
    c.restore();
  }

  return { draw, help: "space: play or pause; arrow keys: step" };
}

if (data.kind === "maze") start(mazeView(byId("view")));
