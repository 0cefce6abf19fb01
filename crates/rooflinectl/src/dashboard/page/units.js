/** Numbers as people read them, and as rooflinectl prints them (src/figures.json): three significant digits, SI prefixes, and "unknown". */

export const UNKNOWN = "unknown";

const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"], [1e-12, "p"]];

const known = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits: `17.2`, `0.0123`, `50200`. */
export function digits(value) {
  if (!known(value)) return UNKNOWN;
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3));
  const size = Math.abs(rounded);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2).replace("+", "");
  if (size >= 1000) return String(rounded);
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

/** A count, exact: `2048`. */
export const count = (value) => known(value) ? String(Math.round(value)) : UNKNOWN;

/** A tick of a logarithmic axis: `100 G`. */
export const tick = (value) => {
  const [factor, prefix] = PREFIXES.find(([size]) => value >= size * 0.9999) ?? PREFIXES.at(-1);
  return `${Number((value / factor).toPrecision(3))}${prefix && ` ${prefix}`}`;
};

// From here on people count minutes.
const LONG_TIME_S = 119.5;
const STEPS = [[86400, "days", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

/** `117 µs`; long ones as `2 min 5 s`, `3 h 20 min`. */
export function time(value) {
  if (!known(value) || Math.abs(value) < LONG_TIME_S) return si(value, "s");
  const [large, largeName, small, smallName] = STEPS.find(([size]) => Math.abs(value) >= 1.95 * size) ?? STEPS.at(-1);
  const whole = Math.round(Math.abs(value) / small);
  const per = large / small;
  return `${value < 0 ? "-" : ""}${Math.floor(whole / per)} ${largeName}${whole % per ? ` ${whole % per} ${smallName}` : ""}`;
}
export const bandwidth = (value) => si(value, "B/s");
export const bytes = (value) => si(value, "B");
export const power = (value) => si(value, "W");
export const energy = (value) => si(value, "J");
export const clock = (value) => si(value, "Hz");
export const intensity = (value) => known(value) ? `${digits(value)} FLOP/B` : UNKNOWN;
export const tokens = (value) => known(value) ? `${digits(value)} tokens/s` : UNKNOWN;
/** `3.1 %`, `100 %`, and `24.6 times` where nobody thinks in percent. */
export function percent(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 0.0005) return "0.0 %";
  if (size < 0.9995) return `${(value * 100).toFixed(1)} %`;
  return size < 9.9995 ? `${digits(value * 100)} %` : `${digits(value)} times`;
}
/** The same of a difference: `+3.1 %`, and `247 times` of what is so many times as much. */
export const signedPercent = (value) => value >= 9.9995 ? percent(1 + value) : `${value < 0 || !known(value) ? "" : "+"}${percent(value)}`;
export const temperature = (value) => known(value) ? `${(Math.abs(value) < 0.05 ? 0 : value).toFixed(1)} °C` : UNKNOWN;
export const times = (value) => known(value) ? `${digits(value)} ×` : UNKNOWN;
/** Operations per second; of integer precisions they are not floating-point ones. */
export const rate = (value, precision) => si(value, precision?.startsWith("int") ? "OP/s" : "FLOP/s");

// `2 min 5 s` has no unit of its own.
const unitOf = (text) => /^[^ ]+ ([^ ]+)$/.exec(text)?.[1];

/** An estimate with its 90 % interval, and its unit once where all have the same: `684 µs (644 to 725 µs)`. */
export function estimate(answer, show) {
  if (!answer || !known(answer.value)) return UNKNOWN;
  if (!known(answer.low) || !known(answer.high)) return show(answer.value);
  const [value, low, high] = [answer.value, answer.low, answer.high].map(show);
  const unit = unitOf(value);
  const isShared = unit && unit === unitOf(low) && unit === unitOf(high);
  return `${value} (${isShared ? low.split(" ")[0] : low} to ${high})`;
}

/** How long ago or how long still: `under 1 s`, `12 s`, `4 min`, `3 h`, `2 days`. */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 1) return "under 1 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
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
  dram: "memory bandwidth", cache: "cache bandwidth",
  core: "dequantizing the weights in the cores", compute: "arithmetic", launch: "launching kernels", power_cap: "the power cap",
};

/** What limits a kernel, in words. */
export const limit = (key) => LIMITS[key] ? `${LIMITS[key]} (${key})` : String(key ?? UNKNOWN).replaceAll("_", " ");

/** What a power covers, in words; powers of different scopes cannot be compared. */
export const scope = (power) => power == null ? UNKNOWN : power.scope.startsWith("rail:") ? `${power.scope.slice(5).replaceAll("_", " ")} rail` : power.scope.replaceAll("_", " ");

/** A key of the API as words. */
export const words = (key) => key == null ? UNKNOWN : String(key).replaceAll("_", " ");
