/** A model: what each format, mode and batch size gives, which one to choose and why, and how it changes with the context. */
import { get, post } from "./api.js";
import { axes, createChart, spaced } from "./chart.js";
import { daemon, registry, sweepFormats } from "./daemon.js";
import { cautions, commandLine, fact, failure, field, fill, h, latest, note, select, sentence, table, toggles } from "./dom.js";
import { MOST_TOKENS, batchSizes, limitNumber, wholeNumber } from "./form.js";
import { describe as readHeader } from "./header.js";
import { MEASURES, choice, describe, drawHeatmap, heightFor, problem, widthFor } from "./heatmap.js";
import { dropTarget, swatch } from "./overview.js";
import { drawPareto } from "./pareto.js";
import { COLUMNS, predicted } from "./points.js";
import { ENGINES, OTHER_FORMATS } from "./presets.js";
import { drawRoofline, precisionsOf } from "./roofline.js";
import * as units from "./units.js";
import { remember, setting } from "./view.js";

const VIEW = "model";
// A board without power modes, or one whose modes nobody told, has no name for what it runs in.
const WITHOUT_MODES = "";

const CONSTRAINTS = [
  { key: "max_time_per_token_s", label: "Time per token at most, ms", factor: 1e-3 },
  { key: "max_time_to_first_token_s", label: "Time to first token at most, s", factor: 1 },
  { key: "min_tokens_per_s", label: "Tokens/s at least", factor: 1 },
  { key: "max_power_w", label: "Power at most, W", factor: 1 },
  { key: "max_memory_bytes", label: "Memory at most, GB", factor: 1e9 },
  { key: "max_quality_loss_ratio", label: "Quality loss at most, %", factor: 1e-2 },
];

const MAP_COLUMNS = [
  { key: "format", label: "Format", value: (cell) => cell.format },
  { key: "power_mode", label: "Mode", value: (cell) => cell.mode },
  { key: "batch", label: "Batch", value: (cell) => cell.batch, number: true },
  ...[["tokens_per_s", "tokens"], ["time_per_token_s", "latency"], ["power_w", "power"], ["energy_j_per_token", "energy"]].flatMap(([key, name]) => {
    const value = (end) => (cell) => cell.row && MEASURES[name].of(cell.row)?.[end];
    return [{ key, label: MEASURES[name].title, value: value("value"), show: (cell) => cell.row ? `${units.estimate(MEASURES[name].of(cell.row), MEASURES[name].show)}${name === "power" && cell.row.power_w ? `, ${units.scope(cell.row.power_w)}` : ""}` : units.UNKNOWN, number: true },
      { key: `${key}_low`, label: "low", value: value("low"), show: (cell) => MEASURES[name].show(value("low")(cell)), number: true },
      { key: `${key}_high`, label: "high", value: value("high"), show: (cell) => MEASURES[name].show(value("high")(cell)), number: true }];
  }),
  { key: "memory_bytes", label: "Memory", value: (cell) => cell.row?.memory_bytes?.total, show: (cell) => units.bytes(cell.row?.memory_bytes?.total), number: true },
  { key: "not_possible", label: "Not possible because", value: (cell) => problem(cell, MEASURES.tokens)?.reason ?? "" },
];

const CURVE_COLUMNS = [
  { key: "context_tokens", label: "Context", value: (row) => row.context_tokens, number: true },
  { key: "tokens_per_s", label: "Tokens/s (90 % interval)", value: (row) => row.tokens_per_s.value, show: (row) => units.estimate(row.tokens_per_s, units.tokens), number: true },
  { key: "tokens_per_s_low", label: "Low", value: (row) => row.tokens_per_s.low, show: (row) => units.tokens(row.tokens_per_s.low), number: true },
  { key: "tokens_per_s_high", label: "High", value: (row) => row.tokens_per_s.high, show: (row) => units.tokens(row.tokens_per_s.high), number: true },
  { key: "memory_bytes", label: "Memory", value: (row) => row.memory_bytes.total, show: (row) => `${units.bytes(row.memory_bytes.total)}${row.memory_bytes.fits === false ? ", does not fit" : ""}`, number: true },
];

