// Draws the pictures of docs/images again, of a simulated board that says so: node screenshots.mjs; then optipng or pngquant them.
import { join } from "node:path";
import { Daemon, REPOSITORY, browser, dashboard, look, open, until } from "./fixtures.mjs";

const PICTURES = [
  { name: "dashboard-roofline", hash: "roofline?with=mode:15W", scheme: "light", size: { width: 1120, height: 860 }, card: "[data-chart=roofline]" },
  { name: "dashboard-model", hash: "model?model=llama-3.2-3b", scheme: "light", size: { width: 1240, height: 900 }, card: "[data-chart=heatmap]" },
];

const daemon = await new Daemon().start();
await daemon.ctl("calibrate", "--wait", "--force");
const site = await dashboard(daemon);
const chrome = await browser();
try {
  for (const { name, hash, scheme, size, card } of PICTURES) {
    const page = await chrome.newPage({ viewport: size, colorScheme: scheme });
    await open(page, site.url);
    await look(page, hash);
    await until(() => page.evaluate(() => !document.querySelector("[aria-busy]")), "answers");
    await page.waitForTimeout(800);
    // A card as a whole, so that nothing is cut off, without what only a page can do.
    await page.evaluate(() => document.querySelectorAll(".card > :not(.chart), .card :is(.files, details, .help)").forEach((part) => part.remove()));
    await page.locator(".card", { has: page.locator(card) }).screenshot({ path: join(REPOSITORY, "docs/images", `${name}.png`) });
  }
} finally {
  await chrome.close();
  site.stop();
  await daemon.stop();
}
