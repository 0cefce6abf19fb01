// The dashboard's page against real daemons in a real browser: node --test test_page.mjs
// Figures that are printed are measured, and none is asserted.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { MODELS } from "../../crates/rooflinectl/src/dashboard/page/presets.js";
import { batchSizes, limitNumber, wholeNumber } from "../../crates/rooflinectl/src/dashboard/page/form.js";
import { ImportError, parsePoints } from "../../crates/rooflinectl/src/dashboard/page/points.js";
import * as units from "../../crates/rooflinectl/src/dashboard/page/units.js";
import { Daemon, REPOSITORY, browser, dashboard, hasBrowser, look, open, until, visit, watchedPage } from "./fixtures.mjs";

const VIEWS = ["roofline", "roofline?with=mode:15W", "spot", "model", "vision", "explain", "live"];
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const strict = process.env.ROOFLINED_STRICT === "1";
if (!hasBrowser() && strict) throw new Error("there is no chromium, and nothing may be skipped");
if (!hasBrowser()) console.log("SKIPPED: there is no chromium (apt-get install chromium)");
const options = { skip: hasBrowser() ? false : "no chromium", timeout: 600000 };

let daemon;
let board;
let chrome;
const figures = [];
const figure = (name, value) => figures.push(`figure: ${name}: ${value}`);

before(async () => {
  if (!hasBrowser()) return;
  daemon = await new Daemon().start();
  await daemon.ctl("calibrate", "--wait", "--force");
  board = await dashboard(daemon);
  chrome = await browser();
});

after(async () => {
  await chrome?.close();
  board?.stop();
  await daemon?.stop();
  console.log(figures.join("\n"));
});

