#!/usr/bin/env python3
"""Writes the known answers that crates/rooflined-core/tests/quantise compares with. CI reads the files and needs no Python.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 ml_dtypes==0.6.0 numpy==2.4.6
    venv/bin/python crates/rooflined-core/tests/vectors/make.py            # rewrites the files beside this script
    venv/bin/python crates/rooflined-core/tests/vectors/make.py --grids    # rewrites crates/rooflined-core/src/precision/quantise/grids.txt

Where the answers come from:
  scalars.txt     ml_dtypes (fp8, fp4, e8m0, bf16) and numpy (fp16); saturation is a clip before the conversion. tf32 by its
                  definition, in integer arithmetic. cuda_fp8.h of CUDA 13.0.96, compiled for the host with saturation to
                  finite, gives the same codes for every fp8 line.
  gguf.txt        gguf.quants.quantize and dequantize. Blocks to decode are random bytes with tame fp16 scales.
  definitions.txt formats whose packing the product defines: their definition written again in numpy, with ml_dtypes for
                  the small floats and the normal distribution's quantiles for nf4.

Lines: scalar NAME VALUE CODE, with both in hexadecimal, and encode|decode|both FORMAT ROWS COLUMNS WEIGHTS BYTES, where
WEIGHTS are little-endian fp32 and encode has the weights before packing, decode those after; both ends "SCALES TENSOR
RESTORED" with row scales, tensor scale and restored weights.
"""
import pathlib
import sys
import textwrap
from statistics import NormalDist

import gguf
import gguf.quants as quants
import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).parent
RNG = np.random.default_rng(20261121)
T = gguf.GGMLQuantizationType
f32 = np.float32


def hexed(array):
    return np.ascontiguousarray(array).tobytes().hex() or "-"


def line(kind, name, rows, columns, weights, stored, *rest):
    return " ".join([kind, name, str(rows), str(columns), hexed(weights), hexed(stored), *map(hexed, rest)])


# --- scalars -------------------------------------------------------------------------------------------------------


def scalar_inputs():
    edges = [0.0, -0.0, 1.0, -1.0, 448.0, 464.0, 465.0, 480.0, 1e9, -1e9, 57344.0, 61440.0, 61441.0, 65504.0, 65519.0,
             65520.0, 6.0, 5.0, 3.5, 2.5, 1.75, 1.25, 0.75, 0.25, 0.2500001, 7.0, -7.0, 1e-45, 2.0 ** -126, 2.0 ** -127]
    ties = [(m + 0.5) * 2.0 ** e for e in range(-20, 17) for m in range(8)]
    spread = np.exp2(RNG.uniform(-24, 17, 500)) * RNG.choice([-1, 1], 500)
    return np.concatenate([edges, ties, spread]).astype(f32)


def scalars():
    values = scalar_inputs()
    out = []

    def put(name, codes, width):
        for value, code in zip(values, codes):
            out.append(f"scalar {name} {value.view(np.uint32):08x} {int(code):0{width}x}")

    def small(dtype, most):
        return np.clip(values, f32(-most), f32(most)).astype(dtype).view(np.uint8)

    put("e4m3", small(ml_dtypes.float8_e4m3fn, 448), 2)
    put("e5m2", small(ml_dtypes.float8_e5m2, 57344), 2)
    put("e2m1", small(ml_dtypes.float4_e2m1fn, 6) & 15, 1)
    put("bf16", values.astype(ml_dtypes.bfloat16).view(np.uint16), 4)
    with np.errstate(over="ignore"):
        put("fp16", values.astype(np.float16).view(np.uint16), 4)
    bits = values.view(np.uint32).astype(np.uint64)
    put("tf32", ((bits + 0x1000) & 0xFFFFE000), 8)
    every = np.arange(256, dtype=np.uint8)
    for name, dtype, count in [("e4m3", ml_dtypes.float8_e4m3fn, 256), ("e5m2", ml_dtypes.float8_e5m2, 256),
                               ("e2m1", ml_dtypes.float4_e2m1fn, 16), ("e8m0", ml_dtypes.float8_e8m0fnu, 256)]:
        for code in every[:count]:
            value = np.array([code]).view(dtype).astype(f32)[0]
            text = "nan" if np.isnan(value) else f"{value.view(np.uint32):08x}"
            out.append(f"value {name} {text} {code:02x}")
    return out


# --- GGUF ----------------------------------------------------------------------------------------------------------

