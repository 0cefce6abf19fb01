/** Draws rooflines: ceilings against arithmetic intensity, both logarithmic, with predicted points filled and measured ones hollow. */
import { axes, decades } from "./chart.js";
import { described } from "./points.js";
import { family, order, symbolPath } from "./precision.js";
import * as units from "./units.js";

const DASHES = [null, "7 4", "2 3", "9 3 2 3"];
const LETTERS = "ABCD";
// With more of them names hide what they name.
const MOST_NAMES = 9;

/** Precisions of several rooflines in the order in which they are listed. */
export const precisionsOf = (series) => [...new Set(series.flatMap(({ roofline }) => Object.keys(roofline.compute_flops_per_s)))]
  .sort((a, b) => order(a) - order(b) || a.localeCompare(b));

/** The ceilings as rows for the table and the CSV file. */
export const ceilingRows = (series) => series.flatMap(({ name, roofline }) => [
  { name, ceiling: "memory", answer: roofline.bandwidth_bytes_per_s, ridge: null, show: units.bandwidth },
  ...Object.entries(roofline.compute_flops_per_s).map(([precision, answer]) => ({
    name, ceiling: precision, answer, ridge: roofline.ridge_flops_per_byte[precision], show: (value) => units.rate(value, precision),
  })),
]);

/**
 * Draws into `svg` and answers what can be pointed at. `series` are `{ name, roofline }`, the answers of `GET /v1/roofline`;
 * `shown` the precisions to draw.
 */
export function drawRoofline(svg, width, height, { series, points, shown }) {
  const ceilings = series.flatMap((entry, index) => ceilingsOf(entry, index, series.length, shown)).sort((a, b) => b.value - a.value);
  // Where there is little room, rates are left to the tooltip and the table.
  const names = ceilings.map((ceiling) => nameOf(ceiling, width >= 560));
  const gutter = 18 + LETTER_PX * (d3.max(names, (name) => name.length) ?? 0);
  const margin = { left: 56, right: Math.max(14, gutter), top: 26 + legendRows(points, series, width) * 18, bottom: 44 };
  const visible = points.filter((point) => point.intensity > 0 && point.rate > 0);
  const { x, y } = scales(ceilings, series, visible, width, height, margin);
  axes(svg, {
    x, y, width, height, margin, xLabel: "Arithmetic intensity, FLOP per byte", yLabel: "Rate, FLOP/s",
    xTicks: decades(x.domain(), width / 70), yTicks: decades(y.domain(), height / 45), xFormat: (value) => d3.format("~r")(value), yFormat: units.tick,
  });
  const clip = `clip-${Math.random().toString(36).slice(2)}`;
  svg.append("clipPath").attr("id", clip).append("rect").attr("x", margin.left).attr("y", margin.top)
    .attr("width", width - margin.left - margin.right).attr("height", height - margin.top - margin.bottom);
  const inside = svg.append("g").attr("clip-path", `url(#${clip})`);
  const memoryNames = drawLegend(svg, points, series, width);
  const items = [...drawMemory(inside, series, x, y, shown, memoryNames), ...drawCeilings(svg, inside, ceilings, names, x, y, width - margin.right, height - margin.bottom)];
  items.push(...drawPoints(svg, inside, visible, x, y, width - margin.right, linesOf(inside)));
  return items;
}

const SAME_RATIO = 1.03;
// What a name takes: from one line of text to the next, and a letter of the bold face.
const NAME_PX = 15;
const LETTER_PX = 7.2;

/** Places from top to bottom, at least `gap` apart and none below `bottom`, near the ascending `wanted`. */
function spread(wanted, gap, bottom) {
  const places = [];
  for (const place of wanted) places.push(Math.max(place, (places.at(-1) ?? -Infinity) + gap));
  for (let index = places.length - 1, below = bottom; index >= 0; below = places[index] - gap, index -= 1) places[index] = Math.min(places[index], below);
  return places;
}

