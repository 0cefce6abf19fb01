/** One colour, one symbol and one name for each family of precisions; the symbol and the name say the same as the colour. */

const FAMILIES = [
  { key: "fp32", symbol: "symbolWye", formats: ["fp32"] },
  { key: "tf32", symbol: "symbolDiamond2", formats: ["tf32"] },
  { key: "fp16", symbol: "symbolCircle", formats: ["fp16"] },
  { key: "bf16", symbol: "symbolCross", formats: ["bf16"] },
  { key: "fp8", symbol: "symbolDiamond", formats: ["fp8", "mxfp8"] },
  { key: "int8", symbol: "symbolSquare", formats: ["int8", "q8"] },
  { key: "int6", symbol: "symbolSquare2", formats: ["q6", "q5", "int6", "int5"] },
  { key: "fp4", symbol: "symbolStar", formats: ["nvfp4", "mxfp4", "fp4"] },
  { key: "int4", symbol: "symbolTriangle", formats: ["int4", "awq", "gptq", "nf4", "q4", "iq4"] },
  { key: "int2", symbol: "symbolTriangle2", formats: ["q3", "q2", "q1", "iq3", "iq2", "iq1", "int3", "int2", "int1"] },
];
const OTHER = { key: "other", symbol: "symbolPlus", formats: [] };

const TITLES = { int6: "5–6 bit", fp4: "fp4", int2: "1–3 bit", other: "other" };

/** The family of a format (`q4_k_m`) or a precision (`fp16`): `{ key, title, symbol }`. */
export function family(format) {
  const name = String(format ?? "").toLowerCase();
  const found = FAMILIES.find((entry) => entry.formats.some((start) => name.startsWith(start))) ?? OTHER;
  return { key: found.key, title: TITLES[found.key] ?? found.key, symbol: found.symbol };
}

/** The order in which families are listed. */
export const order = (format) => {
  const { key } = family(format);
  const place = FAMILIES.findIndex((entry) => entry.key === key);
  return place < 0 ? FAMILIES.length : place;
};

/** The path of a family's symbol around the origin, as large in area as `size` square pixels. */
export function symbolPath(format, size = 60) {
  const name = family(format).symbol;
  // Stroke-only symbols of the library have no inside; these have one, turned by hand.
  const shape = { symbolDiamond2: d3.symbolDiamond, symbolSquare2: d3.symbolSquare2, symbolTriangle2: TURNED_TRIANGLE, symbolPlus: d3.symbolCross }[name] ?? d3[name];
  return d3.symbol(shape, size)();
}

const TURNED_TRIANGLE = {
  draw(context, size) {
    const y = -Math.sqrt(size / (Math.sqrt(3) * 3));
    const half = -Math.sqrt(3) * y;
    context.moveTo(0, -y * 2);
    context.lineTo(-half, y);
    context.lineTo(half, y);
    context.closePath();
  },
};
