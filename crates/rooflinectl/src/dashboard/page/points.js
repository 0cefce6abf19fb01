/**
 * Points of a roofline: made from predictions and measurements, or read from a file.
 *
 * A point is `{ id, label, format, measured, intensity, rate, time, bytes, flops, bandwidth, bound, limit, provenance, tier, source }`;
 * `time` is `{ value, low, high }` and what is unknown is null. The format of files is in docs/dashboard.md.
 */
import * as units from "./units.js";

let numbered = 0;
const identify = (point) => ({ id: `p${(numbered += 1)}`, ...point });

/** An operation in the words of the field: `gemv 4096×4096`. */
export function opName(op) {
  if (!op) return "";
  if (op.kind === "gemv") return `gemv ${op.n}×${op.k}`;
  if (op.kind === "gemm") return `gemm ${op.m}×${op.n}×${op.k}`;
  return Object.entries(op).map(([key, value]) => key === "kind" ? value : `${key} ${value}`).join(" ");
}

/** A predicted point from an answer of `POST /v1/predict` or a row of `POST /v1/sweep`. */
export const predicted = (answer, label, format) => identify({
  label, format, measured: false, intensity: answer.arithmetic_intensity_flops_per_byte, rate: answer.flops / answer.time_s.value, time: answer.time_s,
  bytes: answer.bytes, flops: answer.flops, bandwidth: answer.bytes / answer.time_s.value, bound: answer.bound, limit: answer.limit,
  provenance: answer.provenance, tier: answer.tier, compute: answer.compute, source: answer.hardware ?? "predicted",
});

/** A measured point: a row of `POST /v1/measure` with the work of the prediction beside it. */
export const measured = (row, prediction, label) => identify({
  label, format: row.format, measured: true, intensity: prediction.arithmetic_intensity_flops_per_byte, rate: prediction.flops / row.measured_time_s.value,
  time: row.measured_time_s, bytes: prediction.bytes, flops: prediction.flops, bandwidth: prediction.bytes / row.measured_time_s.value, bound: row.bound,
  limit: row.limit, provenance: "measured", tier: null, compute: prediction.compute, source: `${row.runs} runs, ${row.isa}`,
});

/** What the tooltip and screen readers say of a point. */
export const described = (point) => [
  ["Intensity", units.intensity(point.intensity)],
  ["Rate", units.rate(point.rate, point.compute ?? point.format)],
  ["Time", units.estimate(point.time, units.time)],
  ["Bandwidth", units.bandwidth(point.bandwidth)],
  ["Limit", [point.bound, point.limit && units.limit(point.limit)].filter(Boolean).join(": ") || units.UNKNOWN],
  [point.measured ? "Measured" : "Rests on", point.measured ? point.source ?? units.UNKNOWN
    : [units.provenance(point.provenance), point.tier && units.words(point.tier)].filter(Boolean).join(", ")],
];

/** Columns of the table and the CSV file; the file can be imported again. */
export const COLUMNS = [
  { key: "label", label: "Point", value: (point) => point.label },
  { key: "format", label: "Format", value: (point) => point.format },
  { key: "kind", label: "Kind", value: (point) => point.measured ? "measured" : "predicted" },
  { key: "arithmetic_intensity_flops_per_byte", label: "Intensity", value: (point) => point.intensity, show: (point) => units.intensity(point.intensity), number: true },
  { key: "flops_per_s", label: "Rate", value: (point) => point.rate, show: (point) => units.rate(point.rate, point.compute ?? point.format), number: true },
  { key: "time_s", label: "Time (90 % interval)", value: (point) => point.time?.value, show: (point) => units.estimate(point.time, units.time), number: true },
  { key: "time_low_s", label: "Low", value: (point) => point.time?.low, show: (point) => units.time(point.time?.low), number: true },
  { key: "time_high_s", label: "High", value: (point) => point.time?.high, show: (point) => units.time(point.time?.high), number: true },
  { key: "bytes", label: "Bytes", value: (point) => point.bytes, show: (point) => units.bytes(point.bytes), number: true },
  { key: "flops", label: "Operations", value: (point) => point.flops, show: (point) => units.si(point.flops, ""), number: true },
  { key: "limit", label: "Limit", value: (point) => point.limit, show: (point) => point.limit ? units.limit(point.limit) : units.UNKNOWN },
  { key: "provenance", label: "Rests on", value: (point) => point.provenance, show: (point) => units.provenance(point.provenance) },
];

