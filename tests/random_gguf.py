#!/usr/bin/env python3
"""Writes a GGUF file of a known architecture with random weights, with nothing but the standard library.

    random_gguf.py tinyllama q4_0 FILE
    random_gguf.py qwen2.5-0.5b q8_0 FILE --layers 2 --vocab 4096
    random_gguf.py small fp16 FILE

Every tensor, key and size is what a converter writes for the model, so tools that read headers see the model itself;
the vocabulary has tokens without meaning. Weights are random codes under scales such that a product with normed inputs
has a length of about one: nothing in a forward pass grows beyond a float or becomes denormal. Norms are in fp32 around
one. Matrices, the embedding table and the head are all in the format asked for ("pure" in the words of llama-quantize),
but q4_k_m is the mix that llama-quantize writes: its head, and some values and ways down, are in q6_k.

Exit codes: 0 written, 1 cannot be written, 2 usage.
"""

import argparse
import array
import os
import random
import struct
import sys

U32, F32, STRING, ARRAY = 4, 6, 8, 9
I32 = 5
ALIGNMENT = 32

# Name: (number in the tensor table, elements of a block, bytes of a block, general.file_type).
FORMATS = {
    "fp32": (0, 1, 4, 0),
    "fp16": (1, 1, 2, 1),
    "q4_0": (2, 32, 18, 2),
    "q8_0": (8, 32, 34, 7),
    "q4_k": (12, 256, 144, 14),
    "q6_k": (14, 256, 210, 18),
    "bf16": (30, 1, 2, 32),
}

# general.file_type of files of several formats.
MIXES = {"q4_k_m": 15}

MODELS = {
    "small": {
        "architecture": "llama", "name": "Random Small", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2,
        "inner": 704, "vocab": 2048, "tied": False, "bias": False, "context": 512, "rope_base": 10000.0,
    },
    "tinyllama": {
        "architecture": "llama", "name": "Random TinyLlama 1.1B", "layers": 22, "hidden": 2048, "heads": 32,
        "kv_heads": 4, "inner": 5632, "vocab": 32000, "tied": False, "bias": False, "context": 2048,
        "rope_base": 10000.0,
    },
    "qwen2.5-0.5b": {
        "architecture": "qwen2", "name": "Random Qwen2.5 0.5B", "layers": 24, "hidden": 896, "heads": 14,
        "kv_heads": 2, "inner": 4864, "vocab": 151936, "tied": True, "bias": True, "context": 32768,
        "rope_base": 1000000.0,
    },
}


def text(value):
    """A length and the bytes."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    """A key with its type and value."""
    if kind == STRING:
        return text(key) + struct.pack("<I", STRING) + text(value)
    form = {U32: "<I", F32: "<f"}[kind]
    return text(key) + struct.pack("<I", kind) + struct.pack(form, value)


def tokens(count):
    """The vocabulary: tokens, scores and types."""
    head = lambda kind: struct.pack("<IIQ", ARRAY, kind, count)
    names = b"".join(text(f"t{index}") for index in range(count))
    return [
        text("tokenizer.ggml.tokens") + head(STRING) + names,
        text("tokenizer.ggml.scores") + head(F32) + bytes(4 * count),
        text("tokenizer.ggml.token_type") + head(I32) + struct.pack("<i", 1) * count,
    ]


def tensors(model):
    """Name, rows, columns and whether it is a vector, in the order of a converter."""
    hidden, width = model["hidden"], model["hidden"] // model["heads"]
    kv = model["kv_heads"] * width
    yield "token_embd.weight", model["vocab"], hidden, False
    for layer in range(model["layers"]):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", 1, hidden, True
        for name, rows in (("attn_q", hidden), ("attn_k", kv), ("attn_v", kv)):
            yield f"{block}{name}.weight", rows, hidden, False
            if model["bias"]:
                yield f"{block}{name}.bias", 1, rows, True
        yield block + "attn_output.weight", hidden, hidden, False
        yield block + "ffn_norm.weight", 1, hidden, True
        yield block + "ffn_gate.weight", model["inner"], hidden, False
        yield block + "ffn_up.weight", model["inner"], hidden, False
        yield block + "ffn_down.weight", hidden, model["inner"], False
    yield "output_norm.weight", 1, hidden, True
    if not model["tied"]:
        yield "output.weight", model["vocab"], hidden, False


def stored(name, format_name, model):
    """The format of a matrix."""
    if format_name not in MIXES:
        return format_name
    layers = model["layers"]
    if name == ("token_embd.weight" if model["tied"] else "output.weight"):
        return "q6_k"
    if "attn_v." in name or "ffn_down." in name:
        layer, eighth = int(name.split(".")[1]), layers // 8
        if layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2:
            return "q6_k"
    return "q4_k"


def half(value):
    """An fp16 value's two bytes."""
    return struct.pack("<e", value)


def vector(rng, count, around):
    """fp32 values close to one, or to zero."""
    return array.array("f", (around + 0.1 * (rng.random() - 0.5) for _ in range(count))).tobytes()


