/** Requests to the program that serves this page, with the token that it printed. */

const KEY = "rooflined-token";
let token = null;

/** An error of the API: `message` in a sentence, `code` to match on, `field` of the request, `hint` with what to do next. */
export class ApiError extends Error {
  constructor(status, { code, message, field, hint } = {}) {
    super(message ?? `the answer was ${status}`);
    Object.assign(this, { status, code: code ?? "unreachable", field, hint });
  }
}

/** Takes `token=…` out of the address bar, so that nobody copies it with a link, and keeps it for this tab. */
export function takeToken() {
  const [, found] = /(?:^#|[&?])token=([0-9A-Za-z]+)/.exec(location.hash) ?? [];
  if (found) {
    const rest = location.hash.replace(/token=[0-9A-Za-z]+&?/, "").replace(/[#&?]$/, "");
    history.replaceState(null, "", location.pathname + location.search + rest);
    setToken(found);
  }
  token ??= stored();
  return token != null;
}

export function setToken(value) {
  token = value;
  try { sessionStorage.setItem(KEY, value); } catch { /* Kept until the page is left. */ }
}

function stored() {
  try { return sessionStorage.getItem(KEY); } catch { return null; }
}

async function send(method, path, { body, headers = {}, signal } = {}) {
  let response;
  try {
    response = await fetch(path, { method, body, signal, cache: "no-store", headers: { "X-Rooflined-Token": token ?? "", ...headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "nothing answers at this address", hint: "start rooflinectl dashboard again and open the address that it prints" });
  }
  return response;
}

async function answer(response) {
  const text = await response.text();
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    throw new ApiError(response.status, { message: `the answer (${response.status}) is not JSON` });
  }
  if (!response.ok) throw new ApiError(response.status, value.error);
  return value;
}

export const get = async (path, signal) => answer(await send("GET", path, { signal }));

export const post = async (path, body, signal) =>
  answer(await send("POST", path, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal }));

/** What the daemon makes of the first bytes of a model file. */
export const inspect = async (name, blob, signal) => answer(await send("POST", `/v1/models/inspect?name=${encodeURIComponent(name)}`, {
  body: blob, signal, headers: { "Content-Type": "application/octet-stream" },
}));

/** The layers of a vision network from its ONNX file: `named` is `{ path, dimensions }`, `graph` the file without its weights. */
export const layers = async (named, graph, signal) => answer(await send("POST", "/dashboard/network", {
  body: new Blob([JSON.stringify(named), "\n", graph]), signal, headers: { "Content-Type": "application/octet-stream" },
}));

/** Server-sent events as `{ event, data }`. Read with fetch, since an EventSource cannot send the token. Ends when the stream does. */
export async function* events(path, signal) {
  const response = await send("GET", path, { signal, headers: { Accept: "text/event-stream" } });
  if (!response.ok) await answer(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = /^event: ?(.*)$/m.exec(block)?.[1] ?? "message";
      const data = [...block.matchAll(/^data: ?(.*)$/gm)].map((line) => line[1]).join("\n");
      if (data) yield { event, data: JSON.parse(data) };
    }
  }
}
