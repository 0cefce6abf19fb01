/** Reads the header of a model file: only its first bytes leave the disk, and never more than the file's description takes. */
import { ApiError, postHeader } from "./api.js";

const FIRST_BYTES = 1 << 20;
const MOST_ROUNDS = 8;

/** `{ model, summary, read_bytes }` of a GGUF, safetensors or config.json file. */
export async function describe(file, signal) {
  let wanted = Math.min(FIRST_BYTES, file.size);
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const answer = await postHeader(file.name, file.size, file.slice(0, wanted), signal);
    if (answer.model) return { ...answer, read_bytes: wanted };
    if (!(answer.more_bytes > wanted) || wanted >= file.size) break;
    wanted = Math.min(answer.more_bytes, file.size);
  }
  throw new ApiError(0, { message: `the header of ${file.name} does not end`, hint: "the file may be cut off: compare its size with where it comes from" });
}
