/** Power modes: what each would give, switching with a dialog, and the bar that counts down until a switch is undone. */
import { post } from "./api.js";
import { switchingRefused, daemon, on, refresh } from "./daemon.js";
import { failure, field, fill, h, note, sentence, table } from "./dom.js";
import * as units from "./units.js";

const CONFIRM_WITHIN_S = 60;

/** The table of modes with a switch in each row, and its messages. */
export function create() {
  const slot = h("div");
  const messages = h("div", { "aria-live": "polite" });
  const element = h("section", { class: "card stack", "aria-labelledby": "title-modes" }, h("h2", { id: "title-modes" }, "Power modes"), messages, slot);
  let said = "";

  function draw() {
    const { modes, holds } = daemon;
    if (!modes || !element.isConnected) return;
    const now = JSON.stringify([modes.modes, holds?.pending?.id, holds?.switching, switchingRefused(), daemon.connected]);
    if (now === said) return;
    said = now;
    if (modes.modes.length === 0) {
      fill(slot, h("p", {}, sentence(modes.reason ?? "this machine has no power modes")));
      return;
    }
    const refused = switchingRefused();
    fill(slot, refused && note("info", h("strong", {}, "Modes cannot be switched from here: "), sentence(refused)),
      table("Ceilings of each mode; inactive modes are calculated", columns(refused), modes.modes, { rowClass: (mode) => mode.active && "active", stacks: true }),
      modes.warnings?.map((warning) => h("p", { class: "help" }, sentence(warning.message ?? warning))));
  }

  const columns = (refused) => {
    const precisions = ["fp16", "int8", "fp8", "fp4", "fp32"].filter((key) => daemon.modes.modes.some(({ ceilings }) => ceilings.compute_flops_per_s[key])).slice(0, 3);
    return [
      { label: "Mode", head: true, cell: (mode) => [mode.name, mode.active && [" ", h("span", { class: "tag" }, "active")], mode.default && [" ", h("span", { class: "tag" }, "default")]] },
      { label: "Bandwidth", number: true, cell: ({ ceilings }) => [units.bandwidth(ceilings.bandwidth_bytes_per_s?.value), h("span", { class: "help" }, units.provenance(ceilings.bandwidth_bytes_per_s?.provenance))] },
      ...precisions.map((key) => ({ label: `Peak ${key}`, number: true, cell: ({ ceilings }) => units.rate(ceilings.compute_flops_per_s[key]?.value, key) })),
      { label: "GPU and CPU caps", number: true, cell: (mode) => [mode.gpu_max_hz == null ? "none" : units.clock(mode.gpu_max_hz),
        h("span", { class: "help" }, `${mode.cores_online ?? "all"} cores, ${mode.cpu_max_hz == null ? "no cap" : units.clock(mode.cpu_max_hz)}`)] },
      { label: "Measured power", number: true, cell: (mode) => mode.measured_power_w == null ? unknown("not calibrated in it") : [units.power(mode.measured_power_w), mode.measured_power_scope && h("span", { class: "help" }, units.scope({ scope: mode.measured_power_scope }))] },
      { label: "Worst load", number: true, cell: (mode) => mode.worst_power_w == null ? unknown("nobody measured it") : [units.power(mode.worst_power_w), mode.worst_power_scope && h("span", { class: "help" }, units.scope({ scope: mode.worst_power_scope })), h("span", { class: "help" }, SOURCES[mode.worst_power_source] ?? units.words(mode.worst_power_source))] },
      { label: "Switch", cell: (mode) => switcher(mode, refused) },
    ];
  };

  function switcher(mode, refused) {
    if (mode.active) return "active";
    if (!mode.reachable || mode.reboot_required) {
      return h("div", { class: "refused" }, h("span", { class: "tag" }, mode.reboot_required ? "needs a reboot" : "not reachable"),
        h("span", { class: "help" }, sentence(mode.unreachable_reason ?? "it takes a reboot"), mode.reboot_required && ` Run sudo nvpmodel -m ${mode.id} yourself.`));
    }
    if (refused) return h("span", { class: "help" }, "not from here");
    return h("button", { type: "button", "data-mode": mode.name, disabled: Boolean(daemon.holds?.pending || daemon.holds?.switching || !daemon.connected), onclick: () => ask(mode) }, `Switch to ${mode.name}`);
  }

  function ask(mode) {
    const seconds = h("input", { type: "number", min: "5", max: "3600", step: "1", value: String(CONFIRM_WITHIN_S), required: true });
    const reason = h("input", { type: "text", maxlength: "128", size: "28" });
    const from = daemon.modes.active ?? "the present mode";
    const ceilings = daemon.modes.modes.find(({ active }) => active)?.ceilings;
    const ratio = ceilings && mode.ceilings.bandwidth_bytes_per_s.value / ceilings.bandwidth_bytes_per_s.value;
    const dialog = h("dialog", { "aria-labelledby": "ask-title", onclose: () => dialog.remove() },
      h("form", { class: "stack", onsubmit: (event) => {
        event.preventDefault();
        dialog.close();
        enter(mode, Number(seconds.value), reason.value.trim());
      } },
      h("h2", { id: "ask-title" }, `Switch from ${from} to ${mode.name}?`),
      h("p", {}, "This affects everything that runs on this machine", ratio ? `; memory bandwidth becomes ${units.digits(ratio)} times what it is.` : "."),
      (daemon.holds?.holds ?? []).length > 0 && note("warn", `${daemon.holds.holds.length} active hold(s): the switch is refused if they forbid it.`),
      field("Undo unless confirmed within, seconds", seconds, `${from} comes back by itself unless you press Keep within that time.`),
      field("Reason, for others to see", reason),
      h("div", { class: "form" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), h("button", { class: "primary" }, `Switch to ${mode.name}`))));
    document.body.append(dialog);
    dialog.showModal();
  }

  async function enter(mode, within, reason) {
    fill(messages, note("info", `Switching to ${mode.name}…`));
    try {
      const answer = await post("/v1/mode", { mode: mode.name, confirm_within_s: within, ...(reason && { reason }) });
      fill(messages, note("info", sentence(answer.message)));
    } catch (error) {
      fill(messages, failure(error));
    }
    await refresh("holds", "modes", "roofline", "state").catch(() => { /* The connection says so. */ });
  }

  for (const topic of ["modes", "holds", "connection"]) on(topic, draw);
  return { element, draw };
}