// What a browser logs by itself when the API refuses something, or when the daemon is killed below a stream.
const EXPECTED = /Failed to load resource: (the server responded with a status of (400|403|404|409|502|503|504)|the server responded with a status of 500 \(.*\) \(\S+\/v1\/measure|net::ERR_INCOMPLETE_CHUNKED_ENCODING \(\S+\/v1\/events)/;

/** A page of the dashboard that fails the test if anything went wrong on it; refusals of the API are answers. */
async function on(hash, run, pageOptions, site = board) {
  const { page, context, faults } = await watchedPage(chrome, site.origin, pageOptions);
  try {
    await open(page, site.url);
    if (hash) await look(page, hash);
    await run(page, context);
    assert.deepEqual(faults.filter((fault) => !EXPECTED.test(fault)), []);
  } finally {
    await context.close();
  }
}

const text = (page, selector) => page.locator(selector).first().innerText();
const tip = (page, chart) => page.locator(`[data-chart=${chart}] .tip`);
/** Three significant digits, as the formula of the text says, not as the page does it. */
const three = (value) => value.toPrecision(3);

test("it draws the first roofline from files of this program alone", options, async () => {
  const { page, context, faults } = await watchedPage(chrome, board.origin);
  const transfers = [];
  // The stream of events has no end.
  page.on("response", (response) => { if (!response.url().includes("/v1/events")) transfers.push(response.body().then((body) => [response.url(), body.length], () => ["", 0])); });
  const began = performance.now();
  await page.goto(board.url);
  // A flat line has no area, which the driver takes for invisible.
  await page.waitForSelector("[data-chart=roofline] .ceiling-line", { state: "attached" });
  figure("first roofline drawn after ms", Math.round(performance.now() - began));
  await page.waitForSelector("[data-chart=roofline] .point");
  const sizes = await Promise.all(transfers);
  const sum = (some) => some.reduce((total, [, size]) => total + size, 0);
  figure("everything transferred until then, bytes", sum(sizes));
  figure("of these the page's files, bytes", sum(sizes.filter(([url]) => !/\/(v1|dashboard)\//.test(url))));
  assert.deepEqual(faults, []);
  assert.ok(!page.url().includes("token"), "the token stays in the address bar");
  assert.match(await text(page, "#bars"), /SIMULATED board/);
  await context.close();
});

test("a point under the pointer shows what the API answers for it", options, () => on("roofline", async (page) => {
  const [row] = (await daemon.ask("POST", "/v1/sweep", { ops: [{ kind: "gemm", m: 512, n: 1024, k: 4096 }], formats: ["fp16"] })).json().rows;
  const point = page.locator(".item[aria-label^='k_proj prefill fp16']");
  await point.waitFor();
  const box = await point.boundingBox();
  const began = performance.now();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await tip(page, "roofline").waitFor();
  figure("a hover answered after ms", Math.round(performance.now() - began));
  const shown = await tip(page, "roofline").innerText();
  const expected = [
    "k_proj prefill fp16 (predicted)", `${three(row.arithmetic_intensity_flops_per_byte)} FLOP/B`, `${three(row.flops / row.time_s.value / 1e12)} TFLOP/s`,
    `${three(row.time_s.value * 1e6)} µs (${three(row.time_s.low * 1e6)} to ${three(row.time_s.high * 1e6)} µs)`,
    `${three(row.bytes / row.time_s.value / 1e9)} GB/s`, row.limit, "measured here",
  ];
  for (const part of expected) assert.ok(shown.includes(part), `${part} is not in ${shown}`);
  // The keyboard is told the same, and so is a screen reader.
  await page.mouse.move(0, 0);
  await tip(page, "roofline").waitFor({ state: "hidden" });
  await point.focus();
  assert.equal(await tip(page, "roofline").innerText(), shown);
  const label = await point.getAttribute("aria-label");
  for (const part of expected) assert.ok(label.includes(part), `${part} is not in ${label}`);
}));

test("ceilings are those of the API, of other modes and other boards too", options, () => on("roofline?with=mode:15W,hw:jetson-agx-thor-t5000@MAXN", async (page) => {
  const here = (await daemon.ask("GET", "/v1/roofline?mode=15W")).json();
  const thor = (await daemon.ask("GET", "/v1/roofline?hardware=jetson-agx-thor-t5000&mode=MAXN")).json();
  const rows = page.locator("table", { hasText: "Board and mode" }).locator("tbody tr");
  await until(async () => await rows.count() > 12, "three boards");
  const all = await rows.allInnerTexts();
  const of = (name, ceiling) => all.find((row) => row.includes(name) && row.split(/\t/)[1]?.trim() === ceiling) ?? assert.fail(`no ${ceiling} of ${name} in ${all.join("\n")}`);
  assert.ok(of("this board in 15W", "memory").includes(`${three(here.bandwidth_bytes_per_s.value / 1e9)} GB/s`));
  assert.ok(of("Thor", "fp8").includes(`${three(thor.compute_flops_per_s.fp8.value / 1e12)} TFLOP/s`));
  assert.ok(of("Thor", "fp8").includes("data sheet"));
}));

test("the keyboard reaches everything, and moves through the points of a chart", options, async () => {
  for (const view of VIEWS) {
    await on(view, async (page) => {
      // By name, since the page replaces some of them whenever the daemon says something new.
      await page.evaluate(() => {
        window.stops = () => {
          const seen = {};
          const all = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")];
          return all.filter((element) => element.checkVisibility() && !element.disabled).map((element) => {
            const point = element.matches(".item") && `point of ${element.closest("[data-chart]").dataset.chart}`;
            const name = `${element.localName}: ${point || element.getAttribute("aria-label") || (element.labels?.[0] ?? element).textContent}`;
            seen[name] = (seen[name] ?? 0) + 1;
            return [element, `${name} (${seen[name]})`];
          });
        };
        document.activeElement?.blur();
      });
      const wanted = await page.evaluate(() => window.stops().map(([, name]) => name));
      assert.ok(wanted.length > 10, wanted.join("\n"));
      const missed = new Set(wanted);
      for (let presses = 0; missed.size > 0 && presses < wanted.length + 60; presses += 1) {
        await page.keyboard.press("Tab");
        missed.delete(await page.evaluate(() => window.stops().find(([element]) => element === document.activeElement)?.[1]));
      }
      assert.deepEqual([...missed], [], `${view}: not reached by Tab`);
    });
  }
  await on("roofline", async (page) => {
    const first = page.locator("[data-chart=roofline] .item[tabindex='0']");
    await first.focus();
    const before = await tip(page, "roofline").innerText();
    await page.keyboard.press("ArrowRight");
    assert.notEqual(await tip(page, "roofline").innerText(), before);
    await page.keyboard.press("End");
    assert.match(await tip(page, "roofline").innerText(), /Intensity/);
    await page.keyboard.press("Escape");
    assert.equal(await tip(page, "roofline").isVisible(), false);
  });
  await on(null, async (page) => {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.id), "skip");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  });
});

test("the focus stays where it is while the daemon says something new", options, async () => {
  const focused = (page) => page.evaluate(() => {
    const { activeElement: element } = document;
    return element === document.body ? "nothing" : element.getAttribute("aria-label") ?? element.textContent;
  });
  const enter = async (page, mode) => {
    await daemon.ctl("mode", "set", mode);
    await page.waitForSelector(`.facts .fact:has-text('Power mode'):has-text('${mode}')`);
  };
  await on("roofline", async (page) => {
    await page.focus("[aria-label='Precisions shown'] [data-key=fp16]");
    await enter(page, "15W");
    assert.equal(await focused(page), "fp16");
    await page.locator(".item[aria-label^='k_proj prefill fp16']").focus();
    await enter(page, "25W");
    await until(async () => /^k_proj prefill fp16/.test(await focused(page)), "the same point");
    assert.match(await tip(page, "roofline").innerText(), /^k_proj prefill fp16/);
    assert.equal(await tip(page, "roofline").isVisible(), true);
    // Other points come before it.
    await page.locator("input[type=file]").setInputFiles({ name: "more.csv", mimeType: "text/plain", buffer: Buffer.from("label,format,flops,bytes,time_s\nfirst,fp16,1e9,9e8,0.1\n") });
    await page.locator(".item[aria-label^='first']").waitFor();
    assert.match(await focused(page), /^k_proj prefill fp16/);
    // A tooltip of the pointer stays too, whatever is drawn again.
    const point = page.locator(".item[aria-label^='k_proj prefill fp16']");
    await point.evaluate((element) => element.blur());
    await tip(page, "roofline").waitFor({ state: "hidden" });
    await point.hover({ force: true });
    await tip(page, "roofline").waitFor();
    const drawn = await point.elementHandle();
    await page.emulateMedia({ colorScheme: "dark" });
    await until(() => drawn.evaluate((element) => !element.isConnected), "another drawing");
    assert.match(await tip(page, "roofline").innerText(), /^k_proj prefill fp16/);
    assert.equal(await tip(page, "roofline").isVisible(), true);
  });
  await on("live", async (page) => {
    const region = "Table: Ceilings of each mode; inactive modes are calculated";
    await page.focus(`[aria-label='${region}']`);
    await daemon.ctl("mode", "set", "15W");
    await page.waitForSelector("tr.active:has-text('15W')");
    assert.equal(await focused(page), region);
    // The button that was pressed is gone once its mode is in force.
    await page.focus("button[data-mode='25W']");
    await daemon.ctl("mode", "set", "25W");
    await page.waitForSelector("tr.active:has-text('25W')");
    assert.equal(await focused(page), region);
  });
});

test("an answer that comes late changes nothing that was asked for since", options, async () => {
  /** Keeps back the answers to what matches until `release` is called; `held` are so many. */
  const hold = async (page, pattern) => {
    const gate = { held: 0 };
    const open = new Promise((resolve) => { gate.release = resolve; });
    await page.route(pattern, async (route) => {
      const response = await route.fetch();
      gate.held += 1;
      await open;
      await route.fulfill({ response }).catch(() => { /* Nobody waits for it any more. */ });
      gate.held -= 1;
    });
    return gate;
  };
  await on("roofline", async (page) => {
    const gate = await hold(page, /\/v1\/roofline\?mode=15W/);
    await page.getByLabel("Mode of this board").selectOption("15W");
    await page.click("text=Add mode");
    await until(() => gate.held > 0, "a held answer");
    await page.evaluate(() => { location.hash = "roofline?with=mode:7W"; });
    await page.waitForSelector("[aria-label^='Remove'][aria-label$='this board in 7W']");
    gate.release();
    await until(() => gate.held === 0, "the late answer");
    assert.equal(await page.locator("[aria-label^='Remove'][aria-label$='this board in 15W']").count(), 0);
  });
  await on("roofline", async (page) => {
    const gate = await hold(page, /\/v1\/sweep/);
    await page.getByLabel("Predicted layers of").selectOption("none");
    await page.locator("[data-chart=roofline] g.point").first().waitFor({ state: "detached" });
    await page.getByLabel("Predicted layers of").selectOption("llama-3.1-8b");
    await until(() => gate.held > 0, "a held answer");
    await page.getByLabel("Predicted layers of").selectOption("none");
    gate.release();
    await until(() => gate.held === 0, "the late answer");
    await page.evaluate(() => new Promise(requestAnimationFrame));
    assert.equal(await page.locator("[data-chart=roofline] g.point").count(), 0);
  });
  await on("roofline", async (page) => {
    const gate = await hold(page, /\/v1\/sweep/);
    await page.click("nav a[data-view=spot]");
    await until(() => gate.held > 0, "a held answer");
    assert.equal(await page.getAttribute("main", "data-drawn"), null);
    await visit(page, "live");
    gate.release();
    await until(() => gate.held === 0, "the late answer");
    assert.equal(await page.getAttribute("main", "data-drawn"), "live");
    assert.equal(await text(page, "main h1"), "Live and modes");
  });
});

test("the shapes of the presets are those of the registry", options, async () => {
  const CLASSES = { q_proj: "attention_q", k_proj: "attention_k", v_proj: "attention_v", o_proj: "attention_out" };
  for (const { key, layers } of MODELS) {
    const { classes, layers: { total }, vocab, hidden } = (await daemon.ask("GET", `/v1/models/${key}`)).json();
    const parameters = (name) => classes.find((entry) => entry.class === name).parameters;
    const size = (layer) => layers.filter(([name]) => layer.includes(name)).reduce((sum, [, n, k]) => sum + n * k, 0);
    for (const [layer, name] of Object.entries(CLASSES)) {
      // A layer may have a bias beside the matrix.
      assert.ok(Math.abs(size([layer]) * total / parameters(name) - 1) < 0.01, `${key} ${layer}`);
    }
    assert.equal(size(["gate_proj", "up_proj", "down_proj"]) * total, parameters("mlp"), `${key} mlp`);
    assert.deepEqual(layers.find(([name]) => name === "lm_head").slice(1), [vocab, hidden], `${key} lm_head`);
  }
});

test("a spot check runs the kernel and judges it", options, () => on("spot?m=1&n=2048&k=2048&formats=fp16,int8,tf32", async (page) => {
  await page.click("text=Predict and run now");
  await page.waitForSelector("text=Median error");
  const rows = await page.locator("table tbody tr").allInnerTexts();
  const int8 = rows.find((row) => row.startsWith("int8")).split("\t");
  assert.match(int8[2], /[µm]s/);
  assert.match(int8[5], /×/);
  assert.match(int8[8], /as predicted|slower than predicted|faster than predicted|at ceiling/);
  assert.match(await text(page, "main"), /Not run:\s+No GPU kernel for tf32/);
  assert.equal(await page.locator("[data-chart=kernel-roofline] .point.measured").count() > 0, true);
  // What was measured is on the first view too.
  await visit(page, "roofline");
  await page.waitForSelector("[data-chart=roofline] .item[aria-label*='(measured)']");
}));

test("presets fill in the shape", options, () => on("spot", async (page) => {
  await page.selectOption("#main select", { label: "down_proj, prefill, 512 tokens: 512 × 4096 × 14336" });
  await page.waitForSelector("caption:has-text('gemm 512×4096×14336')");
  assert.match(page.url(), /m=512&n=4096&k=14336/);
}));

test("the heat map shows the sweep, marks what does not fit, and explains", options, () => on("model?model=llama-3.1-8b&batches=1,64&context=512&formats=fp16,q4_k_m,nvfp4", async (page) => {
  await page.waitForSelector("[data-chart=heatmap] .cell");
  const { rows } = (await daemon.ask("POST", "/v1/sweep", { models: ["llama-3.1-8b"], formats: ["q4_k_m"], batches: [1], contexts: [512], power_modes: ["15W"], phase: "decode", engine: "llama.cpp" })).json();
  const cell = page.locator("[data-chart=heatmap] .item[aria-label^='q4_k_m, 15W, batch 1,']");
  const label = await cell.getAttribute("aria-label");
  assert.ok(label.includes(units.estimate(rows[0].tokens_per_s, (value) => `${units.digits(value)} tokens/s`)), label);
  const large = await page.locator("[data-chart=heatmap] .item[aria-label^='fp16, 15W, batch 64,']").getAttribute("aria-label");
  assert.match(large, /Not possible needs [\d.]+ GB, there is room for [\d.]+ GB/);
  const foreign = await page.locator("[data-chart=heatmap] .item[aria-label^='nvfp4, 15W, batch 1,']").getAttribute("aria-label");
  assert.match(foreign, /Not possible|Rate/);
  await page.getByLabel("Colour shows").selectOption("power");
  assert.match(page.url(), /show=power/);
  await cell.click();
  await page.waitForSelector("h2:has-text('A closer look: q4_k_m, 15W, batch 1')");
  await page.waitForSelector("[data-chart=context] .band");
  assert.equal(await page.locator("[data-chart=model-roofline] .item[aria-label^='prefill']").count(), 1);
  assert.match(await text(page, ".command code"), /llama-server/);
  // The arrow keys go by rows and columns, as the eye does.
  await page.locator("[data-chart=heatmap] .item[aria-label^='fp16, 15W, batch 1,']").focus();
  for (const [key, there] of [["ArrowDown", "q4_k_m, 15W, batch 1"], ["ArrowRight", "q4_k_m, 15W, batch 64"], ["ArrowUp", "fp16, 15W, batch 64"],
    ["ArrowUp", "fp16, 15W, batch 64"], ["ArrowLeft", "fp16, 15W, batch 1"], ["End", "nvfp4, 7W, batch 64"], ["ArrowDown", "nvfp4, 7W, batch 64"]]) {
    await page.keyboard.press(key);
    const at = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
    assert.ok(at.startsWith(`${there},`), `${key}: ${at} for ${there}`);
  }
}));

test("a board without power modes has none that is named", options, () => on("model?model=llama-3.2-1b&batches=1,4&formats=q4_k_m,q8_0&board=t4", async (page) => {
  await page.waitForSelector("[data-chart=pareto] .ring");
  await page.waitForSelector("[data-chart=heatmap] .item[aria-label^='q8_0, batch 4,']");
  await page.waitForSelector("h2:text-matches('A closer look: q\\\\w+, batch \\\\d')");
  assert.doesNotMatch(await text(page, "main"), /\bnow\b/);
  assert.deepEqual(await page.locator("svg [aria-label]").evaluateAll((items) => items.map((item) => item.getAttribute("aria-label")).filter((label) => /\bnow\b/.test(label))), []);
}));

test("a recommendation keeps the constraints, or says which cannot be met", options, () => on("model?model=llama-3.2-1b&batches=1,4&formats=q4_k_m,q8_0", async (page) => {
  await page.waitForSelector("[data-chart=pareto] .ring");
  await page.getByLabel("Time per token at most, ms").fill("0.001");
  await page.getByLabel("Time per token at most, ms").press("Tab");
  await page.waitForSelector("text=Nothing meets these constraints");
  assert.match(page.url(), /max_time_per_token_s=0.001/);
  await page.getByLabel("Time per token at most, ms").fill("");
  await page.getByLabel("Time per token at most, ms").press("Tab");
  await page.waitForSelector("[data-chart=pareto] .ring");
}));

test("batch sizes are numbers and ranges, and what is left out is said", () => {
  const powers = (low, high) => Array.from({ length: 17 }, (_, power) => 2 ** power).filter((size) => size >= low && size <= high);
  const all = (low, high) => Array.from({ length: high - low + 1 }, (_, index) => low + index);
  const good = (text, sizes) => assert.deepEqual(batchSizes(text), { sizes, problems: [] }, text);
  good("1,2,8", [1, 2, 8]);
  good("8 1;1, 2", [1, 2, 8]);
  good("1..64", powers(1, 64));
  good("1 .. =64", powers(1, 64));
  good("1..8", all(1, 8));
  good("3..100", [3, ...powers(4, 64), 100]);
  good("1..4, 32..32", [...all(1, 4), 32]);
  const bad = (text, sizes, ...patterns) => {
    const answer = batchSizes(text);
    assert.deepEqual(answer.sizes, sizes, text);
    assert.equal(answer.problems.length, patterns.length, String(answer.problems));
    patterns.forEach((pattern, index) => assert.match(answer.problems[index], pattern));
  };
  bad("", [], /it is empty: write numbers such as 1,2,8 or a range such as 1\.\.64/);
  bad("x", [], /“x” is not understood/);
  bad("0", [], /“0” is left out: a batch size lies between 1 and 65536/);
  bad("4,1.5,-2,99999", [4], /“1\.5” is not understood/, /“-2” is not understood/, /“99999” is left out/);
  bad("64..1", [], /smaller number first/);
  bad(all(1, 33).join(), all(1, 16), /Only the first 16 of 33 batch sizes are shown, up to 16/);
  assert.deepEqual(wholeNumber("512", 1, 1024), { value: 512 });
  for (const text of ["", "-5", "0", "1.5", "1e99", "abc", "1025"]) assert.match(wholeNumber(text, 1, 1024).problem, /a whole number from 1 to 1024 is expected/);
  assert.deepEqual([limitNumber(" "), limitNumber("0.5")], [{ value: null }, { value: 0.5 }]);
  for (const text of ["0", "-1", "abc", "1e999"]) assert.match(limitNumber(text).problem, /a number above 0 is expected, or nothing/);
});

test("what the form of a model cannot mean is said, and nothing is asked for it", options, () => on("model?model=llama-3.2-1b&batches=1..64&formats=q8_0&max_power_w=abc", async (page) => {
  const said = page.locator("main > section > .stack[aria-live] .note.warn");
  await said.filter({ hasText: "Power at most, W: “abc” is not possible" }).waitFor();
  const enter = async (label, value) => {
    await page.getByLabel(label, { exact: true }).fill(value);
    await page.getByLabel(label, { exact: true }).press("Tab");
  };
  const sizes = () => page.evaluate(() => [...new Set([...document.querySelectorAll("[data-chart=heatmap] .item")].map((cell) => /batch (\d+)/.exec(cell.getAttribute("aria-label"))[1]))].map(Number));
  await page.evaluate(() => { location.hash = "model?model=llama-3.2-1b&batches=1..64&formats=q8_0"; });
  await page.waitForSelector("[data-chart=heatmap] .cell");
  assert.deepEqual(await sizes(), [1, 2, 4, 8, 16, 32, 64]);
  assert.equal(await said.count(), 0);
  let asked = 0;
  page.on("request", (request) => { if (/sweep|recommend/.test(request.url())) asked += 1; });
  for (const [label, value, line] of [["Context, tokens", "-5", "Context, tokens: “-5” is not possible"], ["Context, tokens", "1e99", "Context, tokens: “1e99” is not possible"],
    ["Answer, tokens", "0", "Answer, tokens: “0” is not possible"], ["Prompt, tokens", "", "Prompt, tokens: it is empty"], ["Batch sizes", "x", "Batch sizes: “x” is not understood"],
    ["Quality loss at most, %", "-1", "Quality loss at most, %: “-1” is not possible"]]) {
    const before = await page.getByLabel(label, { exact: true }).inputValue();
    await enter(label, value);
    await said.filter({ hasText: line }).filter({ hasText: "The results below are for the previous settings." }).waitFor();
    assert.equal(await page.getByLabel(label, { exact: true }).getAttribute("aria-invalid"), "true");
    assert.equal(asked, 0, label);
    await enter(label, before);
    await said.waitFor({ state: "detached" });
    await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
    asked = 0;
  }
  // What can be understood is shown.
  await enter("Batch sizes", "4, x, 2");
  await said.filter({ hasText: "Batch sizes: “x” is not understood" }).waitFor();
  await until(async () => String(await sizes()) === "2,4", "both sizes");
}));

test("cells of the settings before stay what they were, whatever the form says", options, () => on("model?model=llama-3.2-1b&batches=1,4&context=512", async (page) => {
  const settled = () => until(() => page.evaluate(() => !document.querySelector("[aria-busy]") && document.querySelector("[data-chart=context] .band")), "answers");
  await settled();
  const cells = () => page.locator("[data-chart=heatmap] .item").evaluateAll((items) => items.map((item) => `${item.getAttribute("aria-label").split(",").slice(0, 3)} at ${item.getAttribute("y")}`));
  const names = () => page.locator("[data-chart=heatmap] .axis text.name").allInnerTexts();
  const [before, named] = [await cells(), await names()];
  assert.ok(before.some((cell) => cell.startsWith("q4_k_m,")), String(before));
  // Asked for and never answered: no part of it may be mixed with what was answered.
  await page.route(/\/v1\/(sweep|recommend)/, () => {});
  await page.getByLabel("Context, tokens", { exact: true }).fill("1024");
  await page.getByLabel("Context, tokens", { exact: true }).press("Tab");
  await page.waitForSelector("[aria-busy=true]");
  await page.getByLabel("Context, tokens", { exact: true }).fill("");
  await page.getByLabel("Context, tokens", { exact: true }).press("Tab");
  await page.waitForSelector("text=The results below are for the previous settings.");
  // Without a route the browser sends what is held back.
  await page.unroute(/\/v1\/(sweep|recommend)/);
  await page.getByLabel("Engine").selectOption("vllm");
  await page.getByLabel("Key/value cache").selectOption("q8_0");
  await page.locator("main select").first().selectOption("llama-3.1-8b");
  await page.waitForSelector(".fact:has-text('Llama-3.1-8B')");
  const bodies = [];
  page.on("request", (request) => { if (/\/v1\/(sweep|predict)/.test(request.url())) bodies.push(request.postDataJSON()); });
  for (const again of [() => page.getByLabel("Colour shows").selectOption("power"), () => page.setViewportSize({ width: 1000, height: 900 })]) {
    const drawn = await page.locator("[data-chart=heatmap] .item").first().elementHandle();
    await again();
    await until(() => drawn.evaluate((element) => !element.isConnected), "another drawing");
    assert.deepEqual([await cells(), await names()], [before, named]);
    assert.match(await text(page, "section:has(> [data-chart=heatmap])"), /Decode with 512 tokens of context\./);
  }
  await page.locator("[data-chart=heatmap] .item[aria-label^='q4_k_m, 15W, batch 4,']").click();
  await page.waitForSelector("h2:text-is('A closer look: q4_k_m, 15W, batch 4')");
  await until(() => bodies.length === 2, "both questions of a closer look");
  for (const body of bodies) {
    const { model } = body.workload ?? { model: body.models[0] };
    assert.deepEqual([body.engine, model, body.kv_format ?? body.workload?.kv_format], ["llama.cpp", "llama-3.2-1b", undefined]);
  }
  // Once the form means something again, it is asked for.
  await page.getByLabel("Context, tokens", { exact: true }).fill("512");
  await page.getByLabel("Context, tokens", { exact: true }).press("Tab");
  await page.waitForSelector("[data-chart=heatmap] .item[aria-label^='awq_int4,']");
  assert.equal(await page.locator("[data-chart=heatmap] .item[aria-label^='q4_k_m,']").count(), 0);
}));

test("a model file is described by its header, and a config.json too", options, async () => {
  const gguf = join(daemon.home, "small.gguf");
  execFileSync("python3", [join(REPOSITORY, "tests/random_gguf.py"), "small", "q8_0", gguf]);
  const config = join(daemon.home, "config.json");
  writeFileSync(config, JSON.stringify({ model_type: "llama", architectures: ["LlamaForCausalLM"], hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 22, num_attention_heads: 32, num_key_value_heads: 4, vocab_size: 32000, max_position_embeddings: 2048, tie_word_embeddings: false, torch_dtype: "bfloat16" }));
  await on("model", async (page) => {
    let sent = 0;
    page.on("request", (asked) => { if (asked.url().includes("/v1/models/inspect")) sent += asked.postDataBuffer()?.length ?? 0; });
    const file = page.locator("input[type=file]");
    const began = performance.now();
    await file.setInputFiles(gguf);
    await page.waitForSelector("text=small.gguf: read");
    figure("a model file described after ms", Math.round(performance.now() - began));
    assert.ok(sent < statSync(gguf).size, `${sent} bytes were sent`);
    await page.waitForSelector(".fact:has-text('Random Small')");
    await page.waitForSelector("[data-chart=heatmap] .item[aria-label^='q8_0'][aria-label*='Rate']");
    await page.waitForSelector("text=own format, q8_0, by its exact bytes");
    await file.setInputFiles(config);
    await page.waitForSelector("text=config.json: read");
    await page.waitForSelector(".fact:has-text('1.10 billion')");
    await file.setInputFiles({ name: "broken.gguf", mimeType: "application/octet-stream", buffer: Buffer.from("GGUFgarbage") });
    await page.waitForSelector(".drop .note.bad");
    // Dropped rather than chosen.
    const dropped = await page.evaluateHandle((content) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([content], "config.json"));
      return transfer;
    }, readFileSync(config, "utf8"));
    await page.dispatchEvent(".drop", "drop", { dataTransfer: dropped });
    await page.waitForSelector("text=config.json: read");
  });
});

test("points are imported from JSON and CSV, and a bad file names line and field", options, async () => {
  await on("roofline", async (page) => {
    const take = (name, content) => page.locator("input[type=file]").setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(content) });
    await take("mine.csv", "label,format,flops,bytes,time_s\n\"my, kernel\",int8,117440512,58757120,0.0009\n");
    const label = await page.locator(".item[aria-label^='my, kernel']").getAttribute("aria-label");
    assert.ok(label.includes(`Intensity ${three(117440512 / 58757120)} FLOP/B`) && label.includes(`Rate ${three(117440512 / 0.0009 / 1e9)} GOP/s`), label);
    await take("mine.json", JSON.stringify({ points: [{ label: "from json", format: "fp16", arithmetic_intensity_flops_per_byte: 50, flops_per_s: 2e12 }] }));
    await page.waitForSelector(".item[aria-label^='from json']");
    const before = await page.locator("[data-chart=roofline] .item").count();
    await take("bad.csv", "label,flops,bytes,time_s\ngood,1e9,1e6,0.001\nwrong,1e9,1e6,soon\n");
    await page.waitForSelector("text=bad.csv, line 3, field time_s: expected a number above 0, found \"soon\"");
    assert.equal(await page.locator("[data-chart=roofline] .item").count(), before);
    await take("odd.csv", "label,format,flops,bytes,time_s\nx,int99,1e9,1e6,0.001\n");
    await page.waitForSelector("text=odd.csv, line 2, field format: there is no format \"int99\", known are fp32");
    assert.equal(await page.locator("[data-chart=roofline] .item").count(), before);
    // A point needs no format: it is drawn, named in the legend, and listed.
    await take("bare.json", JSON.stringify([{ label: "without a format", flops: 1e9, bytes: 1e8, time_s: 0.001 }]));
    const bare = await page.locator(".item[aria-label^='without a format (measured)']").getAttribute("aria-label");
    assert.ok(bare.includes(`Rate ${three(1e9 / 0.001 / 1e12)} TFLOP/s`), bare);
    await page.waitForSelector("[data-chart=roofline] .legend .p-other + text:text('other')");
    await page.click("[data-chart=roofline] summary");
    await page.waitForSelector("[data-chart=roofline] tbody th:has-text('without a format')");
    // As far apart as numbers go: drawn all the same.
    await take("far.csv", "label,arithmetic_intensity_flops_per_byte,flops_per_s\nfar,1e-300,1e300\n");
    await page.waitForSelector(".item[aria-label^='far (measured)']");
    await page.click("text=Remove measured points");
    await page.locator(".item[aria-label^='far']").waitFor({ state: "detached" });
    // Whatever fails while it is drawn, the page goes on without the new points, and does not say that the file was bad.
    const drawn = await page.locator("[data-chart=roofline] .item").count();
    await page.evaluate(() => {
      const { symbol } = d3;
      d3.symbol = () => { d3.symbol = symbol; throw new Error("a made-up fault"); };
    });
    await take("good.csv", "label,flops,bytes,time_s\nx,1e9,1e6,0.001\n");
    await page.waitForSelector("text=good.csv was read, but its points could not be drawn: a made-up fault.");
    assert.equal(await page.locator("text=Nothing was imported").count(), 0);
    assert.equal(await page.locator("[data-chart=roofline] .item").count(), drawn);
    await take("good.csv", "label,flops,bytes,time_s\nx,1e9,1e6,0.001\n");
    await page.waitForSelector("text=1 point of good.csv added.");
  });
  assert.equal(parsePoints("a.csv", "label,format,flops,bytes,time_s\nx,q3_k_l,1,1,1\ny,fp16,1,1,1\nz,,1,1,1\n", ["fp16"]).length, 3);
  const refused = (name, content, pattern) => assert.throws(() => parsePoints(name, content), (error) => error instanceof ImportError && pattern.test(error.message) || assert.fail(error.message));
  refused("a.json", "", /empty/);
  refused("a.json", '{"points":\n [{"label": "x"}, }', /a\.json.*not JSON/);
  refused("a.json", '{"rows": []}', /field points is missing/);
  refused("a.json", '[\n {"label":"a","flops":1,"bytes":1,"time_s":1},\n {"label":"b","flops":-1,"bytes":1,"time_s":1}]', /line 3, point 2, field flops: expected a number above 0, found -1/);
  refused("a.json", '[{"label":"a","speed":3}]', /field speed: unknown/);
  refused("a.json", "[7]", /expected an object, found 7/);
  refused("a.csv", "format,flops\nint8,1\n", /line 1: field label is missing/);
  refused("a.csv", "label;flops\nx;1\n", /line 1: expected commas between the fields, found semicolons/);
  refused("a.csv", "label\tflops\nx\t1\n", /line 1: expected commas between the fields, found tabs/);
  refused("a.csv", "label,flops,bytes,time_s\nx,1e300,1e-300,1\n", /line 2, field flops: flops \/ bytes is Infinity, too large or too small to draw/);
  refused("a.csv", "label,flops,bytes,time_s\nx,1e-300,1e-300,1e300\n", /line 2, field flops: flops \/ time_s is 0, too large/);
  refused("a.csv", "label,flops\nx,1,2\n", /line 2: 3 fields, expected 2/);
  refused("a.csv", "label,flops\n\"x,1\n", /line 2: a quote is not closed/);
  refused("a.csv", "label,flops_per_s\nx,1\n", /line 2, field arithmetic_intensity_flops_per_byte: missing/);
  refused("a.csv", "label,kind,flops,bytes,time_s\nx,dreamt,1,1,1\n", /field kind: expected measured or predicted/);
});

