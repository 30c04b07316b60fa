// The map: stations with temperatures in kelvin, in degrees from the middle of a region's south-western cell, so that
// another region is the same stations elsewhere.

"use strict";

const MAP = FACTS.map;
const TEMPERATURES = [[49, 54, 149], [116, 173, 209], [224, 243, 248], [254, 224, 144], [244, 109, 67], [165, 0, 38]];
const EFFECTS = [[33, 102, 172], [146, 197, 222], [247, 247, 247], [244, 165, 130], [178, 24, 43]];
const SPREADS = [[255, 255, 229], [161, 218, 180], [65, 182, 196], [34, 94, 168], [8, 29, 88]];
const HEIGHTS = [[222, 233, 240], [217, 215, 180], [176, 144, 96], [120, 82, 60], [250, 250, 250]];

const map = { region: 0, stations: [], selected: null, day: null };
const region = () => MAP.regions[map.region];
let field = null;

const mapHistory = makeHistory(
  () => ({ region: map.region, stations: map.stations, day: map.day }),
  (state) => {
    Object.assign(map, state, { selected: null });
    byId("map-region").value = map.region;
    offerDays();
    if (map.day) byId("map-day").value = map.day;
    changedMap();
  },
);

// The model

/** Places in degrees, as pairs of latitude and longitude, in the units of the model. */
const inUnits = (places) =>
  places.flatMap((place) => MAP.axes.map(({ unit, origin }, d) => (place[d] - origin) / unit));

/** The middles of blocks of `side` × `side` cells, row by row from the south-west. */
function cellsOf({ south, west, step, rows, columns }, side) {
  const [high, wide] = [Math.ceil(rows / side), Math.ceil(columns / side)];
  const offset = (i) => step * (side * i + (side - 1) / 2);
  const places = Array.from({ length: high * wide }, (_, i) => [
    south + offset(Math.floor(i / wide)),
    west + offset(i % wide),
  ]);
  return { rows: high, columns: wide, side, places };
}

const kelvin = ({ mean, sd }) => ({
  mean: Array.from(mean, (value) => MAP.mean + MAP.std * value),
  sd: Array.from(sd, (value) => MAP.spread * MAP.std * value),
});

/** Predicts blocks of two by two cells at once and then, if nothing has changed, every cell. */
const updateMap = newest(async (isOld) => {
  const here = region();
  const placed = map.stations.map(({ latitude, longitude }) => [here.south + latitude, here.west + longitude]);
  for (const side of [2, 1]) {
    if (side === 1 && isOld()) return;
    const start = performance.now();
    const cells = cellsOf(here, side);
    const y = map.stations.map(({ temperature }) => (temperature - MAP.mean) / MAP.std);
    const task = { x: inUnits(placed), y, xt: inUnits(cells.places) };
    const { full, part } = await predictBoth(MAP.model, task);
    field = { region: here, cells, full: kelvin(full), part: kelvin(part), milliseconds: performance.now() - start };
    drawMap();
  }
});

/** To be called after every change of the stations or of the region. */
function changedMap() {
  drawStations();
  return updateMap();
}

// Drawing

function colourOf(stops, share) {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  return stops[i].map((value, c) => Math.round(value + (at - i) * (stops[i + 1][c] - value)));
}

const css = (colour) => `rgb(${colour.join(",")})`;

function limitsOf(...arrays) {
  const values = arrays.flatMap((array) => Array.from(array).filter((value) => value !== null));
  return [Math.floor(Math.min(...values)), Math.ceil(Math.max(...values))];
}

/** What is on each sheet: title, values, colours, limits and unit. */
function sheets() {
  const { full, part, cells } = field;
  const truth = map.day ? dayValues() : [];
  const temperature = limitsOf(full.mean, part.mean, truth, map.stations.map((station) => station.temperature));
  const effect = full.mean.map((value, i) => value - part.mean[i]);
  const most = Math.max(2, Math.ceil(Math.max(...effect.map(Math.abs))));
  const each = [
    { title: "Full prediction", values: full.mean, stops: TEMPERATURES, limits: temperature },
    { title: "Equivariant part", values: part.mean, stops: TEMPERATURES, limits: temperature },
    { title: "Local effect: their difference", values: effect, stops: EFFECTS, limits: [-most, most] },
    { title: "Uncertainty: standard deviation", values: full.sd, stops: SPREADS, limits: [0, limitsOf(full.sd)[1]] },
  ].map((sheet) => ({ ...sheet, cells, unit: "K" }));
  const every = cellsOf(region(), 1);
  const { elevation } = region();
  if (elevation) {
    const limits = [0, 500 * Math.ceil(Math.max(...elevation) / 500)];
    const title = "Elevation, unknown to the model";
    each.push({ title, values: elevation, stops: HEIGHTS, limits, cells: every, unit: "m" });
  }
  if (map.day) {
    const title = `The truth, ${map.day} UTC`;
    each.push({ title, values: truth, stops: TEMPERATURES, limits: temperature, cells: every, unit: "K" });
  }
  return each;
}

