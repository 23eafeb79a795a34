// Charts as files: the drawing as SVG or PNG with its title and legend, its numbers as CSV.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight"];

// chart(): the drawn svg; entries [{label, colour, dash}]; rows: [[...], ...] with the header first
function saving(title, chart, entries, rows) {
  const name = title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  const button = (kind, action) => el("button", { type: "button", class: "link", "aria-label": `save ${title} as ${kind}`, onclick: action }, kind);
  return el("span", { class: "save" }, "save ",
    button("PNG", () => savePicture(name, standalone(title, chart(), entries()))),
    button("SVG", () => download(name + ".svg", new Blob([text(standalone(title, chart(), entries()))], { type: "image/svg+xml" }))),
    button("CSV", () => download(name + ".csv", new Blob([csv(rows())], { type: "text/csv" }))));
}

// A copy that needs no page: styles are written into it, the title above and the legend below.
function standalone(title, chart, entries) {
  const longest = Math.max(title.length, ...entries.map((e) => 4 + e.label.length)); // letters, each at most 7.4 wide
  const wide = Math.max(Number(chart.getAttribute("width")), Math.ceil(24 + 7.4 * longest)), high = Number(chart.getAttribute("height")), row = 18;
  const copy = chart.cloneNode(true), drawn = chart.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((e, i) => {
    const style = getComputedStyle(drawn[i]);
    e.removeAttribute("class");
    for (const name of STYLES) e.setAttribute(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll("[visibility=hidden], title").forEach((e) => e.remove());
  const ink = getComputedStyle(document.documentElement).color, font = { "font-family": "system-ui, sans-serif", "font-size": 12, fill: ink };
  const total = high + 26 + row * entries.length;
  const legend = entries.map((e, i) => svg("g", { transform: `translate(12 ${high + 30 + row * i})` },
    svg("line", { x1: 0, x2: 24, y1: 0, y2: 0, stroke: e.colour, "stroke-width": 3, "stroke-dasharray": e.dash }), svg("text", { ...font, x: 32, y: 4 }, e.label)));
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: wide, height: total, viewBox: `0 0 ${wide} ${total}` },
    svg("rect", { width: wide, height: total, fill: getComputedStyle(document.documentElement).getPropertyValue("--card") }),
    svg("text", { ...font, x: 12, y: 16, "font-weight": 600 }, title), svg("g", { transform: "translate(0 22)" }, ...copy.childNodes), legend);
}

const text = (drawing) => new XMLSerializer().serializeToString(drawing);

function savePicture(name, drawing) {
  const wide = Number(drawing.getAttribute("width")), high = Number(drawing.getAttribute("height")), scale = 2;
  const picture = new Image();
  picture.onload = () => {
    const canvas = el("canvas", { width: scale * wide, height: scale * high });
    canvas.getContext("2d").drawImage(picture, 0, 0, scale * wide, scale * high);
    canvas.toBlob((blob) => download(name + ".png", blob), "image/png");
  };
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text(drawing));
}

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function csv(rows) {
  const cell = (v) => !known(v) ? "" : /[",\n]/.test(String(v)) ? `"${String(v).replace(/"/g, '""')}"` : String(v);
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}