test("a file that misses its box is taken, and never opened by the browser", options, async () => {
  // What a browser does with a file is the default action: it has to be prevented, wherever the file falls.
  const release = (page, name, content) => page.evaluate(([file, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], file));
    return ["dragover", "drop"].map((type) => !document.querySelector("h1").dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true })));
  }, [name, content]);
  await on("roofline", async (page) => {
    assert.deepEqual(await release(page, "mine.csv", "label,flops,bytes,time_s\ndropped,1e9,1e8,0.001\n"), [true, true]);
    await page.locator(".item[aria-label^='dropped (measured)']").waitFor();
    assert.equal(await page.locator(".item[aria-label^='dropped (measured)']").count(), 1);
    await visit(page, "model");
    await release(page, "broken.gguf", "GGUFgarbage");
    await page.waitForSelector(".drop .note.bad");
    for (const view of ["spot", "live"]) {
      await visit(page, view);
      assert.deepEqual(await release(page, "mine.csv", "label\n"), [true, true]);
    }
    await visit(page, "roofline");
    await page.locator(".item[aria-label^='dropped (measured)']").waitFor();
  });
});

test("a board is added once it is chosen", options, () => on("roofline?with=hw:jetson-agx-thor-t5000", async (page) => {
  await page.click("text=Add board");
  await page.waitForSelector("text=Choose a board first.");
  await page.getByLabel("Other board").selectOption("jetson-agx-thor-t5000");
  await page.click("text=Add board");
  await page.waitForSelector("text=It is already shown.");
  await page.getByLabel("Other board").selectOption("h100-sxm");
  await page.click("text=Add board");
  await page.locator("[aria-label^='Remove'][aria-label*='H100']").waitFor();
  assert.equal(await page.locator("text=It is already shown.").count(), 0);
}));