const dayValues = () => region().days[map.day].map((value) => (value === null ? null : value / 10));

function drawMap() {
  if (!field || byId("map").hidden) return;
  const all = sheets();
  const panels = byId("map-panels");
  while (panels.childElementCount > all.length) panels.lastElementChild.remove();
  while (panels.childElementCount < all.length) panels.append(makePanel(panels.childElementCount === 0));
  all.forEach((sheet, i) => drawSheet(panels.children[i], sheet));
  drawStations();
  tellMap();
}

function makePanel(first) {
  const panel = document.createElement("figure");
  panel.className = "panel";
  panel.innerHTML = '<figcaption></figcaption><div class="sheet"><canvas></canvas></div>'
    + '<div class="scale"><span></span><i></i><span></span></div>';
  const sheet = panel.querySelector(".sheet");
  const label = first ? { id: "map-plot", role: "group", "aria-label": "Stations" } : { "aria-hidden": true };
  const overlay = draw(sheet, "svg", label);
  draw(overlay, "g", { class: "land" });
  draw(overlay, "g", { class: "stations" });
  if (first) onClick(overlay, addByClick);
  return panel;
}

function drawSheet(panel, { title, values, stops, limits: [low, high], unit, cells }) {
  panel.querySelector("figcaption").textContent = title;
  const [from, bar, to] = panel.querySelector(".scale").children;
  [from.textContent, to.textContent] = [low, high].map((value) => `${told(value, 0)} ${unit}`);
  bar.style.background = `linear-gradient(to right, ${stops.map(css).join(",")})`;
  const { rows, columns, step, south } = region();
  const middle = ((south + (step * rows) / 2) * Math.PI) / 180;
  panel.querySelector(".sheet").style.aspectRatio = (columns * Math.cos(middle)) / rows;
  const canvas = panel.querySelector("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${title}, ${told(low, 0)} to ${told(high, 0)} ${unit}`);
  paint(canvas, values, (value) => colourOf(stops, (value - low) / (high - low || 1)), cells);
  drawLand(panel.querySelector(".land"), panel.querySelector(".sheet"));
}

/** One pixel for each cell of the region, north at the top. */
function paint(canvas, values, colour, cells) {
  const { rows, columns } = region();
  Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let r = 0, k = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++, k += 4) {
      const [row, column] = [Math.floor((rows - 1 - r) / cells.side), Math.floor(c / cells.side)];
      const value = values[row * cells.columns + column];
      if (value !== null) image.data.set([...colour(value), 255], k);
    }
  }
  context.putImageData(image, 0, 0);
}

/** Pixels of a sheet, from degrees. */
function scaleOf(sheet) {
  const [{ rows, columns, step, south, west }, width, height] = [region(), sheet.clientWidth, sheet.clientHeight];
  return {
    x: (longitude) => ((longitude - west) / step + 0.5) * (width / columns),
    y: (latitude) => height - ((latitude - south) / step + 0.5) * (height / rows),
    longitude: (px) => west + ((px * columns) / width - 0.5) * step,
    latitude: (py) => south + (((height - py) * rows) / height - 0.5) * step,
  };
}

function drawLand(group, sheet) {
  const [{ cities, coasts, south, west, step, rows, columns }, at] = [region(), scaleOf(sheet)];
  group.replaceChildren();
  const [north, east] = [south + step * rows, west + step * columns];
  for (let latitude = 2 * Math.ceil(south / 2); latitude < north; latitude += 2) {
    draw(group, "path", { class: "graticule", d: `M0 ${at.y(latitude)}H${sheet.clientWidth}` });
    draw(group, "text", { x: 3, y: at.y(latitude) - 3 }, `${latitude}° N`);
  }
  for (let longitude = 2 * Math.ceil(west / 2); longitude < east; longitude += 2) {
    draw(group, "path", { class: "graticule", d: `M${at.x(longitude)} 0V${sheet.clientHeight}` });
  }
  draw(group, "path", { class: "coast", d: coasts.map((coast) => pathOf(pixels(coast, at))).join("") });
  drawFrame(group, at);
  if (group.parentNode.id !== "map-plot") return;
  for (const [name, [latitude, longitude]] of Object.entries(cities)) {
    draw(group, "circle", { class: "city", r: 2, cx: at.x(longitude), cy: at.y(latitude) });
    draw(group, "text", { x: at.x(longitude) + 5, y: at.y(latitude) + 10 }, name);
  }
}

