// A point in a maze, in the plane: x (row) runs downwards, y (column) to the right.

import { arrow, disc, freeSpace, makePlan, thing, trail } from "../shared/maze_plan.js";
import { data, goalsOf } from "./viewer.js";

export function mazeView(canvas) {
  const c = canvas.getContext("2d"), { colours, plane, threshold } = data;

  function draw(all) {
    c.fillStyle = colours.wall;
    c.fillRect(0, 0, canvas.width, canvas.height);
    for (const part of all) drawPart(part);
    c.fillStyle = "#fff";
    for (const part of all.slice(1)) c.fillRect(part.x - 2, 0, 2, canvas.height);
  }

  function drawPart(part) {
    const plan = makePlan(plane, part, 8), several = part.shown.length > 1;
    c.save();
    c.beginPath(); c.rect(part.x, part.y, part.width, part.height); c.clip();
    c.fillStyle = colours.free;
    c.fill(freeSpace(plan, plane));
    for (const goal of goalsOf(part)) disc(c, plan, goal, threshold, colours.goal);
    for (const one of part.shown) drawPoint(one, plan, several);
    c.restore();
  }

  function drawPoint({ moment, index }, plan, several) {
    const at = moment.achieved, tint = several ? data.tints[index] : colours.body, cell = plane.maze.scale * plan.unit;
    if (moment.subgoal) disc(c, plan, moment.subgoal, 0.8 * threshold, colours.subgoal);
    if (moment.trail) {
      c.globalAlpha = several ? 0.5 : 1;
      const passed = Array.from({ length: moment.low + 1 }, (_, i) => moment.trail.at(i));
      trail(c, plan, [...passed, at], several ? tint : colours.trail, cell / 24);
      c.globalAlpha = 1;
    }
    data.things.forEach((one, k) => thing(c, plan, one, moment.poses.subarray(2 * k, 2 * k + 2), one.acts ? tint : colours.pushed));
    if (moment.direction && Math.hypot(...moment.direction) > 0) arrow(c, plan, at, moment.direction, 0.38 * cell, cell / 18, colours.direction);
    if (!data.things.length) return disc(c, plan, at, 0.085 * plane.maze.scale, tint);
    c.lineWidth = 2;
    disc(c, plan, moment.goal, threshold, null, colours.goal); // what is pushed may cover the goal
  }

  return { draw, help: "space: play or pause; arrow keys: step" };
}
