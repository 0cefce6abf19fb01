/** What the machine does now and did in the last hour, who holds it, and its power modes. */
import { get } from "./api.js";
import { daemon, on } from "./daemon.js";
import { failure, fill, h, note, sentence, table } from "./dom.js";
import * as modes from "./modes.js";
import * as units from "./units.js";

const HOUR_S = 3600;
const LAPSE_MS = 15000;
// A line shorter than this many values does not fill its width.
const SHORTEST = 24;

// Fields of the state that are a series of their own: how they are shown, and the field that says why one is unknown.
const TILES = [
  { key: "total_power_w", title: "Power", show: units.power, below: (state) => { const of = state.total_power_of?.value; return of && `${of.scope}: ${of.rails.join(", ")}`; } },
  { key: "gpu_hz", title: "GPU clock", show: units.clock, below: (state) => state.gpu_cap_hz?.value && `cap ${units.clock(state.gpu_cap_hz.value)}` },
  { key: "gpu_load_ratio", title: "GPU load", show: units.percent, zero: true },
  { key: "memory_hz", title: "Memory clock (EMC)", show: units.clock, below: (state) => state.memory_cap_hz?.value && `cap ${units.clock(state.memory_cap_hz.value)}` },
  { key: "emc_utilisation_ratio", title: "Memory controller in use", show: units.percent, zero: true },
  { key: "memory_bytes.available", field: "memory_bytes", title: "Memory available", show: units.bytes, zero: true, below: (state) => state.memory_bytes?.value && `of ${units.bytes(state.memory_bytes.value.total)}` },
  { key: "load.busy_ratio", field: "load", title: "CPU in use", show: units.percent, zero: true, below: (state) => state.cores_online?.value && `${state.cores_online.value} cores online` },
  { key: "cpu_hz.0", field: "cpu_hz", title: "CPU clock, core 0", show: units.clock, below: (state) => state.cpu_cap_hz?.value && `cap ${units.clock(state.cpu_cap_hz.value)}` },
];

/** Every number of a state by its path, as the history names them: `rails_w.VDD_IN`, `cpu_hz.0`. */
export function flatten(state) {
  const flat = new Map();
  const walk = (path, value) => {
    if (value === null || typeof value === "number") flat.set(path, value);
    else if (typeof value === "boolean") flat.set(path, Number(value));
    else if (typeof value === "object") for (const [key, inner] of Object.entries(value)) walk(`${path}.${key}`, inner);
  };
  for (const [field, entry] of Object.entries(state)) {
    if (entry && typeof entry === "object" && "value" in entry) walk(field, entry.value);
  }
  return flat;
}