// Precisions whose ceilings cannot be told apart in the picture share a line.
function ceilingsOf({ roofline, name }, index, many, shown) {
  const bandwidth = roofline.bandwidth_bytes_per_s.value;
  const groups = [];
  for (const member of Object.entries(roofline.compute_flops_per_s).filter(([precision]) => shown.has(precision)).sort((a, b) => order(a[0]) - order(b[0]))) {
    const same = groups.find(([[, first]]) => Math.max(first.value / member[1].value, member[1].value / first.value) < SAME_RATIO);
    if (same) same.push(member);
    else groups.push([member]);
  }
  return groups.map((members) => {
    const { value } = members[0][1];
    return { index, name, letter: many > 1 ? LETTERS[index] : "", precisions: members.map(([precision]) => precision), members, value, ridge: value / bandwidth };
  });
}

function scales(ceilings, series, points, width, height, margin) {
  const ridges = ceilings.map((ceiling) => ceiling.ridge);
  const low = Math.min(0.3, (d3.min(points, (point) => point.intensity) ?? 1) / 2, (d3.min(ridges) ?? 1) / 4);
  const high = Math.max(30, (d3.max(ridges) ?? 1) * 8, (d3.max(points, (point) => point.intensity) ?? 1) * 2);
  const top = Math.max(d3.max(ceilings, (ceiling) => ceiling.value) ?? 0, d3.max(series, ({ roofline }) => roofline.bandwidth_bytes_per_s.value) ?? 1,
    d3.max(points, (point) => point.rate) ?? 0) * 2.2;
  const bottom = Math.min(d3.min(series, ({ roofline }) => roofline.bandwidth_bytes_per_s.value * low) ?? 1e9, (d3.min(points, (point) => point.rate) ?? Infinity) / 2);
  return {
    x: d3.scaleLog([low, high], [margin.left, width - margin.right]),
    y: d3.scaleLog([Math.max(bottom, top / 1e9), top], [height - margin.bottom, margin.top]),
  };
}

const nameOf = ({ letter, precisions, value }, withRate) =>
  `${letter && `${letter} `}${precisions.join(", ")}${withRate ? ` ${units.rate(value, precisions[0])}` : ""}`;

// The line's name is its entry in the legend.
function drawMemory(inside, series, x, y, shown, names) {
  return series.map(({ name, roofline }, index) => {
    const answer = roofline.bandwidth_bytes_per_s;
    const peaks = Object.entries(roofline.compute_flops_per_s).filter(([precision]) => shown.has(precision)).map(([, peak]) => peak.value);
    const ridge = Math.min((d3.max(peaks) ?? answer.value * 30) / answer.value, x.domain()[1]);
    const at = (value) => y(answer.value * value);
    const [left, right] = [x.domain()[0], ridge];
    inside.append("line").attr("class", "memory-line").attr("x1", x(left)).attr("y1", at(left)).attr("x2", x(right)).attr("y2", at(right))
      .attr("stroke-dasharray", DASHES[index]);
    const letter = series.length > 1 ? `${LETTERS[index]} ` : "";
    const [middleX, middleY] = [x(Math.sqrt(left * right)), at(Math.sqrt(left * right))];
    const slope = [x(right) - x(left), at(right) - at(left)];
    return {
      node: names[index], x: middleX, y: middleY, title: `${letter}Memory ceiling${series.length > 1 ? ` of ${name}` : ""}`,
      rows: [["Bandwidth", units.estimate(answer, units.bandwidth)], ["Rests on", units.restsOn(answer)]],
      // Pointed at near the line, but points come first.
      distance: (px, py) => px < x(left) || px > x(right) ? Infinity
        : Math.abs(slope[1] * (px - x(left)) - slope[0] * (py - at(left))) / Math.hypot(...slope) + 9,
      follow: (px, py) => ({ x: px, y: py }),
    };
  });
}

