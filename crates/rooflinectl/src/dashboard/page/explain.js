/** Why this machine, or a server that was observed on it, is slower than expected: the causes, each with its evidence and its remedy. */
import { get, post } from "./api.js";
import { commandLine, failure, field, fill, h, latest, note, select, sentence, table } from "./dom.js";
import * as units from "./units.js";

// A product whose weights no cache holds, as `rooflinectl doctor` uses it.
const MACHINE = { workload: { op: { kind: "gemv", n: 8192, k: 8192 }, format: "fp32" } };
const MOST_REPORTS = 20;

/** The request that explains what was reported of a server. */
export function requestOf(report) {
  const { model, op, format, phase, batch, context_tokens, prompt_tokens, engine, time_s } = report;
  const what = op ? { op } : { model: model.startsWith("/") ? { path: model } : model, phase, batch, context_tokens, ...(prompt_tokens && { prompt_tokens }) };
  return { workload: { ...what, format }, engine, time_s };
}

function nameOf(report) {
  const what = report.model?.split("/").pop() ?? `${report.op?.kind ?? "operation"}`;
  const context = report.context_tokens == null ? "" : ` after ${report.context_tokens} tokens`;
  return `${report.engine}: ${what} ${report.format}${report.batch > 1 ? ` x${report.batch}` : ""}${context}, ${units.time(report.time_s)}`;
}

export function create() {
  let reports = [];
  const subject = h("div");
  const answer = h("div", { class: "stack", "aria-live": "polite" });
  let chosen = "machine";

  const explain = latest(async (isLast) => {
    const report = reports.find(({ id }) => String(id) === chosen);
    try {
      const explained = await post("/v1/explain", report ? requestOf(report) : MACHINE);
      if (isLast()) fill(answer, shown(explained));
    } catch (error) {
      if (isLast()) fill(answer, failure(error));
    }
  });

  async function load() {
    try {
      const { observations } = await get("/v1/observations");
      reports = observations.slice(-MOST_REPORTS).reverse();
    } catch {
      // The machine itself can still be explained.
      reports = [];
    }
    if (!reports.some(({ id }) => String(id) === chosen)) chosen = "machine";
    const options = [["machine", "this machine now"], ...reports.map((report) => [String(report.id), nameOf(report)])];
    fill(subject, field("Slower than expected?", select(options, chosen, (value) => {
      chosen = value;
      explain();
    }), reports.length ? "" : "To list a server here, run: rooflinectl observe --from PORT"));
  }

  const again = h("button", { type: "button", onclick: async () => { await load(); await explain(); } }, "Look again");
  const element = h("section", { class: "card stack", "data-panel": "explain" }, h("h2", {}, "Why is it slow"), h("div", { class: "form" }, subject, again), answer);
  return { element, async show() { await load(); await explain(); } };
}

function shown({ verdict, reason, measured_tokens_per_s: measured, expected_tokens_per_s: expected, expected_at: at, causes, unexplained_ratio: rest, unseen }) {
  const kind = causes.length || verdict === "slower_than_expected" ? "warn" : "info";
  const rate = (value) => `${units.digits(value)} /s`;
  const parts = [note(kind, h("p", {}, h("strong", {}, sentence(units.words(verdict))), " ", sentence(reason)),
    h("p", { class: "help" }, `${verdict === "not_measured" ? "Now" : "Measured"} ${rate(measured)}; expected ${units.estimate(expected, rate)} at ${at}.`))];
  if (causes.length) {
    parts.push(table("Causes", [
      { label: "Cause", head: true, cell: (cause) => [sentence(cause.what), h("span", { class: "help" }, cause.evidence.map(({ source, value }) => `${source}: ${value}`).join("; "))] },
      { label: "Share", number: true, cell: (cause) => units.percent(cause.share_ratio) },
      { label: "Without it", number: true, cell: (cause) => rate(cause.without_tokens_per_s) },
      { label: "Certainty", cell: (cause) => cause.certainty },
      { label: "Remedy", cell: (cause) => /^(sudo|echo|taskset|rooflinectl) /.test(cause.fix) && !/[;,]/.test(cause.fix) ? commandLine(cause.fix) : sentence(cause.fix) },
    ], causes));
    if (rest > 0.005 && verdict === "slower_than_expected") parts.push(h("p", {}, `Unexplained: ${units.percent(rest)} of the difference.`));
  }
  if (unseen.length) parts.push(h("ul", { class: "plain" }, unseen.map(({ what, reason: why, grant }) => h("li", {}, sentence(`not seen: ${what} (${why})`), " ", sentence(grant)))));
  return parts;
}
