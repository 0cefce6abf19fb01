/** Why a server, or a rate that somebody measured, is slower than expected: the daemon's causes, each with its evidence and remedy. */
import { get, post } from "./api.js";
import { daemon, on, registry } from "./daemon.js";
import { commandLine, fact, failure, field, fill, h, latest, note, select, sentence } from "./dom.js";
import { ENGINES, OTHER_FORMATS } from "./presets.js";
import * as units from "./units.js";
import { remember, setting } from "./view.js";

const VIEW = "explain";
const LOOK_AGAIN_MS = 10000;
const MODEL = "llama-3.2-3b";
const ENGINE = "llama.cpp";
// Less of the difference is a matter of rounding.
const LEAST_REST = 0.005;
const WATCH = "rooflinectl observe --from 8080 --count 0";

export function create() {
  const servers = h("div", { class: "stack" });
  const answer = h("div", { class: "stack", "aria-live": "polite" });
  const model = select([["", "Loading…"]], "");
  const engine = select(Object.keys(ENGINES).map((key) => [key, key]), setting(VIEW, "engine", ENGINE), () => listFormats(null));
  const format = select([], "");
  const context = h("input", { type: "number", min: "0", step: "1", value: setting(VIEW, "context", ""), placeholder: "4096" });
  const rate = h("input", { type: "number", min: "0", step: "any", value: setting(VIEW, "rate", ""), placeholder: "not measured" });
  const form = h("form", { class: "stack", onsubmit: (event) => {
    event.preventDefault();
    remember(VIEW, { model: model.value, engine: engine.value, format: format.value, context: context.value, rate: rate.value });
    explain();
  } },
  h("div", { class: "form top" }, field("Model", model), field("Engine", engine), field("Weight format", format),
    field("Context, tokens", context, "In the cache of each sequence."),
    field("Measured, tokens/s", rate, "Over the whole batch. Leave it empty to see what slows the machine now.")),
  h("button", { class: "primary" }, "Explain"));
  const element = h("section", { class: "view", "aria-labelledby": "title-explain" },
    h("div", {}, h("h1", { id: "title-explain", tabindex: "-1" }, "Why is it slow?"),
      h("p", { class: "lead" }, "What was measured, what was expected, and what causes the difference. Nothing is blamed for a rate within the interval.")),
    h("section", { class: "card stack", "data-panel": "servers" }, h("h2", {}, "Servers"), servers),
    h("section", { class: "card stack", "data-panel": "rate" }, h("h2", {}, "A rate that you measured"), form, answer));

  let lookedAt = 0;
  let said = null;

  // The last of an engine's own is the one that most people run.
  function listFormats(asked) {
    const known = ENGINES[engine.value] ?? ENGINES[ENGINE];
    const offered = [...new Set([...known, ...Object.values(ENGINES).flat(), ...OTHER_FORMATS])];
    fill(format, offered.map((key) => h("option", { value: key, selected: key === (asked ?? known.at(-1)) }, key)));
  }

  async function listModels() {
    const asked = setting(VIEW, "model", MODEL);
    const { models } = await registry("/v1/models");
    fill(model, models.map(({ key, name }) => h("option", { value: key, selected: key === asked }, name)));
  }

  const explain = latest(async (isLast) => {
    const request = { engine: engine.value, workload: { model: model.value, format: format.value, ...(context.value && { context_tokens: Number(context.value) }) },
      ...(rate.value && { tokens_per_s: Number(rate.value) }) };
    answer.setAttribute("aria-busy", "true");
    try {
      const explained = await post("/v1/explain", request);
      if (isLast()) fill(answer, explanation(explained, "h3"));
    } catch (error) {
      if (isLast()) fill(answer, failure(error));
    } finally {
      if (isLast()) answer.removeAttribute("aria-busy");
    }
  });

  const listServers = latest(async (isLast) => {
    lookedAt = Date.now();
    try {
      const { servers: list } = await get("/v1/servers");
      // Without need nothing is replaced, so that what somebody reads or copies stays where it is.
      const now = JSON.stringify(list.map((entry) => ({ ...entry, explained: { ...entry.explained, serial: 0 } })));
      if (!isLast() || now === said) return;
      said = now;
      fill(servers, list.length ? list.toSorted(slowFirst).map(serverCard) : [h("p", {}, "No server was reported in the last hour. To watch one, give its port:"), commandLine(WATCH)]);
    } catch (error) {
      said = null;
      if (isLast()) fill(servers, failure(error));
    }
  });

  on("state", () => {
    if (element.isConnected && daemon.connected && Date.now() - lookedAt > LOOK_AGAIN_MS) listServers();
  });
  return {
    element,
    async show() {
      listFormats(format.value || setting(VIEW, "format"));
      await Promise.all([listModels(), listServers()]);
      if (setting(VIEW, "model")) await explain();
    },
    refresh() { return this.show(); },
  };
}

