/** Elements in one expression, and the few patterns that every view uses. */

/**
 * An element: `h("button", { class: "x", onclick: run, hidden: false }, "Run")`. A function is a listener, `true` an attribute
 * without a value, `null`, `undefined` and `false` none. Children are nodes, texts, or lists of either.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Puts `children` in place of what `element` has. The focus goes on to what takes the place of what had it. */
export function fill(element, ...children) {
  const focused = document.activeElement;
  const inside = focused !== element && element.contains(focused);
  // With its parents, since the new children may have no such button any more, but still the table around it.
  const path = [];
  for (let node = focused; inside && node !== element; node = node.parentElement) path.push(node);
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  if (inside && !focused.isConnected) successor(element, path)?.focus({ preventScroll: true });
  return element;
}

const nameOf = (element) => element.id || element.getAttribute("aria-label") || element.textContent;

// The element below `root` of the same kind and name as the first of `path` that has one.
function successor(root, path) {
  for (const old of path) {
    const same = [...root.querySelectorAll(old.localName)].find((other) => other.tabIndex >= 0 && !other.disabled && nameOf(other) === nameOf(old));
    if (same) return same;
  }
  return null;
}

/**
 * Of several runs of `work` in a row the last one counts, whichever is answered last: `work` is called with a function that answers
 * whether its run still is the last, and what the run was given. Every run ends with the last.
 */
export function latest(work) {
  let count = 0;
  let last = null;
  return (...given) => {
    const ticket = (count += 1);
    const mine = work(() => ticket === count, ...given);
    last = mine;
    const end = () => mine === last ? mine : last;
    return mine.then(end, end);
  };
}

let numbered = 0;

/** An identifier that nothing else on the page has. */
export const unique = (stem) => `${stem}-${(numbered += 1)}`;

/** A labelled input, select or textarea, with an optional line of help that is read with it. */
export function field(label, control, help) {
  control.id ||= unique("field");
  const parts = [h("label", { for: control.id }, label), control];
  if (help) {
    const id = unique("help");
    control.setAttribute("aria-describedby", id);
    parts.push(h("span", { class: "help", id }, help));
  }
  return h("div", { class: "field" }, parts);
}

/** A `<select>`: options are `[value, text]` or `{ label, options }` for a group. */
export function select(options, value, onchange) {
  const option = ([key, text]) => h("option", { value: key, selected: key === value }, text);
  const control = h("select", { onchange: () => onchange?.(control.value) },
    options.map((entry) => Array.isArray(entry) ? option(entry) : h("optgroup", { label: entry.label }, entry.options.map(option))));
  return control;
}

/** Buttons of which any number are pressed: `[key, text, node before it]`. Calls `onchange` with the set of pressed keys. */
export function toggles(label, entries, pressed, onchange) {
  const chosen = new Set(pressed);
  const button = ([key, text, mark]) => {
    const element = h("button", {
      type: "button", class: "chip", "data-key": key, "aria-pressed": String(chosen.has(key)),
      onclick: () => {
        if (chosen.has(key)) chosen.delete(key);
        else chosen.add(key);
        element.setAttribute("aria-pressed", String(chosen.has(key)));
        onchange(chosen);
      },
    }, mark, text);
    return element;
  };
  return h("div", { class: "chips", role: "group", "aria-label": label }, entries.map(button));
}

/** A button that copies `text()` and says so. */
export function copyButton(label, text) {
  const button = h("button", {
    type: "button", class: "quiet",
    onclick: async () => {
      button.textContent = await copy(text()) ? "Copied" : "Select it and copy by hand";
      setTimeout(() => { button.textContent = label; }, 2000);
    },
  }, label);
  return button;
}

// The clipboard API is there only for pages that the browser trusts: 127.0.0.1 is one, a name of another machine is not.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "offscreen", "aria-hidden": "true" }, text);
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** A command or setting with a copy button. */
export function commandLine(text) {
  return h("div", { class: "command" }, h("code", { tabindex: "0" }, text), copyButton("Copy", () => text));
}

/** A note: `kind` is `info`, `warn` or `bad`; what went wrong is announced. */
export function note(kind, ...children) {
  return h("div", { class: `note ${kind}`, role: kind === "bad" ? "alert" : null }, children);
}

/** What the daemon warns of in its own predictions; `null` where that is nothing. */
export function cautions(warnings) {
  if (!warnings?.length) return null;
  const lines = warnings.map(sentence);
  return note("warn", h("strong", {}, lines.length > 1 ? "Warnings" : "Warning: "), lines.length > 1 ? h("ul", { class: "plain" }, lines.map((line) => h("li", {}, line))) : lines);
}

/** A failure with what to do next. */
export function failure(error) {
  return note("bad", h("p", {}, h("strong", {}, "That did not work. "), sentence(error.message)), error.hint && h("p", {}, sentence(error.hint)));
}

/** A sentence with a capital letter and a full stop. */
export function sentence(text) {
  const trimmed = String(text ?? "").trim();
  // A key such as q4_k_m keeps its letters.
  const start = /^[a-z]+(?![\w.-])/.test(trimmed) ? trimmed[0].toUpperCase() + trimmed.slice(1) : trimmed;
  return start && start + (/[.!?…]$/.test(start) ? "" : ".");
}

/**
 * A table: columns are `{ label, number, cell(row), head }`; `head` marks the one that names the row. A table that `stacks` becomes a
 * card for each row on a phone, so that nothing of it has to be looked for at its right end; its roles are told, which the browser would
 * forget with the layout of a table.
 */
export function table(caption, columns, rows, { rowClass, stacks = false } = {}) {
  const role = (name) => stacks ? name : null;
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${caption}` },
    h("table", { class: stacks && "stacks", role: role("table") },
      h("caption", {}, caption),
      h("thead", { role: role("rowgroup") }, h("tr", { role: role("row") },
        columns.map((column) => h("th", { scope: "col", role: role("columnheader"), class: column.number && "number" }, column.label)))),
      h("tbody", { role: role("rowgroup") }, rows.map((row) => h("tr", { class: rowClass?.(row), role: role("row") },
        columns.map((column) => h(column.head ? "th" : "td", { scope: column.head && "row", role: role(column.head ? "rowheader" : "cell"), class: column.number && "number",
          "data-label": stacks && !column.head && column.label }, stacks ? h("div", {}, column.cell(row)) : column.cell(row))))))));
}

/** A name with its value, and a line beneath. */
export function fact(name, value, below) {
  return h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, h("span", { class: "value" }, value), below && h("span", { class: "help" }, below)));
}