# Name here, type there, bytes at which fp16 scales stand in a block.
GGUF = [
    ("q4_0", T.Q4_0, [0]), ("q4_1", T.Q4_1, [0, 2]), ("q5_0", T.Q5_0, [0]), ("q5_1", T.Q5_1, [0, 2]),
    ("q8_0", T.Q8_0, [0]), ("q2_k", T.Q2_K, [80, 82]), ("q3_k_m", T.Q3_K, [108]), ("q4_k_m", T.Q4_K, [0, 2]),
    ("q4_k_s", T.Q4_K, [0, 2]), ("q5_k_m", T.Q5_K, [0, 2]), ("q5_k_s", T.Q5_K, [0, 2]), ("q6_k", T.Q6_K, [208]),
    ("iq4_nl", T.IQ4_NL, [0]), ("iq4_xs", T.IQ4_XS, [0]), ("iq2_xxs", T.IQ2_XXS, [0]), ("iq2_xs", T.IQ2_XS, [0]),
    ("iq2_s", T.IQ2_S, [0]), ("iq3_xxs", T.IQ3_XXS, [0]), ("iq3_s", T.IQ3_S, [0]), ("iq1_s", T.IQ1_S, [0]),
    ("iq1_m", T.IQ1_M, []), ("tq1_0", T.TQ1_0, [52]), ("tq2_0", T.TQ2_0, [64]),
]


