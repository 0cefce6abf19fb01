// Holds what is vendored for the page against npm's own package: the same bytes as in its tarball, and as recorded.
// Usage: node check_vendored.mjs
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const vendor = new URL("../../crates/rooflinectl/src/dashboard/page/vendor/", import.meta.url).pathname;
const record = JSON.parse(readFileSync(join(vendor, "vendored.json"), "utf8"));
const work = mkdtempSync(join(tmpdir(), "rl-vendored-"));
const wrong = [];
try {
  // npm checks the tarball against the registry's integrity hash.
  const [{ filename }] = JSON.parse(execFileSync("npm", ["pack", "--json", "--silent", `${record.package}@${record.version}`], { cwd: work, stdio: ["ignore", "pipe", "ignore"] }));
  execFileSync("tar", ["-xzf", filename], { cwd: work });
  for (const [file, { in_package: origin, sha256 }] of Object.entries(record.files)) {
    const ours = readFileSync(join(vendor, file));
    if (!ours.equals(readFileSync(join(work, "package", origin)))) wrong.push(`${file} differs from ${origin} of ${record.package} ${record.version}`);
    if (createHash("sha256").update(ours).digest("hex") !== sha256) wrong.push(`${file} is not what vendored.json records`);
  }
  const unknown = readdirSync(vendor).filter((file) => file !== "vendored.json" && !(file in record.files));
  wrong.push(...unknown.map((file) => `${file} is not in vendored.json`));
} finally {
  rmSync(work, { recursive: true });
}
wrong.forEach((line) => console.error(line));
if (wrong.length === 0) console.log(`${record.package} ${record.version}: ${Object.keys(record.files).length} files are npm's own`);
process.exit(wrong.length ? 1 : 0);