/** The region in which the model knows places, where it is on the map. */
function drawFrame(group, at) {
  const [[south, north], [west, east]] = FACTS.models[MAP.model].domain.map((sides, d) =>
    sides.map((value) => value * MAP.axes[d].unit + MAP.axes[d].origin));
  const [x, y] = [at.x(west) + 1, at.y(north) + 1];
  draw(group, "rect", { class: "frame", x, y, width: at.x(east) - x - 1, height: at.y(south) - y - 1 });
}

/** The pixels of a line of latitudes and longitudes in hundredths of a degree. */
const pixels = (coast, at) =>
  Array.from({ length: coast.length / 2 }, (_, i) => [at.x(coast[2 * i + 1] / 100), at.y(coast[2 * i] / 100)]);

function drawStations() {
  const panels = byId("map-panels");
  if (!panels.childElementCount) return;
  drawMarkers(panels.firstElementChild);
  for (const panel of Array.from(panels.children).slice(1, 3)) {
    const [group, at] = [panel.querySelector(".stations"), scaleOf(panel.querySelector(".sheet"))];
    group.replaceChildren();
    for (const { latitude, longitude } of map.stations) {
      draw(group, "circle", { class: "city", r: 2.5, ...centre(at, latitude, longitude) });
    }
  }
  tellTemperature();
}

const centre = (at, latitude, longitude) => ({
  cx: at.x(region().west + longitude),
  cy: at.y(region().south + latitude),
});

/** The markers that can be moved, which are kept from one drawing to the next, so that they keep the focus. */
function drawMarkers(panel) {
  const [group, at] = [panel.querySelector(".stations"), scaleOf(panel.querySelector(".sheet"))];
  while (group.childElementCount > map.stations.length) group.lastElementChild.remove();
  while (group.childElementCount < map.stations.length) addStationMarker(group, group.childElementCount);
  const [low, high] = field ? sheets()[0].limits : [260, 310];
  map.stations.forEach(({ latitude, longitude, temperature }, i) => {
    const marker = group.children[i];
    for (const [key, value] of Object.entries(centre(at, latitude, longitude))) marker.setAttribute(key, value);
    marker.setAttribute("aria-pressed", i === map.selected);
    marker.style.fill = css(colourOf(TEMPERATURES, (temperature - low) / (high - low || 1)));
    const where = `${told(region().south + latitude)}° N, ${told(region().west + longitude)}° E`;
    const what = `Station ${i + 1} at ${where}: ${told(temperature, 1)} K`;
    marker.setAttribute("aria-label", `${what}; arrow keys move it, Delete removes it`);
  });
}

function addStationMarker(group, i) {
  const marker = draw(group, "circle", { class: "point", r: 6.5, tabindex: 0, role: "button" });
  const place = (latitude, longitude) => {
    const { rows, columns, step } = region();
    const within = (value, count) => Math.min(Math.max(value, -step / 2), step * (count - 0.5));
    Object.assign(map.stations[i], { latitude: within(latitude, rows), longitude: within(longitude, columns) });
    map.day = null;
    changedMap();
  };
  makeMovable(marker, byId("map-plot"), {
    start() {
      mapHistory.remember();
      select(i);
    },
    to(px, py) {
      const at = scaleOf(group.parentNode.parentNode);
      place(at.latitude(py) - region().south, at.longitude(px) - region().west);
    },
    by(dx, dy) {
      const { latitude, longitude } = map.stations[i];
      place(latitude + dy * region().step, longitude + dx * region().step);
    },
    remove() {
      if (!map.stations[i]) return;
      map.stations.splice(i, 1);
      Object.assign(map, { selected: null, day: null });
      changedMap();
    },
  });
  marker.addEventListener("focus", () => select(i));
}

// Words

const inCelsius = (temperature) => `${told(temperature, 1)} K (${told(temperature - 273.15, 1)} °C)`;

function tellTemperature() {
  const slider = byId("map-temperature");
  if (map.selected !== null) slider.value = map.stations[map.selected].temperature;
  byId("map-which").textContent = map.selected === null ? "new stations" : `station ${map.selected + 1}`;
  byId("map-temperature-out").textContent = inCelsius(Number(slider.value));
}

