// The line: observations in a window that moves with them. Positions of points are relative to the window's middle.

"use strict";

const SOURCE = FACTS.source;
const HALF = 4;
const TOP = 3.2;
const DIFFERENCE = 1.5;
const BAND = 1.6449;
const range = (count, low, high) => Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
const within = (value, most) => Math.min(Math.max(value, -most), most);
const TARGETS = range(161, -HALF, HALF);
const REACH = SOURCE.width / 2 + SOURCE.margin;
const FINE = range(1 + 80 * REACH, -REACH, REACH);
const MEASUREMENTS = 5;
const FIRST = [
  [-2.7, 1.1], [-2.2, -0.8], [-1.6, 0.9], [-1.2, -1.2], [-0.5, 0.6], [0.4, -0.9], [1.1, -0.7], [1.8, -0.8], [2.5, -0.5],
];

const line = { points: [], shift: 0, truth: null, game: null, samples: [] };
let latest = null;

const lineHistory = makeHistory(
  () => ({ points: line.points, shift: line.shift, truth: line.truth }),
  (state) => {
    Object.assign(line, state, { game: null, samples: [] });
    byId("line-shift").value = line.shift;
    changed();
  },
);

// The model

const CURVES = {
  full: { label: "full prediction", visible: () => true },
  part: { label: "equivariant part", visible: () => true },
  bayes: { label: "Bayes-optimal", visible: () => byId("line-bayes").checked },
  oracle: { label: "best equivariant", visible: () => byId("line-oracle").checked },
};

const lineTask = (points = line.points) => ({
  x: points.map(({ x }) => x + line.shift),
  y: points.map(({ y }) => y),
  xt: TARGETS.map((x) => x + line.shift),
});

const updateLine = newest(async () => {
  const start = performance.now();
  const [task, { shift, truth }] = [lineTask(), line];
  const predictions = await predictBoth(byId("line-model").value, task);
  predictions.milliseconds = performance.now() - start;
  const oracles = ["bayes", "oracle"].filter((which) => CURVES[which].visible());
  const request = { source: SOURCE, task, truth: truth?.noisy };
  const answers = await Promise.all(oracles.map((which, n) => ask("oracle", { which, ...request }, n)));
  oracles.forEach((which, i) => { predictions[which] = answers[i]; });
  latest = { ...predictions, shift, truth };
  drawLine();
});

/** To be called after every change of the observations or of what is shown. */
function changed() {
  line.samples = [];
  drawPoints();
  return updateLine();
}

/** Mean log-likelihood of the truth's noisy values. */
function score(prediction, truth) {
  const each = prediction.logDensities
    ?? truth.noisy.map((y, i) => (y === null ? null : logDensity(prediction.mean[i], prediction.sd[i], y)));
  const counted = each.filter((value) => value !== null);
  return counted.reduce((a, b) => a + b) / counted.length;
}

// Drawing

function layout() {
  const width = Math.max(byId("line-plot").clientWidth, 280);
  const main = Math.min(Math.max(0.45 * width, 240), 400);
  const [left, right, top, below] = [38, 12, 14, 110];
  const at = {
    width, main, left, right, top, below,
    height: top + main + 30 + below + 30,
    x: (x) => left + ((x + HALF) / (2 * HALF)) * (width - left - right),
    y: (y) => top + ((TOP - y) / (2 * TOP)) * main,
    d: (d) => top + main + 30 + ((DIFFERENCE - within(d, DIFFERENCE)) / (2 * DIFFERENCE)) * below,
  };
  at.toX = (px) => within(((px - left) / (width - left - right)) * 2 * HALF - HALF, HALF);
  at.toY = (py) => within(TOP - ((py - top) / main) * 2 * TOP, TOP);
  return at;
}

function drawLine() {
  if (!latest || byId("line").hidden) return;
  const [plot, at] = [byId("line-plot"), layout()];
  const back = document.createElementNS("http://www.w3.org/2000/svg", "g");
  drawAxes(back, at);
  drawCurves(back, at);
  plot.querySelector(".back")?.remove();
  back.setAttribute("class", "back");
  plot.prepend(back);
  drawPoints();
  tellLine();
}

