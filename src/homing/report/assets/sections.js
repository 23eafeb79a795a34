// The parts of the page, each a function from the data to elements; null where there is nothing to show.

function section(id, title, about, ...children) {
  return el("section", { id }, el("h2", {}, title), about ? el("p", { class: "soft" }, about) : null, ...children);
}

function problems() {
  const list = DATA.problems;
  if (!list.length) return null;
  const items = el("ul", {}, list.map((p) => el("li", {}, el("b", {}, p.where), ": ", p.what)));
  const many = list.length > 6;
  return el("details", { class: "note", open: !many || CHOICE.all.problems, ontoggle: (e) => { CHOICE.all.problems = e.target.open; } },
    el("summary", {}, `${list.length} ${list.length === 1 ? "remark" : "remarks"} on the runs`), items);
}

function legend() {
  if (DATA.methods.length < 2) return null;
  const filter = (CHOICE.filter.legend || "").toLowerCase();
  const pick = (methods) => { CHOICE.methods = new Set(methods); draw(); };
  const every = DATA.methods.map((_, i) => i);
  const buttons = every.filter((i) => DATA.methods[i].toLowerCase().includes(filter)).map((i) =>
    el("button", { type: "button", "aria-pressed": String(shown(i)), onclick: () => { shown(i) ? CHOICE.methods.delete(i) : CHOICE.methods.add(i); draw(); } },
      sample(i), DATA.methods[i]));
  const tools = every.length <= 4 ? null : el("div", { class: "controls" },
    el("span", { class: "soft" }, `${CHOICE.methods.size} of ${every.length} drawn, best first`),
    every.length > FIRST ? el("button", { type: "button", class: "link", onclick: () => pick(every.slice(0, FIRST)) }, `best ${FIRST}`) : null,
    el("button", { type: "button", class: "link", onclick: () => pick(every) }, "all"),
    el("button", { type: "button", class: "link", onclick: () => pick([]) }, "none"),
    every.length > 20 ? search("legend", "find a line") : null);
  return el("div", {}, tools, el("div", { class: "legend" }, buttons));
}

function search(key, hint) {
  return el("input", { type: "search", placeholder: hint, "aria-label": hint, value: CHOICE.filter[key] || "", "data-key": key,
    oninput: (e) => { CHOICE.filter[key] = e.target.value; draw(); } });
}

function lines(task, name, axis) {
  const scale = axis === "hours" ? timeUnit(longest()).scale : 1;
  const scaled = (xs) => scale === 1 ? xs : xs.map((x) => known(x) ? x * scale : x);
  const found = [];
  for (const group of DATA.groups) {
    const band = (group.bands[name] || {})[axis];
    if (group.task !== task || !shown(group.method) || !band) continue;
    const seeds = !CHOICE.seeds ? [] : group.curves.filter((c) => c.values[name]).map((c) => ({ x: scaled(c[axis]), y: c.values[name], label: `seed ${c.seed} of ${c.run}` }));
    found.push({ ...band, x: scaled(band.x), colour: colour(group.method), dash: dash(group.method), label: DATA.methods[group.method], note: `${group.seeds} ${group.seeds === 1 ? "seed" : "seeds"}`, count: group.seeds, seeds });
  }
  return found;
}

let LONGEST = null;
function longest() {
  if (LONGEST === null) LONGEST = Math.max(0, ...DATA.machines.map((m) => m.hours || 0));
  return LONGEST;
}

function panel(task, name, axis, heading) {
  const metric = DATA.metrics[name], unit = timeUnit(longest());
  const drawn = lines(task, name, axis);
  const byTime = axis === "hours";
  const chart = lineChart({
    lines: drawn, metric, whole: name.startsWith("eval/success"), label: `${metric.label} on ${DATA.tasks[task]}`,
    xLabel: byTime ? unit.label : axis === "step" ? "environment steps of each seed" : axis,
    xText: byTime ? (v) => digits(v, 3) : count, xShort: byTime ? unit.short : " steps",
  });
  const empty = drawn.length ? null : el("span", { class: "soft" }, "nothing drawn: no line chosen, or not measured");
  const few = [...new Set(drawn.map((line) => line.count).filter((n) => fewText(n)))].sort();
  const x = byTime ? unit.label : axis;
  return el("figure", { class: "card" },
    el("figcaption", {}, el("h3", {}, heading[0]), el("span", { class: "soft", title: metric.about }, heading[1]), empty,
      few.length && CHOICE.bands ? el("span", { class: "caveat", title: FEW_ABOUT }, `intervals of ${few.join(" or ")} seeds are too narrow`) : null, el("span", { class: "grow" }), drawn.length ? savingLines(`${metric.label} on ${DATA.tasks[task]}`, chart, drawn, x) : null),
    chart);
}