test("figures are written as rooflinectl writes them", () => {
  const figures = JSON.parse(readFileSync(join(REPOSITORY, "crates/rooflinectl/src/figures.json"), "utf8"));
  for (const [kind, value, expected] of figures) assert.equal(units[kind](value), expected, `${kind} ${value}`);
  assert.equal(units.si(Number.NaN, "W"), "unknown");
  assert.equal(units.estimate(null, units.time), "unknown");
});

test("a switch and a hold from outside appear by themselves", options, () => on("live", async (page) => {
  await daemon.ctl("mode", "set", "15W");
  await page.waitForSelector("tr.active:has-text('15W')");
  await until(async () => /15W/.test(await text(page, ".facts .fact")), "the new mode in the facts");
  await page.waitForSelector("li:has-text('the power mode went from 25W to 15W'), li:has-text('power mode')");
  const hold = daemon.background("hold", "--min-mode", "25W", "--reason", "a test holds it", "--", "sleep", "600");
  try {
    await page.waitForSelector("td:has-text('a test holds it')");
  } finally {
    hold.kill("SIGTERM");
  }
  await page.waitForSelector("text=Nobody holds the machine");
  await daemon.ctl("mode", "set", "25W");
  await page.waitForSelector("tr.active:has-text('25W')");
  assert.match(await text(page, "tbody tr:has-text('7W') .refused"), /reboot/i);
  assert.equal(await page.locator("button[data-mode='7W']").count(), 0);
  await page.waitForSelector("[data-field=total_power_w] .spark path[d^=M]");
}));

