/** Numbers as people read them: three significant digits, SI prefixes, and "unknown" for what nobody knows. */

export const UNKNOWN = "unknown";

const PREFIXES = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, with thousands set apart: `17.2`, `0.0123`, `50 200`. */
export function digits(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3));
  const size = Math.abs(rounded);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2);
  if (size >= 1000) return String(rounded).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return rounded.toFixed(Math.max(0, 2 - Math.floor(Math.log10(size))));
}

/** With the SI prefix that leaves one to three digits before the point: `si(8.77e10, "B/s")` is `87.7 GB/s`. */
export function si(value, unit) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return `0 ${unit}`;
  const rounded = Math.abs(Number(value.toPrecision(3)));
  const [factor, prefix] = PREFIXES.find(([size]) => rounded >= size) ?? PREFIXES.at(-1);
  return `${digits(value / factor)} ${prefix}${unit}`;
}

/** A count, exact: `2 048`. */
export const count = (value) => known(value) ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f") : UNKNOWN;

/** A tick of a logarithmic axis: `100 G`. */
export const tick = (value) => {
  const [factor, prefix] = PREFIXES.find(([size]) => value >= size * 0.9999) ?? PREFIXES.at(-1);
  return `${Number((value / factor).toPrecision(3))}${prefix && ` ${prefix}`}`;
};

export const time = (value) => si(value, "s");
export const bandwidth = (value) => si(value, "B/s");
export const bytes = (value) => si(value, "B");
export const power = (value) => si(value, "W");
export const energy = (value) => si(value, "J");
export const clock = (value) => si(value, "Hz");
export const intensity = (value) => known(value) ? `${digits(value)} FLOP/B` : UNKNOWN;
export const tokens = (value) => known(value) ? `${digits(value)} tokens/s` : UNKNOWN;
export const percent = (value) => known(value) ? `${digits(value * 100)} %` : UNKNOWN;
export const temperature = (value) => known(value) ? `${digits(value)} °C` : UNKNOWN;
export const times = (value) => known(value) ? `${digits(value)} ×` : UNKNOWN;
/** Operations per second; of integer precisions they are not floating-point ones. */
export const rate = (value, precision) => si(value, precision?.startsWith("int") ? "OP/s" : "FLOP/s");

/** An estimate with its 90 % interval: `684 µs (644 µs to 725 µs)`. */
export function estimate(answer, show) {
  if (!answer || !known(answer.value)) return UNKNOWN;
  if (!known(answer.low) || !known(answer.high)) return show(answer.value);
  return `${show(answer.value)} (${show(answer.low)} to ${show(answer.high)})`;
}

/** How long ago or how long still: `12 s`, `4 min`, `3 h`, `2 days`. */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

const PROVENANCE = {
  measured: "measured here", scaled: "scaled from a measurement", observed: "learned from reports",
  datasheet: "data sheet", prior: "guess from similar boards",
};

/** Where a figure comes from, in words. */
export const provenance = (key) => PROVENANCE[key] ?? (key ? String(key).replaceAll("_", " ") : UNKNOWN);

/** The same of a ceiling, with the age of what was measured. */
export const restsOn = (answer) => answer.provenance === "measured" && answer.age_s != null ? `measured ${duration(answer.age_s)} ago`
  : provenance(answer.provenance);

const LIMITS = {
  dram: "main memory", cache: "cache bandwidth", core: "unpacking weights in the cores", compute: "arithmetic", launch: "starting kernels",
  power_cap: "the power cap",
};

/** What limits a kernel, in words. */
export const limit = (key) => LIMITS[key] ? `${LIMITS[key]} (${key})` : String(key ?? UNKNOWN).replaceAll("_", " ");

/** What a power covers, in words; powers of different scopes cannot be compared. */
export const scope = (power) => power == null ? UNKNOWN : power.scope.startsWith("rail:") ? `${power.scope.slice(5).replaceAll("_", " ")} rail` : power.scope.replaceAll("_", " ");

/** A key of the API as words. */
export const words = (key) => key == null ? UNKNOWN : String(key).replaceAll("_", " ");
