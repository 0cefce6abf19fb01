#!/usr/bin/env python3
"""A detector's backbone in an ONNX file, with random weights and the standard library alone: random_onnx.py FILE [--open]

Eight convolutions of 3x3 with ReLU on a picture of 640x640, then a mean over each channel; with --open, batch, height
and width are left open. The fields are numbered as in onnx.proto: messages are written by hand, as `tests/random_gguf.py` writes GGUF.
"""
import random
import struct
import sys

FLOAT = 1


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def value_info(name, sizes):
    dims = b"".join(block(1, block(2, size) if isinstance(size, str) else number(1, size)) for size in sizes)
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, dims)))


def ints(name, values):
    return block(5, block(1, name) + b"".join(number(8, value) for value in values) + number(20, 7))


def node(kind, inputs, output, attributes=b""):
    return block(1, b"".join(block(1, name) for name in inputs) + block(2, output) + block(3, output) + block(4, kind) + attributes)


def tensor(name, sizes, seed):
    count = 1
    for size in sizes:
        count *= size
    rng = random.Random(seed)
    weights = struct.pack(f"<{count}f", *(rng.gauss(0, 0.1) for _ in range(count)))
    return block(5, b"".join(number(1, size) for size in sizes) + number(2, FLOAT) + block(8, name) + block(9, weights))


def network(picture):
    nodes, weights, last, channels = b"", b"", "images", 3
    for layer in range(8):
        wider = 16 << (layer // 2)
        stride = 2 - layer % 2
        weights += tensor(f"w{layer}", [wider, channels, 3, 3], layer) + tensor(f"b{layer}", [wider], layer)
        shape = ints("kernel_shape", [3, 3]) + ints("strides", [stride, stride]) + ints("pads", [1, 1, 1, 1])
        nodes += node("Conv", [last, f"w{layer}", f"b{layer}"], f"conv{layer}", shape)
        nodes += node("Relu", [f"conv{layer}"], f"relu{layer}")
        last, channels = f"relu{layer}", wider
    nodes += node("GlobalAveragePool", [last], "features")
    graph = nodes + block(2, "backbone") + weights
    graph += block(11, value_info("images", picture))
    graph += block(12, value_info("features", [picture[0], channels, 1, 1]))
    return number(1, 8) + block(2, "rooflined") + block(7, graph) + block(8, block(1, "") + number(2, 17))


if __name__ == "__main__":
    with open(sys.argv[1], "wb") as out:
        out.write(network(["batch", 3, "height", "width"] if "--open" in sys.argv else [1, 3, 640, 640]))
