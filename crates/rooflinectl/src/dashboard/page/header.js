/** Reads the header of a model file: only its first bytes leave the disk. */
import { inspect } from "./api.js";

const FIRST_BYTES = 1 << 20;
/** As many as the daemon takes. */
const MOST_BYTES = 64 << 20;
const GGUF = 0x47475546;

/** `{ model, summary, read_bytes }` of a GGUF, safetensors or config.json file. */
export async function describe(file, signal) {
  const most = Math.min(file.size, MOST_BYTES);
  const start = new DataView(await file.slice(0, 8).arrayBuffer());
  // A safetensors file begins with the length of its header; that of a GGUF file ends where its tensor table ends.
  const told = start.byteLength === 8 && file.name.endsWith(".safetensors") ? 8 + Number(start.getBigUint64(0, true)) : 0;
  const goesOn = start.byteLength === 8 && start.getUint32(0) === GGUF;
  for (let wanted = Math.min(Math.max(FIRST_BYTES, told), most); ; wanted = Math.min(8 * wanted, most)) {
    try {
      const summary = await inspect(file.name, file.slice(0, wanted), signal);
      const { path, definition } = summary;
      return { model: { path, definition }, summary, read_bytes: wanted };
    } catch (error) {
      if (!goesOn || error.code !== "unreadable_model" || wanted >= most) throw error;
    }
  }
}
