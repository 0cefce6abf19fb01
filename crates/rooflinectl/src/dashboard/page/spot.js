/** Spot check of one kernel: predicted in each format, run now where control allows it, and judged. */
import { post } from "./api.js";
import { createChart } from "./chart.js";
import { measuringRefused, daemon, on, sweepFormats } from "./daemon.js";
import { cautions, failure, field, fill, h, note, select, sentence, table, toggles } from "./dom.js";
import { swatch } from "./overview.js";
import { COLUMNS, kept, measured, opName, predicted } from "./points.js";
import { family } from "./precision.js";
import { KERNEL_FORMATS, MODELS, PHASES, operation } from "./presets.js";
import { drawRoofline, precisionsOf } from "./roofline.js";
import * as units from "./units.js";
import { numberSetting, remember, setting } from "./view.js";

const VIEW = "spot";
const LARGEST = 1 << 20;

const TIMES = [
  { key: "format", label: "Format", value: (row) => row.format },
  { key: "predicted_time_s", label: "Predicted", value: (row) => row.predicted?.time_s.value, show: (row) => units.time(row.predicted?.time_s.value), number: true },
  { key: "measured_time_s", label: "Measured", value: (row) => row.measured?.measured_time_s.value, show: (row) => row.measured ? units.time(row.measured.measured_time_s.value) : "not measured", number: true },
  { key: "power_w", label: "Power", value: (row) => row.measured?.power?.power_w, show: (row) => units.power(row.measured?.power?.power_w), number: true },
];

/** Whether the answer was lost on its way, rather than that the daemon answered what went wrong. */
const broken = ({ status, code }) => [0, 502, 504].includes(status) || ["daemon_unreachable", "shutting_down"].includes(code);

