/* Goals as points on the floor: the same rules as homing.envs.goal_space. */
"use strict";

const SEARCH = 200; // cells along the longer side in the search for free floor

class GoalSpace {
  constructor(about) {
    this.about = about;
    this.points = null;
  }

  inWall(x, y) {
    return this.about.walls.some(([cx, cy, hx, hy]) => Math.abs(x - cx) <= hx && Math.abs(y - cy) <= hy);
  }

  blocked(x, y) {
    const m = this.about.margin;
    return [[0, 0], [m, 0], [-m, 0], [0, m], [0, -m]].some(([dx, dy]) => this.inWall(x + dx, y + dy));
  }

  inReach(x, y) {
    if (!this.about.reach) return true;
    const [cx, cy, radius] = this.about.reach;
    return Math.hypot(x - cx, y - cy) <= radius + 1e-6;
  }

  /* Why a point cannot be reached, in words; empty for one that can. */
  fault(x, y) {
    const [x0, x1, y0, y1] = this.about.extent;
    if (x < x0 || x > x1 || y < y0 || y > y1) return "outside of the arena";
    if (this.inWall(x, y)) return "inside a wall";
    return this.inReach(x, y) ? "" : "out of the arm's reach";
  }

  grid(size) {
    const [x0, x1, y0, y1] = this.about.extent;
    const side = Math.max(x1 - x0, y1 - y0) / size;
    const columns = Math.max(1, Math.round((x1 - x0) / side)), rows = Math.max(1, Math.round((y1 - y0) / side));
    const at = (k) => [
      x0 + (((k % columns) + 0.5) * (x1 - x0)) / columns,
      y0 + ((Math.floor(k / columns) + 0.5) * (y1 - y0)) / rows,
    ];
    return { columns, rows, at };
  }

  /* The free point nearest to x, y. */
  nearest(x, y) {
    const [x0, x1, y0, y1] = this.about.extent;
    let px = Math.min(Math.max(x, x0), x1), py = Math.min(Math.max(y, y0), y1);
    if (!this.inReach(px, py)) {
      const [cx, cy, radius] = this.about.reach, far = Math.hypot(px - cx, py - cy);
      px = cx + ((px - cx) * radius) / far;
      py = cy + ((py - cy) * radius) / far;
    }
    if (!this.blocked(px, py)) return [px, py];
    const gap = (p) => (p[0] - px) ** 2 + (p[1] - py) ** 2;
    return this.free().reduce((best, p) => (gap(p) < gap(best) ? p : best));
  }

  free() {
    if (!this.points) {
      const { columns, rows, at } = this.grid(SEARCH);
      const all = Array.from({ length: columns * rows }, (_, k) => at(k));
      const found = all.filter(([x, y]) => !this.blocked(x, y) && this.inReach(x, y));
      this.points = found.length ? found : all;
    }
    return this.points;
  }

  /* [x, y, z] of every point of a goal. */
  places(goal) {
    const axis = (axes, name, other) => (name in axes ? goal[axes[name]] : other);
    return this.about.axes.map((axes) => [axis(axes, "x", 0), axis(axes, "y", 0), axis(axes, "z", null)]);
  }

  /* What to tell a policy: the goal, or a place on the straight way to one that is farther away than in training. */
  aim(achieved, goal) {
    const { farthest, stage, axes } = this.about, { x, y } = axes[0];
    if (!farthest) return goal;
    const dx = goal[x] - achieved[x], dy = goal[y] - achieved[y], gap = Math.hypot(dx, dy);
    if (gap <= farthest) return goal;
    const aim = Float32Array.from(goal), part = (stage * farthest) / gap;
    aim[x] = achieved[x] + dx * part;
    aim[y] = achieved[y] + dy * part;
    return aim;
  }

  /* The goal with its point nearest to x, y moved there, or to the nearest that can be reached; and a word. */
  moved(goal, x, y) {
    const gaps = this.places(goal).map(([px, py]) => Math.hypot(px - x, py - y));
    const axes = this.about.axes[gaps.indexOf(Math.min(...gaps))];
    const fault = this.fault(x, y), [px, py] = this.nearest(x, y);
    const made = Float32Array.from(goal);
    if ("x" in axes) made[axes.x] = px;
    if ("y" in axes) made[axes.y] = py;
    return { goal: made, message: fault ? `That is ${fault}: the goal is at the nearest point that can be reached.` : "" };
  }
}

if (typeof module !== "undefined") module.exports = { GoalSpace };