def blocks_of_weights(count):
    """Gaussian blocks and awkward ones: zeros, constants, one outlier, signs, tiny and large values."""
    gauss = RNG.normal(0, 0.02, (3, count))
    outlier = RNG.normal(0, 0.02, count)
    outlier[count // 3] = -1.5
    ramp = np.linspace(-1, 1, count)
    half = np.abs(RNG.normal(0, 1, count))
    extremes = np.where(np.arange(count) % 7 == 3, 0.5, -0.5)
    return np.array([*gauss, np.zeros(count), np.full(count, 0.25), np.full(count, -0.3), outlier, ramp, half, -half,
                     extremes, RNG.normal(0, 1e-6, count), RNG.normal(0, 2000, count)], dtype=f32)


def gguf_vectors():
    out = []
    for name, kind, scales in GGUF:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        weights = blocks_of_weights(elements)
        try:
            with np.errstate(all="ignore"):
                stored = quants.quantize(weights, kind)
            out.append(line("encode", name, *weights.shape, weights, stored))
            out.append(line("decode", name, *weights.shape, quants.dequantize(stored, kind), stored))
        except NotImplementedError:
            pass
        count = 1 if elements == 256 else 4
        raw = RNG.integers(0, 256, (count, size), dtype=np.uint8)
        for at in scales:
            raw[:, at:at + 2] = RNG.normal(0, 0.1, (count, 1)).astype(np.float16).view(np.uint8)
        if kind == T.IQ1_M:
            # The fp16 scale is spread over the upper nibbles of the last four words: 0.0625 = 0x2c00.
            raw[:, 49:56:2] = raw[:, 49:56:2] & 15 | np.array([0x00, 0x00, 0xC0, 0x20], dtype=np.uint8)
        values = quants.dequantize(raw, kind)
        out.append(line("decode", name, count, elements, values, raw))
    # The reference drops the sign of zero, so only what the bytes mean is compared.
    weights = blocks_of_weights(32)
    with np.errstate(all="ignore"):
        stored = quants.quantize(weights, T.MXFP4)
    out.append(line("decode", "mxfp4", *weights.shape, quants.dequantize(stored, T.MXFP4), stored))
    return out


# --- definitions ---------------------------------------------------------------------------------------------------


def halves(codes):
    """Nibbles: the first half of the last axis low, the second high."""
    n = codes.shape[-1] // 2
    return (codes[..., :n] | codes[..., n:] << 4).astype(np.uint8)


def divided(weights, scale):
    return np.divide(weights, scale, out=np.zeros_like(weights), where=scale != 0)


def groups(weights, size):
    rows, columns = weights.shape
    padded = np.zeros((rows, -(-columns // size) * size), dtype=f32)
    padded[:, :columns] = weights
    return padded.reshape(rows, -1, size)


def put(name, weights, stored, restored, row_scales=(), tensor=1.0):
    rows, columns = weights.shape
    restored = np.asarray(restored, dtype=f32).reshape(rows, -1)[:, :columns]
    return line("both", name, rows, columns, weights, stored, np.array(row_scales, dtype=f32),
                np.array([tensor], dtype=f32), restored)


def fp8(name, dtype, most, weights):
    scale = f32(np.abs(weights).max() / f32(most)) or f32(1)
    code = np.clip(weights / scale, -most, most).astype(dtype)
    return put(name, weights, code.view(np.uint8), code.astype(f32) * scale, tensor=scale)


def per_row(name, most, weights):
    scale = (np.abs(weights).max(axis=1, keepdims=True) / f32(most)).astype(f32)
    low = -127 if most == 127 else -8
    code = np.clip(np.rint(divided(weights, np.broadcast_to(scale, weights.shape))), low, most).astype(np.int32)
    restored = code.astype(f32) * scale
    if most == 127:
        return put(name, weights, code.astype(np.int8), restored, scale.ravel())
    even = np.full((len(code), code.shape[1] + code.shape[1] % 2), 8)
    even[:, :code.shape[1]] = code + 8
    return put(name, weights, (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8), restored, scale.ravel())


def grouped(name, size, weights):
    parts = groups(weights, size)
    stored = (np.abs(parts).max(axis=2, keepdims=True) / f32(7)).astype(np.float16)
    scale = stored.astype(f32)
    code = np.clip(np.rint(divided(parts, np.broadcast_to(scale, parts.shape))), -8, 7).astype(np.int32)
    raw = np.concatenate([stored.view(np.uint8), halves(code + 8)], axis=2)
    return put(name, weights, raw, code.astype(f32) * scale)


def asymmetric(name, weights):
    parts = groups(weights, 128)
    low, high = np.minimum(parts.min(2, keepdims=True), 0), np.maximum(parts.max(2, keepdims=True), 0)
    stored = ((high - low) / f32(15)).astype(np.float16)
    scale = stored.astype(f32)
    zero = np.clip(np.rint(divided(-low, scale)), 0, 15)
    inverse = divided(np.ones_like(scale), scale)
    code = np.clip(np.rint(parts * inverse) + zero, 0, 15)
    raw = np.concatenate([stored.view(np.uint8), zero.astype(np.uint8), halves(code.astype(np.int32))], axis=2)
    return put(name, weights, raw, (code - zero) * scale)


def even_steps(start, end, count):
    """torch.linspace in fp32, which the published table was made with."""
    start, end = f32(start), f32(end)
    step = (end - start) / f32(count - 1)
    return [start + step * f32(i) if i < count // 2 else end - step * f32(count - 1 - i) for i in range(count)]


def nf4_codebook():
    """QLoRA: quantiles at even steps of probability, eight above zero, seven below, and zero itself.

    Equal to the table in functional.py of bitsandbytes 0.45.0 to the last bit.
    """
    offset, quantile = 0.9677083, NormalDist().inv_cdf
    above = [quantile(float(p)) for p in even_steps(offset, 0.5, 9)[:-1]]
    below = [-quantile(float(p)) for p in even_steps(offset, 0.5, 8)[:-1]]
    values = np.array(sorted(above + [0.0] + below), dtype=f32)
    return values / values.max()


def nf4(weights):
    flat = weights.reshape(-1, 64)
    stored = np.abs(flat).max(axis=1, keepdims=True).astype(np.float16)
    scale = stored.astype(f32)
    book = nf4_codebook()
    inverse = divided(np.ones_like(scale), scale)
    code = np.abs((flat * inverse)[..., None].astype(np.float64) - book.astype(np.float64)).argmin(axis=-1)
    raw = np.concatenate([stored.view(np.uint8), (code[:, ::2] << 4 | code[:, 1::2]).astype(np.uint8)], axis=1)
    return put("nf4", weights, raw, book[code] * scale)


def microscaled(name, dtype, most, exponent, weights):
    parts = groups(weights, 32)
    largest = np.abs(parts).max(axis=2, keepdims=True)
    power = np.where(largest > 0, np.frexp(np.where(largest > 0, largest, 1))[1] - 1 - exponent, -127)
    power = np.clip(power, -127, 127)
    code = np.clip(np.ldexp(parts, -power), -most, most).astype(dtype)
    restored = np.ldexp(code.astype(f32), power)
    raw = code.view(np.uint8)
    raw = halves(raw & 15) if name == "mxfp4" else raw
    return put(name, weights, np.concatenate([(power + 127).astype(np.uint8), raw], axis=2), restored)


def nvfp4(weights):
    tensor = f32(np.abs(weights).max() / f32(6 * 448)) or f32(1)
    parts = groups(weights, 16)
    largest = np.abs(parts).max(axis=2, keepdims=True)
    stored = np.clip(largest / f32(6) / tensor, 0, 448).astype(ml_dtypes.float8_e4m3fn)
    scale = stored.astype(f32) * tensor
    code = np.clip(divided(parts, np.broadcast_to(scale, parts.shape)), -6, 6).astype(ml_dtypes.float4_e2m1fn)
    raw = code.view(np.uint8) & 15
    raw = np.concatenate([stored.view(np.uint8), raw[..., ::2] | raw[..., 1::2] << 4], axis=2)
    return put("nvfp4", weights, raw, code.astype(f32) * scale, tensor=tensor)


def one_bit(weights):
    parts = groups(weights, 128)
    # Summed in order, in fp32, as the reference does.
    total = np.zeros(parts.shape[:2], dtype=f32)
    for i in range(128):
        total += np.abs(parts[..., i])
    stored = (total / f32(128)).astype(np.float16)[..., None]
    bits = parts >= 0
    raw = np.concatenate([stored.view(np.uint8), np.packbits(bits, axis=-1, bitorder="little")], axis=2)
    scale = stored.astype(f32)
    return put("q1_0", weights, raw, np.where(bits, scale, -scale))


def two_bit(weights):
    parts = groups(weights, 128)
    largest = np.abs(parts).max(axis=2, keepdims=True)
    inverse = divided(np.ones_like(largest), largest)
    # Adding zero makes minus zero plus zero.
    code = np.sign(parts) * np.floor(np.abs(parts * inverse) + f32(0.5)) + f32(0)
    digits = (code + 1).astype(np.uint8)
    stored = largest.astype(np.float16)
    raw = digits[..., ::4] | digits[..., 1::4] << 2 | digits[..., 2::4] << 4 | digits[..., 3::4] << 6
    return put("q2_0", weights, np.concatenate([stored.view(np.uint8), raw], axis=2), code * stored.astype(f32))


def definitions():
    out = []
    whole = blocks_of_weights(128)
    ragged = RNG.normal(0, 0.05, (3, 45)).astype(f32)
    for weights in [whole[:8], ragged, np.zeros((2, 32), f32)]:
        out += [fp8("fp8_e4m3", ml_dtypes.float8_e4m3fn, 448, weights),
                fp8("fp8_e5m2", ml_dtypes.float8_e5m2, 57344, weights),
                per_row("int8", 127, weights), per_row("int4", 7, weights), nvfp4(weights)]
        out += [grouped(f"int4_g{size}", size, weights) for size in (32, 64, 128)]
    for weights in [whole, ragged]:
        out += [microscaled("mxfp4", ml_dtypes.float4_e2m1fn, 6, 2, weights),
                microscaled("mxfp8", ml_dtypes.float8_e4m3fn, 448, 8, weights)]
    out += [asymmetric("awq_int4", whole), asymmetric("gptq_int4", whole), nf4(whole)]
    tame = whole[:11]
    out += [one_bit(tame), two_bit(tame)]
    return out


# --- codebooks -----------------------------------------------------------------------------------------------------


def grids():
    path = HERE / "../../crates/rooflined-core/src/precision/quantise/grids.txt"
    head = [text for text in path.read_text().splitlines() if text.startswith("#")]
    for name, kind in [("iq2_xxs", quants.IQ2_XXS), ("iq2_xs", quants.IQ2_XS), ("iq2_s", quants.IQ2_S),
                       ("iq3_xxs", quants.IQ3_XXS), ("iq3_s", quants.IQ3_S), ("iq1", quants.IQ1_S)]:
        head += [name, *textwrap.wrap(kind.grid_hex.decode(), 112)]
    path.write_text("\n".join(head) + "\n")


def main():
    if sys.argv[1:] == ["--grids"]:
        grids()
        return
    versions = f"gguf 0.19.0, ml_dtypes {ml_dtypes.__version__}, numpy {np.__version__}"
    for name, make in [("scalars", scalars), ("gguf", gguf_vectors), ("definitions", definitions)]:
        text = [f"# Known answers; crates/rooflined-core/tests/vectors/make.py says from where. {versions}", *make()]
        (HERE / f"{name}.txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
