// Line charts with bands, and rows of dots with intervals; both answer the pointer.

const LEFT = 50, RIGHT = 14, TOP = 12, BOTTOM = 38;

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
  const heights = ticks(ys[0], ys[1], 5), labels = amounts(heights, spec.metric);
  for (const [i, t] of heights.entries()) {
    board.append(svg("line", { class: "rule", x1: LEFT, x2: spec.wide - RIGHT, y1: py(t), y2: py(t) }));
    board.append(svg("text", { x: LEFT - 7, y: py(t) + 4, "text-anchor": "end" }, labels[i]));
  }
  for (const t of ticks(xs[0], xs[1], Math.max(2, Math.min(8, spec.wide / 75)))) {
    board.append(svg("line", { class: "axis", x1: px(t), x2: px(t), y1: spec.high - BOTTOM, y2: spec.high - BOTTOM + 4 }));
    board.append(tickText(px(t), spec.high - BOTTOM + 17, spec.xText(t), spec.wide));
  }
  board.append(svg("line", { class: "axis", x1: LEFT, x2: spec.wide - RIGHT, y1: spec.high - BOTTOM, y2: spec.high - BOTTOM }));
  board.append(svg("text", { x: (LEFT + spec.wide - RIGHT) / 2, y: spec.high - 3, "text-anchor": "middle" }, spec.xLabel));
}

// Centred on its tick, unless that would cut it at the edge of the drawing.
function tickText(x, y, label, wide) {
  const half = 3.6 * label.length, anchor = x + half > wide ? "end" : x - half < 0 ? "start" : "middle";
  return svg("text", { x: anchor === "end" ? wide - 1 : anchor === "start" ? 1 : x, y, "text-anchor": anchor }, label);
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

// The values of all lines where the pointer or the keyboard is.
function follow(board, spec, px, py, [x0, x1]) {
  const guide = svg("line", { class: "guide", y1: TOP, y2: spec.high - BOTTOM, visibility: "hidden" });
  board.append(guide);
  const lead = (x) => set(guide, x === null ? { visibility: "hidden" } : { x1: px(x), x2: px(x), visibility: "visible" });
  board.addEventListener("pointermove", (event) => {
    const box = board.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width * spec.wide - LEFT) / (spec.wide - LEFT - RIGHT);
    const x = x0 + Math.min(1, Math.max(0, place)) * (x1 - x0);
    lead(x);
    const [head, told, more] = values(spec, x, x1 - x0);
    const seed = CHOICE.seeds ? nearestSeed(spec, x, (y) => Math.abs(py(y) - (event.clientY - box.top))) : null;
    if (seed) told.push({ colour: seed.colour, name: seed.label, value: amount(seed.value, spec.metric), range: "" });
    tell(event, head, told, more);
  });
  board.addEventListener("pointerleave", () => { lead(null); hideTip(); });
  const circle = ring(board);
  const points = spec.lines.map((line) => line.x.map((x, i) => i).filter((i) => known(line.x[i]) && known(line.y[i])).map((i) => ({
    x: px(line.x[i]), y: py(line.y[i]), at: line.x[i], text: pointText(spec, line, i), tip: () => values(spec, line.x[i], x1 - x0, line),
  })));
  keyboard(board, spec.label, points, (point) => { circle(point); lead(point ? point.at : null); });
}

const rangeText = (line, i, metric) => line.low && known(line.low[i]) ? `${amount(line.low[i], metric)} … ${amount(line.high[i], metric)}` : "";

function pointText(spec, line, i) {
  const range = rangeText(line, i, spec.metric);
  return `${line.label}, ${spec.xText(line.x[i])}${spec.xShort || ""}: ${amount(line.y[i], spec.metric)}` + (range ? `, 95 % interval ${range}` : "");
}