function savingLines(title, holder, drawn, x) {
  const rows = () => [["line", x, "value", "low", "high", "seeds"],
    ...drawn.flatMap((line) => line.x.map((at, i) => [line.label, at, line.y[i], line.low && line.low[i], line.high && line.high[i], line.count]).filter((row) => known(row[2]))),
    ...drawn.flatMap((line) => (line.seeds || []).flatMap((seed) => seed.x.map((at, i) => [`${line.label}: ${seed.label}`, at, seed.y[i], null, null, 1])))];
  return saving(title, () => holder.querySelector("svg"), () => drawn, rows);
}

// A bootstrap interval of n seeds lies within their range, which holds the median with probability 1 - 2^(1-n).
const FEW = 5;
const FEW_ABOUT = "A bootstrap interval lies within the range of its seeds, and the range of n seeds holds the true median with a probability of 1 − 2^(1−n) only: 50 % for two seeds, 75 % for three, 88 % for four.";
const fewText = (n) => n > 1 && n < FEW ? `${n} seeds: the interval covers at most ${Math.round(100 * (1 - Math.pow(2, 1 - n)))} %, not 95 %` : "";

function curves() {
  const evals = Object.keys(DATA.metrics).filter((n) => n.startsWith("eval/"));
  if (!evals.length) return null;
  const tasks = DATA.tasks.map((_, i) => i).filter((i) => DATA.tasks[i].toLowerCase().includes((CHOICE.filter.tasks || "").toLowerCase()));
  const chosen = evals.filter((n) => CHOICE.metrics.has(n));
  const controls = el("div", { class: "controls" },
    el("fieldset", {}, el("legend", {}, "show"), offered(evals).map((n) => toggle(DATA.metrics[n].label, CHOICE.metrics.has(n), () => { CHOICE.metrics.has(n) ? CHOICE.metrics.delete(n) : CHOICE.metrics.add(n); draw(); }, DATA.metrics[n].about)),
      offered(evals).length < evals.length ? el("button", { type: "button", class: "link", onclick: () => { CHOICE.all.metrics = true; draw(); } }, `${evals.length - offered(evals).length} more`) : null),
    el("fieldset", {}, el("legend", {}, "against"), [["step", "steps"], ["hours", "wall-clock"]].map(([a, label]) => toggle(label, CHOICE.axis === a, () => { CHOICE.axis = a; draw(); }))),
    el("fieldset", {}, toggle("95 % bands", CHOICE.bands, () => { CHOICE.bands = !CHOICE.bands; draw(); }), toggle("every seed", CHOICE.seeds, () => { CHOICE.seeds = !CHOICE.seeds; draw(); })),
    DATA.tasks.length > 12 ? search("tasks", "find an environment") : null);
  return section("curves", "Learning curves", "Lines are the interquartile mean over seeds, bands its 95 % bootstrap interval. Wall-clock is the time in which all seeds of a run were trained side by side, evaluations included and compilation not.",
    controls, legend(), ...panels(tasks, chosen));
}

const offered = (evals) => evals.filter((n, i) => i < 5 || evals.length < 7 || CHOICE.all.metrics || CHOICE.metrics.has(n));

// One environment has its metrics side by side; several have a row of panels for each metric.
function panels(tasks, chosen) {
  const grid = (all) => el("div", { class: all.length < 3 ? "grid few" : "grid" }, all);
  if (DATA.tasks.length === 1) return [grid(chosen.map((n) => panel(0, n, CHOICE.axis, [DATA.metrics[n].label, DATA.tasks[0]])))];
  return chosen.map((n) => el("div", {}, el("h3", { class: "row-head" }, DATA.metrics[n].label, " ", el("span", { class: "soft" }, DATA.metrics[n].about)),
    grid(tasks.map((t) => panel(t, n, CHOICE.axis, [DATA.tasks[t], ""])))));
}

