// The length of the shortest path from every point of a grid to a goal, exactly: dcp.lab.paths.TruePaths.
// A path is straight except for bends at walls' corners, so it leads to a corner that the point sees, and from there on.

export class TruePaths {
  // boxes [W][low, high][2], corners [C][2], between [C][C]: lengths between corners, -1 where no path leads
  constructor({ boxes, corners, between }) {
    Object.assign(this, { boxes: boxes.map((box) => box.flat()), corners });
    this.between = between.map((row) => row.map((length) => (length < 0 ? Infinity : length)));
  }

  sees(ax, ay, bx, by) {
    const dx = bx - ax, dy = by - ay;
    for (const [lowX, lowY, highX, highY] of this.boxes) {
      let enter = 0, leave = 1;
      if (dx === 0) { if (ax <= lowX || ax >= highX) continue; } else {
        const a = (lowX - ax) / dx, b = (highX - ax) / dx;
        enter = Math.max(enter, Math.min(a, b)); leave = Math.min(leave, Math.max(a, b));
      }
      if (dy === 0) { if (ay <= lowY || ay >= highY) continue; } else {
        const a = (lowY - ay) / dy, b = (highY - ay) / dy;
        enter = Math.max(enter, Math.min(a, b)); leave = Math.min(leave, Math.max(a, b));
      }
      if (enter < leave) return false;
    }
    return true;
  }

  // From each corner to the goal. [C]
  fromCorners([x, y]) {
    const direct = this.corners.map(([cx, cy]) => (this.sees(cx, cy, x, y) ? Math.hypot(cx - x, cy - y) : Infinity));
    return this.corners.map((_, i) => this.between[i].reduce((best, length, k) => Math.min(best, length + direct[k]), direct[i]));
  }

  // The corners that a point sees, which no goal changes: {corners, lengths}.
  visible(x, y) {
    const corners = [], lengths = [];
    this.corners.forEach(([cx, cy], k) => {
      if (this.sees(x, y, cx, cy)) { corners.push(k); lengths.push(Math.hypot(cx - x, cy - y)); }
    });
    return { corners, lengths };
  }

  // -> {length, towards}: towards is the first bend, or the goal; `rest` is what fromCorners(goal) gave
  path([x, y], { corners, lengths }, goal, rest) {
    let length = this.sees(x, y, goal[0], goal[1]) ? Math.hypot(x - goal[0], y - goal[1]) : Infinity, towards = goal;
    for (let i = 0; i < corners.length; i++) {
      const by = lengths[i] + rest[corners[i]];
      if (by < length) [length, towards] = [by, this.corners[corners[i]]];
    }
    return { length, towards };
  }
}
