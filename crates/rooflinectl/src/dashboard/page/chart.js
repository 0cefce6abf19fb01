/**
 * The frame of every chart: title, drawing, tooltip for pointer and keyboard, the same figures as a table, and files to keep.
 *
 * A chart is drawn by a function that is called with its width whenever that changes. It returns the items that can be pointed at:
 * `{ node, x, y, title, rows: [[name, value]…], distance }`. All of them together are one stop of the Tab key; the arrow keys move
 * between them, up and down by rows where the items have a place in a grid, `{ row, column }`.
 */
import { h, fill, table } from "./dom.js";
import { csvText, pngBlob, save, svgText } from "./export.js";
import { simulated } from "./daemon.js";

const REACH_PX = 26;
const charts = new Set();

/** Draws every chart again that is on the page, as when the theme changed. */
export const redrawAll = () => charts.forEach((chart) => chart.redraw());

/**
 * `columns` of the table and the CSV file are `{ key, label, value(row), show(row), number }`: `key` with its unit heads the file,
 * `value` is the bare number, `show` what people read.
 */
export function createChart({ name, title, help, height, columns, minimumWidth = 0 }) {
  const svg = d3.create("svg").attr("role", "group").attr("aria-label", `${title}. Arrow keys move between its points.`);
  const tip = h("div", { class: "tip", hidden: true });
  const canvas = h("div", { class: "canvas" }, svg.node(), tip);
  const tableSlot = h("div");
  const details = h("details", { ontoggle: () => listRows() }, h("summary", {}, "Data as a table"), tableSlot);
  const file = (extension) => `rooflined-${name}${simulated() ? "-SIMULATED" : ""}.${extension}`;
  const fullTitle = () => simulated() ? `${title} (simulated board: no value describes hardware)` : title;
  const button = (label, what, run) => h("button", { type: "button", class: "quiet", onclick: run, "aria-label": `Save ${title} as ${what}` }, label);
  const files = h("div", { class: "files" },
    button("SVG", "SVG picture", () => save(file("svg"), svgText(svg.node(), fullTitle()), "image/svg+xml")),
    button("PNG", "PNG picture", async () => save(file("png"), await pngBlob(svg.node(), fullTitle()))),
    button("CSV", "CSV data", () => save(file("csv"), csvText(columns, rows), "text/csv")));
  const heading = h("figcaption", {}, h("h2", {}, title), help && h("p", { class: "help" }, help));
  const element = h("figure", { class: "chart", "data-chart": name }, h("div", { class: "chart-head" }, heading, files), canvas, details);

  let painter = null;
  let items = [];
  let rows = [];
  let focused = 0;
  let pointer = null;
  let drawnWidth = 0;

  function listRows() {
    if (!details.open) return;
    fill(tableSlot, table(title, columns.map((column) => ({
      label: column.label, number: column.number, head: column === columns[0], cell: (row) => (column.show ?? column.value)(row),
    })), rows));
  }

  function redraw() {
    if (!painter || !canvas.isConnected || canvas.clientWidth === 0) return;
    const width = Math.max(Math.floor(canvas.clientWidth), minimumWidth);
    drawnWidth = canvas.clientWidth;
    const before = items[focused];
    const hadFocus = before?.node === document.activeElement;
    const tall = typeof height === "function" ? height(width) : height;
    hide();
    svg.selectAll("*").remove();
    svg.attr("viewBox", `0 0 ${width} ${tall}`).attr("width", width).attr("height", tall);
    items = painter(svg, width, tall) ?? [];
    // Drawn into the picture, so that it is there wherever the picture goes.
    if (simulated()) svg.append("text").attr("class", "simulated").attr("aria-hidden", "true").attr("x", 2).attr("y", svg.node().viewBox.baseVal.height - 5).text("SIMULATED");
    // New points move the others on: the one that was looked at is found by its name.
    const same = items[focused]?.title === before?.title ? focused : items.findIndex(({ title: other }) => other === before?.title);
    focused = same >= 0 ? same : Math.min(focused, Math.max(0, items.length - 1));
    items.forEach((item, index) => {
      item.node.setAttribute("tabindex", index === focused ? "0" : "-1");
      item.node.setAttribute("role", "img");
      item.node.setAttribute("aria-label", [item.title, ...item.rows.map(([key, value]) => `${key} ${value}`)].join(", "));
      item.node.classList.add("item");
      item.node.addEventListener("focus", () => { focused = index; stops(); show(item); });
      item.node.addEventListener("blur", hide);
    });
    if (hadFocus) items[focused]?.node.focus({ preventScroll: true });
    if (pointer) point();
  }

  const stops = () => items.forEach((item, index) => item.node.setAttribute("tabindex", index === focused ? "0" : "-1"));

  function show(item) {
    fill(tip, h("strong", {}, item.title), h("dl", {}, item.rows.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])));
    tip.hidden = false;
    const scale = svg.node().getBoundingClientRect().width / svg.node().viewBox.baseVal.width || 1;
    const x = item.x * scale - canvas.scrollLeft;
    const left = x + tip.offsetWidth + 16 < canvas.clientWidth ? x + 12 : Math.max(0, Math.min(x - tip.offsetWidth - 12, canvas.clientWidth - tip.offsetWidth));
    tip.style.left = `${left + canvas.scrollLeft}px`;
    tip.style.top = `${Math.max(0, Math.min(item.y * scale + 12, canvas.clientHeight - tip.offsetHeight))}px`;
    items.forEach((other) => other.node.classList.toggle("shown", other === item));
  }

  function hide() {
    tip.hidden = true;
    items.forEach((item) => item.node.classList.remove("shown"));
  }

  function point() {
    const box = svg.node().getBoundingClientRect();
    const scale = box.width / svg.node().viewBox.baseVal.width || 1;
    const [x, y] = [(pointer.clientX - box.left) / scale, (pointer.clientY - box.top) / scale];
    const distance = (item) => item.distance ? item.distance(x, y) : Math.hypot(item.x - x, item.y - y);
    const nearest = d3.least(items, distance);
    if (nearest && distance(nearest) <= REACH_PX) show(nearest.follow ? { ...nearest, ...nearest.follow(x, y) } : nearest);
    else hide();
  }

  canvas.addEventListener("pointermove", (event) => {
    pointer = event;
    point();
  });
  canvas.addEventListener("pointerleave", () => {
    pointer = null;
    hide();
  });
  svg.on("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (items.length === 0 || !(step || event.key === "Home" || event.key === "End")) return;
    event.preventDefault();
    focused = event.key === "Home" ? 0 : event.key === "End" ? items.length - 1 : next(event.key, step);
    stops();
    items[focused].node.focus();
  });
  function next(key, step) {
    const { row, column } = items[focused];
    if (row === undefined || !["ArrowDown", "ArrowUp"].includes(key)) return (focused + step + items.length) % items.length;
    const there = items.findIndex((item) => item.row === row + step && item.column === column);
    return there < 0 ? focused : there;
  }

  new ResizeObserver(() => { if (Math.abs(canvas.clientWidth - drawnWidth) > 1) redraw(); }).observe(canvas);

  const chart = {
    element,
    redraw,
    /** Draws with `paint(svg, width, height)` from now on, and lists `data` in the table and the CSV file. */
    update(paint, data) {
      painter = paint;
      rows = data;
      charts.add(chart);
      redraw();
      listRows();
    },
  };
  return chart;
}

