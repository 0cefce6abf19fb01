/** The graph of an ONNX file: its weights never leave the disk. Fields are numbered as in onnx.proto. */

// Shapes depend on tensors of up to 1024 numbers, which have no more bytes.
const MOST_KEPT = 16 << 10;
const CHUNK = 16 << 10;
// What is sent of a file that is something else, for its kind to be found out.
const BEGINNING = 64 << 10;

// Messages by the fields in which weights may lie; `null` marks the weights themselves.
const TENSOR = { 4: null, 5: null, 6: null, 7: null, 9: null, 10: null, 11: null };
const SPARSE = { 1: TENSOR, 2: TENSOR };
const ATTRIBUTE = { 5: TENSOR, 10: TENSOR, 22: SPARSE };
const NODE = { 5: ATTRIBUTE };
const GRAPH = { 1: NODE, 5: TENSOR, 15: SPARSE };
Object.assign(ATTRIBUTE, { 6: GRAPH, 11: GRAPH });
const MODEL = { 7: GRAPH, 25: { 7: NODE, 11: ATTRIBUTE } };

class NotProtobuf extends Error {}

/** The file without its weights, or the beginning of a file that is not ONNX. */
export async function graphOf(file) {
  try {
    return new Blob((await kept(new Reader(file), 0, file.size, MODEL)).parts);
  } catch (error) {
    if (error instanceof NotProtobuf) return file.slice(0, BEGINNING);
    throw error;
  }
}

/** The parts of a message that are kept, and their bytes in all. */
async function kept(reader, start, end, message) {
  const parts = [];
  let size = 0;
  const add = (part, bytes) => {
    parts.push(part);
    size += bytes;
  };
  let from = start;
  for (let at = start; at < end;) {
    const field = await reader.field(at, end);
    const inner = message[field.number];
    if (inner === null || (inner && field.end - field.start > MOST_KEPT)) {
      add(reader.file.slice(from, at), at - from);
      if (inner) {
        const { parts: within, size: bytes } = await kept(reader, field.start, field.end, inner);
        const head = new Uint8Array([...varint(field.tag), ...varint(bytes)]);
        add(head, head.length);
        add(new Blob(within), bytes);
      }
      from = field.end;
    }
    at = field.end;
  }
  add(reader.file.slice(from, end), end - from);
  return { parts, size };
}

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 + 128);
  return [...bytes, number];
}

/** Reads a file in chunks. */
class Reader {
  #chunk = new Uint8Array();
  #start = 0;

  constructor(file) {
    this.file = file;
  }

  async #byte(at, end) {
    if (at >= end) throw new NotProtobuf();
    if (at < this.#start || at >= this.#start + this.#chunk.length) {
      this.#chunk = new Uint8Array(await this.file.slice(at, at + CHUNK).arrayBuffer());
      this.#start = at;
    }
    return this.#chunk[at - this.#start];
  }

  async #varint(at, end) {
    let value = 0;
    for (let place = at, factor = 1; place < at + 10; place += 1, factor *= 128) {
      const byte = await this.#byte(place, end);
      value += byte % 128 * factor;
      if (byte < 128) return { value, end: place + 1 };
    }
    throw new NotProtobuf();
  }

  /** The field at `at` of a message that ends at `end`: its tag, its number, and where its value starts and ends. */
  async field(at, end) {
    const { value: tag, end: behind } = await this.#varint(at, end);
    const field = { tag, number: Math.floor(tag / 8), start: behind };
    const type = tag % 8;
    if (type === 0) field.end = (await this.#varint(behind, end)).end;
    else if (type === 1) field.end = behind + 8;
    else if (type === 5) field.end = behind + 4;
    else if (type === 2) {
      const { value: length, end: start } = await this.#varint(behind, end);
      Object.assign(field, { start, end: start + length });
    }
    if (!(field.end <= end)) throw new NotProtobuf();
    return field;
  }
}