// The head, rows and number of rows left out of the hover text at x; the line that the keyboard is at comes first.
function values(spec, x, span, first) {
  const rows = spec.lines.map((line) => ({ line, i: nearest(line.x, x) }))
    .filter(({ line, i }) => i >= 0 && known(line.y[i]) && inside(line.x, x, span))
    .sort((a, b) => (b.line === first) - (a.line === first) || b.line.y[b.i] - a.line.y[a.i]);
  const told = rows.slice(0, 12).map(({ line, i }) => ({
    colour: line.colour, name: line.label + (line.note ? ` (${line.note})` : ""), value: amount(line.y[i], spec.metric), range: rangeText(line, i, spec.metric),
  }));
  return [spec.xText(x) + (spec.xShort || ""), told, rows.length - 12];
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
  const made = rows.map((row) => el("div", { class: "row" }, el("i", { style: `background:${row.colour}` }), el("span", {}, row.name),
    el("b", {}, row.value), row.range ? el("span", { class: "soft range" }, row.range) : null));
  tip.hidden = false;
  // Long names wrap; rows that would leave the window are counted instead of cut.
  for (let kept = made.length; kept >= 0; kept--) {
    const left = made.length - kept + Math.max(0, more);
    tip.replaceChildren(el("div", { class: "soft" }, head), ...made.slice(0, kept), ...(left ? [el("div", { class: "soft" }, `and ${left} more`)] : []));
    if (tip.getBoundingClientRect().height <= innerHeight - 8 || kept <= 1) break;
  }
  const box = tip.getBoundingClientRect();
  const x = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 16 : event.clientX + 16;
  tip.style.left = Math.max(4, Math.min(x, innerWidth - box.width - 4)) + "px";
  tip.style.top = Math.max(4, Math.min(innerHeight - box.height - 4, event.clientY + 14)) + "px";
}

addEventListener("scroll", hideTip, { passive: true });

function hideTip() { document.getElementById("tip").hidden = true; }

// rows [{label, colour, value, low, high}]: a dot and its interval on one scale
function dotChart(rows, metric, label) {
  return fitted((wide) => drawDots(rows, metric, label, wide));
}

function drawDots(rows, metric, label, wide) {
  const rowHigh = 26, top = 4, high = top + rows.length * rowHigh + 34, nameWide = Math.min(230, Math.round(0.36 * wide));
  const px = (v) => nameWide + v * (wide - nameWide - 62), letters = Math.floor((nameWide - 12) / 7.4);
  const board = svg("svg", { class: "chart", width: wide, height: high, role: "img", "aria-label": label });
  for (const t of ticks(0, 1, Math.max(2, (wide - nameWide) / 80))) {
    board.append(svg("line", { class: "rule", x1: px(t), x2: px(t), y1: top, y2: high - 26 }));
    board.append(tickText(px(t), high - 10, amount(t, metric), wide));
  }
  const points = rows.map((row, i) => {
    const y = top + rowHigh * (i + 0.5), text = row.label.length > letters ? row.label.slice(0, letters - 1) + "…" : row.label;
    const range = known(row.low) ? `${amount(row.low, metric)} … ${amount(row.high, metric)}` : "";
    const tip = () => ["", [{ colour: row.colour, name: row.label, value: amount(row.value, metric), range }], 0];
    const group = svg("g", {}, svg("rect", { x: 0, y: y - rowHigh / 2, width: wide, height: rowHigh, fill: "transparent" }), svg("text", { x: nameWide - 12, y: y + 4, "text-anchor": "end" }, text));
    if (known(row.low)) group.append(svg("line", { x1: px(row.low), x2: px(row.high), y1: y, y2: y, stroke: row.colour, "stroke-width": 8, opacity: 0.35, "stroke-linecap": "round" }));
    group.append(svg("circle", { cx: px(row.value), cy: y, r: 5, fill: row.colour }), svg("text", { x: wide - 2, y: y + 4, "text-anchor": "end" }, amount(row.value, metric)));
    group.addEventListener("pointermove", (event) => tell(event, ...tip()));
    group.addEventListener("pointerleave", hideTip);
    board.append(group);
    return [{ x: px(row.value), y, text: `${row.label}: ${amount(row.value, metric)}` + (range ? `, 95 % interval ${range}` : ""), tip }];
  });
  keyboard(board, label, points, ring(board));
  return board;
}