def template(rng, name, columns):
    """Blocks of a format: a whole chunk, which the file repeats. Its length is no multiple of a row, so that rows differ.

    The scales make the root of the mean square of the weights 1 / sqrt(columns).
    """
    length = 1.0 / columns**0.5
    count = 4099
    if name in ("fp32", "fp16", "bf16"):
        values = [rng.choice((-1, 1)) * (0.1 + 1.5 * rng.random()) * length for _ in range(count)]
        if name == "fp32":
            return array.array("f", values).tobytes()
        if name == "fp16":
            return b"".join(half(value) for value in values)
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    if name == "q4_k":
        # Sixes of bits and nibbles: minima of 7.5 of the scale's unit make the mean zero, and the root 258 units.
        units = [length / 258.0 * (0.7 + 0.6 * rng.random()) for _ in range(count)]
        return b"".join(half(unit) + half(7.5 * unit) + rng.randbytes(140) for unit in units)
    if name == "q6_k":
        # 256 / sqrt(12) of the scales times 64 / sqrt(12) of the weights.
        return b"".join(rng.randbytes(208) + half(length / 1367.0 * (0.7 + 0.6 * rng.random())) for _ in range(count))
    payload = {"q8_0": 32, "q4_0": 16}[name]
    # Uniform codes have a root of the mean square of 256 / sqrt(12), or 16 / sqrt(12).
    unit = length / (74.0 if name == "q8_0" else 4.6)
    blocks = []
    for _ in range(count):
        codes = rng.randbytes(payload)
        if name == "q8_0":
            # -128 is no code that a quantiser writes.
            codes = codes.replace(b"\x80", b"\x81")
        blocks.append(half(unit * (0.7 + 0.6 * rng.random())) + codes)
    return b"".join(blocks)


def fill(file, pattern, count):
    """Writes the pattern over and over, `count` bytes in all."""
    repeated = pattern * max(1, (8 << 20) // len(pattern))
    while count > 0:
        step = min(count, len(repeated))
        file.write(repeated if step == len(repeated) else repeated[:step])
        count -= step


def write(path, model, format_name, seed):
    """The whole file, at its own name only once it is complete."""
    file_type = MIXES[format_name] if format_name in MIXES else FORMATS[format_name][3]
    rng = random.Random(seed)
    prefix = model["architecture"]
    pairs = [
        pair("general.architecture", STRING, prefix),
        pair("general.name", STRING, model["name"]),
        pair("general.file_type", U32, file_type),
        pair("general.quantization_version", U32, 2),
        pair(f"{prefix}.block_count", U32, model["layers"]),
        pair(f"{prefix}.context_length", U32, model["context"]),
        pair(f"{prefix}.embedding_length", U32, model["hidden"]),
        pair(f"{prefix}.feed_forward_length", U32, model["inner"]),
        pair(f"{prefix}.attention.head_count", U32, model["heads"]),
        pair(f"{prefix}.attention.head_count_kv", U32, model["kv_heads"]),
        pair(f"{prefix}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair(f"{prefix}.rope.freq_base", F32, model["rope_base"]),
        pair(f"{prefix}.rope.dimension_count", U32, model["hidden"] // model["heads"]),
        pair(f"{prefix}.vocab_size", U32, model["vocab"]),
        pair("tokenizer.ggml.model", STRING, "llama" if prefix == "llama" else "gpt2"),
        *tokens(model["vocab"]),
    ]
    if prefix != "llama":
        # An engine asks for the pairs that make a vocabulary of this kind.
        merges = struct.pack("<IIQ", ARRAY, STRING, 1) + text("t 0")
        pairs.append(text("tokenizer.ggml.merges") + merges)
    table, sizes, offset = [], [], 0
    for name, rows, columns, is_vector in tensors(model):
        if is_vector:
            own, kind, size = None, 0, 4 * columns
            dimensions = struct.pack("<IQ", 1, columns)
        else:
            own = stored(name, format_name, model)
            number, elements, block_bytes, _ = FORMATS[own]
            if columns % elements:
                raise ValueError(f"rows of {name} are {columns} long, which is no whole number of {elements}")
            kind, size = number, rows * (columns // elements) * block_bytes
            dimensions = struct.pack("<IQQ", 2, columns, rows)
        table.append(text(name) + dimensions + struct.pack("<IQ", kind, offset))
        sizes.append((name, size, columns, own))
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    header = b"".join([struct.pack("<4sIQQ", b"GGUF", 3, len(table), len(pairs)), *pairs, *table])
    header += bytes(-len(header) % ALIGNMENT)
    patterns = {}
    partial = f"{path}.partial"
    try:
        with open(partial, "wb", buffering=1 << 20) as file:
            file.write(header)
            for name, size, columns, own in sizes:
                if own is None:
                    file.write(vector(rng, columns, 0.0 if name.endswith("bias") else 1.0))
                else:
                    if (own, columns) not in patterns:
                        patterns[own, columns] = template(rng, own, columns)
                    fill(file, patterns[own, columns], size)
                file.write(bytes(-size % ALIGNMENT))
        os.replace(partial, path)
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    return len(header) + offset


def count(text_):
    """A positive number."""
    value = int(text_)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text_} is not 1 or more")
    return value


def main():
    """Reads the arguments, writes the file, says how large it is."""
    parser = argparse.ArgumentParser(description="Write a GGUF file with random weights.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("format", choices=sorted({*FORMATS, *MIXES} - {"q4_k"}))
    parser.add_argument("file")
    parser.add_argument("--layers", type=count, help="layers instead of the model's own")
    parser.add_argument("--vocab", type=count, help="tokens instead of the model's own")
    parser.add_argument("--inner", type=count, help="inner width of the feed-forward instead of the model's own")
    parser.add_argument("--context", type=count, help="tokens that it is said to be trained for instead of the model's own")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model = dict(MODELS[args.model])
    for key in ("layers", "vocab", "inner", "context"):
        if getattr(args, key):
            model[key] = getattr(args, key)
    try:
        size = write(args.file, model, args.format, args.seed)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.file}: {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
