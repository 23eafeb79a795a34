// Charts by keyboard: a chart takes the focus, arrows move over its points, and what is there is shown and read out.

// The chart that had the focus before the page was drawn again, and the point it was at.
let FOCUS = null;

// points [series][i] {x, y, text, tip: () => [head, rows, more]}; `mark` moves a mark to a point or hides it with null.
function keyboard(board, label, points, mark) {
  const series = points.filter((all) => all.length);
  if (!series.length) return;
  const how = series.length > 1 ? "arrow keys move over points and lines" : "arrow keys move over points";
  set(board, { tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${label}; ${how}` });
  const at = { s: 0, i: series[0].length - 1 };
  const show = () => {
    at.s = Math.min(at.s, series.length - 1);
    at.i = Math.min(at.i, series[at.s].length - 1);
    FOCUS = { label, ...at };
    const point = series[at.s][at.i], box = board.getBoundingClientRect();
    mark(point);
    tell({ clientX: box.left + point.x, clientY: box.top + point.y }, ...point.tip());
    document.getElementById("say").textContent = point.text;
  };
  const moves = {
    ArrowLeft: () => { at.i = Math.max(0, at.i - 1); }, ArrowRight: () => { at.i += 1; }, Home: () => { at.i = 0; }, End: () => { at.i = Infinity; },
    ArrowUp: () => { step(-1); }, ArrowDown: () => { step(1); },
  };
  // The next line at the point nearest to where the last one was.
  const step = (by) => {
    const x = series[at.s][at.i].x, next = Math.min(series.length - 1, Math.max(0, at.s + by));
    if (next !== at.s) { at.s = next; at.i = series[next].reduce((best, p, i, all) => Math.abs(p.x - x) < Math.abs(all[best].x - x) ? i : best, 0); }
  };
  board.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { mark(null); hideTip(); return; }
    if (!moves[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moves[event.key]();
    show();
  });
  board.addEventListener("focus", () => { if (board.matches(":focus-visible")) show(); });
  board.addEventListener("blur", () => { mark(null); hideTip(); if (board.isConnected) FOCUS = null; });
  if (FOCUS && FOCUS.label === label) {
    Object.assign(at, { s: FOCUS.s, i: FOCUS.i });
    queueMicrotask(() => { if (board.isConnected && document.activeElement === document.body) board.focus(); });
  }
}

// A ring round the point that the keyboard is at.
function ring(board) {
  const made = svg("circle", { class: "at", r: 7, visibility: "hidden" });
  board.append(made);
  return (point) => set(made, point ? { cx: point.x, cy: point.y, visibility: "visible" } : { visibility: "hidden" });
}
