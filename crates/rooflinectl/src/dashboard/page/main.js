/** Starts the page: the token, the connection, the bars above every view, and the views themselves, each loaded and made when first looked at. */
import { ApiError, get, setToken, takeToken } from "./api.js";
import { redrawAll } from "./chart.js";
import { daemon, follow, on, simulated } from "./daemon.js";
import { commandLine, copyButton, failure, field, fill, h, note, sentence } from "./dom.js";
import { pendingBar } from "./modes.js";
import * as theme from "./theme.js";
import * as units from "./units.js";
import { hash, link, read } from "./view.js";

const VIEWS = {
  roofline: ["Roofline", () => import("./overview.js")],
  spot: ["Spot check", () => import("./spot.js")],
  model: ["Model", () => import("./model.js")],
  vision: ["Vision network", () => import("./vision.js")],
  explain: ["Explain", () => import("./explain.js")],
  live: ["Live and modes", () => import("./live.js")],
};
const made = new Map();
let current = null;
// Of several views opened in a row the last one counts, whichever is drawn last.
let opened = 0;
// What is said above a view that could not be drawn.
let trouble = null;

const slot = (id) => document.getElementById(id);

// A link is only worth its fragment: the address without the token.
fill(slot("footer"), copyButton("Copy a link to this view", link), " The link has no token: open it in a tab that was opened with rooflinectl’s address.");
theme.start(slot("theme"), redrawAll);
slot("skip").addEventListener("click", (event) => {
  event.preventDefault();
  slot("main").focus();
});

function navigation() {
  fill(slot("nav"), Object.entries(VIEWS).map(([key, [title]]) => h("a", { href: hash(key), "aria-current": key === current && "page", "data-view": key }, title)));
}

// The href is made at the moment of the click, with what the view was last set to.
slot("nav").addEventListener("click", (event) => {
  const anchor = event.target.closest("a");
  if (anchor) anchor.href = hash(anchor.dataset.view);
});

// A file that misses its box would be opened by the browser in place of this page, with everything that was imported or measured.
const isFile = (event) => event.dataTransfer?.types.includes("Files");
document.addEventListener("dragover", (event) => {
  if (event.defaultPrevented || !isFile(event)) return;
  event.preventDefault();
  event.dataTransfer.dropEffect = made.get(current)?.drop ? "copy" : "none";
});
document.addEventListener("drop", (event) => {
  if (event.defaultPrevented || !isFile(event)) return;
  event.preventDefault();
  made.get(current)?.drop?.(event.dataTransfer.files[0], [...event.dataTransfer.files]);
});

async function show(focus) {
  const ticket = (opened += 1);
  delete slot("main").dataset.drawn;
  const before = current && hash(current);
  const wanted = read(Object.keys(VIEWS), "roofline");
  // An address with other settings of the same view was opened: build the view again.
  if (wanted === current && hash(wanted) !== before) made.delete(wanted);
  made.get(current)?.hide?.();
  current = wanted;
  navigation();
  const [title] = VIEWS[wanted];
  document.title = `${title} – ${daemon.board?.model ?? "rooflined"}`;
  await attempt(async () => {
    if (!made.has(wanted)) {
      fill(slot("main"), h("p", { class: "loading", role: "status" }, `Loading ${title}…`));
      const module = await load(wanted);
      if (ticket !== opened) return;
      made.set(wanted, module.create());
    }
    const view = made.get(wanted);
    fill(slot("main"), view.element);
    if (focus) view.element.querySelector("h1")?.focus({ preventScroll: true });
    await view.show();
  }, ticket);
  // The others come while this one is read, so that they open at once.
  for (const view of Object.keys(VIEWS)) load(view).catch(() => { /* It is loaded again once it is opened. */ });
}

let drawing = null;

/** The library of the charts: as large as everything else together, so it is fetched behind what can be read without it. */
function loadCharts() {
  drawing ??= new Promise((resolve, reject) => {
    const script = h("script", { src: "vendor/d3.min.js", onload: resolve, onerror: () => {
      drawing = null;
      script.remove();
      reject(new Error("the library of the charts could not be loaded"));
    } });
    document.head.append(script);
  });
  return drawing;
}

async function load(view) {
  const [module] = await Promise.all([VIEWS[view][1](), loadCharts()]);
  return module;
}

/** Draws the view of `ticket` and says so, or why not. */
async function attempt(draw, ticket) {
  try {
    await draw();
    if (ticket !== opened) return;
    trouble?.remove();
    slot("main").dataset.drawn = current;
  } catch (error) {
    if (ticket !== opened) return;
    trouble?.remove();
    trouble = failure(error);
    slot("main").prepend(trouble);
  }
}

const calibrating = () => daemon.calibration?.status?.running != null;

