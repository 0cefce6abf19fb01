/** The Pareto front: time per token across, power up, memory as the size of a circle. */
import { axes, decades } from "./chart.js";
import { family } from "./precision.js";
import * as units from "./units.js";

/** Draws the candidates of `POST /v1/recommend`; `describe` answers what is said of a prediction. */
export function drawPareto(svg, width, height, front, describe) {
  const margin = { left: 56, right: 22, top: 26, bottom: 46 };
  const latency = (entry) => (entry.prediction.time_per_token_s ?? entry.prediction.time_s).value;
  const power = (entry) => entry.prediction.power_w?.value ?? null;
  const [near, far] = d3.extent(front, latency);
  const known = front.filter((entry) => power(entry) !== null);
  const unknown = known.length < front.length;
  const x = d3.scaleLog([near / 1.35, far * 1.35], [margin.left, width - margin.right]);
  const floor = height - margin.bottom - (unknown ? 44 : 0);
  const y = d3.scaleLinear([0, (d3.max(known, power) ?? 1) * 1.15], [floor, margin.top]);
  const size = d3.scaleSqrt([0, d3.max(front, (entry) => entry.prediction.memory_bytes.total)], [3, 13]);
  const rails = [...new Set(known.map((entry) => units.meter(entry.prediction.power_from)))];
  const few = decades(x.domain(), 8);
  axes(svg, { x, y, width, height, margin, xLabel: "Time per token", yLabel: `Power, W${rails.length ? ` (${rails.join(" or ")})` : ""}`,
    xTicks: few.length > 1 ? few : x.ticks(5).filter((_, index, all) => index % Math.ceil(all.length / 5) === 0), yTicks: known.length ? y.ticks(5) : [], xFormat: units.time, yFormat: (value) => value });
  if (unknown) svg.append("text").attr("class", "point-name").attr("x", margin.left + 4).attr("y", height - margin.bottom - 28).text("power unknown:");
  return front.map((entry) => {
    const [px, py] = [x(latency(entry)), power(entry) === null ? height - margin.bottom - 12 : y(power(entry))];
    const radius = size(entry.prediction.memory_bytes.total);
    const group = svg.append("g").attr("class", `p-${family(entry.format).key}`);
    const dot = group.append("circle").attr("class", "bar-predicted").attr("fill-opacity", 0.55).attr("cx", px).attr("cy", py).attr("r", radius);
    const name = `${entry.format}, ${entry.power_mode?.name ?? "now"}, batch ${entry.batch}`;
    if (entry.decided) {
      svg.append("circle").attr("class", "ring").attr("cx", px).attr("cy", py).attr("r", radius + 4);
      const end = px > width * 0.6;
      svg.append("text").attr("class", "line-name").attr("aria-hidden", "true").attr("x", px + (end ? -radius - 8 : radius + 8)).attr("y", py - radius - 4).attr("text-anchor", end ? "end" : "start").text(name);
    }
    return { node: dot.node(), x: px, y: py, title: `${name}${entry.decided ? " (recommended)" : ""}`, rows: describe(entry.prediction) };
  });
}
