// Line charts with bands, and rows of dots with intervals; both answer the pointer.

const LEFT = 50, RIGHT = 14, TOP = 8, BOTTOM = 38;

// A chart is drawn for the width that it really has, so that its text keeps its size; and again when that changes.
const DRAWERS = new WeakMap();
const SIZES = new ResizeObserver((entries) => {
  for (const entry of entries) fill(entry.target, Math.round(entry.contentRect.width));
});

function fill(holder, wide) {
  const drawer = DRAWERS.get(holder);
  if (wide && drawer.wide !== wide) { drawer.wide = wide; holder.replaceChildren(drawer.draw(wide)); }
}

function fitted(draw) {
  const holder = el("div", { class: "canvas" });
  DRAWERS.set(holder, { draw, wide: 0 });
  SIZES.observe(holder);
  return holder;
}

// spec: lines [{x, y, low, high, colour, dash, label, seeds: [{x, y}]}], xLabel, xText(value), metric, whole (from 0 to 1)
function lineChart(spec) {
  return fitted((wide) => drawLines({ ...spec, wide, high: Math.round(Math.min(360, Math.max(190, 0.56 * wide))) }));
}

function drawLines(spec) {
  const { wide, high } = spec, [x0, x1] = xRange(spec.lines), [y0, y1] = yRange(spec);
  const px = (x) => LEFT + (x - x0) / (x1 - x0) * (wide - LEFT - RIGHT);
  const py = (y) => high - BOTTOM - (y - y0) / (y1 - y0) * (high - TOP - BOTTOM);
  const board = svg("svg", { class: "chart", width: wide, height: high, role: "img", "aria-label": spec.label });
  drawAxes(board, spec, [x0, x1], [y0, y1], px, py);
  for (const line of spec.lines) {
    if (CHOICE.bands && line.low) board.append(area(line, px, py));
  }
  if (CHOICE.seeds) {
    for (const line of spec.lines) for (const seed of line.seeds || []) board.append(stroke(seed, line.colour, "", 1, 0.45, px, py));
  }
  for (const line of spec.lines) board.append(stroke(line, line.colour, line.dash, 2.2, 1, px, py), ...lonePoint(line, px, py));
  if (spec.lines.length) follow(board, spec, px, py, [x0, x1]);
  return board;
}

function xRange(lines) {
  let low = Infinity, high = -Infinity;
  for (const line of lines) if (line.x.length) { low = Math.min(low, line.x[0]); high = Math.max(high, line.x[line.x.length - 1]); }
  if (!isFinite(low)) return [0, 1];
  return [Math.min(0, low), high > Math.min(0, low) ? high : Math.min(0, low) + 1];
}

function yRange(spec) {
  if (spec.whole) return [0, 1];
  let low = Infinity, high = -Infinity;
  const take = (values) => { for (const v of values || []) if (known(v)) { low = Math.min(low, v); high = Math.max(high, v); } };
  for (const line of spec.lines) {
    take(line.y);
    if (CHOICE.bands) { take(line.low); take(line.high); }
    if (CHOICE.seeds) for (const seed of line.seeds || []) take(seed.y);
  }
  if (!isFinite(low)) return [0, 1];
  if (spec.metric && spec.metric.fraction) return [0, high > 0.5 ? 1 : Math.max(0.05, 1.1 * high)];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low < 0.4 * high ? 0 : low - room, high + room];
}

function drawAxes(board, spec, xs, ys, px, py) {
  for (const t of ticks(ys[0], ys[1], 5)) {
    board.append(svg("line", { class: "rule", x1: LEFT, x2: spec.wide - RIGHT, y1: py(t), y2: py(t) }));
    board.append(svg("text", { x: LEFT - 7, y: py(t) + 4, "text-anchor": "end" }, amount(t, spec.metric)));
  }
  for (const t of ticks(xs[0], xs[1], Math.max(2, Math.min(8, spec.wide / 75)))) {
    board.append(svg("line", { class: "axis", x1: px(t), x2: px(t), y1: spec.high - BOTTOM, y2: spec.high - BOTTOM + 4 }));
    board.append(svg("text", { x: px(t), y: spec.high - BOTTOM + 17, "text-anchor": "middle" }, spec.xText(t)));
  }
  board.append(svg("line", { class: "axis", x1: LEFT, x2: spec.wide - RIGHT, y1: spec.high - BOTTOM, y2: spec.high - BOTTOM }));
  board.append(svg("text", { x: (LEFT + spec.wide - RIGHT) / 2, y: spec.high - 3, "text-anchor": "middle" }, spec.xLabel));
}

function stroke(line, colour, dashes, width, opacity, px, py) {
  let path = "", pen = false;
  line.x.forEach((x, i) => {
    if (!known(x) || !known(line.y[i])) { pen = false; return; }
    path += `${pen ? "L" : "M"}${px(x).toFixed(1)} ${py(line.y[i]).toFixed(1)}`;
    pen = true;
  });
  return svg("path", { d: path, fill: "none", stroke: colour, "stroke-width": width, opacity, "stroke-dasharray": dashes, "stroke-linejoin": "round" });
}

// A curve of one evaluation is a point.
function lonePoint(line, px, py) {
  const places = line.x.map((x, i) => i).filter((i) => known(line.y[i]));
  return places.length === 1 ? [svg("circle", { cx: px(line.x[places[0]]), cy: py(line.y[places[0]]), r: 4, fill: line.colour })] : [];
}

