/** Heat map: formats down, modes and batch sizes across; shade and number say the same, hatching and a word say what does not work. */
import * as units from "./units.js";

/** What can be shown: the figure of a prediction, how it is written, and whether less is better. */
export const MEASURES = {
  tokens: { title: "tokens/s", of: (row) => row.tokens_per_s, show: units.tokens, short: (value) => units.digits(value), less: false },
  latency: { title: "time per token", of: (row) => row.time_per_token_s ?? row.time_s, show: units.time, short: units.time, less: true },
  power: { title: "power", of: (row) => row.power_w, show: units.power, short: units.power, less: true, covers: (cells) => [...new Set(cells.map(({ row }) => row?.power_w && units.scope(row.power_w)).filter(Boolean))].join(" or ") },
  energy: { title: "energy per token", of: (row) => row.energy_j_per_token, show: units.energy, short: units.energy, less: true },
};

const ROW_PX = 34;
const LEFT_PX = 92;
const TOP_PX = 62;
const CELL_PX = 52;
const LETTER_PX = 8;

export const heightFor = (formats) => TOP_PX + formats.length * ROW_PX + 34;
/** The least width: every column as wide as its figures, and those of a mode together as its name. */
export function widthFor(columns) {
  const modes = d3.rollups(columns, (members) => members.length, ({ mode }) => mode);
  const step = Math.max(CELL_PX, ...modes.map(([mode, many]) => (mode.length * LETTER_PX + 12) / many));
  return LEFT_PX + columns.length * step + 8;
}

/** What a cell is: a value, or why there is none. `cells` are `{ format, mode, batch, row, reason }`. */
export function problem(cell, measure) {
  if (!cell.row) return { word: "✕", reason: cell.reason ?? "no answer" };
  if (cell.row.memory_bytes?.fits === false) {
    return { word: "too big", reason: `needs ${units.bytes(cell.row.memory_bytes.total)}, there is room for ${units.bytes(cell.row.memory_bytes.room)}` };
  }
  if (measure.of(cell.row) == null) return { word: "?", reason: `${measure.title} is unknown: ${cell.row.warnings?.[0] ?? "nothing was measured on such a board"}` };
  return null;
}

/** A candidate in words; a board without power modes has none to name. */
export const choice = (format, mode, batch) => [format, mode, `batch ${batch}`].filter(Boolean).join(", ");

/** Draws the map and answers its cells as what can be pointed at. */
export function drawHeatmap(svg, width, { cells, formats, columns, measure, chosen, choose }) {
  const step = (width - LEFT_PX - 8) / columns.length;
  const values = cells.filter((cell) => !problem(cell, measure)).map((cell) => measure.of(cell.row).value);
  const [low, high] = d3.extent(values);
  const shade = high > low ? d3.scaleLog([low, high], measure.less ? [0.55, 0.06] : [0.06, 0.55]) : () => 0.3;
  hatching(svg);
  const head = svg.append("g").attr("class", "axis").attr("aria-hidden", "true");
  const modes = d3.groups(columns.map((column, index) => ({ ...column, index })), (column) => column.mode);
  for (const [mode, members] of modes) {
    const start = LEFT_PX + members[0].index * step;
    head.append("text").attr("class", "name").attr("x", start + members.length * step / 2).attr("y", 20).attr("text-anchor", "middle").text(mode);
    if (members[0].index) head.append("line").attr("x1", start).attr("x2", start).attr("y1", 6).attr("y2", TOP_PX + formats.length * ROW_PX);
    for (const { batch, index } of members) head.append("text").attr("x", LEFT_PX + (index + 0.5) * step).attr("y", 44).attr("text-anchor", "middle").text(batch);
  }
  head.append("text").attr("x", LEFT_PX - 10).attr("y", 44).attr("text-anchor", "end").text("batch");
  formats.forEach((format, index) => {
    head.append("text").attr("class", "name").attr("x", LEFT_PX - 10).attr("y", TOP_PX + (index + 0.5) * ROW_PX).attr("dy", "0.34em").attr("text-anchor", "end").text(format);
  });
  const items = cells.map((cell) => drawCell(svg, cell, { step, measure, shade, formats, columns, chosen, choose }));
  drawScale(svg, { cells, low, high, measure, y: TOP_PX + formats.length * ROW_PX + 12, width });
  return items;
}