function bars() {
  const list = [];
  if (simulated()) {
    list.push(note("warn", h("strong", {}, "SIMULATED board."), " Every figure comes from a simulation; no value describes hardware."));
  }
  if (!daemon.connected && daemon.trouble) {
    list.push(h("div", { class: "note bad" }, h("strong", {}, "No connection to the daemon: "), sentence(daemon.trouble), " The page shows its last answers and keeps trying."));
  }
  if (daemon.calibration && !daemon.calibration.record && !calibrating()) {
    const waits = daemon.calibration.status?.waiting_reason;
    list.push(note("info", h("p", {}, h("strong", {}, "Not calibrated: "), "ceilings come from data sheets or guesses until this machine is measured. Run:"),
      commandLine("rooflinectl calibrate --wait"), waits && h("p", { class: "help" }, sentence(`it waits: ${waits}`))));
  }
  if (calibrating()) {
    const { fraction, step } = daemon.calibration.status;
    list.push(h("div", { class: "note info" }, h("label", { for: "calibrating" }, `Calibrating${step ? `: ${step}` : ""}`), h("progress", { id: "calibrating", max: "1", value: String(fraction ?? 0) })));
  }
  for (const problem of daemon.state?.degraded ?? []) {
    list.push(note("warn", h("strong", {}, "Degraded: "), units.words(problem), problem.startsWith("server: ") && [" ", h("a", { href: hash("explain") }, "Show its causes")]));
  }
  const pending = pendingBar();
  if (pending) list.push(pending);
  const said = list.map((bar) => bar.textContent).join("|");
  // Without need nothing is replaced, so that focus and what a screen reader reads stay.
  if (slot("bars").dataset.said === said) return;
  slot("bars").dataset.said = said;
  fill(slot("bars"), list);
}

function header() {
  const { board } = daemon;
  const name = board ? (board.model ?? [board.key, board.accelerators[0]?.name].filter(Boolean).join(" · ")) : "";
  const mode = daemon.state?.power_mode?.value?.name;
  const watts = daemon.state?.total_power_w?.value;
  const covers = daemon.state?.total_power_of?.value?.scope;
  const said = [name, mode && `mode ${mode}`, watts != null && `${units.power(watts)}${covers ? ` (${units.words(covers)})` : ""}`].filter(Boolean).join(" · ");
  if (slot("board").dataset.said !== said) {
    slot("board").dataset.said = said;
    fill(slot("board"), said, simulated() && [" ", h("strong", { class: "tag" }, "SIMULATED")]);
  }
  const connection = slot("connection");
  const text = daemon.connected ? "connected" : daemon.trouble ? "disconnected" : "connecting…";
  if (connection.textContent !== text) connection.textContent = text;
  connection.className = `connection ${daemon.connected ? "up" : daemon.trouble ? "down" : ""}`;
}

/** Without a token nothing can be asked. */
function gate(why) {
  document.title = "rooflined: open with the printed address";
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", size: "40" });
  const form = h("form", { class: "form", onsubmit: (event) => {
    event.preventDefault();
    const token = /(?:token=)?([0-9A-Za-z]{8,})\s*$/.exec(input.value)?.[1];
    if (!token) return;
    setToken(token);
    location.reload();
  } }, field("Or paste that address here", input), h("button", { class: "primary" }, "Open"));
  fill(slot("main"), h("section", { class: "card stack gate", "data-gate": "" }, h("h1", {}, "Open this page with the address that rooflinectl printed"),
    h("p", {}, why), h("p", {}, "On the board, run the following and open the whole address that it prints, with everything behind the #:"), commandLine("rooflinectl dashboard"), form));
  slot("connection").textContent = "no token";
}

async function start() {
  if (!takeToken()) {
    gate("The address had no token, so the daemon does not answer this page. The token keeps other users and other web pages out.");
    return;
  }
  try {
    fill(slot("main"), h("p", { class: "loading", role: "status" }, "Asking the daemon…"));
    daemon.session = await get("/dashboard/session");
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      gate(`${sentence(error.message)} ${error.hint ? sentence(error.hint) : "The token belongs to another run of rooflinectl dashboard."}`);
      return;
    }
    daemon.trouble = error.message;
  }
  let first = true;
  on("connection", async () => {
    header();
    bars();
    if (!daemon.connected) {
      if (first) fill(slot("main"), h("section", { class: "card stack gate" }, h("h1", {}, "The daemon does not answer"), h("p", {}, sentence(daemon.trouble)),
        h("p", {}, "This page opens by itself once it does. To start it:"), commandLine("sudo systemctl start rooflined")));
      return;
    }
    if (first) {
      first = false;
      await show(false);
      // What was never drawn, as the daemon was away, is begun again.
    } else if (slot("main").dataset.drawn !== current) await show(false);
    else await attempt(() => made.get(current).refresh?.(), opened);
  });
  for (const topic of ["state", "calibration", "holds", "board"]) on(topic, () => { header(); bars(); });
  addEventListener("hashchange", () => {
    takeToken();
    if (!first) show(true);
  });
  navigation();
  header();
  try {
    await follow();
  } catch (error) {
    gate(`${sentence(error.message)} It was valid before: rooflinectl dashboard was restarted.`);
  }
}

start();