function drawAxes(back, at) {
  if (byId("line-domain").checked) drawDomain(back, at);
  for (let x = Math.ceil(latest.shift - HALF); x <= latest.shift + HALF; x++) {
    const px = at.x(x - latest.shift);
    draw(back, "path", { class: "grid", d: `M${px} ${at.top}V${at.height - 30}` });
    draw(back, "text", { x: px, y: at.height - 12, "text-anchor": "middle" }, told(x, 0));
  }
  const rows = [...[-2, 0, 2].map((y) => [at.y(y), y]), ...[-1, 0, 1].map((d) => [at.d(d), d])];
  for (const [py, value] of rows) {
    draw(back, "path", { class: "grid", d: `M${at.left} ${py}H${at.width - at.right}` });
    draw(back, "text", { x: at.left - 8, y: py + 4, "text-anchor": "end" }, told(value, 0));
  }
  const top = at.d(DIFFERENCE);
  draw(back, "text", { x: at.left + 4, y: top + 2, class: "title" }, "difference of the means");
  const change = at.x(-latest.shift);
  if (byId("line-change").checked && Math.abs(latest.shift) <= HALF) {
    draw(back, "path", { class: "change", d: `M${change} ${at.top}V${at.height - 30}` });
  }
}

function drawDomain(back, at) {
  const { domain } = FACTS.models[byId("line-model").value];
  const [low, high] = domain[0].map((x) => within(x - latest.shift, HALF));
  if (high <= low) return;
  const box = { x: at.x(low), y: at.top, width: at.x(high) - at.x(low), height: at.height - 30 - at.top };
  draw(back, "rect", { class: "known", ...box });
}

function drawCurves(back, at) {
  const curve = (values) => pathOf(TARGETS.map((x, i) => [at.x(x), at.y(values[i])]));
  const edge = ({ mean, sd }, sign) => Array.from(mean, (value, i) => value + sign * BAND * sd[i]);
  for (const which of ["part", "full"]) {
    const low = edge(latest[which], -1);
    const lower = TARGETS.map((x, i) => [at.x(x), at.y(low[i])]).reverse();
    const d = `${curve(edge(latest[which], 1))}${pathOf(lower).replace("M", "L")}Z`;
    draw(back, "path", { class: `band-${which}`, d });
  }
  for (const sample of line.samples) draw(back, "path", { class: "sample", d: curve(sample) });
  for (const which of Object.keys(CURVES).filter((name) => latest[name] && CURVES[name].visible())) {
    draw(back, "path", { class: which, d: curve(latest[which].mean) });
    if (which === "full" || which === "part") continue;
    for (const sign of [-1, 1]) draw(back, "path", { class: `${which} thin`, d: curve(edge(latest[which], sign)) });
  }
  if (line.truth && byId("line-truth").checked) {
    draw(back, "path", { class: "truth", d: pathOf(FINE.map((x, i) => [at.x(x), at.y(line.truth.values[i])])) });
  }
  drawDifference(back, at);
}

function drawDifference(back, at) {
  const difference = TARGETS.map((x, i) => [at.x(x), at.d(latest.full.mean[i] - latest.part.mean[i])]);
  const base = `L${at.x(HALF)} ${at.d(0)}L${at.x(-HALF)} ${at.d(0)}Z`;
  draw(back, "path", { class: "difference", d: pathOf(difference) + base });
  draw(back, "path", { class: "apart", d: pathOf(difference) });
}

/** The markers, which are kept from one drawing to the next, so that they keep the focus. */
function drawPoints() {
  const [plot, at] = [byId("line-plot"), layout()];
  plot.style.height = `${at.height}px`;
  const group = plot.querySelector(".points") ?? draw(plot, "g", { class: "points" });
  while (group.childElementCount > line.points.length) group.lastElementChild.remove();
  while (group.childElementCount < line.points.length) addMarker(group, group.childElementCount);
  line.points.forEach(({ x, y }, i) => {
    const marker = group.children[i];
    marker.setAttribute("cx", at.x(x));
    marker.setAttribute("cy", at.y(y));
    const where = `x ${told(x + line.shift)}, y ${told(y)}`;
    marker.setAttribute("aria-label", `Observation ${i + 1} at ${where}; arrow keys move it, Delete removes it`);
  });
}

