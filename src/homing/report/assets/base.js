"use strict";
// Small tools: elements, numbers as people read them, colours, what the reader has chosen.

const COLOURS = ["#3b82c4", "#e0762b", "#2e9e5b", "#c2559d", "#b0921f", "#d9534f", "#1fa3a3", "#8a7ae0", "#a08060", "#7c8a99"];
const DASHES = ["", "6 4", "2 3", "9 3 2 3"];
const FIRST = 10; // methods that are drawn until the reader chooses others

let DATA = null;
const CHOICE = {
  metrics: null, axis: "step", seeds: false, bands: true, methods: null, task: 0, statistic: "iqm", sort: {}, filter: {}, all: {},
};

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  set(made, attributes);
  made.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(made, attributes);
  made.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return made;
}

function set(made, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
}

const known = (v) => v !== null && v !== undefined;
// A line keeps its colour while the page lives, whatever its rank becomes.
const PLACES = new Map();
const place = (method) => PLACES.get(DATA.methods[method]);
const colour = (method) => COLOURS[place(method) % COLOURS.length];
const dash = (method) => DASHES[Math.floor(place(method) / COLOURS.length) % DASHES.length];
const shown = (method) => CHOICE.methods.has(method);

function count(value, most = 3) {
  for (const [limit, unit] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= limit) return digits(value / limit, most) + unit;
  }
  return digits(value, most);
}

function digits(value, most) {
  return String(Number(value.toPrecision(most)));
}

function percent(value) {
  const percent = 100 * value;
  return (Math.abs(percent) < 9.95 ? String(Number(percent.toFixed(1))) : percent.toFixed(0)) + " %";
}

function amount(value, metric) {
  if (!known(value)) return "–";
  return metric && metric.fraction ? percent(value) : Math.abs(value) >= 1e5 ? count(value) : digits(value, 3);
}

// Texts of ticks, with as many digits as their steps need.
function amounts(values, metric) {
  const step = values[1] - values[0];
  let most = 3;
  while (most < 6 && values.some((v) => Math.abs(Number(v.toPrecision(most)) - v) > 0.01 * step)) most++;
  if (metric && metric.fraction) return values.map((v) => digits(100 * v, most) + " %");
  return values.map((v) => (Math.abs(v) >= 1e5 ? count(v, most) : digits(v, most)));
}

function interval(e, metric) {
  return known(e.low) ? `${amount(e.low, metric)} … ${amount(e.high, metric)}` : "";
}

// Time is shown in the unit that suits the longest run.
function timeUnit(hours) {
  if (hours < 0.05) return { label: "wall-clock seconds", scale: 3600, short: " s" };
  if (hours < 3) return { label: "wall-clock minutes", scale: 60, short: " min" };
  return { label: "wall-clock hours", scale: 1, short: " h" };
}

function duration(hours) {
  if (!known(hours)) return "–";
  const unit = timeUnit(hours);
  return digits(hours * unit.scale, 3) + unit.short;
}

function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = power * ([1, 2, 2.5, 5, 10].find((f) => f * power >= raw * 0.999) || 10);
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return found;
}

function sample(method) {
  return svg("svg", { width: 26, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: colour(method), "stroke-width": 3, "stroke-dasharray": dash(method) }));
}

function toggle(label, pressed, action, title) {
  return el("button", { type: "button", "aria-pressed": String(pressed), onclick: action, title }, label);
}
