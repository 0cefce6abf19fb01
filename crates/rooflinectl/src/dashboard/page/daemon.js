/**
 * What the daemon says, kept up to date by its event stream. Listeners are called by topic: `connection`, `board`, `state`, `modes`,
 * `holds`, `roofline`, `calibration`, `advice`, `measured`. When the stream breaks it is opened again, and everything is read again.
 */
import { ApiError, events, get, post } from "./api.js";

const listeners = new Map();

/** The latest answers; `null` until the first. */
export const daemon = {
  session: null, board: null, state: null, modes: null, holds: null, roofline: null, calibration: null,
  connected: false, trouble: null, advice: [],
};

export function on(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
}

export function tell(topic) {
  for (const listener of listeners.get(topic) ?? []) listener();
}

/** Whether the board is simulated; of no daemon nothing is known. */
export const simulated = () => Boolean(daemon.board?.simulated ?? daemon.session?.simulated);

/** Why nothing can be changed or measured from here; `null` where it can. */
export function controlRefused() {
  const control = daemon.session?.control;
  if (!control) return "the daemon has not answered yet";
  if (!control.available) return control.reason ?? "the control socket cannot be reached";
  if (daemon.holds && !daemon.holds.control_enabled) return "control is disabled: set enabled = true under [control] in /etc/rooflined/conf.d/control.toml and reload";
  return null;
}

/** Why nothing can be measured from here; `null` where it can: root and the daemon's own user may also while control is disabled. */
export const measuringRefused = () => daemon.session?.control?.calibration_available ? null : controlRefused();

/** Why power modes cannot be switched from here; `null` where they can. */
export const switchingRefused = () => controlRefused() ?? daemon.holds?.unavailable ?? daemon.session.control.modes_unavailable ?? null;

const READ = {
  session: "/dashboard/session", board: "/v1/board", state: "/v1/state", modes: "/v1/modes", holds: "/v1/holds", roofline: "/v1/roofline",
  calibration: "/v1/calibration",
};

/** Reads some of the answers again and tells their listeners. */
export async function refresh(...topics) {
  await Promise.all(topics.map(async (topic) => { daemon[topic] = await get(READ[topic]); }));
  topics.forEach(tell);
}

const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

const RETRIES_MS = [1000, 2000, 3000, 5000];
// The daemon sends its state every second or so: a stream that is silent for so long is dead.
const SILENCE_MS = 20000;

/** Follows the daemon for as long as the page is open. Throws only where the token is wrong. */
export async function follow() {
  for (let failures = 0; ; failures += 1) {
    const abort = new AbortController();
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
    };
    try {
      alive();
      await refresh(...Object.keys(READ));
      daemon.connected = true;
      daemon.trouble = null;
      failures = 0;
      tell("connection");
      for await (const { event, data } of events("/v1/events", abort.signal)) {
        alive();
        received(event, data);
      }
      daemon.trouble = "the daemon ended the connection";
    } catch (error) {
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) throw error;
      daemon.trouble = error.name === "AbortError" ? "the daemon has been silent" : error.message;
    }
    clearTimeout(watchdog);
    abort.abort();
    daemon.connected = false;
    tell("connection");
    await wait(RETRIES_MS[Math.min(failures, RETRIES_MS.length - 1)]);
  }
}

// What an event is about is read again once it is quiet for a moment: several arrive together.
let due = new Set();
function soon(...topics) {
  if (due.size === 0) {
    setTimeout(() => {
      const now = [...due];
      due = new Set();
      refresh(...now).catch(() => { /* The stream breaks too, and says so. */ });
    }, 150);
  }
  topics.forEach((topic) => due.add(topic));
}

function received(event, data) {
  if (event === "state") {
    daemon.state = data;
    tell("state");
  } else if (event === "calibration") {
    daemon.calibration = { ...daemon.calibration, status: { ...daemon.calibration?.status, ...data } };
    tell("calibration");
    if (data.running == null) soon("calibration", "roofline", "modes");
  } else if (event === "advice_stale") {
    daemon.advice = [{ at: new Date(), reason: data.reason }, ...daemon.advice].slice(0, 30);
    tell("advice");
  } else if (event === "mode") soon("modes", "holds", "roofline", "state");
  else if (event === "hold") soon("holds");
  else if (event === "roofline") soon("roofline", "modes");
}

const settled = new Map();

/** An answer that does not change while the daemon runs, asked for once: the registries. */
export async function registry(path) {
  if (!settled.has(path)) settled.set(path, get(path));
  try {
    return await settled.get(path);
  } catch (error) {
    settled.delete(path);
    throw error;
  }
}

/**
 * One sweep for each format, since a format that the engine does not run fails the whole request: rows, reasons by format, and warnings.
 * `body` answers the request of a format.
 */
export async function sweepFormats(body, formats, signal) {
  const rows = [];
  const reasons = new Map();
  const warnings = new Set();
  await Promise.all(formats.map(async (format) => {
    try {
      const answer = await post("/v1/sweep", { ...body(format), formats: [format] }, signal);
      rows.push(...answer.rows);
      answer.warnings?.forEach(({ message }) => warnings.add(message));
    } catch (error) {
      if (error.name === "AbortError" || error.status === 0 || error.status >= 500 || !/format|unit/.test(`${error.code} ${error.field}`)) throw error;
      reasons.set(format, error);
    }
  }));
  const place = (row) => formats.indexOf(row.format);
  rows.sort((a, b) => place(a) - place(b));
  return { rows, reasons, warnings: [...warnings] };
}