test("a mode is switched on trial, kept, and undone", options, () => on("live", async (page) => {
  const active = async () => (await daemon.ask("GET", "/v1/modes")).json().active;
  const enter = async (mode, seconds) => {
    await page.click(`button[data-mode='${mode}']`);
    await page.getByLabel("Undo unless confirmed within, seconds").fill(String(seconds));
    await page.click(`dialog button:has-text('Switch to ${mode}')`);
  };
  const onTrial = () => page.waitForSelector("[data-pending] .left:has-text('s left')");
  await page.click("button[data-mode='15W']");
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  assert.equal(await active(), "25W");
  await enter("15W", 600);
  await onTrial();
  assert.match(await text(page, "[data-pending] .left"), /^\d+ s left$/);
  assert.equal(await active(), "15W");
  await visit(page, "roofline");
  await page.click("text=Back to 25W");
  await until(async () => await active() === "25W", "the revert");
  await visit(page, "live");
  await enter("15W", 600);
  await onTrial();
  await page.click("text=Keep 15W");
  await page.waitForSelector("[data-pending]", { state: "detached" });
  assert.equal((await daemon.ask("GET", "/v1/holds")).json().pending, null);
  assert.equal(await active(), "15W");
  // The bar is there for five seconds only, which may pass unseen; what was answered stays.
  await enter("25W", 5);
  await page.waitForSelector("section:has(> #title-modes) .note:not(:has-text('Switching to'))");
  await until(async () => await active() === "15W", "the revert without a word");
  await page.waitForSelector("[data-pending]", { state: "detached" });
  await daemon.ctl("mode", "set", "25W");
}));

test("it says that the daemon is gone, and goes on by itself once it is back", options, () => on("live", async (page) => {
  await daemon.kill();
  await page.waitForSelector("#bars :text('No connection to the daemon')");
  assert.equal(await text(page, "#connection"), "disconnected");
  await daemon.start();
  await page.waitForSelector("#connection:has-text('connected'):not(.down)");
  await page.waitForSelector("#bars :text('No connection to the daemon')", { state: "detached" });
  await daemon.ctl("mode", "set", "15W");
  await page.waitForSelector("tr.active:has-text('15W')");
  await daemon.ctl("mode", "set", "25W");
}));

test("a view that is first opened while the daemon is away is drawn once it is back", options, async () => {
  const lost = (page) => page.waitForSelector("#bars :text('No connection to the daemon')");
  for (const [view, drawn] of [["model", "[data-chart=heatmap] .cell"], ["spot", "[data-chart=kernel] .bar-predicted"], ["roofline", "[data-chart=roofline] g.point"]]) {
    const { page, context, faults } = await watchedPage(chrome, board.origin);
    await open(page, board.url.replace("#", "#live?"));
    await daemon.kill();
    await lost(page);
    await page.click(`nav a[data-view=${view}]`);
    await page.waitForSelector("main .note.bad");
    await daemon.start();
    await page.waitForSelector(drawn, { state: "attached" });
    await page.waitForSelector(`main[data-drawn=${view}]`);
    assert.equal(await page.locator("main .note.bad").count(), 0, view);
    assert.equal(await page.locator("option:has-text('Loading…')").count(), 0, view);
    assert.deepEqual(faults.filter((fault) => !EXPECTED.test(fault)), []);
    await context.close();
  }
  // What ran as the connection was lost has to be run again, and that is said.
  await on("spot?m=1&n=2048&k=2048&formats=fp16", async (page) => {
    await page.waitForSelector("[data-chart=kernel] .bar-predicted");
    let broken = false;
    await page.route(/\/v1\/measure/, async (route) => {
      await daemon.kill();
      broken = true;
      await route.continue();
    });
    await page.click("text=Predict and run now");
    await until(() => broken, "a run");
    await page.waitForSelector("main .note.bad");
    await lost(page);
    await daemon.start();
    await page.waitForSelector("text=The connection was lost while kernels ran");
    assert.equal(await page.locator("main .note.bad").count(), 0);
  });
  // A run that failed by itself stays as it ended.
  await on("spot?m=1&n=2048&k=2048&formats=fp16", async (page) => {
    await page.waitForSelector("[data-chart=kernel] .bar-predicted");
    const error = { code: "probe_failed", message: "the probe failed: a made-up fault" };
    await page.route(/\/v1\/measure/, (route) => route.fulfill({ status: 500, contentType: "application/json", body: JSON.stringify({ error }) }));
    await page.click("text=Predict and run now");
    await page.waitForSelector("main .note.bad:has-text('a made-up fault')");
    await daemon.kill();
    await lost(page);
    await daemon.start();
    await page.waitForSelector("#bars :text('No connection to the daemon')", { state: "detached" });
    await page.evaluate(() => new Promise(requestAnimationFrame));
    assert.equal(await page.locator("text=The connection was lost").count(), 0);
    await page.waitForSelector("main .note.bad:has-text('a made-up fault')");
  });
});

test("nothing is wider than a phone", options, async () => {
  for (const view of VIEWS) {
    await on(view, async (page) => {
      await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
      const [content, width] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(content <= width, `${view}: ${content} > ${width}`);
    }, { viewport: { width: 360, height: 740 } });
  }
});

test("on a phone every control can be reached without looking for it sideways", options, async () => {
  // Cells of the heat map are the one thing that may be wider than the screen: they scroll below fixed controls.
  const outside = () => [...document.querySelectorAll("button, input, select, textarea, summary, a[href]")]
    .filter((element) => element.checkVisibility() && !element.closest(".offscreen, .skip"))
    .map((element) => [element, element.getBoundingClientRect()])
    .filter(([, box]) => box.width > 0 && (box.left < -1 || box.right > innerWidth + 1))
    .map(([element, box]) => `${element.localName} ${element.textContent || element.getAttribute("aria-label")}: ${Math.round(box.left)} to ${Math.round(box.right)}`);
  const all = [];
  for (const width of [390, 320]) {
    for (const view of VIEWS) {
      await on(view, async (page) => {
        await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
        all.push(...(await page.evaluate(outside)).map((found) => `${view}, ${width} pixels, ${found}`));
      }, { viewport: { width, height: 844 }, hasTouch: true, isMobile: true });
    }
  }
  assert.deepEqual(all, []);
  await on("live", async (page) => {
    const button = page.locator("button[data-mode='15W']");
    await button.scrollIntoViewIfNeeded();
    const box = await button.boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= 390, JSON.stringify(box));
    await button.tap();
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    // What is a card on a phone is still a table for a screen reader.
    assert.ok(await page.getByRole("row", { name: /^15W/ }).getByRole("cell").count() > 5);
  }, { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
});

/** What lies on each other in the charts of a page: texts, and texts on lines. */
const overlaps = () => {
  const found = [];
  // Letters are less high than their line.
  const boxOf = (node) => { const box = node.getBoundingClientRect(); return { left: box.left + 1, right: box.right - 1, top: box.top + 3, bottom: box.bottom - 3, width: box.width }; };
  const ends = (line) => {
    const matrix = line.getScreenCTM();
    return [["x1", "y1"], ["x2", "y2"]].map(([x, y]) => new DOMPoint(line[x].baseVal.value, line[y].baseVal.value).matrixTransform(matrix));
  };
  const touches = ([a, b], box) => {
    const [low, high] = [Math.max(box.left, Math.min(a.x, b.x)), Math.min(box.right, Math.max(a.x, b.x))];
    if (low > high) return false;
    const heights = a.x === b.x ? [a.y, b.y] : [low, high].map((x) => a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x));
    return Math.max(...heights) > box.top && Math.min(...heights) < box.bottom;
  };
  for (const svg of document.querySelectorAll("main [data-chart] svg")) {
    const chart = svg.closest("[data-chart]").dataset.chart;
    const texts = [...svg.querySelectorAll("text")].map((node) => [node, boxOf(node)]).filter(([node, box]) => box.width > 0 && node.textContent.trim());
    texts.forEach(([node, a], index) => texts.slice(index + 1).forEach(([other, b]) => {
      if (Math.min(a.right, b.right) > Math.max(a.left, b.left) && Math.min(a.bottom, b.bottom) > Math.max(a.top, b.top)) found.push(`${chart}: “${node.textContent}” and “${other.textContent}”`);
    }));
    const frame = svg.getBoundingClientRect();
    for (const line of svg.querySelectorAll("line")) {
      // The sample of a line is in the legend beside its name, and hatching is a texture.
      if (line.closest(".legend, pattern")) continue;
      const isGrid = line.closest(".axis");
      for (const [node, box] of texts) {
        // Names of points and of lines in the picture have a ground of their own, which hides the grid; nothing hides a ceiling.
        if (isGrid && node.matches(".line-name, .point-name, .bar-value")) continue;
        if (touches(ends(line), box)) found.push(`${chart}: “${node.textContent}” and a line of ${line.getAttribute("class") ?? "the grid"}`);
      }
    }
    for (const [node, box] of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 3 || box.bottom > frame.bottom + 3) found.push(`${chart}: “${node.textContent}” is cut off`);
    }
  }
  return found;
};