const NUMBERS = ["arithmetic_intensity_flops_per_byte", "flops_per_s", "time_s", "time_low_s", "time_high_s", "bytes", "flops"];
const TEXTS = ["label", "format", "kind", "limit", "provenance"];
const MOST_POINTS = 2000;
// Mixes that model files are named by and that are no format of their own: files saved here may have them.
const MIXES = ["q2_k_s", "q3_k_s", "q3_k_l", "iq2_m", "iq3_xs", "iq3_m", "mxfp4_moe", "nvfp4_gguf"];

/** What is wrong with a file of points: its message names the place and the field. */
export class ImportError extends Error {}

/**
 * Points of a file. CSV where its name or its first character says so, JSON otherwise. `formats` are the keys of the daemon's weight
 * formats. Throws ImportError, and takes nothing of a file of which a part is wrong.
 */
export function parsePoints(name, text, formats) {
  const clean = text.replace(/^\ufeff/, "");
  if (clean.trim() === "") throw new ImportError(`${name} is empty`);
  const rows = /\.csv$/i.test(name) || !/^\s*[[{]/.test(clean) ? fromCsv(name, clean) : fromJson(name, clean);
  if (rows.length === 0) throw new ImportError(`${name} has no points`);
  if (rows.length > MOST_POINTS) throw new ImportError(`${name} has ${rows.length} points, at most ${MOST_POINTS} are shown`);
  return rows.map(({ where, row }) => point(name, where, row, formats));
}

function fromJson(name, text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const place = /line (\d+)/.exec(error.message)?.[1] ?? lineOf(text, error.message);
    throw new ImportError(`${name}${place ? `, line ${place}` : ""}: not JSON (${error.message})`);
  }
  const list = Array.isArray(value) ? value : value?.points;
  if (!Array.isArray(list)) throw new ImportError(`${name}: field points is missing, expected {"points": [{…}, …]} or a list`);
  const lines = objectLines(text);
  return list.map((row, index) => {
    const where = `${lines[index] ? `line ${lines[index]}, ` : ""}point ${index + 1}`;
    if (row === null || typeof row !== "object" || Array.isArray(row)) throw new ImportError(`${name}, ${where}: expected an object, found ${JSON.stringify(row)}`);
    return { where, row };
  });
}

function lineOf(text, message) {
  const position = /position (\d+)/.exec(message)?.[1];
  return position && text.slice(0, Number(position)).split("\n").length;
}

// The line that each object of the list opens in, so that a message can name it; text in quotes is passed over.
function objectLines(text) {
  const lines = [];
  const base = text.trimStart().startsWith("[") ? 1 : 2;
  let [line, depth] = [1, 0];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|\n|[[\]{}]/g)) {
    if (token === "\n") line += 1;
    else if (token === "[" || token === "{") {
      if (token === "{" && depth === base) lines.push(line);
      depth += 1;
    } else if (token === "]" || token === "}") depth -= 1;
  }
  return lines;
}

function fromCsv(name, text) {
  const records = csvRecords(name, text);
  const header = (records.shift()?.cells ?? []).map((cell) => cell.trim());
  const separator = header.length === 1 && { ";": "semicolons", "\t": "tabs" }[/[;\t]/.exec(header[0])?.[0]];
  if (separator) throw new ImportError(`${name}, line 1: expected commas between the fields, found ${separator}`);
  if (!header.includes("label")) throw new ImportError(`${name}, line 1: field label is missing, the first line names the fields`);
  const unknown = header.find((key) => !TEXTS.includes(key) && !NUMBERS.includes(key));
  if (unknown !== undefined) throw new ImportError(`${name}, line 1: unknown field ${JSON.stringify(unknown)}, known are ${[...TEXTS, ...NUMBERS].join(", ")}`);
  return records.map(({ line, cells }) => {
    if (cells.length !== header.length) throw new ImportError(`${name}, line ${line}: ${cells.length} fields, expected ${header.length}`);
    const row = {};
    header.forEach((key, index) => { if (cells[index].trim() !== "") row[key] = cells[index].trim(); });
    return { where: `line ${line}`, row };
  });
}