function table(key, columns, rows, options = {}) {
  const sort = CHOICE.sort[key] || options.sort, limit = CHOICE.all[key] ? Infinity : options.limit || 40;
  const wanted = (CHOICE.filter[key] || "").toLowerCase();
  let kept = rows.filter((row) => !wanted || columns.some((c) => String(c.text ? c.text(row) : c.value(row) ?? "").toLowerCase().includes(wanted)));
  if (sort) {
    const value = columns[sort.column].value, sign = sort.up ? 1 : -1;
    kept = [...kept].sort((a, b) => { const x = value(a), y = value(b); return !known(x) ? 1 : !known(y) ? -1 : x < y ? -sign : x > y ? sign : 0; });
  }
  const order = (i) => () => { CHOICE.sort[key] = { column: i, up: sort && sort.column === i ? !sort.up : !columns[i].num }; draw(); };
  const head = columns.map((c, i) => el("th", { class: "sortable" + (c.num ? " num" : ""), onclick: order(i), title: c.title, tabindex: 0, onkeydown: (e) => { if (e.key === "Enter") order(i)(); } },
    c.label + (sort && sort.column === i ? (sort.up ? " ▴" : " ▾") : "")));
  const cell = (c, row) => el("td", { class: c.num ? "num" : c.name ? "name" : "" }, c.show ? c.show(row) : String(c.value(row) ?? "–"));
  const body = kept.slice(0, limit).map((row) => el("tr", {}, columns.map((c) => cell(c, row))));
  return el("div", { class: "card", style: "margin-top:10px" },
    rows.length > 15 ? search(key, "find in this table") : null,
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body))),
    kept.length > limit ? el("button", { type: "button", class: "link", onclick: () => { CHOICE.all[key] = true; draw(); } }, `show all ${kept.length} rows`) : null);
}

// Where on the map, or at which distance, goals are reached: one picture for each line and environment.
function byGoal() {
  const groups = DATA.groups.filter((g) => g.by_goal && shown(g.method));
  if (!groups.length) return null;
  const figures = groups.map((g) => {
    const drawing = g.by_goal.x ? goalMap(g.by_goal) : goalBars(g.by_goal), names = Object.keys(g.by_goal);
    const rows = () => [names, ...g.by_goal.episodes.map((_, i) => names.map((n) => g.by_goal[n][i]))];
    return el("figure", { class: "card" }, el("figcaption", {}, el("h3", {}, DATA.tasks[g.task]), el("span", { class: "soft" }, DATA.methods[g.method]), el("span", { class: "grow" }),
      saving(`by goal ${DATA.tasks[g.task]} ${DATA.methods[g.method]}`, () => drawing, () => [], rows)), drawing);
  });
  return section("goals", "By goal", "Fraction of the time near the goal at the last evaluation, mean over seeds: for each goal cell of a maze, else by the goal's distance from the start. Hover for the success rate.",
    legend(), el("div", { class: "grid small" }, figures));
}

const shade = (v) => known(v) ? `hsl(${Math.round(8 + 132 * v)} 62% ${Math.round(80 - 24 * v)}%)` : "none";
const goalText = (g, i) => `${known(g.time_near_goal[i]) ? percent(g.time_near_goal[i]) : "no episode"} of the time near, ${known(g.success_any[i]) ? percent(g.success_any[i]) : "–"} reached, ${digits(g.episodes[i] || 0, 3)} episodes of each seed`;

function goalMap(g) {
  const gaps = g.x.flatMap((x, i) => g.x.map((u, j) => i < j ? Math.max(Math.abs(x - u), Math.abs(g.y[i] - g.y[j])) : Infinity));
  const size = Math.min(...gaps, 1e9), left = Math.min(...g.x) - size / 2, top = Math.max(...g.y) + size / 2;
  const unit = Math.min(56, 300 * size / (Math.max(...g.x) - left + size / 2));
  const wide = unit * (Math.max(...g.x) - left + size / 2) / size, high = unit * (top - Math.min(...g.y) + size / 2) / size;
  const cells = g.x.map((x, i) => {
    const u = unit * (x - size / 2 - left) / size, v = unit * (top - g.y[i] - size / 2) / size;
    return svg("g", {}, svg("title", {}, `goal at (${digits(x, 3)}, ${digits(g.y[i], 3)}): ${goalText(g, i)}`),
      svg("rect", { x: u + 1, y: v + 1, width: unit - 2, height: unit - 2, rx: 3, fill: shade(g.time_near_goal[i]), stroke: "var(--line)" }),
      svg("text", { x: u + unit / 2, y: v + unit / 2 + 4, "text-anchor": "middle", style: "fill:#222" }, known(g.time_near_goal[i]) ? String(Math.round(100 * g.time_near_goal[i])) : "–"));
  });
  const board = svg("svg", { class: "chart", width: wide, height: high }, cells);
  const order = g.x.map((_, i) => i).sort((a, b) => g.y[b] - g.y[a] || g.x[a] - g.x[b]), lanes = [...new Set(order.map((i) => g.y[i]))];
  goalKeys(board, "time near each goal of the maze, in per cent", lanes.map((y) => order.filter((i) => g.y[i] === y)), (i) => ({
    x: unit * (g.x[i] - left) / size, y: unit * (top - g.y[i]) / size, head: `goal at (${digits(g.x[i], 3)}, ${digits(g.y[i], 3)})`, text: goalText(g, i),
  }));
  return board;
}

