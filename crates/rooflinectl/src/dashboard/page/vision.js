/** A vision network: which precision, batch and power mode reach a frame rate, how sure that is, and what bounds each layer. */
import { layers, post } from "./api.js";
import { daemon, registry } from "./daemon.js";
import { cautions, commandLine, fact, failure, field, fill, h, latest, note, select, sentence, table } from "./dom.js";
import { limitNumber, wholeNumber } from "./form.js";
import { graphOf } from "./onnx.js";
import { dropTarget } from "./overview.js";
import * as units from "./units.js";
import { remember, setting } from "./view.js";

const VIEW = "vision";
const NAME = "detector.onnx";
/** The daemon's limits. */
const MOST_PICTURES = 1024;
const LARGEST_SIZE = 2 ** 31;

const SCOPES = { engine: "engine alone, without copies, resizing or boxes", copies: "engine and copies", frame: "whole frame, before and after the network included" };
const LIMITS = { min_pictures_per_s: "frames per second at least", max_power_w: "power at most" };

const watts = (power) => power ? `${units.estimate(power, units.power)}, ${units.scope(power)}` : units.UNKNOWN;
const nameOf = ({ precision, batch, power_mode: mode }) => [precision, `batch ${units.count(batch)}`, mode && `mode ${mode}`].filter(Boolean).join(", ");
const clocks = ({ workers, clock_hz: clock }) => `${units.count(workers)} workers at ${units.clock(clock)}`;
const missed = (candidate) => candidate.misses.map((key) => LIMITS[key] ?? units.words(key)).join(", ");