const pickOf = ({ format, mode, batch }) => `${format}@${mode}@${batch}`;
const latencyOf = (candidate) => candidate.prediction.time_per_token_s ?? candidate.prediction.time_s;
const modeOf = (candidate) => candidate.power_mode?.name ?? WITHOUT_MODES;
const nameOf = (candidate) => choice(candidate.format, modeOf(candidate), candidate.batch);
const PARETO_COLUMNS = [
  { key: "choice", label: "Choice", value: (row) => [row.format, modeOf(row), "batch", row.batch].filter(Boolean).join(" "), show: (row) => [nameOf(row), row.decided && [" ", h("span", { class: "tag" }, "recommended")]] },
  { key: "time_per_token_s", label: "Time per token", value: (row) => latencyOf(row).value, show: (row) => units.estimate(latencyOf(row), units.time), number: true },
  { key: "time_to_first_token_s", label: "First token", value: (row) => row.prediction.time_to_first_token_s?.value, show: (row) => units.time(row.prediction.time_to_first_token_s?.value), number: true },
  { key: "tokens_per_s", label: "Tokens/s", value: (row) => row.prediction.tokens_per_s.value, show: (row) => units.tokens(row.prediction.tokens_per_s.value), number: true },
  { key: "power_w", label: "Power", value: (row) => row.prediction.power_w?.value, show: (row) => row.prediction.power_w ? `${units.estimate(row.prediction.power_w, units.power)}, ${units.scope(row.prediction.power_w)}` : units.UNKNOWN, number: true },
  { key: "memory_bytes", label: "Memory", value: (row) => row.prediction.memory_bytes.total, show: (row) => units.bytes(row.prediction.memory_bytes.total), number: true },
  { key: "quality_loss_ratio", label: "Quality loss", value: (row) => row.quality_loss_ratio, show: (row) => units.percent(row.quality_loss_ratio), number: true },
];