test("no text of a chart lies on another text or on a line, on any board, at any size, in either theme", options, async () => {
  const all = [];
  const look = async (site, name, hashes, sizes) => {
    for (const width of sizes) {
      for (const hash of hashes) {
        await on(hash, async (page) => {
          await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
          for (const colorScheme of ["light", "dark"]) {
            await page.emulateMedia({ colorScheme });
            all.push(...(await page.evaluate(overlaps)).map((found) => `${name} ${hash}, ${width} pixels, ${colorScheme}: ${found}`));
          }
        }, { viewport: { width, height: 900 } }, site);
      }
    }
  };
  await look(board, "orin nano", ["roofline", "roofline?with=mode:15W", "roofline?layers=llama-3.2-1b&formats=fp16", "spot", "model?model=llama-3.2-3b", "model?model=llama-3.1-8b&batches=1,64", "model?model=qwen3-0.6b&formats=q8_0&batches=1&show=power"], [1280, 820, 390]);
  for (const name of ["jetson-agx-thor-t5000", "gb10", null]) {
    const other = await new Daemon(name ? { board: name } : { board: null, control: false, accelerator: "cpu" }).start();
    const site = await dashboard(other);
    try {
      await look(site, name ?? "cpu", ["roofline", "roofline?with=hw:h100-sxm", "spot", "model?model=llama-3.1-8b"], [1280, 390]);
    } finally {
      site.stop();
      await other.stop();
    }
  }
  assert.deepEqual(all, []);
});

test("warnings and what a power covers are shown with the figures", options, async () => {
  await on("model?model=llama-3.2-1b&formats=q4_k_m&batches=1&show=power&board=jetson-orin-nano-8gb", async (page) => {
    const { warnings } = (await daemon.ask("POST", "/v1/recommend", { hardware: "jetson-orin-nano-8gb", engine: "llama.cpp", objective: "latency", workload: { model: "llama-3.2-1b", phase: "serve", context_tokens: 2048, prompt_tokens: 512, output_tokens: 128 }, freedom: { formats: ["q4_k_m"], batch: { min: 1, max: 1 } } })).json();
    assert.ok(warnings.length > 0);
    const shown = await page.locator(".note.warn:has-text('Warning')").allInnerTexts();
    for (const warning of warnings) assert.ok(shown.some((text) => text.includes(warning.slice(1))), `${warning} is not in ${shown.join("\n")}`);
    assert.match(await page.locator("[data-chart=heatmap] .legend text").textContent(), /W to .* W \(module\)/);
    assert.match(String(await page.locator("[data-chart=pareto] .axis .name").allTextContents()), /Power, W \(module\)/);
    assert.match(await text(page, "#board"), /W \(module\)/);
  });
});

test("over a slow line there is something to read before the library of the charts has come", options, async () => {
  const { page, context, faults } = await watchedPage(chrome, board.origin, { viewport: { width: 390, height: 844 } });
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  await page.route(/d3\.min\.js/, async (route) => { await held; await route.continue(); });
  await page.goto(board.url, { waitUntil: "commit" });
  await page.waitForSelector("#board:has-text('Orin Nano')");
  await page.waitForSelector("nav a:text-is('Model')");
  assert.equal(await text(page, "main"), "Loading Roofline…");
  release();
  await page.waitForSelector("[data-chart=roofline] .ceiling-line", { state: "attached" });
  assert.deepEqual(faults, []);
  await context.close();
  // As fast as a slow line of a phone, once everything is as it comes.
  const slow = await watchedPage(chrome, board.origin, { viewport: { width: 390, height: 844 } });
  const line = await slow.context.newCDPSession(slow.page);
  await line.send("Network.enable");
  await line.send("Network.emulateNetworkConditions", { offline: false, latency: 100, downloadThroughput: 30e3, uploadThroughput: 30e3 });
  const plain = [];
  slow.page.on("response", (response) => {
    if (response.headers()["content-encoding"] !== "gzip" && Number(response.headers()["content-length"] ?? 0) > 1024) plain.push(response.url());
  });
  const began = performance.now();
  const after = (name) => figure(`at 30 kB/s, ${name} after s`, ((performance.now() - began) / 1000).toFixed(1));
  slow.page.goto(board.url, { waitUntil: "commit" });
  await slow.page.waitForSelector(".loading:has-text('Loading')");
  after("the first words");
  await slow.page.waitForSelector("#board:has-text('Orin Nano')");
  after("board, mode and power");
  await slow.page.waitForSelector("[data-chart=roofline] .ceiling-line", { state: "attached" });
  after("the roofline");
  await slow.page.waitForSelector("main[data-drawn]");
  after("everything");
  assert.deepEqual([plain, slow.faults], [[], []]);
  await slow.context.close();
});

test("light and dark follow the system, and the switch", options, () => on(null, async (page) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).map(Number).reduce((sum, part) => sum + part));
  assert.ok(await ground() < 200);
  await page.click("#theme");
  assert.equal(await text(page, "#theme"), "Theme: light");
  assert.ok(await ground() > 600);
  await page.reload();
  await page.waitForSelector("main[data-drawn]");
  assert.ok(await ground() > 600);
}, { colorScheme: "dark" }));

test("a link restores the view and has no token", options, () => on("model?model=llama-3.2-1b&batches=2,4&formats=q8_0&show=energy", async (page, context) => {
  await page.evaluate(() => { navigator.clipboard.writeText = async (value) => { window.copied = value; }; });
  await page.click("text=Copy a link to this view");
  const link = await page.evaluate(() => window.copied);
  assert.ok(!link.includes(board.token) && !link.includes("token"), link);
  // In the same tab, the token is still there.
  await page.goto("about:blank");
  await page.goto(link);
  await page.waitForSelector("main[data-drawn=model]");
  await page.waitForSelector(".fact:has-text('Llama-3.2-1B')");
  assert.equal(await page.locator("[data-chart=heatmap] .item[aria-label^='q8_0, 15W, batch 4']").count(), 1);
  assert.equal(await page.locator("input[type=text]").first().inputValue(), "2,4");
  // A chosen cell is part of it, and so is a model that is shown without having been asked for.
  const copied = async () => {
    await page.evaluate(() => { navigator.clipboard.writeText = async (value) => { window.copied = value; }; });
    await page.click("text=Copy a link to this view");
    return page.evaluate(() => window.copied);
  };
  const reopened = async (address) => {
    await page.goto("about:blank");
    await page.goto(address);
    await page.waitForSelector("main[data-drawn=model]");
  };
  await reopened(`${board.origin}/#model`);
  await page.locator("[data-chart=heatmap] .item[aria-label^='q8_0, 25W, batch 4,']").click();
  await page.waitForSelector("h2:text-is('A closer look: q8_0, 25W, batch 4')");
  const chosen = await copied();
  assert.match(chosen, /model=llama-3\.2-3b/);
  await reopened(chosen);
  await page.waitForSelector("h2:text-is('A closer look: q8_0, 25W, batch 4')");
  // Another setting asks for something else, of which it was no part.
  await page.getByLabel("Objective").selectOption("throughput");
  await page.waitForSelector("h2:has-text('A closer look'):not(:text-is('A closer look: q8_0, 25W, batch 4'))");
  assert.doesNotMatch(await copied(), /pick=/);
  await reopened(chosen.replace("@4", "@5"));
  await page.waitForSelector("text=The link points at q8_0, 25W, batch 5, which is not among the current settings.");
  // In another tab there is none: the page explains, and shows no figure.
  const other = await context.newPage();
  await other.goto(link);
  await other.waitForSelector("[data-gate]");
  assert.match(await other.innerText("main"), /rooflinectl dashboard/);
}));

