/** First view: the ceilings at the current clocks, of other modes and other boards, with the layers of a model and everything measured on them. */
import { get } from "./api.js";
import { createChart } from "./chart.js";
import { daemon, on, registry, simulated, sweepFormats } from "./daemon.js";
import { cautions, failure, fact, field, fill, h, latest, note, select, sentence, table, toggles } from "./dom.js";
import { csvText, save } from "./export.js";
import { COLUMNS, ImportError, kept, parsePoints, predicted } from "./points.js";
import { family, symbolPath } from "./precision.js";
import { MODELS, PHASES, operation } from "./presets.js";
import { ceilingRows, drawRoofline, precisionsOf } from "./roofline.js";
import * as units from "./units.js";
import { remember, setting } from "./view.js";

const VIEW = "roofline";
const MOST_SERIES = 4;
const FORMATS = ["fp32", "fp16", "int8", "int4_g128", "fp8_e4m3", "nvfp4"];
const BIGGEST_IMPORT_BYTES = 4 << 20;

const COLUMNS_OF_CEILINGS = [
  { key: "board", label: "Board and mode", value: (row) => row.name },
  { key: "ceiling", label: "Ceiling", value: (row) => row.ceiling },
  { key: "value_per_s", label: "Value (90 % interval)", value: (row) => row.answer.value, show: (row) => units.estimate(row.answer, row.show), number: true },
  { key: "low_per_s", label: "Low", value: (row) => row.answer.low, show: (row) => row.show(row.answer.low), number: true },
  { key: "high_per_s", label: "High", value: (row) => row.answer.high, show: (row) => row.show(row.answer.high), number: true },
  { key: "ridge_flops_per_byte", label: "Ridge point", value: (row) => row.ridge, show: (row) => row.ridge == null ? "–" : units.intensity(row.ridge), number: true },
  { key: "provenance", label: "Rests on", value: (row) => row.answer.provenance, show: (row) => units.provenance(row.answer.provenance) },
];

const guide = () => h("details", {}, h("summary", {}, "How to read it"), h("ul", { class: "plain" },
  h("li", {}, h("strong", {}, "Across"), " is arithmetic intensity: operations for each byte to or from memory. A matrix times a vector in fp16 has about 1, whatever its size."),
  h("li", {}, h("strong", {}, "Up"), " is the rate. Both axes are logarithmic: each line is ten times the one before."),
  h("li", {}, "Under the ", h("strong", {}, "slanted line"), " a kernel waits for memory: fewer bytes help (a smaller format, a larger batch), faster arithmetic does not."),
  h("li", {}, "Under a ", h("strong", {}, "flat line"), " it waits for arithmetic: a precision with a higher line helps."),
  h("li", {}, "Where both meet is the ", h("strong", {}, "ridge point"), ". How far a point lies below its line is what a better kernel could still gain."),
  h("li", {}, "The thin bar through a point is its 90 % interval. Filled points are predicted, hollow ones measured.")));

/** A symbol of a family as an inline picture. */
export function swatch(format) {
  const svg = d3.create("svg").attr("viewBox", "-8 -8 16 16").attr("class", `p-${family(format).key}`).attr("aria-hidden", "true");
  svg.append("path").attr("class", "swatch").attr("d", symbolPath(format, 90));
  return svg.node();
}

