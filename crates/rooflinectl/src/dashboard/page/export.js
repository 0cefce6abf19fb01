/** Charts and their data as files: SVG and PNG that need nothing but themselves, and CSV. */

// What the style sheet gives to a chart, as attributes that every reader of SVG knows.
const INLINED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "opacity",
  "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order"];

/** The chart as a document of its own, in the colours of the theme that is shown, on that theme's background. */
export function svgText(svg, title) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of INLINED) {
      const value = style.getPropertyValue(name);
      if (value && !["title", "desc", "defs", "pattern"].includes(element.localName)) element.setAttribute(name, value.replace(/url\("([^"]+)"\)/, "url($1)"));
    }
    for (const name of ["class", "style", "tabindex", "role", "aria-label", "aria-hidden", "aria-describedby", "aria-roledescription"]) element.removeAttribute(name);
  });
  const { width, height } = svg.viewBox.baseVal;
  const background = getComputedStyle(svg.closest(".card") ?? document.body).backgroundColor;
  const namespace = "http://www.w3.org/2000/svg";
  const rect = document.createElementNS(namespace, "rect");
  Object.entries({ width, height, fill: background }).forEach(([name, value]) => rect.setAttribute(name, value));
  const name = document.createElementNS(namespace, "title");
  name.textContent = title;
  copy.prepend(name, rect);
  Object.entries({ xmlns: namespace, width, height, "font-family": "system-ui, sans-serif" }).forEach(([key, value]) => copy.setAttribute(key, value));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
}

/** The same as pixels, two for each of the page's. */
export async function pngBlob(svg, title) {
  const { width, height } = svg.viewBox.baseVal;
  const address = URL.createObjectURL(new Blob([svgText(svg, title)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = width * 2;
    canvas.height = height * 2;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => blob ? resolve(blob) : reject(new Error("the browser made no picture")), "image/png");
    });
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** Comma-separated values: a column is `{ key, value(row) }`, and its key names the unit. */
export function csvText(columns, rows) {
  const cell = (value) => {
    const text = value == null ? "" : String(value);
    // A text that a spreadsheet would take for a formula is set apart; numbers are left as they are.
    const safe = typeof value === "string" && /^[=+\-@\t]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [columns.map((column) => column.key), ...rows.map((row) => columns.map((column) => column.value(row)))]
    .map((line) => line.map(cell).join(",")).join("\r\n").concat("\r\n");
}

/** Hands a file to the browser to keep. */
export function save(name, content, type) {
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
