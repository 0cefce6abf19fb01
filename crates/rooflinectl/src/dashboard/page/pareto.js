/** The Pareto front: time per token across, power up, memory as the size of a circle. Where no power is known memory is drawn up. */
import { axes, roundFirst, spaced } from "./chart.js";
import { choice } from "./heatmap.js";
import { family } from "./precision.js";
import * as units from "./units.js";

const TICK_PX = 64;

/** Draws the candidates of `POST /v1/recommend`; `describe` answers what is said of a prediction. */
export function drawPareto(svg, width, height, front, describe) {
  const margin = { left: 56, right: 22, top: 26, bottom: 46 };
  const latency = (entry) => (entry.prediction.time_per_token_s ?? entry.prediction.time_s).value;
  const memory = (entry) => entry.prediction.memory_bytes.total;
  const power = (entry) => entry.prediction.power_w?.value ?? null;
  const known = front.filter((entry) => power(entry) !== null);
  const powerless = known.length === 0;
  const upward = powerless ? (entry) => memory(entry) / 1e9 : power;
  // Candidates without a known power lie in a strip of their own below the others.
  const strip = !powerless && known.length < front.length ? 44 : 0;
  const [near, far] = d3.extent(front, latency);
  const x = d3.scaleLog([near / 1.35, far * 1.35], [margin.left, width - margin.right]);
  const y = d3.scaleLinear([0, (d3.max(front, upward) ?? 1) * 1.15], [height - margin.bottom - strip, margin.top]);
  const size = d3.scaleSqrt([0, d3.max(front, memory)], [3, 13]);
  const scopes = [...new Set(known.map((entry) => units.scope(entry.prediction.power_w)))];
  axes(svg, {
    x, y, width, height, margin, xLabel: "Time per token",
    yLabel: powerless ? "Memory, GB (power is unknown here)" : `Power, W (${scopes.join(" or ")})`,
    xTicks: spaced(x, roundFirst(x), TICK_PX),
    yTicks: y.ticks(5), xFormat: units.time, yFormat: (value) => value,
  });
  if (strip) svg.append("text").attr("class", "point-name").attr("x", margin.left + 4).attr("y", height - margin.bottom - 28).text("power unknown:");
  return front.map((entry) => {
    const [px, py] = [x(latency(entry)), upward(entry) === null ? height - margin.bottom - 12 : y(upward(entry))];
    const radius = size(memory(entry));
    const name = choice(entry.format, entry.power_mode?.name, entry.batch);
    const dot = svg.append("g").attr("class", `p-${family(entry.format).key}`).append("circle").attr("class", "bar-predicted").attr("fill-opacity", 0.55)
      .attr("cx", px).attr("cy", py).attr("r", radius);
    if (entry.decided) mark(svg, name, px, py, radius, width);
    return { node: dot.node(), x: px, y: py, title: `${name}${entry.decided ? " (recommended)" : ""}`, rows: describe(entry.prediction) };
  });
}

// A ring and the name, on the side where there is room, and never beyond an edge.
function mark(svg, name, x, y, radius, width) {
  svg.append("circle").attr("class", "ring").attr("cx", x).attr("cy", y).attr("r", radius + 4);
  const label = svg.append("text").attr("class", "line-name").attr("aria-hidden", "true").attr("y", y - radius - 6).text(name);
  const size = label.node().getComputedTextLength();
  const wanted = x > width * 0.6 ? x - radius - 8 - size : x + radius + 8;
  label.attr("x", Math.max(4, Math.min(wanted, width - size - 4)));
}