export function create() {
  const inputs = Object.fromEntries(["m", "n", "k"].map((key) => [key, h("input", { type: "number", min: "1", max: String(LARGEST), step: "1", required: true, oninput: () => keep() })]));
  inputs.m.value = numberSetting(VIEW, "m", 1);
  inputs.n.value = numberSetting(VIEW, "n", 14336);
  inputs.k.value = numberSetting(VIEW, "k", 4096);
  const preset = select([["", "own shape"], ...MODELS.map((model) => ({ label: model.name, options: PHASES.filter(({ key }) => key !== "decode32").flatMap((phase) =>
    model.layers.map(([layer, n, k]) => [`${phase.m}x${n}x${k} ${model.key} ${layer}`, `${layer}, ${phase.name}: ${phase.m} × ${n} × ${k}`])) }))], "", (value) => {
    const shape = /^(\d+)x(\d+)x(\d+)/.exec(value);
    if (shape) ["m", "n", "k"].forEach((key, index) => { inputs[key].value = shape[index + 1]; });
    keep();
    predict();
  });
  let chosen = setting(VIEW, "formats", KERNEL_FORMATS.join(",")).split(",");
  const chips = toggles("Formats", KERNEL_FORMATS.map((key) => [key, key, swatch(key)]), chosen, (pressed) => {
    chosen = KERNEL_FORMATS.filter((key) => pressed.has(key));
    remember(VIEW, { formats: chosen.length === KERNEL_FORMATS.length ? null : chosen.join(",") });
  });
  const all = (value) => () => chips.querySelectorAll(".chip").forEach((chip) => { if ((chip.getAttribute("aria-pressed") === "true") !== value) chip.click(); });
  const meter = h("input", { type: "checkbox", id: "with-power" });
  const runButton = h("button", { type: "submit", class: "primary" }, "Predict and run now");
  const permission = h("div");
  const messages = h("div", { class: "stack", "aria-live": "polite" });
  const results = h("div");
  const bars = createChart({ name: "kernel", title: "Time by format", height: 260, columns: TIMES, help: "Filled: predicted, hollow: measured; shorter is faster." });
  const chart = createChart({ name: "kernel-roofline", title: "On the roofline", height: (width) => width < 560 ? 340 : 400, columns: COLUMNS });
  const charts = h("div", { class: "columns", hidden: true }, h("div", { class: "card" }, bars.element), h("div", { class: "card" }, chart.element));
  const form = h("form", { class: "card stack", onsubmit: (event) => { event.preventDefault(); run(); } },
    h("div", { class: "form" }, field("Layer of a model", preset), field("M, tokens at once", inputs.m), field("N, outputs", inputs.n), field("K, inputs", inputs.k)),
    h("fieldset", {}, h("legend", {}, "Formats of the weights"), chips),
    h("div", { class: "form" }, runButton, h("button", { type: "button", onclick: () => predict() }, "Predict only"),
      h("button", { type: "button", class: "quiet", onclick: all(true) }, "All formats"), h("button", { type: "button", class: "quiet", onclick: all(false) }, "None"),
      h("div", { class: "field row" }, meter, h("label", { for: "with-power" }, "measure power too (takes longer)"))),
    permission);
  const element = h("section", { class: "view", "aria-labelledby": "title-spot" },
    h("div", {}, h("h1", { id: "title-spot", tabindex: "-1" }, "Spot check"),
      h("p", { class: "lead" }, "One matrix product, M × N × K: what the model predicts in each format, next to what this machine measures now.")),
    form, messages, charts, results);

  let rows = [];
  let asked = 0;
  // What a lost connection put an end to: "predict" or "run".
  let brokenOff = null;
  const shape = () => Object.fromEntries(["m", "n", "k"].map((key) => [key, Number(inputs[key].value)]));
  const keep = () => remember(VIEW, shape());

  function allow() {
    const refused = measuringRefused();
    runButton.disabled = Boolean(refused);
    meter.disabled = Boolean(refused);
    fill(permission, refused && note("info", h("strong", {}, "Predictions only: "), "nothing can be run from here, because ", refused, "."));
  }

  /** Predicts every chosen format; answers whether nothing newer was asked meanwhile. */
  async function predict() {
    if (!form.reportValidity()) return false;
    const ticket = (asked += 1);
    const { m, n, k } = shape();
    brokenOff = null;
    fill(messages);
    if (chosen.length === 0) {
      fill(messages, note("warn", "Choose at least one format."));
      return false;
    }
    try {
      const { rows: answers, reasons, warnings } = await sweepFormats(() => ({ ops: [operation(m, n, k)] }), chosen);
      if (ticket !== asked) return false;
      fill(messages, cautions(warnings));
      rows = chosen.map((format) => ({ format, op: operation(m, n, k), predicted: answers.find((row) => row.format === format), reason: reasons.get(format) }));
      draw();
      return true;
    } catch (error) {
      if (ticket === asked) failed(error, "predict");
      return false;
    }
  }

  function failed(error, what) {
    // A prediction is worth another try whatever was wrong; a run that the daemon itself refused or that failed stays as it ended.
    if (broken(error) || (what === "predict" && error.status >= 500)) brokenOff = what;
    fill(messages, failure(error));
  }

  async function run() {
    const pressed = document.activeElement === runButton;
    runButton.disabled = true;
    try {
      if (!await predict()) return;
      const [{ op }] = rows;
      const able = rows.filter((row) => row.predicted).map((row) => row.format);
      fill(messages, note("info", `Running ${opName(op)} in ${able.length} formats…`));
      const answer = await measureAll(op, able);
      for (const result of answer.rows) {
        const row = rows.find(({ format }) => format === result.format);
        row.measured = result;
        row.analysis = await post("/v1/analyze", { workload: { op, format: row.format }, time_s: result.measured_time_s.value }).catch((error) => ({ error }));
        kept.push(measured(result, row.predicted, `${opName(op)} ${row.format}`));
      }
      fill(messages, verdict(answer), answer.skipped.length > 0 && note("info", h("p", {}, "Not run:"), h("ul", { class: "plain" }, answer.skipped.map((reason) => h("li", {}, sentence(reason))))));
      draw();
    } catch (error) {
      failed(error, "run");
    } finally {
      allow();
      // A disabled button loses the focus.
      if (pressed && document.activeElement === document.body) runButton.focus({ preventScroll: true });
    }
  }

  // All formats in one request, so that they are measured under the same conditions; one by one where one of them is refused.
  async function measureAll(op, formats) {
    const body = { op, ...(meter.checked && { power: true }) };
    try {
      return await post("/v1/measure", { ...body, formats });
    } catch (error) {
      if (error.status !== 400) throw error;
    }
    const whole = { rows: [], skipped: [] };
    for (const format of formats) {
      try {
        const part = await post("/v1/measure", { ...body, formats: [format] });
        whole.rows.push(...part.rows);
        whole.skipped.push(...part.skipped);
      } catch (error) {
        if (error.status !== 400) throw error;
        whole.skipped.push(`${format}: ${error.message}`);
      }
    }
    return whole;
  }

  function verdict(answer) {
    if (answer.rows.length === 0) return note("warn", "Nothing could be measured; predictions are below.");
    const errors = answer.rows.map((row) => Math.abs(row.error_ratio));
    return note("info", h("strong", {}, `Median error ${units.percent(d3.median(errors))}, largest ${units.percent(d3.max(errors))} `), `over ${errors.length} ${errors.length === 1 ? "format" : "formats"}.`);
  }

  function draw() {
    const [{ op }] = rows;
    charts.hidden = false;
    const fp16 = rows.find(({ format }) => format === "fp16");
    const faster = (row, of) => fp16 && of(row) && of(fp16) ? units.times(of(fp16) / of(row)) : "–";
    const predictedTime = (row) => row.predicted?.time_s.value;
    const measuredTime = (row) => row.measured?.measured_time_s.value;
    fill(results, h("div", { class: "card" }, table(`${opName(op)}: predicted and measured`, [
      { label: "Format", head: true, cell: (row) => row.format },
      { label: "Predicted (90 % interval)", number: true, cell: (row) => row.predicted ? units.estimate(row.predicted.time_s, units.time) : h("span", { class: "unknown" }, "no prediction") },
      { label: "Measured", number: true, cell: (row) => row.measured ? units.time(measuredTime(row)) : "–" },
      { label: "Error", number: true, cell: (row) => row.measured ? units.signedPercent(row.measured.error_ratio) : "–" },
      { label: "× fp16 predicted", number: true, cell: (row) => faster(row, predictedTime) },
      { label: "× fp16 measured", number: true, cell: (row) => faster(row, measuredTime) },
      { label: "Limit", cell: (row) => row.predicted ? `${row.predicted.bound}: ${units.limit(row.predicted.limit)}` : "–" },
      { label: "Power", number: true, cell: (row) => row.measured?.power ? units.power(row.measured.power.power_w) : "–" },
      { label: "Verdict", cell: (row) => judged(row) },
    ], rows, { stacks: true })));
    bars.update((svg, width) => drawBars(svg, width, rows), rows);
    const points = rows.filter((row) => row.predicted).flatMap((row) => [
      { ...predicted(row.predicted, row.format, row.format) }, ...(row.measured ? [measured(row.measured, row.predicted, row.format)] : [])]);
    const series = [{ name: "now", roofline: daemon.roofline }];
    chart.update((svg, width, height) => drawRoofline(svg, width, height, { series, points, shown: new Set(precisionsOf(series)) }), points);
  }

  const judged = (row) => {
    if (row.reason) return [h("span", {}, sentence(row.reason.message)), row.reason.hint && h("span", { class: "help" }, sentence(row.reason.hint))];
    if (!row.analysis) return [h("span", { class: "help" }, row.predicted?.provenance ? `based on: ${units.provenance(row.predicted.provenance)}` : "")];
    if (row.analysis.error) return sentence(row.analysis.error.message);
    return [h("strong", {}, units.words(row.analysis.verdict)), h("span", { class: "help" }, sentence(row.analysis.reason)), row.measured.disturbed && h("span", { class: "help" }, sentence(row.measured.disturbed))];
  };

  for (const topic of ["holds", "connection"]) on(topic, () => { if (element.isConnected) allow(); });
  return {
    element,
    async show() { allow(); await predict(); },
    async refresh() {
      allow();
      if (brokenOff === "predict") await predict();
      else if (brokenOff === "run") {
        brokenOff = null;
        fill(messages, note("warn", "The connection was lost while kernels ran, and with it their results: run them again."));
      }
    },
  };
}

