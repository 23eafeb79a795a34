/* The page: loads what it holds, then follows the clock. */
"use strict";

const CATCH_UP = 0.25; // seconds of simulation in one picture, at most
const AT_GOAL = 1.5; // seconds at a goal before the next one comes by itself
const FALLEN = 1.2; // seconds that a fall is shown
const MAP_MS = 7; // milliseconds for the critic map in each picture

async function unpacked(name) {
  const text = element(`blob-${name}`).textContent, raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function loadViewer() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpacked("viewer"));
  document.head.append(script);
}

async function loadSource(data) {
  if (data.kind === "recorded") return new FilmSource(data, await unpacked("frames"));
  const [code, constants, resets] = await Promise.all(["code", "constants", "resets"].map(unpacked));
  return new LiveSource(data, await makeMachine(data.program, code, new Uint8Array(constants)), resets);
}

/* Values of all goals on the floor, a few cells at a time. */
class CriticMap {
  constructor(source, view) {
    this.source = source;
    this.view = view;
    this.grid = source.space.grid(source.data.map.cells);
    this.count = this.grid.columns * this.grid.rows;
    this.values = new Float32Array(this.count).fill(NaN);
    this.at = 0;
    this.low = this.high = NaN;
    this.complete = false;
  }

  /* Continue for some milliseconds. */
  refresh(milliseconds) {
    const { arrays, call } = this.source.machine, batch = this.source.data.map.batch;
    const end = performance.now() + milliseconds;
    do {
      for (let k = 0; k < batch; k++) arrays.places.set(this.grid.at(Math.min(this.at + k, this.count - 1)), 2 * k);
      call.value();
      for (let k = 0; k < batch && this.at + k < this.count; k++) this.values[this.at + k] = arrays.values[k];
      this.at += batch;
      if (this.at >= this.count) this.finish();
    } while (performance.now() < end);
    if (!this.complete) this.span();
    this.view.drawMap(this.values, this.grid.columns, this.grid.rows, this.low, this.high);
  }

  finish() {
    this.at = 0;
    this.complete = true;
    this.span();
  }

  /* The colours span the values outside of walls. */
  span() {
    const space = this.source.space;
    const free = this.values.filter((v, k) => Number.isFinite(v) && !space.inWall(...this.grid.at(k)));
    this.low = Math.min(...free);
    this.high = Math.max(...free);
  }
}

class App {
  constructor(data, source) {
    this.data = data;
    this.source = source;
    this.view = new View(element("view"), data);
    this.map = data.map ? new CriticMap(source, this.view) : null;
    this.paused = this.mapped = false;
    this.byItself = true;
    this.pending = this.atGoal = this.fallen = this.seconds = this.steps = this.falls = 0;
    this.reachedIn = null;
    this.before = this.snapshot();
    this.after = this.snapshot();
    this.describe();
    addButtons(this.commands());
    this.sync();
    onTap(element("view"), (x, y) => this.tap(x, y));
    if (data.kind === "recorded") this.addScrubber();
  }

  describe() {
    element("title").textContent = this.data.title;
    element("facts").textContent = this.data.facts.join(" · ");
    element("made").textContent = `Trained with Homing ${this.data.version}`;
    document.body.classList.add(this.data.kind);
    const live = this.data.kind === "live";
    element("how").textContent = live
      ? "Click or tap the floor to set a goal. Drag to turn the view, pinch or scroll to zoom, two fingers or the right button to move it. Physics and policy are computed by this page."
      : "A recording of a policy and its goals: drag the scrubber, or show the next goal. Drag to turn the view, pinch or scroll to zoom.";
    say(live ? "Click or tap the floor to set a goal" : "A recording: drag the scrubber to look at any moment", 6);
  }

  commands() {
    const all = [
      { name: "pause", label: "Pause", keys: ["p", " "], icon: "pause", run: () => this.pause() },
      { name: "goal", label: "New goal", keys: ["n"], icon: "goal", run: () => this.newGoal() },
      { name: "reset", label: "Reset", keys: ["r"], icon: "reset", run: () => this.reset() },
      { name: "map", label: "Critic map", keys: ["c"], icon: "map", run: () => this.toggleMap() },
      { name: "follow", label: "Follow", keys: ["f"], icon: "follow", run: () => this.toggleFollow() },
      { name: "help", label: "Help", keys: ["?"], icon: "help", run: () => element("help").showModal() },
    ];
    return all.filter(({ name }) => (name !== "map" || this.map) && (name !== "follow" || !this.data.arm));
  }

  // Commands.

  pause(on = !this.paused) {
    this.paused = on;
    relabel("pause", on ? "Play" : "Pause", on ? "play" : "pause");
  }