// points: indices of goals, row by row as they are drawn
function goalKeys(board, label, points, at) {
  const point = (i) => { const p = at(i); return { ...p, text: `${p.head}: ${p.text}`, tip: () => [p.head, [{ colour: "transparent", name: p.text, value: "", range: "" }], 0] }; };
  keyboard(board, label, points.map((lane) => lane.map(point)), ring(board));
}

function goalBars(g) {
  const rows = g.distance.map((d, i) => ({ d, i })).filter(({ i }) => g.episodes[i]);
  const bars = rows.map(({ d, i }, k) => svg("g", {}, svg("title", {}, goalText(g, i)),
    svg("text", { x: 0, y: 24 * k + 16 }, `from ${digits(d, 3)} m`),
    svg("rect", { x: 90, y: 24 * k + 3, width: Math.max(1, 180 * (g.time_near_goal[i] || 0)), height: 16, rx: 3, fill: shade(g.time_near_goal[i]), stroke: "var(--line)" }),
    svg("text", { x: 278, y: 24 * k + 16 }, percent(g.time_near_goal[i] || 0))));
  const board = svg("svg", { class: "chart", width: 320, height: 24 * rows.length + 4 }, bars);
  goalKeys(board, "time near the goal by distance", rows.map((_, k) => [k]), (k) => ({ x: 270, y: 24 * k + 11, head: `goals from ${digits(rows[k].d, 3)} m`, text: goalText(g, rows[k].i) }));
  return board;
}

const methodCell = (method) => el("span", {}, sample(method), " ", DATA.methods[method]);

function finals() {
  const names = Object.keys(DATA.metrics).filter((n) => n.startsWith("eval/") && (CHOICE.metrics.has(n) || n === "eval/final_distance"));
  const rows = DATA.groups.filter((g) => Object.values(g.final).some(known)).sort((a, b) => a.task - b.task || a.method - b.method);
  if (!rows.length) return null;
  const score = (n) => ({
    label: DATA.metrics[n].label, num: true, title: DATA.metrics[n].about + "; IQM and 95 % interval over seeds", value: (g) => g.final[n] && g.final[n].value,
    show: (g) => !g.final[n] ? "–" : el("span", {}, el("b", {}, amount(g.final[n].value, DATA.metrics[n])), " ", el("span", { class: "range", title: fewText(g.final[n].count) || null }, interval(g.final[n], DATA.metrics[n]) + (fewText(g.final[n].count) ? " †" : ""))),
  });
  const columns = [
    { label: "environment", name: true, value: (g) => DATA.tasks[g.task] },
    { label: "agent", name: true, value: (g) => DATA.methods[g.method], show: (g) => methodCell(g.method) },
    { label: "seeds", num: true, value: (g) => g.seeds, show: (g) => g.seeds + (g.diverged ? ` (${g.diverged} diverged)` : "") },
    { label: "steps", num: true, value: (g) => g.steps[1], show: (g) => g.steps[0] === g.steps[1] ? count(g.steps[1]) : `${count(g.steps[0])} … ${count(g.steps[1])}` },
    ...names.map(score),
  ];
  const first = names[0];
  if (first && rows.some((g) => g.seeds > 1)) columns.push({ label: "worst … best seed", num: true, title: DATA.metrics[first].label, value: (g) => g.final[first] && g.final[first].best, show: (g) => g.final[first] && g.seeds > 1 ? `${amount(g.final[first].worst, DATA.metrics[first])} … ${amount(g.final[first].best, DATA.metrics[first])}` : "–" });
  return section("final", "Final performance", "The last evaluation of every seed. Seeds that diverged do not count; where seeds have ended at different steps, the range is given.", table("final", columns, rows),
    rows.some((g) => names.some((n) => g.final[n] && fewText(g.final[n].count))) ? el("p", { class: "caveat" }, "† Fewer than five seeds. " + FEW_ABOUT) : null);
}

