/**
 * What is being looked at, as the fragment of the address: `#model?model=llama-3.1-8b&context=2048`. A link with it restores the
 * view; the token is never part of it. What a view was set to is remembered while another one is looked at.
 */

const states = new Map();
let shown = null;

/** Reads the address: answers the name of the view, `fallback` where it names none of `known`. */
export function read(known, fallback) {
  const [name, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  shown = known.includes(name) ? name : fallback;
  if (query) states.set(shown, new URLSearchParams(query));
  return shown;
}

/** One setting of a view, `fallback` where the address does not say. */
export const setting = (view, key, fallback = null) => states.get(view)?.get(key) ?? fallback;

/** A setting that is a number; `fallback` where the address says none or nonsense. */
export function numberSetting(view, key, fallback = null) {
  const value = Number.parseFloat(setting(view, key, ""));
  return Number.isFinite(value) ? value : fallback;
}

/** Remembers settings of a view, `null` forgets one; the address follows while that view is shown. */
export function remember(view, changes) {
  const state = states.get(view) ?? new URLSearchParams();
  for (const [key, value] of Object.entries(changes)) {
    if (value == null || value === "") state.delete(key);
    else state.set(key, value);
  }
  states.set(view, state);
  if (view === shown) history.replaceState(null, "", hash(view));
}

/** The fragment that restores a view. */
export function hash(view) {
  const query = states.get(view)?.toString();
  // Commas, colons and at signs may stand in a fragment, and are easier to read.
  return `#${view}${query ? `?${query.replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%40", "@")}` : ""}`;
}

/** The whole address of what is shown, to keep or to send to somebody with access to the same dashboard. */
export const link = () => location.origin + location.pathname + hash(shown);