function tellMap() {
  const { full, part, milliseconds } = field;
  const most = Math.max(...full.mean.map((value, i) => Math.abs(value - part.mean[i])));
  const count = `${map.stations.length} station${map.stations.length === 1 ? "" : "s"}`;
  const summary = `${count}; the largest local effect is ${told(most, 1)} K.`;
  const errors = map.day && field.cells.side === 1 ? ` ${tellErrors()}` : "";
  byId("map-status").textContent = `${summary}${errors} Computed in ${milliseconds.toFixed(0)} ms.`;
}

/** Root mean squared errors in the cells of the day that are not shown to the model. */
function tellErrors() {
  const truth = dayValues();
  const seen = new Set(map.stations.map(({ latitude, longitude }) => cellNumber(latitude, longitude)));
  const error = ({ mean }) => {
    const squares = truth.flatMap((value, i) => (value === null || seen.has(i) ? [] : [(mean[i] - value) ** 2]));
    return told(Math.sqrt(squares.reduce((a, b) => a + b) / squares.length));
  };
  return `Error in the other cells: full prediction ${error(field.full)} K, equivariant part ${error(field.part)} K.`;
}

function cellNumber(latitude, longitude) {
  return Math.round(latitude / region().step) * region().columns + Math.round(longitude / region().step);
}

// Controls

function select(i) {
  map.selected = i;
  drawStations();
}

function addStation(latitude, longitude) {
  mapHistory.remember();
  map.stations.push({ latitude, longitude, temperature: Number(byId("map-temperature").value) });
  Object.assign(map, { selected: map.stations.length - 1, day: null });
  return changedMap();
}

function addByClick({ clientX, clientY, currentTarget }) {
  const [box, at] = [currentTarget.getBoundingClientRect(), scaleOf(currentTarget.parentNode)];
  addStation(at.latitude(clientY - box.top) - region().south, at.longitude(clientX - box.left) - region().west);
}

async function addStationByButton() {
  const { rows, columns, step } = region();
  await addStation(step * Math.floor(rows * Math.random()), step * Math.floor(columns * Math.random()));
  byId("map-plot").querySelector(".stations").lastElementChild?.focus();
}

function clearMap() {
  mapHistory.remember();
  Object.assign(map, { stations: [], selected: null, day: null });
  changedMap();
}

function setTemperature({ target }) {
  if (map.selected !== null) {
    map.stations[map.selected].temperature = Number(target.value);
    map.day = null;
  }
  changedMap();
}

function setRegion({ target }) {
  mapHistory.remember();
  Object.assign(map, { region: Number(target.value), day: null });
  offerDays();
  changedMap();
}

function offerDays() {
  const days = Object.keys(region().days);
  byId("map-days").hidden = days.length === 0;
  byId("map-day").replaceChildren(...days.map((day) => new Option(day, day)));
}

/** The values in a random order, every one as likely as another. */
function shuffled(values) {
  const mixed = [...values];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = Math.floor((i + 1) * Math.random());
    [mixed[i], mixed[j]] = [mixed[j], mixed[i]];
  }
  return mixed;
}

/** Makes some cells of a real day the stations. */
function loadDay() {
  mapHistory.remember();
  Object.assign(map, { day: byId("map-day").value, selected: null });
  const values = dayValues();
  const known = shuffled([...values.keys()].filter((i) => values[i] !== null));
  const { columns, step } = region();
  map.stations = known.slice(0, Number(byId("map-cells").value)).map((i) => ({
    latitude: step * Math.floor(i / columns),
    longitude: step * (i % columns),
    temperature: values[i],
  }));
  changedMap();
}

function startMap() {
  byId("map-region").replaceChildren(...MAP.regions.map(({ name }, i) => new Option(name, i)));
  byId("map-region").addEventListener("change", setRegion);
  rememberBefore(byId("map-temperature"), mapHistory);
  byId("map-temperature").addEventListener("input", setTemperature);
  const tellCells = () => { byId("map-cells-out").textContent = byId("map-cells").value; };
  byId("map-cells").addEventListener("input", tellCells);
  const clicks = { add: addStationByButton, undo: mapHistory.undo, clear: clearMap, load: loadDay };
  for (const [name, run] of Object.entries(clicks)) byId(`map-${name}`).addEventListener("click", run);
  new ResizeObserver(drawMap).observe(byId("map"));
  const stations = [[44.4, 8.9, 297], [45.5, 9.2, 300], [45.4, 12.3, 298], [41.9, 12.5, 301], [40.9, 14.3, 299]];
  map.stations = stations.map(([latitude, longitude, temperature]) => ({
    latitude: latitude - region().south,
    longitude: longitude - region().west,
    temperature,
  }));
  tellCells();
  offerDays();
  changedMap();
}

startMap();