export function create() {
  const facts = h("div");
  const chart = createChart({ name: "roofline", title: "Roofline", height: (width) => width < 560 ? 400 : 480, columns: COLUMNS,
    help: "Hover, or Tab to the chart and use the arrow keys." });
  const ceilingTable = h("div");
  const messages = h("div", { class: "stack", "aria-live": "polite" });
  const layerMessages = h("div", { class: "stack", "aria-live": "polite" });
  const chips = h("div");
  const compared = h("div", { class: "chips" });
  const added = h("div", { "aria-live": "polite" });
  let takeFile = null;
  let listBoards = null;
  let series = [];
  let layerPoints = [];
  let hidden = new Set(setting(VIEW, "hide", "").split(",").filter(Boolean));

  const element = h("section", { class: "view", "aria-labelledby": "title-roofline" },
    h("div", {}, h("h1", { id: "title-roofline", tabindex: "-1" }, "Roofline"),
      h("p", { class: "lead" }, "The most that a kernel can reach here: memory bandwidth times its arithmetic intensity, or the peak of its precision.")),
    facts,
    h("div", { class: "card stack" }, messages, layerMessages, chart.element, chips, guide()),
    h("div", { class: "columns" },
      h("div", { class: "card stack" }, h("h2", {}, "Compare modes and boards"), compared, adders()),
      h("div", { class: "card stack" }, h("h2", {}, "Points"), layerForm(), importForm())),
    h("div", { class: "card" }, ceilingTable));

  function paint() {
    const shown = new Set(precisionsOf(series).filter((precision) => !hidden.has(precision)));
    const points = [...layerPoints, ...kept];
    chart.update((svg, width, height) => drawRoofline(svg, width, height, { series, points, shown }), points);
    fill(chips, h("p", { class: "legend-label" }, "Precisions shown"), toggles("Precisions shown", precisionsOf(series).map((key) => [key, key, swatch(key)]), shown, (chosen) => {
      hidden = new Set(precisionsOf(series).filter((key) => !chosen.has(key)));
      remember(VIEW, { hide: [...hidden].join(",") });
      const now = new Set(chosen);
      chart.update((svg, width, height) => drawRoofline(svg, width, height, { series, points: [...layerPoints, ...kept], shown: now }), [...layerPoints, ...kept]);
    }));
    listCeilings();
  }

  function listCeilings() {
    const rows = ceilingRows(series);
    const columns = COLUMNS_OF_CEILINGS.filter((column) => !["low_per_s", "high_per_s"].includes(column.key));
    const file = `rooflined-ceilings${simulated() ? "-SIMULATED" : ""}.csv`;
    fill(ceilingTable,
      h("div", { class: "chart-head" }, h("h2", {}, "Ceilings"),
        h("button", { type: "button", class: "quiet", "aria-label": "Save Ceilings as CSV data", onclick: () => save(file, csvText(COLUMNS_OF_CEILINGS, rows), "text/csv") }, "CSV")),
      table("Values with their 90 % interval, and their sources",
        columns.map((column, index) => ({ label: column.label, number: column.number, head: index === 1, cell: column.show ?? column.value })), rows, { stacks: true }));
  }

  function showFacts() {
    const now = daemon.roofline;
    const peaks = Object.entries(now.compute_flops_per_s);
    const best = peaks.find(([key]) => key === "fp16") ?? peaks.find(([key]) => key === "fp32") ?? peaks[0];
    const others = peaks.filter(([key, answer]) => key !== best?.[0] && answer.value > (best?.[1].value ?? 0)).sort((a, b) => b[1].value - a[1].value).slice(0, 1);
    fill(facts, h("dl", { class: "facts" },
      fact("Power mode", daemon.board.modes.length ? now.power_mode ?? units.UNKNOWN : "none", daemon.board.modes.length ? now.clock_hz && `at ${units.clock(now.clock_hz)}` : "this machine has no power modes"),
      fact("Memory bandwidth", units.bandwidth(now.bandwidth_bytes_per_s.value), units.restsOn(now.bandwidth_bytes_per_s)),
      [best, ...others].filter(Boolean).map(([key, answer]) => fact(`Peak ${key}`, units.rate(answer.value, key), units.restsOn(answer))),
      best && fact(`Ridge point ${best[0]}`, units.intensity(now.ridge_flops_per_byte[best[0]]), "below it memory limits"),
      fact("Starting a kernel", units.time(now.launch_s.value), units.restsOn(now.launch_s))));
  }

  const wanted = () => setting(VIEW, "with", "").split(",").filter(Boolean).slice(0, MOST_SERIES - 1);

  const load = latest(async (isLast) => {
    fill(messages);
    const machine = daemon.board.modes.length ? `current mode (${daemon.roofline.power_mode ?? "unknown"})` : "this machine";
    const others = await Promise.all(wanted().map(async (key) => {
      try {
        return await another(key);
      } catch (error) {
        if (isLast()) messages.append(failure(error));
        return null;
      }
    }));
    if (!isLast()) return;
    series = [{ key: "now", name: machine, roofline: daemon.roofline }, ...others.filter(Boolean)];
    showFacts();
    paint();
    listCompared();
  });

  async function another(key) {
    const [hardware, mode] = key.startsWith("mode:") ? [null, key.slice(5)] : key.slice(3).split("@");
    const query = new URLSearchParams({ ...(hardware && { hardware }), ...(mode && { mode }) });
    const roofline = await get(`/v1/roofline?${query}`);
    const entry = hardware && (await registry("/v1/hardware")).hardware.find((candidate) => candidate.key === hardware);
    return { key, name: hardware ? `${entry?.name ?? hardware}${mode ? ` ${mode}` : ""} (data sheet)` : `this board in ${mode}`, roofline };
  }

  function listCompared() {
    fill(compared, series.map((entry, index) => index === 0
      ? h("span", { class: "tag" }, `A ${entry.name}`)
      : h("button", { type: "button", class: "chip", "aria-label": `Remove ${"ABCD"[index]} ${entry.name}`, onclick: () => {
        remember(VIEW, { with: wanted().filter((key) => key !== entry.key).join(",") });
        load();
      } }, `${"ABCD"[index]} ${entry.name} ×`)));
  }

  function add(key) {
    const problem = !key ? "Choose a board first."
      : wanted().includes(key) ? "It is already shown."
        : wanted().length >= MOST_SERIES - 1 ? `${MOST_SERIES} rooflines fit side by side: remove one first.` : null;
    fill(added, problem && note("warn", problem));
    if (problem) return;
    remember(VIEW, { with: [...wanted(), key].join(",") });
    load();
  }

  function adders() {
    const modes = daemon.board.modes;
    const mode = modes.length === 0 ? null : select(modes.map(({ name }) => [name, name]), modes[0].name);
    const board = select([["", "Loading…"]], "");
    const boardMode = select([["", "its top mode"]], "");
    listBoards = async () => {
      if (board.options.length > 1) return;
      const { hardware } = await registry("/v1/hardware");
      if (board.options.length > 1) return;
      const kinds = { integrated: "Edge boards and unified memory", discrete: "GPUs", cpu: "Processors" };
      fill(board, h("option", { value: "" }, "Choose a board"), Object.entries(kinds).map(([kind, label]) => h("optgroup", { label },
        hardware.filter((entry) => entry.kind === kind && entry.bandwidth_bytes_per_s).map((entry) => h("option", { value: entry.key }, entry.name)))));
      board.addEventListener("change", () => {
        const entry = hardware.find(({ key }) => key === board.value);
        fill(boardMode, h("option", { value: "" }, "its top mode"), (entry?.modes ?? []).map((name) => h("option", { value: name }, name)));
      });
    };
    return h("div", { class: "stack" },
      mode && h("div", { class: "form" }, field("Mode of this board", mode), h("button", { type: "button", onclick: () => add(`mode:${mode.value}`) }, "Add mode")),
      h("div", { class: "form" }, field("Other board", board), field("Its mode", boardMode),
        h("button", { type: "button", onclick: () => add(board.value && `hw:${board.value}${boardMode.value && `@${boardMode.value}`}`) }, "Add board")), added);
  }

  function layerForm() {
    const model = select([["none", "no layers"], ...MODELS.map(({ key, name }) => [key, name])], setting(VIEW, "layers", "llama-3.1-8b"), (value) => { remember(VIEW, { layers: value }); layers(); });
    const formats = toggles("Formats of the layers", FORMATS.map((key) => [key, key, swatch(key)]), chosenFormats(), (chosen) => {
      remember(VIEW, { formats: FORMATS.filter((key) => chosen.has(key)).join(",") || "none" });
      layers();
    });
    return h("div", { class: "stack" }, h("div", { class: "form" }, field("Predicted layers of", model)), formats,
      h("p", { class: "help" }, "The largest layer, lm_head and k_proj, each for one token (decode) and for 512 (prefill). "
        + "Kernels that you measure under Spot check appear here too."));
  }

  function chosenFormats() {
    return setting(VIEW, "formats", "fp16,int8,int4_g128").split(",").filter((key) => FORMATS.includes(key));
  }

  const layers = latest(async (isLast) => {
    const model = MODELS.find(({ key }) => key === setting(VIEW, "layers", "llama-3.1-8b"));
    const some = model?.layers.filter(([name]) => ["k_proj", "gate_proj", "lm_head"].includes(name)) ?? [];
    const named = some.flatMap(([name, n, k]) => PHASES.filter(({ key }) => ["decode", "prefill"].includes(key)).map(({ key, m }) => ({ label: `${name} ${key}`, op: operation(m, n, k) })));
    try {
      const { rows, warnings } = named.length && chosenFormats().length ? await sweepFormats(() => ({ ops: named.map(({ op }) => op) }), chosenFormats()) : { rows: [], warnings: [] };
      if (!isLast()) return;
      fill(layerMessages, cautions(warnings));
      layerPoints = rows.map((row) => {
        const same = named.find(({ op }) => Object.entries(op).every(([key, value]) => row.op[key] === value));
        return { ...predicted(row, `${same?.label ?? ""} ${row.format}`.trim(), row.format), short: same?.label };
      });
      paint();
    } catch (error) {
      if (isLast()) fill(layerMessages, failure(error));
    }
  });

  function importForm() {
    const result = h("div", { "aria-live": "polite" });
    const input = h("input", { type: "file", accept: ".json,.csv,application/json,text/csv", onchange: () => take(input.files[0]) });
    const clear = h("button", { type: "button", onclick: () => { kept.length = 0; fill(result); paint(); input.value = ""; } }, "Remove measured points");
    async function take(file) {
      if (!file) return;
      let points;
      try {
        if (file.size > BIGGEST_IMPORT_BYTES) throw new ImportError(`${file.name} is larger than ${units.bytes(BIGGEST_IMPORT_BYTES)}`);
        const text = await file.text();
        points = parsePoints(file.name, text, (await registry("/v1/formats")).formats.map(({ key }) => key));
      } catch (error) {
        fill(result, error instanceof ImportError
          ? note("bad", h("p", {}, sentence(error.message)), h("p", { class: "help" }, "Nothing was imported.")) : failure(error));
        return;
      } finally {
        // The same file may be chosen again once it is mended.
        input.value = "";
      }
      const before = kept.length;
      try {
        kept.push(...points);
        paint();
        fill(result, note("info", `${points.length} ${points.length === 1 ? "point" : "points"} of ${file.name} added.`));
      } catch (error) {
        kept.length = before;
        fill(result, note("bad", h("p", {}, sentence(`${file.name} was read, but its points could not be drawn: ${error.message}`)),
          h("p", { class: "help" }, "They were removed again. This is a bug in the page: please report it with the file.")));
        paint();
      }
      result.scrollIntoView({ block: "nearest" });
    }
    const area = h("div", { class: "drop stack" }, field("Import measured points (JSON or CSV)", input,
      "Each has a label, flops, bytes and time_s. A CSV file saved here can be read again."), result, h("div", {}, clear));
    dropTarget(area, take);
    takeFile = take;
    return area;
  }

  on("roofline", () => { if (daemon.connected && element.isConnected) { load(); layers(); } });
  return {
    element,
    async show() { await Promise.all([listBoards(), load(), layers()]); },
    refresh() { return this.show(); },
    drop: (file) => takeFile(file),
  };
}

/** Lets a file be dropped on an element. */
export function dropTarget(element, take) {
  element.addEventListener("dragover", (event) => { event.preventDefault(); element.classList.add("over"); });
  element.addEventListener("dragleave", () => element.classList.remove("over"));
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    element.classList.remove("over");
    take(event.dataTransfer.files[0], [...event.dataTransfer.files]);
  });
}
