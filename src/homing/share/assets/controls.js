/* Buttons, keys, taps and words on the page. */
"use strict";

const ICONS = {
  pause: "M8 5v14M16 5v14",
  play: "M7 4.5v15l12-7.5z",
  goal: "M12 21s-6.5-5.6-6.5-11a6.5 6.5 0 0 1 13 0c0 5.400-6.5 11-6.5 11zM12 12.200a2.200 2.200 0 1 0 0-4.400 2.200 2.200 0 0 0 0 4.400z",
  reset: "M4.500 12a7.500 7.500 0 1 0 2.400-5.500M4 4v4h4",
  map: "M3.500 6.500l5.500-2 6 2 5.500-2v13l-5.500 2-6-2-5.500 2zM9 4.500v13M15 6.500v13",
  follow: "M12 3v3M12 18v3M3 12h3M18 12h3M12 16.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9z",
  help: "M9.200 9a2.900 2.900 0 1 1 4.100 2.700c-.9.4-1.300 1-1.300 2M12 17.200v.1M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
};
const TAP = { pixels: 8, ms: 500 }; // a longer movement or press turns the view

const element = (id) => document.getElementById(id);

function icon(name) {
  return `<svg viewBox="0 0 24 24" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;
}

const keyNames = ({ keys }) => keys.map((key) => (key === " " ? "space" : key.toUpperCase()));

/* commands: [{name, label, keys, icon, run, pressed}] */
function addButtons(commands) {
  const bar = element("controls");
  for (const command of commands) {
    const button = document.createElement("button");
    button.id = `do-${command.name}`;
    button.title = `${command.label} (${keyNames(command).join(" or ")})`;
    button.setAttribute("aria-label", command.label);
    button.innerHTML = `${icon(command.icon)}<span>${command.label}</span>`;
    button.addEventListener("click", () => {
      command.run();
      element("view").focus({ preventScroll: true });
    });
    bar.append(button);
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || element("help").open) return;
    const command = commands.find(({ keys }) => keys.includes(event.key.toLowerCase()));
    if (!command || event.target instanceof HTMLButtonElement) return;
    event.preventDefault();
    command.run();
  });
  element("keys").innerHTML = commands
    .map((command) => `<tr><td><kbd>${keyNames(command).join("</kbd> <kbd>")}</kbd></td><td>${command.label}</td></tr>`)
    .join("");
}

function relabel(name, label, shape) {
  const button = element(`do-${name}`);
  button.innerHTML = `${icon(shape)}<span>${label}</span>`;
  button.setAttribute("aria-label", label);
}

function press(name, on) {
  element(`do-${name}`).setAttribute("aria-pressed", String(on));
}

/* Calls `act(x, y)` for clicks and taps, not for drags and pinches. */
function onTap(canvas, act) {
  let down = null;
  canvas.addEventListener("pointerdown", (e) => {
    down = e.isPrimary && e.button === 0 ? { x: e.clientX, y: e.clientY, time: e.timeStamp } : null;
  });
  canvas.addEventListener("pointerup", (e) => {
    if (!down || !e.isPrimary) return;
    const still = Math.hypot(e.clientX - down.x, e.clientY - down.y) < TAP.pixels && e.timeStamp - down.time < TAP.ms;
    down = null;
    if (still) act(e.clientX, e.clientY);
  });
  canvas.addEventListener("pointercancel", () => { down = null; });
}

let hiding = 0;

/* Words that go away by themselves. */
function say(text, seconds = 4) {
  const box = element("message");
  clearTimeout(hiding);
  box.textContent = text;
  box.hidden = !text;
  if (text) hiding = setTimeout(() => { box.hidden = true; }, 1000 * seconds);
}

function fail(text) {
  document.body.innerHTML = "";
  const box = document.createElement("p");
  box.className = "fault";
  box.textContent = text;
  document.body.append(box);
}