function addMarker(group, i) {
  const marker = draw(group, "circle", { class: "point", r: 7, tabindex: 0, role: "button" });
  const place = (x, y) => {
    if (line.game) return;
    Object.assign(line.points[i], { x, y });
    changed();
  };
  makeMovable(marker, byId("line-plot"), {
    start: () => lineHistory.remember(),
    to: (px, py) => place(layout().toX(px), layout().toY(py)),
    by(dx, dy) {
      const { x, y } = line.points[i];
      place(within(x + dx * 0.05, HALF), within(y + dy * 0.1, TOP));
    },
    remove() {
      if (line.game || !line.points[i]) return;
      line.points.splice(i, 1);
      changed();
    },
  });
}

function tellLine() {
  byId("line-shift-out").textContent = `${line.shift >= 0 ? "+" : ""}${told(line.shift)}`;
  const apart = Array.from(latest.full.mean, (value, i) => Math.abs(value - latest.part.mean[i]));
  const most = apart.indexOf(Math.max(...apart));
  const count = `${line.points.length} observation${line.points.length === 1 ? "" : "s"}`;
  const where = `the means differ most at x = ${told(TARGETS[most] + latest.shift)}, by ${told(apart[most])}`;
  byId("line-status").textContent = `${count}; ${where}. Computed in ${latest.milliseconds.toFixed(0)} ms.`;
  byId("line-truth").disabled = !line.truth || Boolean(line.game);
  byId("line-shift").disabled = Boolean(line.game);
  drawLegend();
  tellScores();
}

const LEGEND = {
  ...CURVES,
  sample: { label: "samples", visible: () => line.samples.length > 0 },
  truth: { label: "hidden truth", visible: () => line.truth && byId("line-truth").checked },
};

function drawLegend() {
  const items = Object.entries(LEGEND).filter(([, { visible }]) => visible());
  byId("line-legend").replaceChildren(...items.map(([name, { label }]) => {
    const item = document.createElement("span");
    draw(draw(item, "svg", { viewBox: "0 0 28 10", "aria-hidden": true }), "path", { class: name, d: "M1 5H27" });
    item.append(label);
    return item;
  }));
}

function tellScores() {
  const { truth, shift } = latest;
  byId("line-scores").hidden = !truth;
  if (!truth) return;
  const shown = Object.entries(CURVES).filter(([name, { visible }]) => visible() && latest[name]);
  byId("line-scores").tBodies[0].replaceChildren(...shown.map(([name, { label }]) => {
    const row = document.createElement("tr");
    const title = row.appendChild(document.createElement("th"));
    title.textContent = label;
    title.scope = "row";
    row.insertCell().textContent = told(score(latest[name], truth), 3);
    return row;
  }));
  const moved = Math.abs(shift - truth.centre) > 1e-9;
  byId("line-scores").caption.textContent = "Mean log-likelihood of the hidden truth (higher is better)"
    + (moved ? ": moved along with the points, it no longer changes at zero" : "");
}

// Tasks and samples

/** A function of the world around `centre`, hidden from the models, and noisy values of it at the targets. */
async function drawTruth(centre) {
  const values = await ask("draw", { source: SOURCE, x: FINE.map((x) => x + centre) });
  const truth = { centre, values: Array.from(values) };
  truth.noisy = TARGETS.map((x) => (Math.abs(x) > REACH ? null : measured(truth, x)));
  return truth;
}

/** The truth at a place, with noise. */
function measured(truth, x) {
  const position = Math.min(Math.max(((x + REACH) / (2 * REACH)) * (FINE.length - 1), 0), FINE.length - 1.001);
  const [i, rest] = [Math.floor(position), position % 1];
  return (1 - rest) * truth.values[i] + rest * truth.values[i + 1] + SOURCE.noise * normal();
}

const anywhere = (half) => half * (2 * Math.random() - 1);

/** Starts from a new truth around `centre` with `count` observations of it; false if something else began meanwhile. */
async function newTask(centre, count) {
  lineHistory.remember();
  const beginning = begin();
  const truth = await drawTruth(centre);
  if (beginning !== beginnings) return false;
  const places = Array.from({ length: count }, () => anywhere(SOURCE.width / 2));
  const points = places.map((x) => ({ x, y: measured(truth, x) }));
  Object.assign(line, { points, shift: centre, truth });
  byId("line-shift").value = centre;
  return true;
}

async function randomTask() {
  if (await newTask(Math.round(20 * anywhere(HALF)) / 20, 3 + Math.floor(18 * Math.random()))) await changed();
}