const STATISTICS = { iqm: "IQM", median: "median", mean: "mean", optimality_gap: "optimality gap" };

function comparison() {
  const c = DATA.comparison;
  if (!c || (DATA.groups.length === 1 && DATA.groups[0].seeds === 1)) return null; // one number needs no statistics
  const metric = DATA.metrics[c.score], several = DATA.methods.length > 1;
  const tasks = c.tasks.length ? (c.tasks.length === 1 ? c.tasks[0] : `the ${c.tasks.length} environments that all agents share`) : "each agent's own environments, for none is shared by all: compare with care";
  const rows = c.aggregates.filter((a) => shown(a.method)).map((a) => ({ label: DATA.methods[a.method], colour: colour(a.method), ...a[CHOICE.statistic] }));
  const heading = `${STATISTICS[CHOICE.statistic]} of final ${metric.label}`, dots = dotChart(rows, metric, `${STATISTICS[CHOICE.statistic]} of each agent`);
  const dotRows = () => [["agent", "value", "low", "high", "seeds"], ...rows.map((r) => [r.label, r.value, r.low, r.high, r.count])];
  const aggregate = el("figure", { class: "card" }, el("figcaption", {}, el("h3", {}, heading), el("span", { class: "grow" }), saving(heading, () => dots.querySelector("svg"), () => [], dotRows)),
    el("div", { class: "controls" }, el("fieldset", {}, Object.entries(STATISTICS).map(([n, label]) => toggle(label, CHOICE.statistic === n, () => { CHOICE.statistic = n; draw(); })))),
    dots);
  const profiles = c.profiles.filter((p) => shown(p.method)).map((p) => ({ ...p, x: c.thresholds, colour: colour(p.method), dash: dash(p.method), label: DATA.methods[p.method] }));
  const chart = lineChart({ lines: profiles, metric: { fraction: true }, whole: true, xLabel: `τ (${metric.label})`, xText: percent, label: "performance profile" });
  const profile = el("figure", { class: "card" }, el("figcaption", {}, el("h3", {}, "Performance profile"), el("span", { class: "soft" }, `fraction of seeds whose ${metric.label} is above τ`),
    el("span", { class: "grow" }), savingLines("Performance profile", chart, profiles, "tau")), chart);
  return section("compare", several ? "Agents compared" : "Over environments and seeds", `Final ${metric.label} on ${tasks}. Bands and bars are 95 % intervals; seeds are resampled within every environment.`,
    el("div", { class: "grid few" }, aggregate, profile), improvement(c));
}

function improvement(c) {
  const methods = [...new Set(c.improvement.flatMap((p) => [p.a, p.b]))].sort((a, b) => a - b);
  if (methods.length < 2) return null;
  const cell = (a, b) => {
    const p = c.improvement.find((q) => (q.a === a && q.b === b) || (q.a === b && q.b === a));
    if (a === b || !p) return el("td", { class: "soft" }, a === b ? "" : "–");
    const [value, low, high] = p.a === a ? [p.value, p.low, p.high] : [1 - p.value, 1 - p.high, 1 - p.low];
    const strength = Math.round(Math.abs(value - 0.5) * 110), tint = value >= 0.5 ? "#2e9e5b" : "#d9534f";
    return el("td", { style: `background:color-mix(in srgb, ${tint} ${strength}%, transparent)`, title: `over ${p.tasks} shared environment(s)` },
      low > 0.5 || high < 0.5 ? el("b", {}, percent(value)) : percent(value), el("small", {}, `${percent(low)} … ${percent(high)}`));
  };
  return el("div", { class: "card", style: "margin-top:12px" }, el("h3", {}, "Probability of improvement"),
    el("p", { class: "soft" }, "How likely a seed of the row's agent beats a seed of the column's on an environment that both have; ties count half. Bold: the 95 % interval does not hold 50 %." + (c.left_out ? ` The best ${methods.length} agents; ${c.left_out} more are left out.` : "")),
    el("div", { class: "scroll" }, el("table", { class: "matrix" },
      el("thead", {}, el("tr", {}, el("th", {}, ""), methods.map((m) => el("th", {}, DATA.methods[m])))),
      el("tbody", {}, methods.map((a) => el("tr", {}, el("th", {}, DATA.methods[a]), methods.map((b) => cell(a, b))))))));
}