test("an address that asks for what there is not says so, and shows nothing else instead", options, async () => {
  await on("model?model=nope&board=none&engine=mine", async (page) => {
    await page.waitForSelector("text=Unknown model “nope”. It is not in the registry");
    await page.waitForSelector("text=Unknown board “none” in the address: this machine");
    await page.waitForSelector("text=Unknown engine “mine” in the address: llama.cpp is used instead.");
    assert.equal(await page.locator(".facts, [data-chart=heatmap] .cell").count(), 0);
    await page.locator("main select").first().selectOption("llama-3.2-1b");
    await page.waitForSelector("[data-chart=heatmap] .cell");
    assert.equal(await page.locator("text=Unknown").count(), 0);
    assert.match(page.url(), /model=llama-3\.2-1b/);
  });
  // An address that somebody cut in two.
  for (const [hash, view] of [["%", "roofline"], ["roofline?%", "roofline"], ["spot?m=%E0%A4%A&n=512", "spot"]]) {
    await on("live", async (page) => {
      await page.goto("about:blank");
      await page.goto(`${board.origin}/#${hash}`);
      await page.waitForSelector(`main[data-drawn=${view}]`);
    });
  }
  await on("model?batches=1%2C2&formats=q8_0%2Cq4_0", (page) => page.waitForSelector("[data-chart=heatmap] .item[aria-label^='q4_0, 25W, batch 2,']"));
});

