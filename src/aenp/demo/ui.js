// What the line and the map share: workers, tabs, drawing, history.

"use strict";

const byId = (id) => document.getElementById(id);
const FACTS = JSON.parse(byId("facts").textContent);
const MINUS = "−";

/** A number as text, with a true minus sign, and none before zero. */
const told = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=0(\.0*)?$)/, "").replace("-", MINUS);

// Two workers, so that the full prediction and the equivariant part are computed at the same time

const WORKERS = [0, 1].map(() => {
  const url = URL.createObjectURL(new Blob([byId("worker").textContent], { type: "text/javascript" }));
  const worker = new Worker(url);
  const waiting = new Map();
  worker.onmessage = ({ data: { id, answer, error } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(new Error(error));
    else resolve(answer);
  };
  return { worker, waiting };
});
let requests = 0;

/** The answer of a worker, which computes one request after the other. */
function ask(kind, request, number = 0) {
  const { worker, waiting } = WORKERS[number];
  const id = requests++;
  worker.postMessage({ id, kind, request });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

const READY = Promise.all(
  WORKERS.map((_, n) => ask("load", { facts: FACTS.models, weights: byId("weights").textContent }, n)),
);

READY.catch(({ message }) => {
  const text = `This browser cannot run the models: ${message}`;
  for (const name of ["line-news", "map-news"]) byId(name).textContent = text;
});

/** The full prediction and the equivariant part. */
async function predictBoth(model, task) {
  await READY;
  const [full, part] = await Promise.all([true, false].map((fixed, n) => ask("predict", { model, task, fixed }, n)));
  return { full, part };
}

/** Runs a task at most once at a time: calls while it runs lead to one more run, which it can ask about. */
function newest(run) {
  let [running, again] = [null, false];
  const repeat = async () => {
    try {
      while (again) {
        again = false;
        await run(() => again);
      }
    } finally {
      running = null;
    }
  };
  return () => {
    again = true;
    return (running ??= repeat());
  };
}

// Drawing

function draw(parent, name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

const pathOf = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

// Observations that can be dragged, by pointer and by keyboard

const LONG_PRESS = 600;

/** Lets a marker be moved by `to(x, y)` in pixels of its plot or `by(dx, dy)` in steps, and be removed. */
function makeMovable(marker, plot, { start, to, by, remove }) {
  let press, moved;
  marker.addEventListener("pointerdown", (event) => {
    event.stopPropagation();
    marker.setPointerCapture(event.pointerId);
    moved = false;
    start();
    press = setTimeout(() => {
      if (moved) return;
      marker.dragged = null;
      remove();
    }, LONG_PRESS);
    marker.dragged = [event.clientX, event.clientY];
  });
  marker.addEventListener("pointermove", (event) => {
    if (!marker.dragged) return;
    const [x, y] = marker.dragged;
    moved ||= Math.hypot(event.clientX - x, event.clientY - y) > 4;
    const box = plot.getBoundingClientRect();
    if (moved) to(event.clientX - box.left, event.clientY - box.top);
  });
  // The style touch-action of a shape within an svg does not keep the page from scrolling.
  marker.addEventListener("touchmove", (event) => event.preventDefault(), { passive: false });
  for (const end of ["pointerup", "pointercancel"]) {
    marker.addEventListener(end, () => {
      clearTimeout(press);
      marker.dragged = null;
    });
  }
  marker.addEventListener("dblclick", remove);
  marker.addEventListener("click", (event) => event.stopPropagation());
  marker.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step && event.key !== "Delete" && event.key !== "Backspace") return;
    event.preventDefault();
    start();
    if (step) return by(...step.map((value) => value * (event.shiftKey ? 5 : 1)));
    const group = marker.parentNode;
    remove();
    if (!marker.isConnected) group.lastElementChild?.focus();
  });
}

/** Calls `run` for each click on a plot that did not begin on a marker, from which the pointer may have moved. */
function onClick(plot, run) {
  let onMarker = false;
  plot.addEventListener("pointerdown", ({ target }) => { onMarker = target.classList.contains("point"); }, true);
  plot.addEventListener("click", (event) => onMarker || run(event));
}

// Undo

/** States to go back to; `state()` returns a copy of the present one and `restore` takes one. */
function makeHistory(state, restore) {
  const states = [];
  return {
    remember() {
      const now = JSON.stringify(state());
      if (states.at(-1) !== now) states.push(now);
    },
    undo() {
      const now = JSON.stringify(state());
      while (states.at(-1) === now) states.pop();
      if (states.length) restore(JSON.parse(states.pop()));
    },
  };
}

/** Remembers the state before a slider is moved, once for the whole way. */
function rememberBefore(slider, history) {
  let still = true;
  slider.addEventListener("input", () => {
    if (still) history.remember();
    still = false;
  });
  slider.addEventListener("change", () => { still = true; });
}

// Tabs

const TABS = ["line", "map"];

function show(name) {
  for (const tab of TABS) {
    byId(tab).hidden = tab !== name;
    byId(`tab-${tab}`).setAttribute("aria-selected", tab === name);
    byId(`tab-${tab}`).tabIndex = tab === name ? 0 : -1;
  }
  window.dispatchEvent(new Event("resize"));
}

TABS.forEach((name, i) => {
  byId(`tab-${name}`).addEventListener("click", () => show(name));
  byId(`tab-${name}`).addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    show(TABS[1 - i]);
    byId(`tab-${TABS[1 - i]}`).focus();
  });
});
