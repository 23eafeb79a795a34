/* Where the motion comes from: a simulation computed here, or recordings. Both have the same fields. */
"use strict";

class LiveSource {
  constructor(data, machine, resets) {
    this.data = data;
    this.machine = machine;
    this.space = new GoalSpace(data.goals);
    this.resets = new Int32Array(resets);
    this.words = [...data.carry, "goal"].map((name) => {
      const a = machine.arrays[name];
      return new Int32Array(a.buffer, a.byteOffset, a.length);
    });
    this.width = this.words.reduce((sum, w) => sum + w.length, 0);
    this.used = 0;
    this.goals = 0;
    this.canAim = true;
    this.reset(0);
    this.nextGoal();
  }

  get pos() { return this.machine.arrays.pos; }
  get rot() { return this.machine.arrays.rot; }
  get achieved() { return this.machine.arrays.achieved; }
  get goal() { return this.machine.arrays.goal; }
  get distance() { return this.machine.arrays.distance[0]; }
  get reached() { return this.machine.arrays.reached[0] !== 0; }
  get terminated() { return this.machine.arrays.terminated[0] !== 0; }

  /* Towards the goal, or towards a place on the way there; what is shown is about the goal itself. */
  step() {
    const { arrays, call } = this.machine, aim = this.space.aim(this.achieved, this.goal);
    if (aim === this.goal) {
      call.step();
      return;
    }
    const goal = this.goal.slice();
    this.goal.set(aim);
    call.step();
    this.goal.set(goal);
    const fell = arrays.terminated[0];
    call.look();
    arrays.terminated[0] = fell;
  }

  /* An initial state of the pool, with the current goal. */
  reset(index = this.used) {
    this.used = (index + 1) % this.data.resets;
    let at = index * this.width;
    for (const words of this.words.slice(0, -1)) {
      words.set(this.resets.subarray(at, at + words.length));
      at += words.length;
    }
    this.machine.call.look();
  }

  setGoal(goal) {
    this.goal.set(goal);
    this.machine.call.look();
  }

  /* A goal of the task's distribution that is not reached yet. */
  nextGoal() {
    const size = this.goal.length;
    for (let tries = 0; tries < this.data.resets; tries++) {
      const end = ++this.goals % this.data.resets;
      const words = this.resets.slice((end + 1) * this.width - size, (end + 1) * this.width);
      this.setGoal(new Float32Array(words.buffer));
      if (!this.reached) return;
    }
  }

  aim(x, y) {
    const { goal, message } = this.space.moved(this.goal, x, y);
    this.setGoal(goal);
    return message;
  }
}

class FilmSource {
  constructor(data, frames) {
    this.data = data;
    this.canAim = false;
    this.space = new GoalSpace(data.goals);
    this.films = [];
    let at = 0;
    for (const { steps, goal } of data.films) {
      const size = steps * data.links * 7;
      const poses = new Float32Array(frames, 4 * at, size), distance = new Float32Array(frames, 4 * (at + size), steps);
      this.films.push({ steps, goal: Float32Array.from(goal), poses, distance });
      at += size + steps;
    }
    this.pos = new Float32Array(3 * data.links);
    this.rot = new Float32Array(4 * data.links);
    this.current = -1;
    this.nextGoal();
  }

  get film() { return this.films[this.current]; }
  get goal() { return this.film.goal; }
  get length() { return this.film.steps; }
  get distance() { return this.film.distance[this.at]; }
  get reached() { return this.distance < this.data.within; }
  get terminated() { return false; }
  get achieved() { return null; }
  get ended() { return this.at === this.length - 1; }

  step() {
    this.seek(Math.min(this.at + 1, this.length - 1));
  }

  seek(step) {
    this.at = step;
    const links = this.data.links;
    for (let k = 0; k < links; k++) {
      const from = 7 * (step * links + k);
      this.pos.set(this.film.poses.subarray(from, from + 3), 3 * k);
      this.rot.set(this.film.poses.subarray(from + 3, from + 7), 4 * k);
    }
  }

  reset() {
    this.seek(0);
  }

  nextGoal() {
    this.current = (this.current + 1) % this.films.length;
    this.seek(0);
  }

  aim() {
    return "This page replays recordings, so goals cannot be moved. “New goal” shows another one.";
  }
}
