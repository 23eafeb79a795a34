// Puts the page together, draws it again when the reader chooses or, on a live page, when there is news.

const PARTS = [curves, finals, byGoal, comparison, diagnostics, films, settings, machines];

function header() {
  const facts = [`${DATA.runs} ${DATA.runs === 1 ? "run" : "runs"}`, `${DATA.seeds} ${DATA.seeds === 1 ? "seed" : "seeds"}`, `${count(DATA.steps)} steps in all`,
    DATA.running ? `${DATA.running} still running` : null, `made ${DATA.made} by Homing ${DATA.version}`].filter(Boolean).join(" · ");
  const live = DATA.live ? el("span", { class: "live", id: "live" }, el("i"), el("span", {}, "live")) : null;
  document.getElementById("top").replaceChildren(
    el("div", { class: "head" }, el("h1", {}, DATA.title), live, el("span", { class: "grow" }), el("button", { type: "button", onclick: theme, title: "light or dark" }, "◐ theme")),
    el("p", { class: "facts" }, facts));
  document.title = DATA.title;
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement, now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
}

// What is typed into stays focused while the page is drawn again around it.
function draw() {
  const typing = document.activeElement, key = typing && typing.dataset ? typing.dataset.key : null, atChart = FOCUS, caret = key ? typing.selectionStart : 0;
  const scrolled = [...document.querySelectorAll(".legend, .scroll, nav")].map((e) => [e.scrollLeft, e.scrollTop]);
  hideTip();
  const parts = DATA.groups.length ? PARTS.map((part) => part()).filter(Boolean) : [el("p", {}, DATA.live ? "No evaluation yet: the curves begin with the first one." : "No run has an evaluation yet.")];
  const links = parts.filter((p) => p.id).map((p) => el("a", { href: "#" + p.id }, p.querySelector("h2").textContent));
  document.getElementById("page").replaceChildren(...[problems(), links.length ? el("nav", {}, links) : null, ...parts].filter(Boolean));
  FOCUS = atChart;
  document.querySelectorAll(".legend, .scroll, nav").forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
  const again = key && document.querySelector(`[data-key="${key}"]`);
  if (again) { again.focus(); again.setSelectionRange(caret, caret); }
}

function take(data) {
  const before = DATA;
  DATA = data;
  LONGEST = null;
  for (const name of DATA.methods) if (!PLACES.has(name)) PLACES.set(name, PLACES.size);
  const evals = Object.keys(DATA.metrics).filter((n) => n.startsWith("eval/"));
  const wanted = ["eval/success_any", "eval/time_near_goal"].filter((n) => evals.includes(n));
  if (!CHOICE.metrics || !CHOICE.metrics.size) CHOICE.metrics = new Set(wanted.length ? wanted : evals.slice(0, 2));
  const names = before ? new Set([...CHOICE.methods].map((i) => before.methods[i])) : null;
  const fresh = before ? (m) => !before.methods.includes(m) : () => false;
  CHOICE.methods = new Set(DATA.methods.map((m, i) => [m, i]).filter(([m, i]) => names ? names.has(m) || (fresh(m) && i < FIRST) : i < FIRST).map(([, i]) => i));
  header();
  document.getElementById("foot").replaceChildren(el("p", {}, "IQM: interquartile mean, the mean of the middle half of the seeds. Intervals: percentile bootstrap over seeds, 2000 resamples in tables and comparisons, 1000 for bands; one seed alone has none, and those of fewer than five are too narrow. Where seeds of a line were evaluated at different steps they are joined by straight lines; a line is drawn where at least half of its seeds are."));
  draw();
}

// Live: ask for news; a page that cannot reach its server says so and keeps what it has.
let STAMP = null;
async function news() {
  const badge = () => document.getElementById("live");
  try {
    const answer = await fetch("data.json" + (STAMP ? "?seen=" + encodeURIComponent(STAMP) : ""), { cache: "no-store" });
    if (answer.status === 200) { const data = await answer.json(); STAMP = data.stamp; take(data); }
    if (badge()) { badge().classList.remove("lost"); badge().lastChild.textContent = "live"; }
  } catch (error) {
    if (badge()) { badge().classList.add("lost"); badge().lastChild.textContent = "connection lost; what is shown may be old"; }
  }
  setTimeout(news, 2000);
}

const FIRST_DATA = JSON.parse(document.getElementById("data").textContent);
STAMP = FIRST_DATA.stamp || null;
take(FIRST_DATA);
if (FIRST_DATA.live) setTimeout(news, 2000);