function diagnostics() {
  const names = Object.keys(DATA.metrics).filter((n) => n.startsWith("train/"));
  if (!names.length) return null;
  CHOICE.task = Math.min(CHOICE.task, DATA.tasks.length - 1);
  const pick = DATA.tasks.length < 2 ? null : el("div", { class: "controls" }, el("label", {}, "environment ",
    el("select", { onchange: (e) => { CHOICE.task = Number(e.target.value); draw(); } }, DATA.tasks.map((t, i) => el("option", { value: i, selected: i === CHOICE.task }, t)))));
  return section("training", "Training diagnostics", "Means between evaluations, IQM and 95 % band over seeds; “every seed” above adds the seeds' own lines.",
    pick, el("div", { class: "grid small" }, names.map((n) => panel(CHOICE.task, n, "step", [DATA.metrics[n].label, DATA.metrics[n].about]))));
}

function settings() {
  const s = DATA.settings;
  if (!s.differ.length && !s.shared.length) return null; // metrics files hold none
  const columns = [{ label: "run", name: true, value: (r) => r.run }, { label: "agent", name: true, value: (r) => r.method }, ...s.differ.map((n, i) => ({ label: n, value: (r) => r.values[i] }))];
  const differ = !s.differ.length ? el("p", {}, s.rows.length > 1 ? "All runs have the same settings." : "") : table("settings", columns, s.rows, { limit: 20 });
  const shared = !s.shared.length ? null : el("details", { class: "card", style: "margin-top:10px", open: CHOICE.all.shared || false, ontoggle: (e) => { CHOICE.all.shared = e.target.open; } },
    el("summary", {}, s.rows.length > 1 ? `${s.shared.length} settings that all runs share` : `${s.shared.length} settings`),
    el("div", { class: "scroll" }, el("table", {}, el("tbody", {}, s.shared.map(([n, v]) => el("tr", {}, el("td", {}, n), el("td", { class: "name" }, v)))))));
  return section("settings", s.rows.length > 1 ? "Where settings differ" : "Settings", null, differ, shared);
}

function machines() {
  const text = (label, key, more) => ({ label, value: (r) => r[key], ...more });
  const columns = [
    text("run", "run", { name: true }), text("status", "status"),
    text("steps/s, all seeds", "rate", { num: true, show: (r) => known(r.rate) ? count(r.rate) : "–", title: "median over the run, evaluations excluded" }),
    text("seeds", "seeds", { num: true }), text("time", "hours", { num: true, show: (r) => duration(r.hours) }),
    text("device", "device", { name: true, show: (r) => known(r.device) ? r.device + (r.devices > 1 ? ` × ${r.devices}` : "") : "–" }), text("CPU cores", "cores", { num: true }),
    text("begun", "started"), text("starts", "sessions", { num: true, title: "1, and one more for each time it was resumed" }),
    text("homing", "homing"), text("JAX", "jax"), text("commit", "commit"),
  ];
  return section("speed", "Speed and hardware", null, table("machines", columns, DATA.machines, { limit: 20 }));
}

// Films keep their place in time while the page is drawn again around them.
let FILMS = { key: null, made: null };
function films() {
  if (!DATA.films || !DATA.films.length) return null;
  const key = DATA.films.map((f) => f.run + f.name + (f.src || "").length).join();
  if (FILMS.key !== key) FILMS = { key, made: makeFilms() };
  return FILMS.made;
}

function makeFilms() {
  const show = (f) => f.src === null ? el("p", { class: "soft" }, f.why) : f.kind === "image" ? el("img", { src: f.src, alt: f.name }) : el("video", { src: f.src, controls: true, loop: true, muted: true, playsinline: true, autoplay: DATA.films.length <= 4, preload: "auto" });
  return section("films", "Films and pictures", null, el("div", { class: "grid films" }, DATA.films.map((f) => el("figure", { class: "card" }, el("figcaption", {}, el("h3", {}, f.name), el("span", { class: "soft" }, f.run)), show(f)))));
}
