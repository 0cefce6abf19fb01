// Real daemons, real `rooflinectl dashboard`, a real browser. ROOFLINED_BINARIES names the directory of the programs.
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { chromium } from "playwright-core";

const BINARIES = process.env.ROOFLINED_BINARIES ?? "target/debug";
if (!existsSync(join(BINARIES, "rooflinectl"))) throw new Error(`there is no ${BINARIES}/rooflinectl: build it, or set ROOFLINED_BINARIES`);
const CHROMIUM = process.env.ROOFLINED_CHROMIUM ?? "/usr/bin/chromium";
export const REPOSITORY = new URL("../../", import.meta.url).pathname;

const run = promisify(execFile);
// For a machine on which everything else is under way too: a test waits for what it looks at, never for a time.
const PATIENCE_MS = 120000;
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

/** Waits until `check` answers something, and answers it; `what` is the text of the error, or a function of it. */
export async function until(check, what, patience = PATIENCE_MS) {
  for (const end = Date.now() + patience; Date.now() < end; await pause(50)) {
    const found = await check();
    if (found) return found;
  }
  throw new Error(`waited in vain for ${typeof what === "function" ? what() : what}`);
}

/** A daemon in a directory of its own; `start` and `kill` it as often as wanted, with the same state and board. */
export class Daemon {
  constructor({ board = "jetson-orin-nano-8gb-super", control = true, accelerator = null } = {}) {
    this.home = mkdtempSync(join(tmpdir(), "rl-page-"));
    this.socket = join(this.home, "run");
    this.log = "";
    writeFileSync(join(this.home, "rooflined.toml"),
      `[calibration]\nautomatic = false\n[control]\nenabled = ${control}\n${accelerator ? `[daemon]\naccelerator = "${accelerator}"\n` : ""}`);
    this.args = ["serve", "--config", join(this.home, "rooflined.toml"), "--socket", this.socket, "--state-dir", join(this.home, "state"), "--bus", "none",
      "--exit-on-stdin-close", ...(board ? ["--simulate", board] : [])];
  }

  async start() {
    this.process = spawn(join(BINARIES, "rooflined"), this.args, { stdio: ["pipe", "ignore", "pipe"] });
    this.process.stderr.on("data", (data) => { this.log += data; });
    await until(async () => existsSync(join(this.socket, "query.sock")) && (await this.ask("GET", "/-/ready").catch(() => null))?.status === 200,
      () => `the daemon:\n${this.log}`);
    return this;
  }

  async kill() {
    const ended = new Promise((resolve) => { this.process.once("exit", resolve); });
    this.process.kill("SIGKILL");
    await ended;
  }

  async stop() {
    if (this.process.exitCode === null && this.process.signalCode === null) {
      const ended = new Promise((resolve) => { this.process.once("exit", resolve); });
      this.process.stdin.end();
      await ended;
    }
    rmSync(this.home, { recursive: true, force: true });
  }

  /** Asks the daemon itself, past the dashboard: what the page shows is held against it. */
  ask(method, path, body) {
    return new Promise((resolve, reject) => {
      const asked = request({ socketPath: join(this.socket, "query.sock"), method, path, headers: { "Content-Type": "application/json" } }, (response) => {
        let text = "";
        response.on("data", (data) => { text += data; });
        response.on("end", () => resolve({ status: response.statusCode, text, json: () => JSON.parse(text) }));
      });
      asked.on("error", reject);
      asked.end(body && JSON.stringify(body));
    });
  }

  /** Runs rooflinectl against it and answers its output. */
  async ctl(...args) {
    return (await run(join(BINARIES, "rooflinectl"), ["--socket", this.socket, ...args])).stdout;
  }

  /** A program that goes on, such as a hold. */
  background(...args) {
    return spawn(join(BINARIES, "rooflinectl"), ["--socket", this.socket, ...args], { stdio: "ignore" });
  }
}

/** `rooflinectl dashboard` for a daemon: `{ url, origin, token, stop }`. */
export async function dashboard(daemon) {
  const child = spawn(join(BINARIES, "rooflinectl"), ["--socket", daemon.socket, "-o", "json", "dashboard", "--listen", "127.0.0.1:0",
    // For work on the page: files of a directory instead of those in the program.
    ...(process.env.ROOFLINED_PAGE ? ["--page", process.env.ROOFLINED_PAGE] : [])], { stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.on("data", (data) => { text += data; });
  const url = await until(() => /"url":\s*"([^"]+)"/.exec(text)?.[1], "the dashboard’s address");
  return { url, origin: new URL(url).origin, token: /token=(\w+)/.exec(url)[1], stop: () => child.kill("SIGTERM") };
}

/** The browser, with what keeps it from asking for anything by itself. */
export const browser = () => chromium.launch({
  executablePath: CHROMIUM,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/** Whether there is a browser to test with. */
export const hasBrowser = () => existsSync(CHROMIUM);

/** A page that notes what must not happen: errors, reports of the content security policy, requests to anywhere else. */
export async function watchedPage(chrome, origin, options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true, ...options });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) faults.push(`console: ${message.text()} (${message.location().url})`); });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("request", (asked) => { if (!/^(blob|data):/.test(asked.url()) && new URL(asked.url()).origin !== origin) faults.push(`foreign request: ${asked.url()}`); });
  return { page, context, faults };
}

/** Opens an address and waits until its view is drawn. */
export async function open(page, url) {
  await page.goto(url);
  await page.waitForSelector("main[data-drawn]");
}

/** Goes to another address of the page, `spot?m=1`, and waits until its view is drawn. */
export async function look(page, hash) {
  // The page learns of it in an event of its own: until then it says that the view before is drawn.
  await page.evaluate((to) => new Promise((resolve) => {
    if (location.hash === `#${to}`) return resolve();
    addEventListener("hashchange", resolve, { once: true });
    location.hash = to;
    return null;
  }), hash);
  await page.waitForSelector(`main[data-drawn=${hash.split("?")[0]}]`);
}

/** Goes to a view by its link in the navigation. */
export async function visit(page, view) {
  await page.click(`nav a[data-view=${view}]`);
  await page.waitForSelector(`main[data-drawn=${view}]`);
}