/** Axes of a chart with logarithmic scales, with a faint line at every tick. */
export function axes(svg, { x, y, width, height, margin, xLabel, yLabel, xTicks, yTicks, xFormat, yFormat }) {
  const inner = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const horizontal = svg.append("g").attr("class", "axis").attr("aria-hidden", "true");
  horizontal.selectAll("line").data(xTicks).join("line").attr("x1", x).attr("x2", x).attr("y1", inner.top).attr("y2", inner.bottom);
  horizontal.selectAll("text").data(xTicks).join("text").attr("x", x).attr("y", inner.bottom + 17).attr("text-anchor", "middle").text(xFormat);
  // In a narrow chart it leaves the corner to the word that the board is simulated.
  const end = Math.min(width, Math.max(inner.right, 80 + xLabel.length * 6.4));
  horizontal.append("text").attr("class", "name").attr("x", end).attr("y", height - 6).attr("text-anchor", "end").text(xLabel);
  const vertical = svg.append("g").attr("class", "axis").attr("aria-hidden", "true");
  vertical.selectAll("line").data(yTicks).join("line").attr("x1", inner.left).attr("x2", inner.right).attr("y1", y).attr("y2", y);
  vertical.selectAll("text").data(yTicks).join("text").attr("x", inner.left - 7).attr("y", y).attr("dy", "0.32em").attr("text-anchor", "end").text(yFormat);
  vertical.append("text").attr("class", "name").attr("x", 4).attr("y", 13).text(yLabel);
}

/** Of `values`, those of the first that lie at least `gap` pixels apart on the scale `x`, in ascending order. */
export function spaced(x, values, gap) {
  const taken = [];
  for (const value of values) {
    if (taken.every((other) => Math.abs(x(other) - x(value)) >= gap)) taken.push(value);
  }
  return taken.sort((a, b) => a - b);
}

/** Round numbers within a logarithmic scale, the roundest first: powers of ten, twice and five times these, the others. */
export function roundFirst(x) {
  const rank = (value) => ["1", "2", "5"].indexOf(value.toExponential(6).replace(/\.?0*e.*/, ""));
  const place = (value) => rank(value) < 0 ? Infinity : rank(value);
  return x.ticks(12).toSorted((a, b) => place(a) - place(b) || a - b);
}

/** Powers of ten within a logarithmic domain; every second or third of them where there is little room. */
export function decades([low, high], room) {
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, room)));
  return d3.range(first, last + 1, step).map((power) => 10 ** power);
}
