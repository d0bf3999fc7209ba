"use strict";

// Tables: a click on a column's name sorts by it, a second one the other way round; empty cells stay last.
const sorted = {};
function sortTable(table, column, direction) {
  const key = (row) => row.cells[column].dataset.sort;
  const compare = (a, b) => {
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    const [x, y] = [Number(a), Number(b)];
    const order = Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
    return direction === "ascending" ? order : -order;
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
  [...table.tHead.rows[0].cells].forEach((cell, i) => cell.setAttribute("aria-sort", i === column ? direction : "none"));
  sorted[table.id] = [column, direction];
}
document.addEventListener("click", (event) => {
  const cell = event.target.closest("th[aria-sort]");
  if (!cell || !event.target.closest("button")) return;
  const direction = cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  sortTable(cell.closest("table"), cell.cellIndex, direction);
});

// Charts: the values at the cursor, by mouse, touch or arrow keys; without a cursor, those at the end.
const drawn = new WeakMap();
let active = null;
function chartOf(figure) {
  if (!drawn.has(figure)) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const stops = [...new Set(data.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    drawn.set(figure, { data, stops, at: stops.length - 1 });
  }
  return drawn.get(figure);
}
function shortNumber(value) {
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
}
function element(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}
function showValues(figure, at, cursor) {
  const chart = chartOf(figure);
  const { box, x, y, xlabel, lines } = chart.data;
  chart.at = Math.min(Math.max(at, 0), chart.stops.length - 1);
  const stop = chart.stops[chart.at];
  const px = (value) => box[0] + ((value - x[0]) / (x[1] - x[0])) * (box[2] - box[0]);
  const py = (value) => box[3] - ((value - y[0]) / (y[1] - y[0])) * (box[3] - box[1]);
  const marks = [element("line", { x1: px(stop), x2: px(stop), y1: box[1], y2: box[3] })];
  const keys = figure.querySelectorAll(".legend li");
  const spoken = lines.map((line, i) => {
    const next = line.x.findIndex((value) => value > stop);
    const point = next === -1 ? line.x.length - 1 : next - 1;
    const known = point >= 0 && (next !== -1 || line.x[point] === stop || !cursor);
    let words = "";
    if (known) {
      words = shortNumber(line.y[point]);
      const seeds = line.counts[point] === 1 ? "1 seed" : `${line.counts[point]} seeds`;
      const band = line.low[point] === null ? "" : `${shortNumber(line.low[point])} to ${shortNumber(line.high[point])}, `;
      words += ` (${band}${seeds})`;
      marks.push(element("circle", { cx: px(line.x[point]), cy: py(line.y[point]), r: 3.5 }));
    }
    keys[i].querySelector("output").textContent = words;
    return `${keys[i].querySelector("span").textContent} ${words || "no value"}`;
  });
  figure.querySelector(".at").textContent = cursor ? `At ${xlabel} ${stop.toLocaleString("en")}` : "At the end";
  figure.querySelector(".cursor").replaceChildren(...(cursor ? marks : []));
  const svg = figure.querySelector("svg");
  svg.setAttribute("aria-valuenow", stop);
  svg.setAttribute("aria-valuetext", `${xlabel} ${stop}: ${spoken.join("; ")}`);
}
function leave(figure) {
  if (figure && figure.isConnected) showValues(figure, Infinity, false);
}
function point(event) {
  const svg = event.target.closest?.(".chart > svg");
  const figure = svg?.parentElement ?? null;
  if (active !== figure) leave(active);
  active = figure;
  if (!figure) return;
  const { data, stops } = chartOf(figure);
  const area = svg.getBoundingClientRect();
  const share = (((event.clientX - area.left) / area.width) * svg.viewBox.baseVal.width - data.box[0]) / (data.box[2] - data.box[0]);
  const wanted = data.x[0] + share * (data.x[1] - data.x[0]);
  const distances = stops.map((stop) => Math.abs(stop - wanted));
  showValues(figure, distances.indexOf(Math.min(...distances)), true);
}
document.addEventListener("pointermove", point);
document.addEventListener("pointerdown", point);
document.addEventListener("keydown", (event) => {
  const figure = event.target.closest?.(".chart");
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  if (!figure || !(event.key in moves)) return;
  event.preventDefault();
  active = figure;
  showValues(figure, chartOf(figure).at + moves[event.key], true);
});

// A link to a run unfolds it.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
document.addEventListener("click", (event) => {
  if (event.target.closest("a")?.hash === location.hash) unfold();
});

// A served page follows the files, and keeps what the reader has set.
const focusable = () => [...document.querySelectorAll("a, button, summary, [tabindex]")];
async function follow() {
  const note = document.getElementById("live");
  try {
    const version = await (await fetch("/version", { cache: "no-store" })).text();
    const playing = [...document.querySelectorAll("video")].some((video) => !video.paused);
    if (version !== document.body.dataset.version && !playing) {
      const html = await (await fetch("/", { cache: "no-store" })).text();
      const page = new DOMParser().parseFromString(html, "text/html");
      const folds = Object.fromEntries([...document.querySelectorAll("main details")].map((d) => [d.dataset.key, d.open]));
      page.querySelectorAll("main details").forEach((d) => {
        if (d.dataset.key in folds) d.open = folds[d.dataset.key];
      });
      const [left, top, focus] = [window.scrollX, window.scrollY, focusable().indexOf(document.activeElement)];
      for (const name of ["header", "main"]) document.querySelector(name).replaceWith(page.querySelector(name));
      document.body.dataset.version = page.body.dataset.version;
      Object.entries(sorted).forEach(([id, how]) => sortTable(document.getElementById(id), ...how));
      document.querySelectorAll(".chart").forEach(leave);
      focusable()[focus]?.focus({ preventScroll: true });
      window.scrollTo({ left, top, behavior: "instant" });
    } else {
      note.textContent = "Live: this page follows the files.";
    }
  } catch {
    note.textContent = "No longer live: the server has ended. This is how things stood.";
  }
  setTimeout(follow, 2000);
}

document.querySelectorAll(".chart").forEach(leave);
unfold();
if (document.body.dataset.version) setTimeout(follow, 2000);