const SOURCES = { measured: "measured here", carried: "carried from another mode", prior: "guess from other boards" };

const unknown = (reason) => h("span", { class: "unknown" }, "unknown", h("span", { class: "help" }, reason));

let pending = null;

on("holds", () => {
  const waits = daemon.holds?.pending;
  // The daemon says how long is left at the moment of its answer.
  pending = waits ? { ...waits, until: Date.now() + waits.within_s * 1000 } : null;
});

/** What waits to be kept or undone, with both buttons; `null` where nothing does. */
export function pendingBar() {
  if (!pending) return null;
  const { id, mode, original } = pending;
  const left = h("span", { class: "left", "aria-hidden": "true" });
  const act = (path, button) => async () => {
    button().disabled = true;
    try {
      await post(path, { id });
    } catch (error) {
      bar.append(failure(error));
    }
    await refresh("holds", "modes", "roofline", "state").catch(() => { /* The connection says so. */ });
  };
  const keep = h("button", { type: "button", class: "primary", onclick: act("/v1/mode/confirm", () => keep) }, `Keep ${mode}`);
  const revert = h("button", { type: "button", onclick: act("/v1/mode/revert", () => revert) }, `Back to ${original}`);
  const bar = h("div", { class: "note warn bar", role: "status", "data-pending": "" }, h("p", {}, h("strong", {}, `${mode} is on trial. `), `${original} comes back by itself unless it is kept.`), left, keep, revert);
  const count = () => {
    left.textContent = pending?.id === id ? `${Math.max(0, Math.ceil((pending.until - Date.now()) / 1000))} s left` : "";
    if (pending?.id === id) setTimeout(count, 500);
  };
  // The bar above is compared by its text, in which seconds must not be.
  setTimeout(count, 0);
  return bar;
}