export function create() {
  const tiles = h("div", { class: "tiles" });
  const status = h("div");
  const rest = h("div");
  const since = h("p", { class: "help" });
  const trouble = h("div");
  const holds = h("div");
  const advice = h("div");
  const power = modes.create();
  const element = h("section", { class: "view", "aria-labelledby": "title-live" },
    h("div", {}, h("h1", { id: "title-live", tabindex: "-1" }, "Live and modes"), since), trouble, status, tiles, power.element,
    h("div", { class: "columns" }, h("section", { class: "card stack" }, h("h2", {}, "Holds"), holds), h("section", { class: "card stack" }, h("h2", {}, "Outdated advice"), advice)),
    h("section", { class: "card stack tall" }, h("h2", {}, "Every reading"), rest));

  let everyS = 5;
  let series = new Map();
  let pushedAt = 0;
  // Some readings need two samples and are now and then without a value for one.
  const lastKnown = new Map();

  async function loadHistory() {
    try {
      const answer = await get("/dashboard/history");
      everyS = answer.every_s ?? everyS;
      series = new Map(Object.entries(answer.series ?? {}));
      const from = answer.since_unix_s ?? answer.since;
      since.textContent = `The lines are the last hour, a value every ${units.duration(everyS)}; they begin with the start of rooflinectl dashboard${from ? `, ${new Date(from * 1000).toLocaleTimeString()}` : ""}.`;
      pushedAt = Date.now();
      fill(trouble);
    } catch (error) {
      fill(trouble, failure(error));
    }
  }

  function push() {
    if (!daemon.state || Date.now() - pushedAt < everyS * 1000) return;
    pushedAt = Date.now();
    const now = flatten(daemon.state);
    const length = Math.max(0, ...[...series.values()].map((values) => values.length));
    for (const key of new Set([...series.keys(), ...now.keys()])) {
      const values = series.get(key) ?? Array(length).fill(null);
      series.set(key, [...values, now.get(key) ?? null].slice(-Math.ceil(HOUR_S / everyS)));
    }
  }

  function draw() {
    if (!element.isConnected || !daemon.state) return;
    push();
    const { state } = daemon;
    const now = flatten(state);
    fill(status, facts(state));
    const entries = [...TILES, ...nested(state, "temperatures_c", "Temperature", units.temperature), ...nested(state, "rails_w", "Rail", units.power)];
    entries.forEach((entry, index) => {
      let tile = tiles.children[index];
      if (tile?.dataset.field !== entry.key) {
        tile = h("section", { class: "tile", "data-field": entry.key }, h("h2", {}, entry.title), h("span", { class: "value" }), h("span", { class: "help" }), spark());
        if (tiles.children[index]) tiles.children[index].replaceWith(tile);
        else tiles.append(tile);
      }
      let value = now.get(entry.key) ?? null;
      let reason = value === null && why(state, entry);
      const last = lastKnown.get(entry.key);
      if (value !== null) lastKnown.set(entry.key, { value, at: Date.now() });
      else if (last && Date.now() - last.at < LAPSE_MS) {
        [value, reason] = [last.value, `${units.duration((Date.now() - last.at) / 1000)} ago`];
      }
      const [, shown, below, line] = tile.children;
      shown.textContent = entry.show(value);
      shown.classList.toggle("unknown", value === null);
      below.textContent = reason || entry.below?.(state) || "";
      const past = series.get(entry.key) ?? [];
      // A line of nothing would only take room.
      line.toggleAttribute("hidden", past.every((number) => number === null));
      drawSpark(line, past, entry);
    });
    while (tiles.children.length > entries.length) tiles.lastChild.remove();
    if (!rest.contains(document.activeElement)) fill(rest, everything(state));
  }

  function drawHolds() {
    const answer = daemon.holds;
    if (!answer) return;
    const list = answer.holds;
    fill(holds, h("p", { class: "help" }, `Mode ${answer.active_mode ?? units.UNKNOWN}, because of: ${units.words(answer.cause)}.`),
      list.length === 0 ? h("p", {}, "Nobody holds the machine.") : table("Active holds, the oldest first", [
        { label: "Who", head: true, cell: (hold) => `${hold.app_id || "unnamed"} (user ${hold.uid})` },
        { label: "Needs", cell: (hold) => constraints(hold) },
        { label: "Reason", cell: (hold) => hold.reason || "–" },
        { label: "Met", cell: (hold) => hold.satisfied ? "yes" : `no: ${hold.unmet ?? "unknown why"}` },
        { label: "Ends", cell: (hold) => hold.expires_in_s == null ? "with its program" : `in ${units.duration(hold.expires_in_s)}` },
      ], list, { stacks: true }));
  }

  function drawAdvice() {
    fill(advice, daemon.advice.length === 0 ? h("p", {}, "None since this page was opened.")
      : h("ul", { class: "plain" }, daemon.advice.map(({ at, reason }) => h("li", {}, h("span", { class: "help" }, at.toLocaleTimeString()), sentence(reason)))));
  }

  on("state", draw);
  on("holds", drawHolds);
  on("advice", drawAdvice);
  return {
    element,
    async show() {
      await loadHistory();
      draw();
      drawHolds();
      drawAdvice();
      power.draw();
    },
    refresh() { return this.show(); },
  };
}

const constraints = (hold) => Object.entries(hold.constraints ?? {}).filter(([, value]) => value != null)
  .map(([key, value]) => `${units.words(key.replace(/_(w|hz|bytes_per_s|flops_per_s)$/, ""))} ${shown(key, value)}`).join(", ") || (hold.query ? "a query of its own" : "nothing");

// A number by the unit that its key names.
function shown(key, value) {
  if (value === null) return units.UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  const unit = [["_bytes_per_s", units.bandwidth], ["_flops_per_s", units.rate], ["_w", units.power], ["_hz", units.clock], ["_c", units.temperature], ["_bytes", units.bytes], ["_ratio", units.percent],
    ["_v", (volts) => units.si(volts, "V")], ["_a", (amperes) => units.si(amperes, "A")], ["_s", units.time], ["_rpm", (rpm) => `${units.digits(rpm)} rpm`]].find(([end]) => key.endsWith(end));
  // Such as cores: a count has no decimals.
  return unit ? unit[1](value) : Number.isInteger(value) ? units.count(value) : units.digits(value);
}