function drawCell(svg, cell, { step, measure, shade, formats, columns, chosen, choose }) {
  const column = columns.findIndex(({ mode, batch }) => mode === cell.mode && batch === cell.batch);
  const row = formats.indexOf(cell.format);
  const [x, y] = [LEFT_PX + column * step, TOP_PX + row * ROW_PX];
  const wrong = problem(cell, measure);
  const answer = cell.row && measure.of(cell.row);
  const rect = svg.append("rect").attr("class", wrong ? "cell none" : "cell").attr("x", x).attr("y", y).attr("width", step).attr("height", ROW_PX).attr("rx", 4);
  if (wrong) svg.append("rect").attr("class", "cell-hatch").attr("x", x + 1).attr("y", y + 1).attr("width", step - 2).attr("height", ROW_PX - 2).attr("rx", 4).attr("fill", "url(#hatch)").attr("aria-hidden", "true");
  else rect.attr("fill-opacity", shade(answer.value));
  svg.append("text").attr("class", "cell-text").attr("aria-hidden", "true").attr("x", x + step / 2).attr("y", y + ROW_PX / 2).attr("dy", "0.35em").attr("text-anchor", "middle")
    .text(wrong ? wrong.word : measure.short(answer.value));
  if (chosen && !wrong && chosen.format === cell.format && chosen.mode === cell.mode && chosen.batch === cell.batch) {
    svg.append("rect").attr("class", "ring").attr("x", x + 2).attr("y", y + 2).attr("width", step - 4).attr("height", ROW_PX - 4).attr("rx", 4).attr("aria-hidden", "true");
  }
  rect.on("click", () => cell.row && choose?.(cell)).on("keydown", (event) => { if (event.key === "Enter" && cell.row) choose?.(cell); });
  return {
    node: rect.node(), row, column, x: x + step / 2, y: y + ROW_PX / 2, title: choice(cell.format, cell.mode, cell.batch),
    distance: (px, py) => px >= x && px < x + step && py >= y && py < y + ROW_PX ? 0 : Infinity,
    rows: [...(wrong ? [["Not possible", wrong.reason]] : []), ...(cell.row ? describe(cell.row) : [])],
  };
}

/** A prediction of a model in a few lines. */
export const describe = (row) => [
  ["Rate", units.estimate(row.tokens_per_s, units.tokens)],
  ["Time per token", units.estimate(row.time_per_token_s ?? row.time_s, units.time)],
  ["Power", row.power_w ? `${units.estimate(row.power_w, units.power)}, ${units.scope(row.power_w)}${row.power_source === "prior" ? ", guess from other boards" : ""}` : "unknown: nobody measured it on such a board"],
  ["Energy per token", row.energy_j_per_token ? units.estimate(row.energy_j_per_token, units.energy) : "unknown, like the power"],
  ["Memory", `${units.bytes(row.memory_bytes?.total)}${row.memory_bytes?.fits === false ? ", does not fit" : row.memory_bytes?.fits == null ? ", unknown whether it fits" : ", fits"}`],
  ["Limit", `${row.bound}: ${units.limit(row.limit)}`],
  ["Rests on", `${units.provenance(row.provenance)}, ${units.words(row.tier)}`],
];

function hatching(svg) {
  const pattern = svg.append("defs").append("pattern").attr("id", "hatch").attr("class", "hatch").attr("width", 7).attr("height", 7).attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
  pattern.append("line").attr("x1", 0).attr("y1", 0).attr("x2", 0).attr("y2", 7).attr("stroke-opacity", 0.35);
}

function drawScale(svg, { cells, low, high, measure, y, width }) {
  if (low === undefined) return;
  const text = `${measure.show(measure.less ? high : low)} to ${measure.show(measure.less ? low : high)}${measure.covers ? ` (${measure.covers(cells)})` : ""}`;
  const size = text.length * 6.6 + 12;
  const room = Math.max(24, Math.min(160, width - LEFT_PX - size));
  const left = Math.max(4, Math.min(LEFT_PX, width - room - size));
  const group = svg.append("g").attr("class", "legend").attr("aria-hidden", "true").attr("transform", `translate(${left},${y})`);
  d3.range(8).forEach((index) => group.append("rect").attr("class", "cell").attr("x", index * room / 8).attr("width", room / 8).attr("height", 12).attr("fill-opacity", 0.06 + 0.49 * index / 7));
  group.append("text").attr("x", room + 8).attr("y", 10).text(text);
}