function drawBars(svg, width, rows) {
  const shown = rows.filter((row) => row.predicted);
  const rowHeight = 30;
  // The last line is the board's, where it is simulated.
  const bottom = shown.length * rowHeight + 10;
  const height = bottom + 40;
  svg.attr("viewBox", `0 0 ${width} ${height}`).attr("height", height);
  const left = 78;
  const right = width - 76;
  const most = d3.max(shown, (row) => Math.max(row.predicted.time_s.high, row.measured?.measured_time_s.value ?? 0)) ?? 1;
  const x = d3.scaleLinear([0, most], [left, right]);
  const grid = svg.append("g").attr("class", "axis").attr("aria-hidden", "true");
  for (const value of x.ticks(Math.max(2, Math.floor(width / 130)))) {
    grid.append("line").attr("x1", x(value)).attr("x2", x(value)).attr("y1", 4).attr("y2", bottom);
    grid.append("text").attr("x", x(value)).attr("y", bottom + 16).attr("text-anchor", "middle").text(units.time(value));
  }
  return shown.map((row, index) => {
    const y = 6 + index * rowHeight;
    const group = svg.append("g").attr("class", `p-${family(row.format).key}`);
    const { time_s: answer } = row.predicted;
    group.append("text").attr("x", left - 8).attr("y", y + 16).attr("text-anchor", "end").text(row.format);
    const bar = group.append("rect").attr("class", "bar-predicted").attr("x", left).attr("y", y + 3).attr("height", 9).attr("width", Math.max(1, x(answer.value) - left));
    group.append("line").attr("class", "whisker").attr("x1", x(answer.low)).attr("x2", x(answer.high)).attr("y1", y + 7.5).attr("y2", y + 7.5);
    const time = row.measured?.measured_time_s;
    if (time) group.append("rect").attr("class", "bar-measured").attr("x", left).attr("y", y + 15).attr("height", 8).attr("width", Math.max(1, x(time.value) - left));
    group.append("text").attr("class", "bar-value").attr("x", x(Math.max(answer.high, time?.value ?? 0)) + 6).attr("y", y + 16).text(units.time((time ?? answer).value));
    return {
      node: bar.node(), x: x(answer.value), y: y + 10, title: row.format, distance: (px, py) => py >= y && py < y + rowHeight ? 0 : Infinity,
      rows: [["Predicted", units.estimate(answer, units.time)], ["Measured", time ? units.estimate(time, units.time) : "not measured"],
        ["Limit", `${row.predicted.bound}: ${units.limit(row.predicted.limit)}`], ["Rests on", units.provenance(row.predicted.provenance)]],
    };
  });
}