function area(line, px, py) {
  const kept = line.x.map((x, i) => i).filter((i) => known(line.low[i]) && known(line.high[i]));
  if (!kept.length) return svg("g");
  const at = (i, values) => `${px(line.x[i]).toFixed(1)} ${py(values[i]).toFixed(1)}`;
  const path = "M" + kept.map((i) => at(i, line.high)).join("L") + "L" + kept.reverse().map((i) => at(i, line.low)).join("L") + "Z";
  return svg("path", { d: path, fill: line.colour, opacity: 0.17 });
}

// The values of all lines where the pointer is.
function follow(board, spec, px, py, [x0, x1]) {
  const guide = svg("line", { class: "guide", y1: TOP, y2: spec.high - BOTTOM, visibility: "hidden" });
  board.append(guide);
  board.addEventListener("pointermove", (event) => {
    const box = board.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width * spec.wide - LEFT) / (spec.wide - LEFT - RIGHT);
    const x = x0 + Math.min(1, Math.max(0, place)) * (x1 - x0);
    guide.setAttribute("x1", px(x)); guide.setAttribute("x2", px(x)); guide.setAttribute("visibility", "visible");
    const rows = spec.lines.map((line) => ({ line, i: nearest(line.x, x) }))
      .filter(({ line, i }) => i >= 0 && known(line.y[i]) && inside(line.x, x, x1 - x0))
      .sort((a, b) => b.line.y[b.i] - a.line.y[a.i]);
    const told = rows.slice(0, 12).map(({ line, i }) => ({
      colour: line.colour, name: line.label, value: amount(line.y[i], spec.metric),
      range: line.low && known(line.low[i]) ? `${amount(line.low[i], spec.metric)} … ${amount(line.high[i], spec.metric)}` : "",
    }));
    const seed = CHOICE.seeds ? nearestSeed(spec, x, (y) => Math.abs(py(y) - (event.clientY - box.top))) : null;
    if (seed) told.push({ colour: seed.colour, name: seed.label, value: amount(seed.value, spec.metric), range: "" });
    tell(event, spec.xText(x) + (spec.xShort || ""), told, rows.length - 12);
  });
  board.addEventListener("pointerleave", () => { guide.setAttribute("visibility", "hidden"); hideTip(); });
}

// The seed whose line passes closest to the pointer, if one is near.
function nearestSeed(spec, x, distance) {
  let best = null, least = 12;
  for (const line of spec.lines) for (const seed of line.seeds || []) {
    const i = nearest(seed.x, x);
    if (i >= 0 && known(seed.y[i]) && distance(seed.y[i]) < least) {
      least = distance(seed.y[i]);
      best = { colour: line.colour, label: seed.label, value: seed.y[i] };
    }
  }
  return best;
}

function inside(xs, x, span) {
  return x >= xs[0] - 0.02 * span && x <= xs[xs.length - 1] + 0.02 * span;
}

function nearest(xs, x) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const mid = (low + high) >> 1; if (xs[mid] > x) high = mid; else low = mid; }
  return high < 0 ? -1 : Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

function tell(event, head, rows, more) {
  const tip = document.getElementById("tip");
  tip.replaceChildren(el("div", { class: "soft" }, head), ...rows.map((row) => el("div", { class: "row" },
    el("i", { style: `background:${row.colour}` }), el("span", {}, row.name), el("b", {}, row.value),
    row.range ? el("span", { class: "soft" }, row.range) : null)));
  if (more > 0) tip.append(el("div", { class: "soft" }, `and ${more} more`));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 16 : event.clientX + 16;
  tip.style.left = Math.max(4, x) + "px";
  tip.style.top = Math.max(4, Math.min(innerHeight - box.height - 4, event.clientY + 14)) + "px";
}

function hideTip() { document.getElementById("tip").hidden = true; }

// rows [{label, colour, value, low, high}]: a dot and its interval on one scale
function dotChart(rows, metric, label) {
  return fitted((wide) => drawDots(rows, metric, label, wide));
}

function drawDots(rows, metric, label, wide) {
  const rowHigh = 26, top = 4, high = top + rows.length * rowHigh + 34, nameWide = Math.min(230, Math.round(0.36 * wide));
  const px = (v) => nameWide + v * (wide - nameWide - 62), letters = Math.floor(nameWide / 7);
  const board = svg("svg", { class: "chart", width: wide, height: high, role: "img", "aria-label": label });
  for (const t of ticks(0, 1, Math.max(2, (wide - nameWide) / 80))) {
    board.append(svg("line", { class: "rule", x1: px(t), x2: px(t), y1: top, y2: high - 26 }));
    board.append(svg("text", { x: px(t), y: high - 10, "text-anchor": "middle" }, amount(t, metric)));
  }
  rows.forEach((row, i) => {
    const y = top + rowHigh * (i + 0.5), text = row.label.length > letters ? row.label.slice(0, letters - 1) + "…" : row.label;
    const name = svg("text", { x: nameWide - 12, y: y + 4, "text-anchor": "end" }, text);
    name.append(svg("title", {}, row.label));
    board.append(name);
    if (known(row.low)) board.append(svg("line", { x1: px(row.low), x2: px(row.high), y1: y, y2: y, stroke: row.colour, "stroke-width": 8, opacity: 0.35, "stroke-linecap": "round" }));
    board.append(svg("circle", { cx: px(row.value), cy: y, r: 5, fill: row.colour }));
    board.append(svg("text", { x: wide - 2, y: y + 4, "text-anchor": "end" }, amount(row.value, metric)));
  });
  return board;
}