export function create() {
  let chosenModel = null;
  let summary = null;
  let file = null;
  let picked = null;
  let abort = new AbortController();
  // Of several choices in a row the last one counts, whichever is answered last.
  let asked = 0;

  const summarySlot = h("div");
  const fileSlot = h("div", { "aria-live": "polite" });
  const messages = h("div", { class: "stack", "aria-live": "polite" });
  // What of a link could not be shown.
  const linkNotes = h("div", { class: "stack", "aria-live": "polite" });
  const mapNote = h("div");
  const adviceSlot = h("div", { class: "stack", "aria-live": "polite" });
  const settingsSlot = h("div", { class: "stack" });
  const formatSlot = h("div");
  /** Remembers what the form was set to, and asks for it; the chosen cell was one of what was asked before. */
  const changed = (changes) => {
    remember(VIEW, { ...changes, pick: null });
    fill(linkNotes);
    run();
  };
  const number = (key, fallback, attributes = {}) => h("input", { type: "number", min: "0", step: "any", value: setting(VIEW, key, fallback), onchange: (event) => changed({ [key]: event.target.value }), ...attributes });

  const modelSelect = select([["", "Loading…"]], "", (key) => { remember(VIEW, { pick: null }); fill(linkNotes); file = null; fill(fileSlot); choose(key); });
  const fileInput = h("input", { type: "file", accept: ".gguf,.safetensors,.json", onchange: () => drop(fileInput.files[0]) });
  const fileArea = h("div", { class: "drop stack" }, field("Or a file: GGUF, safetensors or config.json", fileInput, "Choose it or drop it here. Only its header is read, in this browser, and sent to your own rooflinectl."), fileSlot);
  const engine = select(Object.keys(ENGINES).map((key) => [key, key]), setting(VIEW, "engine", "llama.cpp"), (key) => { remember(VIEW, { engine: key, formats: null }); listFormats(); changed({}); });
  const board = select([["", "this machine"]], "", (key) => changed({ board: key }));
  const inputs = {
    context: number("context", "2048", { step: "1" }), prompt: number("prompt", "512", { step: "1", min: "1" }), output: number("output", "128", { step: "1", min: "1" }),
    batches: h("input", { type: "text", size: "14", value: setting(VIEW, "batches", "1,2,4,8,16"), onchange: () => changed({ batches: inputs.batches.value }) }),
  };
  const kv = select([["", "as the engine"], ["fp16", "fp16"], ["fp8_e4m3", "fp8"], ["q8_0", "q8_0"], ["q4_0", "q4_0"]], setting(VIEW, "kv", ""), (key) => changed({ kv: key }));
  const measure = select(Object.entries(MEASURES).map(([key, { title }]) => [key, title]), setting(VIEW, "show", "tokens"), (key) => { remember(VIEW, { show: key }); drawMap(); });
  const objective = select([["latency", "least time per token"], ["throughput", "most tokens/s"], ["energy", "least energy per token"], ["power", "least power"]], setting(VIEW, "objective", "latency"), (key) => changed({ objective: key }));
  const reboot = h("input", { type: "checkbox", id: "allow-reboot", checked: setting(VIEW, "reboot") === "yes", onchange: () => changed({ reboot: reboot.checked ? "yes" : null }) });
  const limits = CONSTRAINTS.map(({ key }) => number(key, "", { placeholder: "none" }));

  const map = createChart({ name: "heatmap", title: "Every format, mode and batch size", height: () => heightFor(answered.question.formats), columns: MAP_COLUMNS, minimumWidth: 300,
    help: "Hatched: not possible, with the reason. Click a cell, or press Enter on it, for a closer look below." });
  const pareto = createChart({ name: "pareto", title: "Latency, power and memory", height: 340, columns: PARETO_COLUMNS, help: "Pareto front: nothing else is better in one without being worse in another. Larger circles need more memory; the ringed one is recommended." });
  const curve = createChart({ name: "context", title: "Tokens/s over context length", height: 320, columns: CURVE_COLUMNS, help: "The band is the 90 % interval." });
  const roofline = createChart({ name: "model-roofline", title: "Prefill and decode on the roofline", height: 360, columns: COLUMNS });
  const closer = h("h2", {}, "A closer look");
  const results = h("div", { class: "view", hidden: true },
    h("section", { class: "card stack" }, h("div", { class: "form" }, field("Colour shows", measure)), mapNote, map.element),
    h("section", { class: "card stack" }, h("h2", {}, "Recommendation"), h("div", { class: "form" }, field("Objective", objective), limits.map((input, index) => field(CONSTRAINTS[index].label, input)), h("div", { class: "field row" }, reboot, h("label", { for: "allow-reboot" }, "a reboot is fine"))),
      adviceSlot, h("div", { class: "columns" }, pareto.element, settingsSlot)),
    closer, h("div", { class: "columns" }, h("div", { class: "card" }, curve.element), h("div", { class: "card" }, roofline.element)));

  const element = h("section", { class: "view", "aria-labelledby": "title-model" },
    h("div", {}, h("h1", { id: "title-model", tabindex: "-1" }, "Model"), h("p", { class: "lead" }, "Which format, power mode and batch size meet the target, and how sure that is.")),
    h("section", { class: "card stack" }, h("div", { class: "columns" }, h("div", { class: "stack" }, field("Model", modelSelect),
      h("div", { class: "form" }, field("Board", board), field("Engine", engine)),
      h("div", { class: "form" }, field("Context, tokens", inputs.context), field("Prompt, tokens", inputs.prompt), field("Answer, tokens", inputs.output)),
      h("div", { class: "form top" }, field("Key/value cache", kv), field("Batch sizes", inputs.batches, "1,2,8 or 1..64"))), fileArea),
    h("fieldset", {}, h("legend", {}, "Weight formats"), formatSlot)),
    linkNotes, messages, summarySlot, results);
  const dropAny = (first, all) => drop(all.find(({ name }) => /\.(gguf|safetensors)$|config\.json$/i.test(name)) ?? first);
  dropTarget(fileArea, dropAny);

  function formats() {
    const known = ENGINES[engine.value] ?? ENGINES["llama.cpp"];
    const own = file && summary?.format ? [summary.format] : [];
    return setting(VIEW, "formats")?.split(",").filter(Boolean) ?? [...new Set([...own, ...known])];
  }

  function listFormats() {
    const offered = [...new Set([...formats(), ...ENGINES[engine.value], ...Object.values(ENGINES).flat(), ...OTHER_FORMATS])];
    fill(formatSlot, toggles("Weight formats", offered.map((key) => [key, key, swatch(key)]), formats(), (chosen) => {
      changed({ formats: offered.filter((key) => chosen.has(key)).join(",") || null });
    }));
  }

  async function listModels() {
    const [{ models }, { hardware }] = await Promise.all([registry("/v1/models"), registry("/v1/hardware")]);
    const told = setting(VIEW, "model");
    const key = told ?? "llama-3.2-3b";
    fill(modelSelect, h("option", { value: "" }, file || key.startsWith("file:") ? "the file" : "Choose a model"),
      models.map((entry) => h("option", { value: entry.key, selected: entry.key === key }, `${entry.name} (${units.si(entry.parameters, "").replace(" G", " B")})`)));
    fill(board, h("option", { value: "" }, `this machine: ${daemon.board.model ?? daemon.board.key}`),
      hardware.filter((entry) => entry.bandwidth_bytes_per_s).map((entry) => h("option", { value: entry.key, selected: entry.key === setting(VIEW, "board") }, entry.name)));
    const known = models.some((entry) => entry.key === key);
    fill(linkNotes, [["board", "board", board], ["engine", "engine", engine], ["kv", "key/value cache", kv], ["show", "measure", measure], ["objective", "objective", objective]].map(([name, label, control]) => {
      const asked = setting(VIEW, name);
      if (asked === null || asked === control.value) return null;
      remember(VIEW, { [name]: null });
      return note("warn", `Unknown ${label} “${asked}” in the address: ${control.selectedOptions[0].textContent} is used instead.`);
    }), told && !known && !told.startsWith("file:") && note("warn", h("strong", {}, `Unknown model “${told}”. `), "It is not in the registry: choose one, or a file."));
    if (file) return;
    if (key.startsWith("file:")) {
      fill(fileSlot, note("info", `The link is about the file ${key.slice(5)}, which is not part of a link: choose it again.`));
      return;
    }
    if (known) await choose(key);
    else if (!told) await choose(models[0].key);
  }

  async function choose(key) {
    if (!key) return;
    const ticket = (asked += 1);
    try {
      const answer = await registry(`/v1/models/${encodeURIComponent(key)}`);
      if (ticket !== asked) return;
      [chosenModel, summary] = [key, answer];
      // Also where it is the one that is shown without being asked for: a link has to name it.
      remember(VIEW, { model: key });
      listFormats();
      summarise();
      fitLengths();
      await run();
    } catch (error) {
      fill(messages, failure(error));
    }
  }

  async function drop(dropped) {
    if (!dropped) return;
    const ticket = (asked += 1);
    fill(fileSlot, note("info", `Reading the header of ${dropped.name}…`));
    try {
      const answer = await readHeader(dropped);
      if (ticket !== asked) return;
      file = dropped.name;
      [chosenModel, summary] = [answer.model, answer.summary];
      modelSelect.value = "";
      remember(VIEW, { model: `file:${dropped.name}`, formats: null, pick: null });
      fill(linkNotes);
      fill(fileSlot, note("info", `${dropped.name}: read ${units.bytes(answer.read_bytes)} of ${units.bytes(dropped.size)}.`));
      listFormats();
      summarise();
      fitLengths();
      await run();
    } catch (error) {
      fill(fileSlot, failure(error));
    }
  }

  function summarise() {
    const { layers } = summary;
    fill(summarySlot, h("dl", { class: "facts" },
      fact("Model", summary.name, [summary.family, file && `file ${file}`].filter(Boolean).join(", ")),
      fact("Parameters", units.si(summary.parameters, "").replace(" G", " billion").replace(" M", " million"), summary.active_parameters < summary.parameters * 0.9 ? `${units.si(summary.active_parameters, "").replace(" G", " billion")} active per token` : `${layers.total} layers`),
      fact("Weights", units.bytes(summary.bytes), summary.format ? `as ${summary.format}` : `${units.digits(summary.bits_per_weight)} bits each`),
      fact("Read per token", units.bytes(summary.bytes_per_token), "without the cache"),
      fact("Cache per token", units.bytes(summary.kv_bytes_per_token), `as ${summary.kv_format}`),
      fact("Longest context", summary.context_tokens ? `${units.count(summary.context_tokens)} tokens` : units.UNKNOWN, summary.confidence === "guess" ? "figures are a guess" : summary.confidence === "recalled" ? "figures are recalled, not read" : "")),
    cautions(summary.warnings));
  }

  /** Lengths that nobody set or removed: together no longer than the model's longest context. */
  function fitLengths() {
    const most = summary.context_tokens ?? Infinity;
    const [prompt, output] = [Math.min(512, Math.floor(most / 4)), Math.min(128, Math.floor(most / 16))];
    for (const [key, length] of Object.entries({ prompt, output, context: Math.min(2048, most - prompt - output) })) {
      if (!setting(VIEW, key) && inputs[key].value) inputs[key].value = String(Math.max(length, 1));
    }
  }

  const hardware = async () => board.value ? registry(`/v1/hardware/${board.value}`) : null;

  /**
   * What the form says: `{ context, prompt, output, sizes, constraints }`, with `wrong`, for which nothing can be asked, and `omitted`,
   * what of the batch sizes counts for nothing.
   */
  function read() {
    const wrong = [];
    const value = (label, input, key, check) => {
      // Of what is no number an input of that type says nothing; the address may still say it.
      const { value: good, problem: why } = input.validity.badInput ? { problem: "that is not a number." } : check(input.value || setting(VIEW, key, ""));
      input.setAttribute("aria-invalid", String(Boolean(why)));
      if (why) wrong.push(`${label}: ${why}`);
      return good;
    };
    const tokens = (label, key, least) => value(label, inputs[key], key, (said) => wholeNumber(said, least, MOST_TOKENS));
    const [context, prompt, output] = [tokens("Context, tokens", "context", 0), tokens("Prompt, tokens", "prompt", 1), tokens("Answer, tokens", "output", 1)];
    const constraints = CONSTRAINTS.map(({ key, label, factor }, index) => [key, value(label, limits[index], key, limitNumber), factor])
      .filter(([, limit]) => limit != null).map(([key, limit, factor]) => [key, limit * factor]);
    const { sizes, problems } = batchSizes(inputs.batches.value);
    inputs.batches.setAttribute("aria-invalid", String(problems.length > 0));
    const named = problems.map((why) => `Batch sizes: ${why}`);
    if (sizes.length === 0) wrong.push(...named);
    return { wrong, omitted: sizes.length ? named : [], context, prompt, output, sizes, constraints: Object.fromEntries(constraints) };
  }

  // What is shown, with the question that it answers: `{ question, cells, columns, advice }`. The form may say something else by now.
  let answered = null;

  /** Asks everything again for what the form says; what was still under way is dropped. */
  async function run() {
    if (!chosenModel) return;
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    const { wrong, omitted, ...said } = read();
    const list = (lines) => lines.length === 1 ? h("p", {}, lines) : h("ul", { class: "plain" }, lines.map((line) => h("li", {}, line)));
    results.classList.toggle("stale", wrong.length > 0);
    if (wrong.length > 0) {
      results.removeAttribute("aria-busy");
      fill(messages, note("warn", list(wrong), !results.hidden && h("p", { class: "help" }, "The results below are for the previous settings.")));
      return;
    }
    const question = { ...said, formats: formats(), common: common(), objective: objective.value, reboot: reboot.checked, model: chosenModel, summary };
    results.setAttribute("aria-busy", "true");
    try {
      fill(messages, omitted.length > 0 && note("warn", list(omitted)));
      const part = await hardware();
      const modes = part ? part.modes.map(({ name }) => name) : daemon.board.modes.map(({ name }) => name);
      const [swept, advice] = await Promise.all([sweep(question, modes, signal), recommend(question, modes, signal)]);
      answered = { question, ...swept, advice };
      const { cells } = answered;
      const pick = setting(VIEW, "pick");
      picked = pick && (cells.find((cell) => cell.row && pickOf(cell) === pick) ?? null);
      if (pick && !picked) {
        remember(VIEW, { pick: null });
        linkNotes.append(note("warn", `The link points at ${choice(...pick.split("@"))}, which is not among the current settings.`));
      }
      results.hidden = false;
      drawMap();
      drawAdvice();
      await lookCloser(signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(messages, failure(error));
    } finally {
      if (!signal.aborted) results.removeAttribute("aria-busy");
    }
  }

  // The bytes of a file are exact and hold for its own format; in another one it is predicted as if it were quantised again.
  const modelIn = ({ model, summary: { format: own } }, format) => model.definition?.exact && format !== own
    ? { ...model, definition: { ...model.definition, exact: false } } : model;

  const common = () => ({ engine: engine.value, ...(board.value && { hardware: board.value }), ...(kv.value && { kv_format: kv.value }) });

  async function sweep(question, modes, signal) {
    const { context, sizes } = question;
    const { rows, reasons, warnings } = await sweepFormats((format) => ({
      ...question.common, models: [modelIn(question, format)], phase: "decode", contexts: [context], batches: sizes, ...(modes.length && { power_modes: modes }),
    }), question.formats, signal);
    const columns = (modes.length ? modes : [WITHOUT_MODES]).flatMap((mode) => sizes.map((batch) => ({ mode, batch })));
    const cells = question.formats.flatMap((format) => columns.map((column) => ({
      format, ...column, reason: reasons.get(format)?.message,
      row: rows.find((row) => row.format === format && row.batch === column.batch && (row.power_mode?.name ?? WITHOUT_MODES) === column.mode),
    })));
    return { cells, columns, warnings };
  }

  async function recommend(question, modes, signal) {
    const { kv_format: kvFormat, ...rest } = question.common;
    const { context, prompt, output, sizes, constraints } = question;
    const body = (usable) => ({
      ...rest, objective: question.objective, constraints,
      workload: { model: question.model, phase: "serve", context_tokens: context, prompt_tokens: prompt, output_tokens: output, ...(kvFormat && { kv_format: kvFormat }) },
      freedom: { formats: usable, batch: { min: sizes[0], max: sizes.at(-1) }, ...(modes.length && { power_modes: modes }), allow_reboot: question.reboot },
    });
    // One format that the engine does not run is named in the error; it is left out, and the others are judged.
    let usable = question.formats;
    for (;;) {
      try {
        return await post("/v1/recommend", body(usable), signal);
      } catch (error) {
        const named = usable.find((format) => new RegExp(`(^|[^\\w])${format}([^\\w]|$)`).test(error.message ?? ""));
        if (error.status !== 400 || !/format|unit/.test(error.code) || !named || usable.length === 1) {
          if (error.name === "AbortError") throw error;
          return { error };
        }
        usable = usable.filter((format) => format !== named);
      }
    }
  }

  function drawMap() {
    const { question, cells, columns, warnings } = answered;
    const what = MEASURES[measure.value];
    map.element.querySelector(".canvas").style.setProperty("--least", `${widthFor(columns)}px`);
    const impossible = cells.filter((cell) => problem(cell, what)).length;
    const reasons = [...new Set(cells.map((cell) => !cell.row && cell.reason && `${cell.format}: ${cell.reason}`).filter(Boolean))];
    fill(mapNote, h("p", { class: "help" }, `Decode with ${units.count(question.context)} tokens of context. ${impossible ? `${impossible} of ${cells.length} are not possible or unknown.` : "All are possible."}`),
      question.model.definition?.exact && h("p", { class: "help" }, `The file’s own format, ${question.summary.format}, by its exact bytes; the others as if it were quantised again.`),
      reasons.map((reason) => h("p", { class: "help" }, sentence(reason))), cautions(warnings));
    map.update((svg, width, height) => {
      const wide = Math.max(width, widthFor(columns));
      svg.attr("viewBox", `0 0 ${wide} ${height}`).attr("width", wide);
      return drawHeatmap(svg, wide, { cells, formats: question.formats, columns, measure: what, chosen: current(), choose: (cell) => { picked = cell; remember(VIEW, { pick: pickOf(cell) }); drawMap(); lookCloser(abort.signal).catch((error) => { if (error.name !== "AbortError") fill(messages, failure(error)); }); } });
    }, cells);
  }

  function drawAdvice() {
    const { question: { common: { engine: asker, hardware: other } }, advice } = answered;
    if (advice.error) {
      fill(adviceSlot, failure(advice.error));
      pareto.element.hidden = true;
      fill(settingsSlot);
      return;
    }
    const { decision, feasible } = advice;
    const best = decision ?? advice.closest;
    const otherEngine = advice.engines?.find((of) => of.engine !== advice.engine && of.feasible);
    const front = [...(best ? [{ ...best, decided: feasible }] : []), ...advice.alternatives];
    fill(adviceSlot,
      feasible ? h("div", { class: "note info" }, h("p", {}, h("strong", {}, `${nameOf(decision)}. `), sentence(advice.reason)))
        : note("warn", h("p", {}, h("strong", {}, "Nothing meets these constraints. "), sentence(advice.reason)), best && h("p", {}, `Closest: ${nameOf(best)}.`)),
      advice.rejected.length > 0 && h("p", { class: "help" }, `Of ${advice.candidates} candidates, excluded: ${advice.rejected.map(({ by, count: many }) => `${many} by ${units.words(by.replace(/_(s|w|bytes|ratio)$/, ""))}`).join(", ")}.`),
      otherEngine?.candidate && h("p", { class: "help" }, `The best other engine is ${otherEngine.engine}: ${nameOf(otherEngine.candidate)}, ${units.estimate(otherEngine.candidate.prediction.tokens_per_s, units.tokens)}.`),
      cautions(advice.warnings),
      advice.next_best_measurement && h("p", { class: "help" }, sentence(`for a better estimate: ${advice.next_best_measurement}`)));
    pareto.element.hidden = front.length === 0;
    pareto.update((svg, width, height) => drawPareto(svg, width, height, front, describe), front);
    const settings = Object.entries(advice.apply?.settings ?? {});
    const mine = settings.find(([name]) => name === asker);
    const others = settings.filter(([name]) => name !== asker);
    const line = ([name, text]) => [h("h3", {}, name), /^not available/.test(text) ? h("p", { class: "help" }, sentence(text)) : commandLine(text)];
    fill(settingsSlot, mine && [h("h2", {}, "Engine settings"), line(mine)], others.length > 0 && h("details", {}, h("summary", {}, "Other engines"), h("div", { class: "stack" }, others.map(line))),
      !other && decision && daemon.modes?.modes.length > 0 && modeOf(decision) !== daemon.modes.active && h("p", {}, `It is for mode ${modeOf(decision)}: switch under `, h("a", { href: "#live" }, "Live and modes"), "."));
  }

  function current() {
    if (picked) return picked;
    const { cells, advice } = answered;
    const best = advice.decision ?? advice.closest;
    const cell = best && cells.find((other) => other.row && other.format === best.format && other.mode === modeOf(best) && other.batch === best.batch);
    return cell ?? (best ? { format: best.format, mode: modeOf(best), batch: best.batch } : cells.find((other) => other.row && other.row.memory_bytes.fits !== false) ?? cells.find((other) => other.row));
  }

  const lookCloser = latest(async (isLast, signal) => {
    const { question, cells } = answered;
    const cell = current();
    closer.textContent = cell ? `A closer look: ${choice(cell.format, cell.mode, cell.batch)}` : "A closer look";
    if (!cell) return;
    const point = cell.mode === WITHOUT_MODES ? {} : { operating_point: { power_mode: cell.mode } };
    const most = question.summary.context_tokens ?? 32768;
    const contexts = [...d3.range(7, 18).map((power) => 2 ** power).filter((tokens) => tokens < most), most].slice(-12);
    const { kv_format: kvFormat, ...rest } = question.common;
    const query = new URLSearchParams({ ...(rest.hardware && { hardware: rest.hardware }), ...(cell.mode !== WITHOUT_MODES && { mode: cell.mode }) });
    const workload = { model: modelIn(question, cell.format), format: cell.format, ...(kvFormat && { kv_format: kvFormat }) };
    const { prompt } = question;
    const [{ rows }, ceilings, prefill] = await Promise.all([
      post("/v1/sweep", { ...question.common, models: [modelIn(question, cell.format)], formats: [cell.format], phase: "decode", contexts, batches: [cell.batch], ...(cell.mode !== WITHOUT_MODES && { power_modes: [cell.mode] }) }, signal),
      get(`/v1/roofline?${query}`, signal),
      post("/v1/predict", { ...rest, ...point, workload: { ...workload, phase: "prefill", prompt_tokens: prompt, batch: 1 } }, signal),
    ]);
    if (!isLast()) return;
    curve.update((svg, width, height) => drawCurve(svg, width, height, rows), rows);
    const decode = cells.filter((other) => other.row && other.format === cell.format && other.mode === cell.mode)
      .map((other) => ({ ...predicted(other.row, `decode, batch ${other.batch}`, cell.format), short: `decode ${other.batch}` }));
    const points = [...decode, { ...predicted(prefill, `prefill, ${prompt} tokens`, cell.format), short: "prefill" }];
    const series = [{ name: cell.mode, roofline: ceilings }];
    const needed = new Set([...precisionsOf(series)].filter((precision) => ["fp16", "fp32", "int8", "fp8", "fp4"].includes(precision)));
    roofline.update((svg, width, height) => drawRoofline(svg, width, height, { series, points, shown: needed }), points);
  });

  return {
    element,
    async show() {
      listFormats();
      await listModels();
    },
    hide() { abort.abort(); },
    drop: dropAny,
    refresh() { return chosenModel ? run() : this.show(); },
  };
}

function drawCurve(svg, width, height, rows) {
  const margin = { left: 56, right: 16, top: 24, bottom: 44 };
  const x = d3.scaleLog(d3.extent(rows, (row) => row.context_tokens), [margin.left, width - margin.right]).base(2);
  const y = d3.scaleLinear([0, d3.max(rows, (row) => row.tokens_per_s.high) * 1.05], [height - margin.bottom, margin.top]);
  axes(svg, { x, y, width, height, margin, xLabel: "Context, tokens", yLabel: "Tokens/s", xTicks: spaced(x, rows.map((row) => row.context_tokens).toReversed(), 38), yTicks: y.ticks(5),
    xFormat: (value) => value >= 1024 ? `${units.digits(value / 1024).replace(/\.0+$/, "")}k` : value, yFormat: (value) => value });
  svg.append("path").attr("class", "band").attr("d", d3.area().x((row) => x(row.context_tokens)).y0((row) => y(row.tokens_per_s.low)).y1((row) => y(row.tokens_per_s.high))(rows));
  svg.append("path").attr("class", "curve").attr("d", d3.line().x((row) => x(row.context_tokens)).y((row) => y(row.tokens_per_s.value))(rows));
  return rows.map((row) => {
    const [px, py] = [x(row.context_tokens), y(row.tokens_per_s.value)];
    const dot = svg.append("circle").attr("class", row.memory_bytes.fits === false ? "dot hollow" : "dot").attr("cx", px).attr("cy", py).attr("r", 3.6);
    return { node: dot.node(), x: px, y: py, title: `${units.count(row.context_tokens)} tokens of context`, distance: (mx) => Math.abs(mx - px), rows: describe(row) };
  });
}