// Names stand to the right of the lines, the highest line first, each as near to its own line as those above leave room.
function drawCeilings(svg, inside, ceilings, names, x, y, end, bottom) {
  const heights = spread(ceilings.map(({ value }) => y(value)), NAME_PX, bottom);
  return ceilings.map((ceiling, place) => {
    const { precisions, members, value, index, letter, name, ridge } = ceiling;
    const start = Math.max(x(Math.min(ridge, x.domain()[1])), x.range()[0]);
    const color = `p-${family(precisions[0]).key}`;
    inside.append("line").attr("class", `ceiling-line ${color}`).attr("x1", start).attr("x2", end).attr("y1", y(value)).attr("y2", y(value))
      .attr("stroke-dasharray", DASHES[index]);
    inside.append("circle").attr("class", `ridge ${color}`).attr("cx", start).attr("cy", y(value)).attr("r", 2.5);
    svg.append("line").attr("class", `leader ${color}`).attr("x1", end).attr("x2", end + 9).attr("y1", y(value)).attr("y2", heights[place]);
    const label = svg.append("text").attr("class", `line-name ${color}`).attr("x", end + 12).attr("y", heights[place]).attr("dy", "0.35em").text(names[place]);
    return {
      node: label.node(), x: (start + end) / 2, y: y(value), title: `${letter && `${letter} `}${precisions.join(", ")} ceiling${letter ? ` of ${name}` : ""}`,
      rows: [...members.map(([precision, answer]) => [members.length > 1 ? precision : "Peak", units.estimate(answer, (number) => units.rate(number, precision))]),
        ["Ridge point", units.intensity(ridge)], ["Rests on", units.restsOn(members[0][1])]],
      distance: (px, py) => px < start ? Infinity : Math.abs(py - y(value)) + 9,
      follow: (px, py) => ({ x: px, y: py }),
    };
  });
}

// The ceilings that were drawn, as `[x1, y1, x2, y2]`.
const linesOf = (inside) => inside.selectAll("line").nodes().map((line) => ["x1", "y1", "x2", "y2"].map((end) => Number(line.getAttribute(end))));

/** Whether a line touches a box `[left, top, right, bottom]`: what is left of it within the box's width lies within its height too. */
function crosses([x1, y1, x2, y2], [left, top, right, bottom]) {
  const [a, b] = [Math.max(left, Math.min(x1, x2)), Math.min(right, Math.max(x1, x2))];
  if (a > b) return false;
  const at = (place) => x1 === x2 ? [y1, y2] : [y1 + (y2 - y1) * (place - x1) / (x2 - x1)];
  const heights = [...at(a), ...at(b)];
  return Math.max(...heights) >= top && Math.min(...heights) <= bottom;
}

function drawPoints(svg, inside, points, x, y, width, lines) {
  const [bottom, top] = y.range();
  const within = (place) => Math.max(top, Math.min(bottom, place));
  const symbols = points.map((point) => [x(point.intensity), y(point.rate)]).map(([px, py]) => [px - 6, py - 6, px + 6, py + 6]);
  // Intervals are drawn below, and names keep off them too.
  const bars = points.filter((point) => point.time?.low && point.time?.high)
    .map((point) => [x(point.intensity), ...[point.time.low, point.time.high].map((time) => y(point.rate * point.time.value / time))])
    .map(([px, best, worst]) => [px, best, px, worst]);
  const taken = [...symbols];
  // Symbols of one place on top of each other: the hollow ones last, so that both are seen.
  return points.toSorted((a, b) => a.measured - b.measured || a.intensity - b.intensity).map((point) => {
    const [px, py] = [x(point.intensity), y(point.rate)];
    const group = svg.append("g").attr("class", `point p-${family(point.format).key} ${point.measured ? "measured" : "predicted"}`);
    if (point.time?.low && point.time?.high) {
      const [best, worst] = [point.time.low, point.time.high].map((time) => y(point.rate * point.time.value / time)).map(within);
      inside.append("line").attr("class", `whisker p-${family(point.format).key}`).attr("x1", px).attr("x2", px).attr("y1", best).attr("y2", worst);
    }
    const symbol = group.append("path").attr("transform", `translate(${px},${py})`).attr("d", symbolPath(point.format, point.measured ? 150 : 56));
    if (points.length <= MOST_NAMES) nameBeside(group, point, px, py, width, taken, [...lines, ...bars]);
    return { node: symbol.node(), x: px, y: py, title: `${point.label}${point.format && !point.label.includes(point.format) ? `, ${point.format}` : ""} (${point.measured ? "measured" : "predicted"})`, rows: described(point) };
  });
}