const slowFirst = (a, b) => Number(isSlow(b.explained)) - Number(isSlow(a.explained));
const isSlow = ({ verdict }) => verdict === "slower_than_expected";

function serverCard({ server, reported_at_unix_s: at, shown_to: to, not_learned: why, engine, model, format, batch, context_tokens: context, explained }) {
  const ran = [engine, model?.split("/").pop(), format, batch > 1 && `batch ${units.count(batch)}`, context != null && `after ${units.count(context)} tokens`].filter(Boolean);
  return h("section", { class: "stack judged", "data-server": server, "aria-label": server },
    h("div", {}, h("h3", {}, server, " ", h("span", { class: isSlow(explained) ? "tag warned" : "tag" }, units.words(explained.verdict))),
      h("span", { class: "help" }, `${ran.join(", ")}; reported at ${new Date(at * 1000).toLocaleTimeString()}${to === "own" ? ", shown to you only" : ""}`)),
    why && h("p", {}, h("strong", {}, "Not learned from: "), sentence(why)),
    explanation(explained, "h4"));
}

/** An answer of `POST /v1/explain`, in the daemon's words; `heading` is the level of its causes. */
function explanation(explained, heading) {
  const { verdict, reason, measured_tokens_per_s: measured, expected_tokens_per_s: expected, expected_at: at, causes, unexplained_ratio: rest, unexplained_tokens_per_s: restRate, checked = [], unseen } = explained;
  const isUnexplained = rest > LEAST_REST && isSlow(explained);
  return [
    note(isSlow(explained) || causes.length ? "warn" : "info", sentence(reason)),
    h("dl", { class: "facts" },
      fact(verdict === "not_measured" ? "Now" : "Measured", units.tokens(measured)),
      fact("Expected", units.estimate(expected, units.tokens), `At ${at}`)),
    causes.length > 0 && h("ol", { class: "causes" }, causes.map((cause) => h("li", { "data-cause": cause.cause }, h("div", { class: "stack" },
      h(heading, {}, sentence(cause.what)),
      h("dl", { class: "facts" },
        fact("Share of the difference", units.percent(cause.share_ratio), lost(cause.share_tokens_per_s)),
        fact("Reached without it", units.tokens(cause.without_tokens_per_s)),
        fact("How sure", cause.certainty)),
      cause.evidence.length > 0 && h("ul", { class: "plain" }, cause.evidence.map(({ source, value }) => h("li", {}, h("code", {}, source), `: ${value}`))),
      remedy(cause.fix))))),
    isUnexplained && h("p", { "data-unexplained": "" }, h("strong", {}, "Unexplained: "), `${units.percent(rest)} of the difference, ${lost(restRate)}.`),
    checked.length > 0 && h("div", {}, h("p", {}, "Checked, and not the cause:"), h("ul", { class: "plain" }, checked.map(({ what, value, source }) => h("li", {}, sentence(`${what}: ${value ?? "not known"} (${source})`))))),
    unseen.length > 0 && h("div", {}, h("p", {}, "Not seen:"), h("ul", { class: "plain" }, unseen.map(({ what, reason: why, grant }) => h("li", {}, sentence(`${what} (${why})`), " ", sentence(grant))))),
  ];
}

const lost = (value) => `-${units.digits(value)} tokens/s`;

const PROGRAM = /^(sudo|echo|taskset|numactl|nvidia-smi|rooflinectl) /;

/** What to do: a command at its end can be copied. */
function remedy(fix) {
  const [, before, command] = /^(.*[:;] )?([^:;,]+)$/s.exec(fix) ?? [];
  const say = (text) => PROGRAM.test(text) ? text : sentence(text);
  if (!command || !PROGRAM.test(command)) return h("p", {}, h("strong", {}, "To do: "), say(fix));
  return h("div", {}, before ? h("p", {}, h("strong", {}, "To do: "), say(before).replace(/[.:; ]*$/, ":")) : h("p", {}, h("strong", {}, "To do:")), commandLine(command));
}