export function create() {
  let file = null;
  // Sizes of open dimensions, each with its input, once the file is known to have them.
  const sizes = new Map();
  const number = (key, fallback = "", attributes = {}) => h("input", { type: "number", min: "0", step: "1", value: setting(VIEW, key, fallback), ...attributes });

  const path = h("input", { type: "text", size: "34", spellcheck: "false", autocomplete: "off", placeholder: `/home/me/${NAME}`, value: setting(VIEW, "path", ""), oninput: () => { file = null; fileInput.value = ""; ask([]); } });
  const fileInput = h("input", { type: "file", accept: ".onnx", onchange: () => take(fileInput.files[0]) });
  const fileSlot = h("div", { "aria-live": "polite" });
  const fileArea = h("div", { class: "drop stack" }, field("Or choose the file", fileInput, "Choose it or drop it here. Its graph is read, in this browser, and sent to your own rooflinectl; its weights are not."), fileSlot);
  const sizeSlot = h("div", { class: "form" });
  const board = select([["", "this machine"]], "", () => listModes());
  const engine = select([["", "TensorRT, or ONNX Runtime on a CPU"], ["tensorrt", "TensorRT"], ["onnxruntime", "ONNX Runtime"]], setting(VIEW, "engine", ""));
  const precision = select([["", "any"], ..."fp16 int8 tf32 fp32".split(" ").map((key) => [key, key])], setting(VIEW, "precision", ""));
  const scope = select(Object.entries(SCOPES), setting(VIEW, "scope", "engine"));
  const mode = select([["all", "all modes"]], "all");
  const [batch, streams] = [number("batch", "", { placeholder: "any" }), number("streams", "1")];
  const [fps, power] = [number("fps", "30", { step: "any", placeholder: "none" }), number("power", "", { step: "any", placeholder: "none" })];
  const messages = h("div", { class: "stack", "aria-live": "polite" });
  const results = h("div", { class: "view", hidden: true });
  const form = h("form", { class: "card stack", novalidate: true, onsubmit: (event) => { event.preventDefault(); run(); } },
    h("div", { class: "columns" }, h("div", { class: "stack" }, field("ONNX file", path, "Its path on the machine that runs rooflinectl."), sizeSlot), fileArea),
    h("div", { class: "form" }, field("Board", board), field("Power mode", mode), field("Engine", engine), field("Precision", precision), field("Batch", batch)),
    h("div", { class: "form" }, field("Frames per second at least", fps), field("Streams", streams), field("Power at most, W", power), field("The latency covers", scope)),
    h("button", { class: "primary" }, "Recommend"));
  const element = h("section", { class: "view", "aria-labelledby": "title-vision" },
    h("div", {}, h("h1", { id: "title-vision", tabindex: "-1" }, "Vision network"), h("p", { class: "lead" }, "Which precision, batch and power mode reach a frame rate, and what bounds each layer.")),
    form, messages, results);
  dropTarget(fileArea, take);

  function take(chosen) {
    if (!chosen) return;
    file = chosen;
    path.value = "";
    fill(fileSlot, note("info", chosen.name));
    ask([]);
    run();
  }

  /** Asks for the sizes of these dimensions, or for none. */
  function ask(names, known = {}) {
    sizes.clear();
    for (const name of names) sizes.set(name, h("input", { type: "number", min: "1", step: "1", value: known[name] ?? "" }));
    fill(sizeSlot, [...sizes].map(([name, input]) => field(`Size of ${name}`, input)));
    if (names.length === 0 && !file) fill(fileSlot);
  }

  async function listBoards() {
    const { hardware } = await registry("/v1/hardware");
    const asked = board.value || setting(VIEW, "board", "");
    fill(board, h("option", { value: "" }, `this machine: ${daemon.board.model ?? daemon.board.key}`),
      hardware.filter((entry) => entry.bandwidth_bytes_per_s).map((entry) => h("option", { value: entry.key, selected: entry.key === asked }, entry.name)));
    await listModes();
  }

  const listModes = latest(async (isLast) => {
    const asked = setting(VIEW, "mode", "all");
    const { modes } = board.value ? await registry(`/v1/hardware/${board.value}`) : daemon.board;
    if (isLast()) fill(mode, [["all", "all modes"], ...modes.map(({ name }) => [name, name])].map(([key, text]) => h("option", { value: key, selected: key === asked }, text)));
  });

  /** What the form says, as a request without its network, with `wrong`, for which nothing can be asked. */
  function read() {
    const wrong = [];
    const value = (label, input, check) => {
      const { value: good, problem: why } = input.validity.badInput ? { problem: "that is not a number." } : check(input.value);
      input.setAttribute("aria-invalid", String(Boolean(why)));
      if (why) wrong.push(`${label}: ${why}`);
      return good;
    };
    const pictures = (text) => wholeNumber(text, 1, MOST_PICTURES);
    if (!file && !path.value.trim()) wrong.push("Choose an .onnx file, or give its path.");
    const dimensions = Object.fromEntries([...sizes].map(([name, input]) => [name, value(`Size of ${name}`, input, (text) => wholeNumber(text, 1, LARGEST_SIZE))]));
    const only = value("Batch", batch, (text) => text ? pictures(text) : {});
    const [rate, cameras, most] = [value("Frames per second at least", fps, limitNumber), value("Streams", streams, pictures), value("Power at most, W", power, limitNumber)];
    const workload = { scope: scope.value, ...(engine.value && { engine: engine.value }), ...(precision.value && { precision: precision.value }), ...(only && { batch: only }), ...(board.value && { hardware: board.value }) };
    const constraints = { ...(rate && { min_pictures_per_s: rate }), ...(most && { max_power_w: most }) };
    return { wrong, dimensions, request: { workload, constraints, streams: cameras, power_modes: mode.value === "all" ? "all" : [mode.value] } };
  }

  const run = latest(async (isLast) => {
    const { wrong, dimensions, request } = read();
    remember(VIEW, { path: path.value.trim(), engine: engine.value, precision: precision.value, scope: scope.value, board: board.value, mode: mode.value, batch: batch.value, streams: streams.value, fps: fps.value || "none", power: power.value,
      sizes: sizes.size ? JSON.stringify(dimensions) : null });
    results.classList.toggle("stale", wrong.length > 0);
    if (wrong.length > 0) {
      results.removeAttribute("aria-busy");
      fill(messages, note("warn", wrong.length > 1 ? h("ul", { class: "plain" }, wrong.map((line) => h("li", {}, line))) : wrong, !results.hidden && h("p", { class: "help" }, "The results below are for the previous settings.")));
      return;
    }
    results.setAttribute("aria-busy", "true");
    fill(messages, results.hidden && note("info", `Reading ${file?.name ?? path.value}…`));
    try {
      const named = { path: file?.name ?? path.value.trim(), dimensions };
      const network = file ? await layers(named, await graphOf(file)) : named;
      const answer = await post("/v1/networks/recommend", { ...request, workload: { ...request.workload, network } });
      if (!isLast()) return;
      fill(messages);
      fill(results, recommendation(answer));
      results.hidden = false;
    } catch (error) {
      if (!isLast()) return;
      results.classList.toggle("stale", true);
      fill(messages, askedFor(error, dimensions) ?? failure(error));
    } finally {
      if (isLast()) results.removeAttribute("aria-busy");
    }
  });

  /** Asks for the dimensions that the file leaves open, if that is what went wrong: the daemon names them in its message. */
  function askedFor(error, known) {
    if (error.code !== "missing_field" || !/network\.dimensions$/.test(error.field ?? "")) return null;
    const open = [...error.message.matchAll(/dimension `([^`]+)`/g)].map(([, name]) => name);
    ask([...new Set([...Object.keys(known), ...open])], known);
    sizes.get(open[0])?.focus();
    return note("warn", `The file leaves sizes open. Give the size of ${open.join(", ")}.`);
  }

  /** Takes over what the address says, and names what of it there is not. */
  function restore() {
    let known = {};
    try { known = JSON.parse(setting(VIEW, "sizes", "{}")) ?? {}; } catch { /* Somebody cut the address. */ }
    ask(Object.keys(known), known);
    const unknown = Object.entries({ board, mode, engine, precision, scope }).filter(([key, control]) => setting(VIEW, key, control.value) !== control.value);
    fill(messages, unknown.map(([key, control]) => note("warn", `Unknown ${key} “${setting(VIEW, key)}” in the address: ${control.selectedOptions[0].textContent} is used instead.`)));
    return unknown.length === 0;
  }

  let isRestored = false;
  return {
    element,
    async show() {
      await listBoards();
      if (!isRestored) {
        isRestored = true;
        if (!restore()) return;
      }
      if (file || path.value) await run();
    },
    refresh() { return this.show(); },
    drop: take,
  };
}

/** An answer of `POST /v1/networks/recommend`, in the daemon's words. */
function recommendation({ feasible, choice, prediction, alternatives, considered, command, warnings }) {
  const { layers: kernels, engine_file_bytes: built, generation, rows, reports } = prediction;
  const whole = kernels.reduce((sum, { time_s: time }) => sum + time, 0);
  const rests = rows ? `constants of ${generation} from ${units.count(rows)} measured latencies` : "constants of other generations";
  return [
    h("section", { class: "card stack" }, h("h2", {}, "Recommendation"),
      feasible ? note("info", h("strong", {}, `${nameOf(choice)}. `), considered > 1 && `Best of ${units.count(considered)} candidates.`)
        : note("warn", h("strong", {}, "Nothing meets these limits. "), `Closest: ${nameOf(choice)}, which misses ${missed(choice)}.`),
      h("dl", { class: "facts" },
        fact("Latency", units.estimate(choice.latency_s, units.time), SCOPES[prediction.scope]),
        fact("Frames per second", units.estimate(choice.pictures_per_s, units.digits), "of all streams together"),
        fact("Power", watts(choice.power_w), choice.energy_j_per_picture && `${units.energy(choice.energy_j_per_picture.value)} per picture`),
        fact("Clocks", clocks(choice), `memory ${units.bandwidth(choice.bandwidth_bytes_per_s)}`),
        fact("Engine file", built == null ? "none" : `about ${units.bytes(built)}`),
        fact("Rests on", units.words(prediction.tier), [rests, reports && `${units.count(reports)} reports of runs`].filter(Boolean).join(", "))),
      command && commandLine(command), cautions(warnings),
      alternatives.length > 0 && table(`The others, best first; ${units.count(alternatives.length)} of ${units.count(considered - 1)}`, [
        { label: "Choice", head: true, cell: nameOf },
        { label: "Latency", number: true, cell: (row) => units.estimate(row.latency_s, units.time) },
        { label: "Frames per second", number: true, cell: (row) => units.digits(row.pictures_per_s.value) },
        { label: "Power", number: true, cell: (row) => watts(row.power_w) },
        { label: "Clocks", cell: clocks },
        { label: "Misses", cell: (row) => missed(row) || "–" },
      ], alternatives, { stacks: true })),
    h("section", { class: "card stack tall" }, h("h2", {}, "Layers"), table(`${prediction.network}: ${units.count(kernels.length)} kernels of ${prediction.engine}, ${prediction.precision}`, [
      { label: "Layer", head: true, cell: ({ name }) => name },
      { label: "Kind", cell: ({ kind }) => units.words(kind) },
      { label: "Precision", cell: ({ precision }) => precision },
      { label: "Time", number: true, cell: ({ time_s: time }) => units.time(time) },
      { label: "Share", number: true, cell: ({ time_s: time }) => units.percent(time / whole) },
      { label: "Bound by", cell: ({ bound }) => units.limit(bound) },
    ], kernels, { stacks: true })),
  ];
}