// A name where no other one is; without room the tooltip has it.
function nameBeside(group, point, x, y, width, taken, lines) {
  const label = point.short ?? point.label;
  const size = label.length * 6.1 + 4;
  for (const [dx, dy] of [[8, 4], [8, -9], [8, 17], [-size - 8, 4], [-size - 8, -9], [-size - 8, 17]]) {
    const box = [x + dx, y + dy - 11, x + dx + size, y + dy + 3];
    const free = box[0] > 58 && box[2] < width && !taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1]);
    if (!free || lines.some((line) => crosses(line, box))) continue;
    taken.push(box);
    group.append("text").attr("class", "point-name").attr("aria-hidden", "true").attr("x", x + dx).attr("y", y + dy).text(label);
    return;
  }
}

// Where there is little room, the letters stand for the names that are below the chart.
const legendEntries = (points, series, isNarrow) => [
  ...series.map(({ name, roofline }, index) => ({
    text: `${series.length === 1 ? "Memory" : isNarrow ? LETTERS[index] : `${LETTERS[index]} ${name}`}: ${units.bandwidth(roofline.bandwidth_bytes_per_s.value)}`, line: DASHES[index],
  })),
  ...[...new Map(points.map((point) => [family(point.format).key, point.format])).entries()].sort((a, b) => order(a[1]) - order(b[1]))
    .map(([, format]) => ({ text: family(format).title, format: format ?? "other" })),
  ...(points.some((point) => !point.measured) ? [{ text: "filled: predicted", format: null, measured: false }] : []),
  ...(points.some((point) => point.measured) ? [{ text: "hollow: measured", format: null, measured: true }] : []),
];

function legendLayout(points, series, width) {
  let [x, row] = [56, 0];
  return legendEntries(points, series, width < 560).map((entry) => {
    const size = entry.text.length * 6.6 + ("line" in entry ? 46 : 32);
    if (x + size > width && x > 56) [x, row] = [56, row + 1];
    const placed = { ...entry, x, row };
    x += size;
    return placed;
  });
}

const legendRows = (points, series, width) => {
  const layout = legendLayout(points, series, width);
  return layout.length ? layout.at(-1).row + 1 : 0;
};

// Answers the entries of the memory lines.
function drawLegend(svg, points, series, width) {
  const lines = [];
  for (const entry of legendLayout(points, series, width)) {
    const group = svg.append("g").attr("class", "legend").attr("transform", `translate(${entry.x},${30 + entry.row * 18})`);
    if ("line" in entry) {
      group.append("line").attr("class", "memory-line").attr("x1", 0).attr("x2", 20).attr("stroke-dasharray", entry.line);
      lines.push(group.node());
    } else {
      group.attr("aria-hidden", "true");
      group.append("path").attr("class", `point ${entry.format ? `p-${family(entry.format).key}` : "p-other"} ${entry.measured ? "measured" : "predicted"}`)
        .attr("transform", "translate(8,0)").attr("d", symbolPath(entry.format ?? "fp16", 64));
    }
    group.append("text").attr("x", "line" in entry ? 26 : 19).attr("dy", "0.34em").text(entry.text);
  }
  return lines;
}
