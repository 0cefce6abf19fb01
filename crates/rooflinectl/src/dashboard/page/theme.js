/** Light, dark, or as the system has it; kept for the next visit. */
const KEY = "rooflined-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };

/** Makes `button` the switch; `changed` is called when colours are others. */
export function start(button, changed) {
  let theme = "auto";
  try { theme = localStorage.getItem(KEY) ?? "auto"; } catch { /* Not kept. */ }
  if (!(theme in NEXT)) theme = "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    try { localStorage.setItem(KEY, theme); } catch { /* Not kept. */ }
    apply();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}