function csvRecords(name, text) {
  const records = [];
  let [line, start, cells, cell, quoted] = [1, 1, [], "", false];
  const end = () => {
    cells.push(cell);
    if (cells.length > 1 || cell.trim() !== "") records.push({ line: start, cells });
    [cells, cell] = [[], ""];
  };
  for (let index = 0; index < text.length; index += 1) {
    const character = text[index];
    if (character === "\n") line += 1;
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[index + 1] === '"') { cell += '"'; index += 1; } else quoted = false;
    } else if (character === '"' && cell === "") quoted = true;
    else if (character === ",") { cells.push(cell); cell = ""; } else if (character === "\n") { end(); start = line; } else if (character !== "\r") cell += character;
  }
  if (quoted) throw new ImportError(`${name}, line ${start}: a quote is not closed`);
  end();
  return records;
}

function point(name, where, row, formats) {
  const bad = (key, problem) => new ImportError(`${name}, ${where}, field ${key}: ${problem}`);
  for (const key of Object.keys(row)) {
    if (!TEXTS.includes(key) && !NUMBERS.includes(key)) throw bad(key, `unknown, known are ${[...TEXTS, ...NUMBERS].join(", ")}`);
  }
  const number = (key) => {
    if (row[key] == null) return null;
    const value = typeof row[key] === "string" ? Number(row[key]) : row[key];
    if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) throw bad(key, `expected a number above 0, found ${JSON.stringify(row[key])}`);
    return value;
  };
  const text = (key) => {
    if (row[key] != null && typeof row[key] !== "string") throw bad(key, `expected a text, found ${JSON.stringify(row[key])}`);
    return row[key]?.slice(0, 200) ?? null;
  };
  const format = text("format");
  if (format != null && formats && !formats.includes(format) && !MIXES.includes(format)) {
    throw bad("format", `there is no format ${JSON.stringify(format)}, known are ${formats.join(", ")}`);
  }
  const label = text("label");
  if (!label) throw bad("label", "missing, every point needs a name");
  const kind = text("kind") ?? "measured";
  if (!["measured", "predicted"].includes(kind)) throw bad("kind", `expected measured or predicted, found ${JSON.stringify(kind)}`);
  const [time, low, high] = [number("time_s"), number("time_low_s"), number("time_high_s")];
  if (low != null && high != null && low > high) throw bad("time_low_s", "above time_high_s");
  const [flops, bytes] = [number("flops"), number("bytes")];
  const rate = number("flops_per_s") ?? (flops && time ? flops / time : null);
  const intensity = number("arithmetic_intensity_flops_per_byte") ?? (flops && bytes ? flops / bytes : null);
  if (rate == null) throw bad("flops_per_s", "missing, and it does not follow from flops and time_s");
  // Of extreme numbers the quotient is no number any more, and has no place in the picture.
  const quotient = (value, key, of) => { if (value != null && !(value > 0 && value < Infinity)) throw bad(key, `${of} is ${value}, too large or too small to draw`); };
  quotient(rate, "flops", "flops / time_s");
  quotient(intensity, "flops", "flops / bytes");
  if (intensity == null) throw bad("arithmetic_intensity_flops_per_byte", "missing, and it does not follow from flops and bytes");
  return identify({
    label, format, measured: kind === "measured", intensity, rate, time: time ? { value: time, low, high } : null, bytes, flops,
    bandwidth: rate / intensity, bound: null, limit: text("limit"), provenance: text("provenance") ?? (kind === "measured" ? "imported" : null), tier: null,
    source: `imported from ${name}`, imported: true,
  });
}

/** Points that were measured or imported on this page, for every roofline of it; gone when the page is left. */
export const kept = [];