async function drawSamples() {
  const request = { model: byId("line-model").value, task: lineTask(), count: 2, fixed: true };
  const before = line.samples;
  const drawn = await Promise.all([0, 1].map((n) => ask("samples", request, n)));
  if (line.samples !== before) return; // the observations have changed
  line.samples = drawn.flat();
  drawLine();
}

// The game: five measurements of a hidden truth, against a rival that measures where the model is least certain

async function startGame() {
  if (!(await newTask(Math.round(20 * anywhere(2)) / 20, 2))) return;
  line.game = { truth: line.truth, start: line.points.slice(), left: MEASUREMENTS };
  byId("line-truth").checked = false;
  tellGame(`The truth is hidden. You have ${MEASUREMENTS} measurements: click where one would tell most.`);
  await changed();
}

const tellGame = (text) => { byId("line-news").textContent = text; };

let beginnings = 0;

/** Ends the game and whatever waits for a new truth; returns the number of what begins now. */
function begin() {
  line.game = null;
  tellGame("");
  return ++beginnings;
}

async function measure(x) {
  const { game } = line;
  if (game.left === 0) return;
  const left = --game.left;
  line.points.push({ x, y: measured(game.truth, x) });
  await changed();
  if (line.game !== game) return;
  if (left) {
    const rest = `${left} measurement${left === 1 ? "" : "s"} left`;
    tellGame(`${rest}. Mean log-likelihood of the truth now: ${gameScore()}.`);
    return;
  }
  const [mine, rival] = [gameScore(), await playRival(game)];
  if (line.game !== game) return;
  line.game = null;
  byId("line-truth").checked = true;
  tellGame(`Your measurements: log-likelihood ${mine}. Measuring where the model is least certain: ${told(rival, 3)}.`);
  drawLine();
}

const gameScore = () => told(score(latest.full, line.truth), 3);

async function playRival({ truth, start }) {
  const model = byId("line-model").value;
  const points = start.slice();
  const look = () => ask("predict", { model, fixed: true, task: lineTask(points) });
  for (let i = 0; i < MEASUREMENTS; i++) {
    const { sd } = await look();
    const open = Array.from(sd, (value, n) => (truth.noisy[n] === null ? 0 : value));
    const x = TARGETS[open.indexOf(Math.max(...open))];
    points.push({ x, y: measured(truth, x) });
  }
  return score(await look(), truth);
}

// Controls

async function addPoint(x, y) {
  if (line.game) return measure(within(x, REACH));
  lineHistory.remember();
  line.points.push({ x, y });
  return changed();
}

async function addByButton() {
  const x = line.points.length ? anywhere(3) : 0;
  await addPoint(x, latest ? latest.full.mean[Math.round(((x + HALF) / (2 * HALF)) * (TARGETS.length - 1))] : 0);
  byId("line-plot").querySelector(".points").lastElementChild?.focus();
}

function clearLine() {
  lineHistory.remember();
  begin();
  Object.assign(line, { points: [], truth: null });
  changed();
}

function startLine() {
  byId("line-model").replaceChildren(...FACTS.line.map((name) => new Option(name, name)));
  onClick(byId("line-plot"), ({ clientX, clientY }) => {
    const [box, at] = [byId("line-plot").getBoundingClientRect(), layout()];
    if (clientY - box.top < at.top + at.main + 15) addPoint(at.toX(clientX - box.left), at.toY(clientY - box.top));
  });
  rememberBefore(byId("line-shift"), lineHistory);
  byId("line-shift").addEventListener("input", ({ target }) => {
    line.shift = Number(target.value);
    changed();
  });
  const clicks = { add: addByButton, undo: () => { begin(); lineHistory.undo(); }, clear: clearLine,
    random: randomTask, samples: drawSamples, game: startGame };
  for (const [name, run] of Object.entries(clicks)) byId(`line-${name}`).addEventListener("click", run);
  for (const name of ["model", "bayes", "oracle"]) byId(`line-${name}`).addEventListener("change", changed);
  for (const name of ["domain", "change", "truth"]) byId(`line-${name}`).addEventListener("change", drawLine);
  new ResizeObserver(drawLine).observe(byId("line"));
  line.points = FIRST.map(([x, y]) => ({ x, y }));
  changed();
}

startLine();