  newGoal() {
    this.source.nextGoal();
    if (this.data.kind === "recorded") this.view.clearTrail();
    this.sync();
  }

  reset() {
    this.source.reset();
    this.fallen = 0;
    this.view.clearTrail();
    this.sync();
  }

  toggleMap() {
    this.mapped = this.view.map.visible = !this.mapped;
    press("map", this.mapped);
    if (this.mapped) say("The critic's value of every goal from here: yellow is near, violet is far");
  }

  toggleFollow() {
    this.view.following ? this.view.home() : this.view.follow();
    press("follow", this.view.following);
  }

  tap(x, y) {
    const place = this.view.floorAt(x, y);
    if (!place) return;
    say(this.source.aim(...place));
    if (!this.source.canAim) return;
    this.byItself = false;
    this.sync();
  }

  addScrubber() {
    const bar = element("time");
    element("scrubber").hidden = false;
    bar.addEventListener("input", () => {
      this.pause(true);
      this.source.seek(Number(bar.value));
      this.view.clearTrail();
      this.before = this.after = this.snapshot();
      this.show(1);
    });
  }

  // Time.

  snapshot() {
    return { pos: Float32Array.from(this.source.pos), rot: Float32Array.from(this.source.rot) };
  }

  /* After a jump: no picture between the old state and the new one. */
  sync() {
    this.before = this.after = this.snapshot();
    this.atGoal = this.seconds = this.pending = 0;
    this.reachedIn = this.source.reached ? 0 : null;
    this.show(1);
  }

  step() {
    this.source.step();
    this.steps++;
    this.before = this.after;
    this.after = this.snapshot();
    this.seconds += this.data.dt;
    const { reached, terminated } = this.source;
    if (reached && this.reachedIn === null) this.reachedIn = this.seconds;
    this.atGoal = reached ? this.atGoal + this.data.dt : 0;
    const at = this.source.achieved ? this.source.space.places(this.source.achieved)[0] : this.after.pos.slice(3 * this.data.root);
    this.view.extendTrail(at[0], at[1]);
    if (terminated || !Number.isFinite(this.source.distance)) this.fall();
    else if (this.source.ended && !this.atEnd) this.atEnd = setTimeout(() => { this.atEnd = 0; if (!this.paused) this.newGoal(); }, 1200);
    else if (this.byItself && this.source.canAim && this.atGoal > AT_GOAL) this.newGoal();
  }

  fall() {
    this.falls++;
    this.fallen = FALLEN;
    say("It fell. A new start.", 3);
  }

  advance(seconds) {
    if (this.paused) return;
    if (this.fallen > 0) {
      this.fallen -= seconds;
      if (this.fallen <= 0) this.reset();
      return;
    }
    this.pending += Math.min(seconds, CATCH_UP);
    while (this.pending >= this.data.dt && this.fallen <= 0) {
      this.pending -= this.data.dt;
      this.step();
    }
  }

  show(mix) {
    this.view.pose(this.before, this.after, mix);
    this.view.showGoal(this.source.space.places(this.source.goal), this.source.reached);
    const { distance, reached } = this.source;
    const unit = this.data.arm ? `${(100 * distance).toFixed(1)} cm` : `${distance.toFixed(2)} m`;
    const time = this.data.kind === "recorded" ? this.source.at * this.data.dt : this.seconds;
    const word = this.reachedIn !== null && this.data.kind === "live" ? `reached in ${this.reachedIn.toFixed(1)} s` : `${time.toFixed(1)} s`;
    element("status").innerHTML = `<b class="${reached ? "reached" : ""}">${unit}</b>${reached && this.data.kind === "recorded" ? "reached · " : ""}${word}`;
    if (this.data.kind === "recorded") {
      element("time").max = this.source.length - 1;
      element("time").value = this.source.at;
    }
  }

  run() {
    let last = performance.now();
    const picture = (now) => {
      this.advance(Math.max(0, (now - last) / 1000));
      last = now;
      if (this.mapped && !document.hidden) this.map.refresh(MAP_MS);
      this.show(this.paused ? 1 : Math.min(1, this.pending / this.data.dt));
      this.view.draw();
      requestAnimationFrame(picture);
    };
    requestAnimationFrame(picture);
  }
}

async function main() {
  const data = JSON.parse(element("data").textContent);
  if (typeof WebAssembly === "undefined" || typeof DecompressionStream === "undefined") {
    fail("This page needs a browser of 2023 or later, with WebAssembly.");
    return;
  }
  try {
    const [source] = await Promise.all([loadSource(data), loadViewer()]);
    window.homing = new App(data, source);
  } catch (error) {
    fail(`This page could not start: ${error.message}. It needs a browser of 2023 or later, with WebGL and WebAssembly.`);
    throw error;
  }
  window.homing.run();
}

main();