test("without the token, with a wrong one, and from a foreign site nothing is shown", options, async () => {
  const { page, context } = await watchedPage(chrome, board.origin);
  const asked = [];
  page.on("response", (response) => { if (/\/(v1|dashboard)\//.test(response.url())) asked.push(response.status()); });
  await page.goto(board.origin);
  await page.waitForSelector("[data-gate]");
  assert.deepEqual(asked, []);
  await page.goto(`${board.origin}/#token=${"0".repeat(board.token.length)}`);
  await page.reload();
  await page.waitForSelector("[data-gate]");
  await until(() => asked.length > 0, "an answer to the wrong token");
  assert.ok(asked.every((status) => status === 401 || status === 403), String(asked));
  const foreign = createServer((request, response) => response.setHeader("Content-Type", "text/html").end("<!doctype html><title>foreign</title>"));
  await new Promise((resolve) => { foreign.listen(0, "127.0.0.1", resolve); });
  await page.goto(`http://127.0.0.1:${foreign.address().port}/`);
  const seen = await page.evaluate(async ([origin, token]) => {
    try {
      return await (await fetch(`${origin}/v1/state`, { headers: { "X-Rooflined-Token": token } })).text();
    } catch { return "nothing"; }
  }, [board.origin, board.token]);
  assert.equal(seen, "nothing");
  const framed = await page.evaluate((origin) => new Promise((resolve) => {
    const frame = document.createElement("iframe");
    frame.src = origin;
    frame.onload = () => { try { resolve(frame.contentDocument?.title ?? "blocked"); } catch { resolve("blocked"); } };
    document.body.append(frame);
  }), board.origin);
  assert.equal(framed, "blocked");
  foreign.close();
  await context.close();
});

test("charts are saved as SVG, PNG and CSV that stand alone", options, async () => {
  for (const colorScheme of ["light", "dark"]) {
    await on("roofline", async (page) => {
      await page.waitForSelector("[data-chart=roofline] .point");
      const save = async (kind) => {
        const [download] = await Promise.all([page.waitForEvent("download"), page.click(`[data-chart=roofline] .files button:has-text('${kind}')`)]);
        assert.match(download.suggestedFilename(), new RegExp(`^rooflined-roofline-SIMULATED.${kind.toLowerCase()}$`));
        return readFileSync(await download.path());
      };
      const svg = (await save("SVG")).toString();
      assert.doesNotMatch(svg, /class=|style=|var\(|light-dark/);
      assert.match(svg, /simulated board/);
      const background = /<rect[^>]*fill="rgb\((\d+), (\d+), (\d+)\)"/.exec(svg).slice(1).map(Number);
      assert.equal(background.every((part) => part < 60), colorScheme === "dark");
      execFileSync("python3", ["-c", "import sys, xml.dom.minidom; xml.dom.minidom.parseString(sys.stdin.buffer.read())"], { input: svg });
      const png = await save("PNG");
      assert.equal(png.subarray(1, 4).toString(), "PNG");
      assert.ok(png.readUInt32BE(16) > 1000 && png.length > 10000, `${png.readUInt32BE(16)} pixels, ${png.length} bytes`);
      const csv = (await save("CSV")).toString();
      const again = parsePoints("again.csv", csv);
      assert.equal(again.length, csv.trim().split("\r\n").length - 1);
      assert.ok(again.every((point) => !point.measured && point.intensity > 0 && point.time.low <= point.time.high));
    }, { colorScheme });
  }
});

test("every chart has its figures as a table", options, () => on("roofline", async (page) => {
  await page.waitForSelector("[data-chart=roofline] .point");
  await page.click("[data-chart=roofline] summary");
  await page.locator("[data-chart=roofline] tbody tr").first().waitFor();
  const rows = await page.locator("[data-chart=roofline] tbody tr").count();
  assert.equal(rows, await page.locator("[data-chart=roofline] g.point").count());
}));

test("axe finds nothing serious in any view, in either theme", options, async () => {
  let all = 0;
  for (const colorScheme of ["light", "dark"]) {
    for (const view of VIEWS) {
      await on(view, async (page) => {
        await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
        await page.evaluate(() => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
        all += violations.length;
        const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
        assert.deepEqual(grave.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html.slice(0, 160)} ${failureSummary}`)}`), [], `${view}, ${colorScheme}`);
        if (violations.length) console.log(`axe, ${view}: ${violations.map(({ id, impact, nodes }) => `${id} (${impact}) ${nodes[0].html.slice(0, 100)}`)}`);
      }, { colorScheme });
    }
  }
  figure("findings of axe, in every view and two themes", all);
});

/** Everything about a view as it is now: it fits the screen, and axe finds nothing. Colours that are on their way are waited for. */
async function checkLayout(page) {
  await page.evaluate(() => Promise.allSettled(document.getAnimations().map(({ finished }) => finished)));
  const [content, width] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= width, `${content} > ${width}`);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)}`), []);
}

test("each server that was reported is shown with what slows it down, in the words of the API", options, async () => {
  const own = await new Daemon().start();
  const site = await dashboard(own);
  try {
    await own.ctl("mode", "set", "25W");
    await own.ctl("calibrate", "--quick", "--wait", "--force");
    const run = { engine: "llama.cpp", workload: { model: "llama-3.2-1b", format: "q4_k_m", context_tokens: 512 } };
    const { tokens_per_s: expected } = (await own.ask("POST", "/v1/predict", run)).json();
    const report = async (server, ratio, seen) => {
      assert.equal((await own.ask("POST", "/v1/observations", { ...run, server, seen, tokens_per_s: expected.value * ratio })).status, 200);
    };
    const servers = async () => Object.fromEntries((await own.ask("GET", "/v1/servers")).json().servers.map((entry) => [entry.server, entry]));
    await on("explain", async (page) => {
      await page.waitForSelector("[data-panel=servers] :text('No server was reported')");
      assert.match(await text(page, "[data-panel=servers] .command"), /rooflinectl observe/);
      await report("steady", 1);
      // What it was, and not what the daemon expects now that it has learned.
      await page.waitForSelector("[data-server=steady] .tag:text('as expected')");
      // A made-up fault, which nothing else explains, and what could not be looked at.
      await report("slow", 0.3, { disturbed: "a made-up disturbance", unlike: ["--made-up"], unseen: [{ what: "its files", reason: "they may not be read", grant: "run this with sudo" }] });
      await page.waitForSelector("[data-server=slow] .tag:text('slower than expected')");
      const { slow } = await servers();
      const shown = await text(page, "[data-server=slow]");
      const [cause] = slow.explained.causes;
      const [evidence] = slow.explained.causes.flatMap((each) => each.evidence);
      const parts = [`${three(slow.explained.measured_tokens_per_s)} tokens/s`, three(slow.explained.expected_tokens_per_s.low), three(slow.explained.expected_tokens_per_s.high), slow.explained.reason,
        three(cause.without_tokens_per_s), cause.certainty, `${evidence.source}: ${evidence.value}`, slow.not_learned, "they may not be read", "run this with sudo",
        ...slow.explained.causes.flatMap(({ what, fix }) => [what, fix])];
      // A sentence begins with a capital.
      for (const part of parts) assert.ok(shown.toLowerCase().includes(part.toLowerCase()), `${part} is not in ${shown}`);
      // What is slow comes first.
      assert.equal(await page.locator("[data-server]").first().getAttribute("data-server"), "slow");
      // It lasts: the bar above every view leads here.
      await report("slow", 0.3, { disturbed: "a made-up disturbance" });
      await visit(page, "roofline");
      await page.click("#bars a:has-text('Show its causes')");
      await page.waitForSelector("main[data-drawn=explain] [data-server=slow]");
      for (const colorScheme of ["light", "dark"]) {
        for (const width of [1280, 390]) {
          await page.emulateMedia({ colorScheme });
          await page.setViewportSize({ width, height: 844 });
          await checkLayout(page);
        }
      }
    }, {}, site);
  } finally {
    site.stop();
    await own.stop();
  }
});

/** An ONNX file in the daemon's directory; with `open` its batch, height and width are left open. */
function onnx(name, ...open) {
  const path = join(daemon.home, name);
  execFileSync("python3", [join(REPOSITORY, "tests/random_onnx.py"), path, ...open]);
  return path;
}

/** Fails unless the page shows the figures of an answer of `rooflinectl recommend FILE.onnx`. */
async function showsNetwork(page, { choice, prediction, alternatives, command, warnings }) {
  await page.waitForSelector(`.note:has-text('${choice.precision}, batch ${choice.batch}, mode ${choice.power_mode}.')`);
  const shown = await text(page, "main");
  const parts = [units.estimate(choice.latency_s, units.time), units.estimate(choice.pictures_per_s, units.digits), `${units.estimate(choice.power_w, units.power)}, ${choice.power_w.scope}`,
    `${choice.workers} workers at ${units.clock(choice.clock_hz)}`, units.bandwidth(choice.bandwidth_bytes_per_s), `about ${units.bytes(prediction.engine_file_bytes)}`, command, ...warnings.map((warning) => warning.slice(1))];
  for (const part of parts) assert.ok(shown.includes(part), `${part} is not in ${shown}`);
  const rows = await page.locator("table", { hasText: "Bound by" }).locator("tbody tr").allInnerTexts();
  assert.equal(rows.length, prediction.layers.length);
  prediction.layers.forEach((layer, index) => {
    for (const part of [layer.name, layer.kind, layer.precision, units.time(layer.time_s), units.limit(layer.bound)]) assert.ok(rows[index].includes(part), `${part} is not in ${rows[index]}`);
  });
  assert.equal(await page.locator("table", { hasText: "Misses" }).locator("tbody tr").count(), alternatives.length);
}

test("a vision network gets the recommendation of rooflinectl, by its path and as a chosen file", options, async () => {
  const path = onnx("detector.onnx");
  const answer = async (...args) => JSON.parse(await daemon.ctl("recommend", path, "--hardware", "jetson-orin-nano-8gb", "--modes", "all", "--min-fps", "30", ...args, "-o", "json"));
  await on(`vision?path=${encodeURIComponent(path)}&board=jetson-orin-nano-8gb&power=15`, async (page) => {
    await showsNetwork(page, await answer("--max-power", "15W"));
    await page.getByLabel("Streams").fill("4");
    await page.getByLabel("The latency covers").selectOption("copies");
    await page.getByLabel("Precision").selectOption("int8");
    let sent = 0;
    page.on("request", (asked) => { if (asked.url().includes("/dashboard/network")) sent += asked.postDataBuffer()?.length ?? 0; });
    await page.locator("input[type=file]").setInputFiles(path);
    await showsNetwork(page, await answer("--max-power", "15W", "--streams", "4", "--scope", "copies", "--precision", "int8"));
    assert.ok(sent < statSync(path).size / 10, `${sent} bytes were sent`);
    for (const colorScheme of ["light", "dark"]) {
      for (const width of [1280, 390]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 844 });
        await checkLayout(page);
      }
    }
    // What nothing reaches is said, with what is missed.
    await page.getByLabel("Frames per second at least").fill("100000");
    await page.click("button:has-text('Recommend')");
    await page.waitForSelector(".note.warn:has-text('Nothing meets these limits.'):has-text('misses frames per second at least')");
  });
});

test("a vision network with open sizes asks for them by name, and what is no network is refused", options, async () => {
  const path = onnx("open.onnx", "--open");
  await on("vision", async (page) => {
    await page.click("button:has-text('Recommend')");
    await page.waitForSelector(".note.warn:has-text('Choose an .onnx file, or give its path.')");
    await page.getByLabel("Board").selectOption("jetson-orin-nano-8gb");
    const file = page.locator("input[type=file]");
    const byPath = async () => {
      await page.getByLabel("ONNX file", { exact: true }).fill(path);
      await page.click("button:has-text('Recommend')");
    };
    for (const name of [byPath, () => file.setInputFiles(path)]) {
      await name();
      await page.waitForSelector(".note.warn:has-text('Give the size of batch, height, width.')");
      await page.getByLabel("Size of batch").fill("2");
      await page.click("button:has-text('Recommend')");
      await page.waitForSelector(".note.warn:has-text('Size of height: it is empty')");
      await page.getByLabel("Size of height").fill("480");
      await page.getByLabel("Size of width").fill("640");
      await page.click("button:has-text('Recommend')");
      const args = ["recommend", path, "--hardware", "jetson-orin-nano-8gb", "--modes", "all", "--min-fps", "30", "--dim", "batch=2", "--size", "480x640", "-o", "json"];
      await showsNetwork(page, JSON.parse(await daemon.ctl(...args)));
      assert.match(decodeURIComponent(page.url()), /"height":480/);
    }
    const refused = async (name, buffer, ...said) => {
      await file.setInputFiles({ name, mimeType: "application/octet-stream", buffer });
      for (const part of said) await page.waitForSelector(`.note.bad:has-text('${part}')`);
    };
    await refused("page.onnx", Buffer.from("<!DOCTYPE html>\n"), "is a web page");
    await refused("cut.onnx", readFileSync(path).subarray(0, 100000), "cut.onnx is cut", "export it again with torch.onnx.export");
    await refused("empty.onnx", Buffer.alloc(0), "empty.onnx");
    await page.getByLabel("ONNX file", { exact: true }).fill("/nowhere/x.onnx");
    await page.click("button:has-text('Recommend')");
    await page.waitForSelector(".note.bad:has-text('Check the path and who may read it')");
  });
});

test("a rate that somebody measured is explained, and a link asks for it again", options, async () => {
  const own = await new Daemon().start();
  const site = await dashboard(own);
  try {
    await own.ctl("mode", "set", "25W");
    await own.ctl("calibrate", "--quick", "--wait", "--force");
    await own.ctl("mode", "set", "15W");
    await on("explain", async (page) => {
      const panel = page.locator("[data-panel=rate]");
      await panel.getByLabel("Model").selectOption("llama-3.2-1b");
      await panel.getByLabel("Context").fill("512");
      const press = () => panel.getByRole("button", { name: "Explain" }).click();
      // Without a rate it is about the machine.
      await press();
      await panel.locator("[data-cause=power_mode]").waitFor();
      assert.match(await panel.innerText(), /Now[\s\S]*rooflinectl mode set 25W/);
      await panel.getByLabel("tokens/s").fill("3");
      await press();
      await panel.locator("[data-unexplained]").waitFor();
      const explained = (await own.ask("POST", "/v1/explain", { engine: "llama.cpp", tokens_per_s: 3, workload: { model: "llama-3.2-1b", format: "q4_k_m", context_tokens: 512 } })).json();
      const shown = await panel.innerText();
      for (const part of [explained.reason, explained.causes[0].what.replace("power", "Power"), three(explained.causes[0].without_tokens_per_s), `${(explained.unexplained_ratio * 100).toFixed(1)} % of the difference`]) {
        assert.ok(shown.includes(part), `${part} is not in ${shown}`);
      }
      await page.setViewportSize({ width: 390, height: 844 });
      await checkLayout(page);
      // What the daemon refuses is said in its words.
      await panel.getByLabel("tokens/s").fill("0");
      await press();
      await panel.locator(".note.bad:has-text('tokens_per_s')").waitFor();
    }, {}, site);
    await on("explain?model=llama-3.2-1b&engine=llama.cpp&format=q8_0&context=256&rate=2", async (page) => {
      const explained = (await own.ask("POST", "/v1/explain", { engine: "llama.cpp", tokens_per_s: 2, workload: { model: "llama-3.2-1b", format: "q8_0", context_tokens: 256 } })).json();
      await page.waitForSelector(`[data-panel=rate] .note:has-text(${JSON.stringify(explained.reason)})`);
      assert.equal(await page.locator("[data-panel=rate]").getByLabel("Weight format").inputValue(), "q8_0");
    }, {}, site);
  } finally {
    site.stop();
    await own.stop();
  }
});

test("a machine without modes, sensors or calibration says so, and what to run", options, async () => {
  const plain = await new Daemon({ board: null, control: false, accelerator: "cpu" }).start();
  const site = await dashboard(plain);
  try {
    for (const view of VIEWS) {
      await on(view, async (page) => {
        await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
        assert.match(await text(page, "#bars"), /Not calibrated[\s\S]*rooflinectl calibrate --wait/);
        assert.doesNotMatch(await text(page, "body"), /SIMULATED|NaN|undefined|\bnull\b|\[object/);
      }, {}, site);
    }
    await on("live", async (page) => {
      assert.match(await text(page, "[data-field=gpu_hz]"), /unknown[\s\S]*no NVIDIA GPU/);
      assert.match(await text(page, "#title-modes + * + *, section:has(> #title-modes)"), /no power modes/i);
    }, {}, site);
    // Nobody may command through a socket that is not there.
    rmSync(join(plain.socket, "control.sock"));
    await on("spot", async (page) => {
      assert.match(await text(page, "form"), /Predictions only: nothing can be run from here, because/);
      assert.equal(await page.locator("button:has-text('Predict and run now')").isDisabled(), true);
      await page.waitForSelector("[data-chart=kernel] .bar-predicted");
    }, {}, site);
  } finally {
    site.stop();
    await plain.stop();
  }
});
