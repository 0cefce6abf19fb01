/** What people write into the form of a model: batch sizes and numbers, with what is wrong with them in plain words. */
import * as units from "./units.js";

/** The daemon's limits. */
export const MOST_TOKENS = 1 << 26;
const LARGEST_BATCH = 1 << 16;

// With more of them the heat map is wider than anybody scrolls.
const MOST_SIZES = 16;
// A range of so many sizes is taken whole.
const FEW_SIZES = 8;

/**
 * Batch sizes such as `1,2,8` or `1..64`; of a longer range its ends and the powers of two between them. Answers
 * `{ sizes, problems }`: `sizes` ascending, and in `problems` what was not understood or left out, in sentences.
 */
export function batchSizes(text) {
  const problems = [];
  const found = new Set();
  for (const part of text.replace(/\s*\.\.\s*/g, "..").split(/[\s,;]+/).filter(Boolean)) {
    const [, from, to] = /^(\d+)(?:\.\.=?(\d+))?$/.exec(part) ?? [];
    const [low, high] = [Number(from), Number(to ?? from)];
    if (from === undefined) problems.push(`“${part}” is not understood: write numbers such as 1,2,8 or a range such as 1..64.`);
    else if (low < 1 || high > LARGEST_BATCH) problems.push(`“${part}” is left out: a batch size lies between 1 and ${units.count(LARGEST_BATCH)}.`);
    else if (low > high) problems.push(`“${part}” is left out: write the smaller number first.`);
    else for (const size of within(low, high)) found.add(size);
  }
  const all = [...found].sort((a, b) => a - b);
  const sizes = all.slice(0, MOST_SIZES);
  if (all.length > sizes.length) problems.push(`Only the first ${MOST_SIZES} of ${all.length} batch sizes are shown, up to ${units.count(sizes.at(-1))}: the map has no room for more.`);
  if (all.length === 0 && problems.length === 0) problems.push("it is empty: write numbers such as 1,2,8 or a range such as 1..64.");
  return { sizes, problems };
}

function within(low, high) {
  if (high - low < FEW_SIZES) return Array.from({ length: high - low + 1 }, (_, index) => low + index);
  const powers = Array.from({ length: Math.log2(LARGEST_BATCH) + 1 }, (_, power) => 2 ** power);
  return [low, ...powers.filter((size) => size > low && size < high), high];
}

/** A whole number from `least` to `most`: `{ value }`, or `{ problem }` in a sentence. */
export function wholeNumber(text, least, most) {
  const value = Number(text);
  if (text.trim() !== "" && Number.isInteger(value) && value >= least && value <= most) return { value };
  return { problem: `${said(text)}: a whole number from ${units.count(least)} to ${units.count(most)} is expected.` };
}

/** A number above 0, `{ value: null }` where there is none. */
export function limitNumber(text) {
  const value = text.trim() === "" ? null : Number(text);
  if (value === null || (Number.isFinite(value) && value > 0)) return { value };
  return { problem: `${said(text)}: a number above 0 is expected, or nothing for no limit.` };
}

const said = (text) => text.trim() === "" ? "it is empty" : `“${text}” is not possible`;