function facts(state) {
  const mode = state.power_mode?.value;
  const throttle = state.throttle?.value;
  const engines = state.engines?.value;
  const active = engines?.filter(({ on: running }) => running).map(({ name }) => name);
  const tell = (title, value, below, warn) => h("div", { class: "fact" }, h("dt", {}, title), h("dd", {}, h("span", { class: warn ? "value warned" : "value" }, value), h("span", { class: "help" }, below)));
  return h("dl", { class: "facts" },
    tell("Power mode", mode?.name ?? units.UNKNOWN, mode ? `number ${mode.id}` : state.power_mode?.reason ?? ""),
    tell("Throttling", throttle == null ? units.UNKNOWN : throttle.active ? "throttled" : "none", throttle == null ? state.throttle?.reason ?? "" : throttle.evidence?.map((entry) => typeof entry === "string" ? entry : JSON.stringify(entry)).join("; ") ?? "", throttle?.active),
    tell("SMs online", state.sm_online?.value ?? units.UNKNOWN, state.sm_online?.value == null ? state.sm_online?.reason ?? "" : ""),
    tell("Other engines", engines == null ? units.UNKNOWN : active.length ? active.join(", ") : "idle", engines == null ? state.engines?.reason ?? "" : `of ${engines.map(({ name }) => name).join(", ")}`),
    tell("Fans", state.fans?.value?.length ? state.fans.value.map((fan) => fan.speed_rpm == null ? units.percent(fan.duty_ratio) : `${units.digits(fan.speed_rpm)} rpm`).join(", ") : units.UNKNOWN, state.fans?.value?.length ? state.fan_profile?.value ?? "" : state.fans?.reason ?? "no fan was found"),
    tell("Swap in use", state.memory_bytes?.value ? units.bytes(state.memory_bytes.value.swap_used) : units.UNKNOWN, state.memory_bytes?.reason ?? ""));
}

const nested = (state, field, title, show) => Object.keys(state[field]?.value ?? {}).filter((name) => state[field].value[name] !== null)
  .map((name) => ({ key: `${field}.${name}`, field, title: `${title} ${name}`, show }));

function why(state, entry) {
  const field = state[entry.field ?? entry.key];
  const inner = entry.key.slice((entry.field ?? entry.key).length + 1);
  return field?.reasons?.[inner] ?? field?.reason ?? "the daemon reads no such value here";
}

function spark() {
  const svg = d3.create("svg").attr("class", "spark").attr("viewBox", "0 0 100 40").attr("preserveAspectRatio", "none").attr("aria-hidden", "true");
  svg.append("path");
  return svg.node();
}

function drawSpark(svg, values, entry) {
  const numbers = values.filter((value) => value !== null);
  const [low, high] = entry.zero ? [0, d3.max(numbers) ?? 1] : d3.extent(numbers);
  const span = (high - low) || Math.abs(high) || 1;
  // The end of the line is now, however short the history is.
  const x = d3.scaleLinear([values.length - Math.max(values.length, SHORTEST), values.length - 1], [0, 100]);
  const y = (value) => high === low && !entry.zero ? 20 : 37 - 34 * (value - low) / span;
  const line = d3.line().defined((value) => value !== null).x((_, index) => x(index)).y(y);
  d3.select(svg).select("path").attr("d", line(values));
}

function everything(state) {
  const rows = [];
  const add = (name, key, value, reason) => rows.push({ name, text: value === null ? units.UNKNOWN : shown(key, value), reason });
  const walk = (name, key, value, entry, path) => {
    if (value !== null && typeof value === "object") {
      const list = Array.isArray(value) ? value.map((inner, index) => [inner?.name ?? (inner?.cpu == null ? index : `cpu${inner.cpu}`), inner]) : Object.entries(value);
      if (list.length === 0) rows.push({ name, text: "none", reason: null });
      for (const [inner, each] of list) walk(`${name} ${units.words(inner)}`, /_(w|hz|c|bytes|s|ratio|v|a|rpm)$/.test(inner) ? String(inner) : key, each, entry, path ? `${path}.${inner}` : String(inner));
    } else if (!/ (source|name|cpu)$/.test(name)) add(name, key, value, value === null ? entry.reasons?.[path] ?? entry.reason : null);
  };
  for (const [field, entry] of Object.entries(state)) {
    if (entry && typeof entry === "object" && "value" in entry) walk(units.words(field.replace(/_(w|hz|c|bytes|ratio)$/, "")), field, entry.value, entry, "");
  }
  return table("Everything that the daemon reads, with the reason for each unknown value", [
    { label: "Reading", head: true, cell: (row) => row.name },
    { label: "Value", number: true, cell: (row) => row.text === units.UNKNOWN ? h("span", { class: "unknown" }, row.text) : row.text },
    { label: "Why unknown", cell: (row) => row.reason ?? "" },
  ], rows);
}
