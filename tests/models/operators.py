#!/usr/bin/env python3
"""Holds the shape rules of `rooflinectl models inspect` against ONNX Runtime: small random graphs of each operator.

usage: operators.py ROOFLINECTL [SEED]

A graph that ONNX Runtime refuses counts for nothing; one that it runs has to be read, with the same shapes. Every operator has to
be run at least once.
"""

import collections
import os
import random
import sys
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

from networks import differences, inspect, runtime_shapes

EACH = 12
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Case:
    """A graph that grows."""

    def __init__(self, rng, opset):
        self.rng, self.opset = rng, opset
        self.nodes, self.inputs, self.stored, self.feed = [], [], [], {}

    def tensor(self, shape, kind=numpy.float32):
        name = f"x{len(self.inputs)}"
        values = numpy.random.rand(*shape)
        self.feed[name] = (values > 0.5 if kind == bool else values * 3).astype(kind)
        self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(numpy.dtype(kind)), shape))
        return name

    def constant(self, values, kind=numpy.int64):
        name = f"c{len(self.stored)}"
        self.stored.append(onnx.numpy_helper.from_array(numpy.asarray(values, dtype=kind), name))
        return name

    def node(self, operator, inputs, outputs=1, **attributes):
        names = [f"{operator}{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def save(self, path):
        last = [helper.make_empty_tensor_value_info(name) for name in self.nodes[-1].output]
        graph = helper.make_graph(self.nodes, "g", self.inputs, last, self.stored)
        opset = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def shape(rng, rank, least=1, most=7):
    return [rng.randint(least, most) for _ in range(rank)]


def picture(rng):
    return [rng.randint(1, 2), rng.choice([2, 4, 6]), rng.randint(5, 13), rng.randint(5, 13)]


def axis(rng, rank):
    return rng.randint(-rank, rank - 1)


def unary(operator):
    return lambda c: c.node(operator, [c.tensor(shape(c.rng, c.rng.randint(1, 4)))])


def stretched(operator, kind=numpy.float32, count=2):
    def build(c):
        whole = shape(c.rng, c.rng.randint(1, 4))
        parts = [[size if c.rng.random() < 0.7 else 1 for size in whole][c.rng.randint(0, len(whole) - 1):] for _ in range(count)]
        c.node(operator, [c.tensor(part, kind) for part in parts])
    return build


def where(c):
    whole = shape(c.rng, 3)
    c.node("Where", [c.tensor(whole, bool), c.tensor(whole[1:]), c.tensor([1] + whole[1:])])


def window(c, rank=2, dilated=True):
    found = {"strides": shape(c.rng, rank, 1, 3)}
    if c.rng.random() < 0.25:
        found["auto_pad"] = c.rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif c.rng.random() < 0.7:
        found["pads"] = shape(c.rng, 2 * rank, 0, 1)
    if dilated and "auto_pad" not in found and c.rng.random() < 0.3:
        found["dilations"] = shape(c.rng, rank, 1, 2)
    return found


def conv(c):
    rank = c.rng.choice([1, 2, 2, 2])
    x = picture(c.rng)[: rank + 2]
    groups = c.rng.choice([1, 2, x[1]])
    weights = [groups * c.rng.randint(1, 3), x[1] // groups, *shape(c.rng, rank, 1, 3)]
    c.node("Conv", [c.tensor(x), c.constant(numpy.ones(weights), numpy.float32)], group=groups, **window(c, rank))


def conv_transpose(c):
    x, groups = picture(c.rng), c.rng.choice([1, 2])
    weights = [x[1], c.rng.randint(1, 3), *shape(c.rng, 2, 2, 4)]
    more = {"strides": shape(c.rng, 2, 1, 3), "pads": shape(c.rng, 4, 0, 1)}
    if c.rng.random() < 0.3:
        more = {"strides": [3, 3], "output_padding": shape(c.rng, 2, 0, 2)}
    c.node("ConvTranspose", [c.tensor(x), c.constant(numpy.ones(weights), numpy.float32)], group=groups, **more)


def pool(operator):
    def build(c):
        more = window(c, dilated=operator == "MaxPool")
        if "auto_pad" not in more:
            more["ceil_mode"] = c.rng.randint(0, 1)
        # A window with gaps has to fit the smallest picture: ONNX Runtime does not check that.
        most = 3 if "dilations" in more else 4
        c.node(operator, [c.tensor(picture(c.rng))], kernel_shape=shape(c.rng, 2, 2, most), **more)
    return build


def matmul(c):
    rows, inner, columns, batch = shape(c.rng, 4)
    left = c.rng.choice([[inner], [rows, inner], [batch, rows, inner], [3, 1, rows, inner]])
    right = c.rng.choice([[inner], [inner, columns], [1, inner, columns], [batch, inner, columns]])
    c.node("MatMul", [c.tensor(left), c.tensor(right)])


def gemm(c):
    rows, inner, columns = shape(c.rng, 3)
    a, b = c.rng.randint(0, 1), c.rng.randint(0, 1)
    left, right = [[rows, inner], [inner, rows]][a], [[inner, columns], [columns, inner]][b]
    c.node("Gemm", [c.tensor(left), c.tensor(right), c.tensor([columns])], transA=a, transB=b)


def einsum(c):
    b, i, j, d = shape(c.rng, 4)
    equation, left, right = c.rng.choice([
        ("bid,bjd->bij", [b, i, d], [b, j, d]), ("ij, jd -> id", [i, j], [j, d]), ("bhwc,hkc->bhwk", [b, i, j, d], [i, 5, d]),
    ])
    c.node("Einsum", [c.tensor(left), c.tensor(right)], equation=equation)


def reshape(c):
    x = shape(c.rng, 4)
    target = c.rng.choice([[-1], [0, -1], [0, 0, -1], [x[0] * x[1], -1], [0, 0, x[3], x[2]], [x[3], -1, x[0]], [1, *x]])
    c.node("Reshape", [c.tensor(x), c.constant(target)])


def squeeze(c):
    x = [1, c.rng.randint(2, 5), 1, c.rng.randint(2, 5), 1]
    axes = c.rng.choice([[0], [2, -1], [0, 2, 4], None])
    c.node("Squeeze", [c.tensor(x)] + ([c.constant(axes)] if axes else []))


def unsqueeze(c):
    c.node("Unsqueeze", [c.tensor(shape(c.rng, 2)), c.constant(c.rng.choice([[0], [1, 3], [-1], [0, -1]]))])


def transpose(c):
    rank = c.rng.randint(2, 5)
    order = list(range(rank))
    c.rng.shuffle(order)
    c.node("Transpose", [c.tensor(shape(c.rng, rank))], **({"perm": order} if c.rng.random() < 0.8 else {}))


def concat(c):
    x, rank = shape(c.rng, 3), 3
    along = axis(c.rng, rank)
    parts = [[c.rng.randint(1, 4) if place == along % rank else size for place, size in enumerate(x)] for _ in range(3)]
    c.node("Concat", [c.tensor(part) for part in parts], axis=along)


def split(c):
    x, along = shape(c.rng, 3, 3, 9), axis(c.rng, 3)
    size = x[along]
    kind = c.rng.randint(0, 2)
    if kind == 0:
        first = c.rng.randint(1, size - 1)
        c.node("Split", [c.tensor(x), c.constant([first, size - first])], 2, axis=along)
    elif c.opset >= 18:
        c.node("Split", [c.tensor(x)], 2, axis=along, num_outputs=2)
    else:
        x[along] = 2 * size
        c.node("Split", [c.tensor(x)], 2, axis=along)


def slice_(c):
    rank = c.rng.randint(1, 4)
    x, cut = shape(c.rng, rank, 3, 9), c.rng.randint(1, rank)
    axes = c.rng.sample(range(rank), cut)
    steps = [c.rng.choice([1, 1, 2, -1, -2]) for _ in axes]
    starts = [c.rng.choice([0, 1, -2, -(2**63), 2**63 - 1, 50]) for _ in axes]
    # Backwards, ONNX Runtime takes the largest end for 0; the specification does not.
    ends = [c.rng.choice([1, 3, -1, -(2**63), 50] + [2**63 - 1] * (step > 0)) for step in steps]
    c.node("Slice", [c.tensor(x), *(c.constant(values) for values in (starts, ends, axes, steps))])


def gather(c):
    x, along = shape(c.rng, 3, 2), axis(c.rng, 3)
    indices = c.rng.choice([1, [0], [0, 1], [[0], [1]], [-1, 0]])
    c.node("Gather", [c.tensor(x), c.constant(indices)], axis=along)


def gather_elements(c):
    c.node("GatherElements", [c.tensor([4, 5]), c.constant(numpy.zeros((c.rng.randint(1, 4), 5)))], axis=0)


def gather_nd(c):
    depth, batch = c.rng.randint(1, 2), c.rng.randint(0, 1)
    c.node("GatherND", [c.tensor([3, 4, 5]), c.constant(numpy.zeros((3, 2, depth)))], batch_dims=batch)


def expand(c):
    x = [c.rng.randint(2, 4), 1, c.rng.choice([1, 3])]
    c.node("Expand", [c.tensor(x), c.constant(c.rng.choice([[3], [4, 3], [2, 1, 5, 3], [x[0], 1, 1]]))])


def tile(c):
    c.node("Tile", [c.tensor(shape(c.rng, 3)), c.constant(shape(c.rng, 3, 1, 3))])


def pad(c):
    x = shape(c.rng, 3, 3, 6)
    if c.opset >= 18 and c.rng.random() < 0.5:
        c.node("Pad", [c.tensor(x), c.constant([1, 2, 0, 1]), "", c.constant([-1, 0])])
    else:
        c.node("Pad", [c.tensor(x), c.constant([c.rng.randint(-1, 2) for _ in range(6)])])


def resize(c):
    x, size = picture(c.rng), shape(c.rng, 2, 3, 20)
    if c.opset >= 18 and c.rng.random() < 0.5:
        policy = c.rng.choice(["stretch", "not_larger", "not_smaller"])
        c.node("Resize", [c.tensor(x), "", "", c.constant(size)], axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear")
    elif c.rng.random() < 0.4:
        c.node("Resize", [c.tensor(x), "", "", c.constant(x[:2] + size)])
    else:
        scales = [1, 1, c.rng.choice([0.5, 2, 1.7, 1 / 3, 2.3]), c.rng.choice([0.6, 3, 1.25, 2 / 3])]
        c.node("Resize", [c.tensor(x), "", c.constant(scales, numpy.float32)])


def reduce(operator):
    def build(c):
        rank = c.rng.randint(1, 4)
        axes = c.rng.sample(range(-rank, 0), c.rng.randint(1, rank))
        inputs, more = [c.tensor(shape(c.rng, rank))], {"keepdims": c.rng.randint(0, 1)}
        if c.rng.random() < 0.2:
            pass
        elif c.opset >= 18 or operator == "ReduceSum":
            inputs.append(c.constant(axes))
        else:
            more["axes"] = axes
        c.node(operator, inputs, **more)
    return build


def arg(operator):
    return lambda c: c.node(operator, [c.tensor(shape(c.rng, 3))], axis=axis(c.rng, 3), keepdims=c.rng.randint(0, 1))


def top(c):
    along, count = axis(c.rng, 3), c.rng.randint(1, 3)
    c.node("TopK", [c.tensor(shape(c.rng, 3, 3)), c.constant([count])], 2, axis=along)


def one_hot(c):
    indices = c.tensor(shape(c.rng, 2), numpy.int64)
    c.node("OneHot", [indices, c.constant([5]), c.constant([0, 1], numpy.float32)], axis=c.rng.randint(-1, 2))


def blocks(operator):
    x = [2, 8, 4, 6]
    return lambda c: c.node(operator, [c.tensor(x)], blocksize=2)


def grid(c):
    c.node("GridSample", [c.tensor(picture(c.rng)[:2] + [6, 7]), c.tensor([1, *shape(c.rng, 2), 2])])


def regions(c):
    boxes = c.constant(numpy.random.rand(3, 4), numpy.float32)
    c.node("RoiAlign", [c.tensor([2, 3, 8, 8]), boxes, c.constant([0, 1, 0])], output_height=c.rng.randint(1, 4), output_width=3)


def recurrent(operator, gates):
    def build(c):
        steps, batch, width, hidden = shape(c.rng, 4)
        directions = c.rng.randint(1, 2)
        weights = [c.constant(numpy.zeros((directions, gates * hidden, size)), numpy.float32) for size in (width, hidden)]
        way = "bidirectional" if directions == 2 else "forward"
        c.node(operator, [c.tensor([steps, batch, width]), *weights], 2, hidden_size=hidden, direction=way)
    return build


def quantised(c):
    scale, zero = c.constant(0.1, numpy.float32), c.constant(3, numpy.uint8)
    q = c.node("QuantizeLinear", [c.tensor(picture(c.rng)), scale, zero])
    c.node("DequantizeLinear", [q, scale, zero])


def normalised(operator):
    def build(c):
        x = picture(c.rng)
        channels = [c.constant(numpy.ones(x[1]), numpy.float32) for _ in range(4)]
        if operator == "LayerNormalization":
            return c.node(operator, [c.tensor(x), c.constant(numpy.ones(x[3]), numpy.float32)])
        return c.node(operator, [c.tensor(x), *channels[: 4 if operator == "BatchNormalization" else 2]])
    return build


def cast(c):
    c.node("Cast", [c.tensor(shape(c.rng, 3))], to=c.rng.choice([TensorProto.FLOAT16, INT64, TensorProto.BOOL]))


def computed_shape(c):
    """Sizes by arithmetic on sizes, as exporters write them."""
    x = c.tensor(picture(c.rng))
    sizes = c.node("Shape", [x])
    size = lambda place: c.node("Gather", [sizes, c.constant(place)], axis=0)
    one = lambda name: c.node("Unsqueeze", [name, c.constant([0])])
    height, width = size(2), size(3)
    kind = c.rng.randint(0, 6)
    if kind == 0:
        area = c.node("Mul", [height, width])
        c.node("Reshape", [x, c.node("Concat", [one(size(0)), one(size(1)), one(area)], axis=0)])
    elif kind == 1:
        half = c.node("Div", [c.node("Add", [height, c.constant(1)]), c.constant(2)])
        c.node("Slice", [x, c.constant([0]), one(half), c.constant([2]), c.constant([1])])
    elif kind == 2:
        float_ = c.node("Cast", [c.node("Slice", [sizes, c.constant([2]), c.constant([4])])], to=FLOAT)
        scaled = c.node("Floor", [c.node("Mul", [float_, c.constant(1.7, numpy.float32)])])
        kept = c.node("Slice", [sizes, c.constant([0]), c.constant([2])])
        target = c.node("Concat", [kept, c.node("Cast", [scaled], to=INT64)], axis=0)
        c.node("Resize", [x, "", "", target])
    elif kind == 3:
        places = c.node("Range", [c.constant(0), height, c.constant(c.rng.randint(1, 2))])
        c.node("Expand", [c.node("Unsqueeze", [places, c.constant([1])]), c.node("Concat", [c.constant([1]), one(width)], axis=0)])
    elif kind == 4:
        ones = c.node("ConstantOfShape", [one(c.constant(4))], value=helper.make_tensor("v", INT64, [1], [1]))
        target = c.node("Where", [c.node("Equal", [ones, c.constant(-1)]), ones, sizes])
        c.node("Expand", [c.tensor([1, 1, 1, 1]), target])
    elif kind == 5:
        missing = c.node("Mod", [c.node("Sub", [c.constant(8), c.node("Mod", [height, c.constant(8)])]), c.constant(8)])
        zero = c.constant([0])
        c.node("Pad", [x, c.node("Concat", [zero, zero, zero, zero, zero, zero, one(missing), zero], axis=0)])
    else:
        product = c.node("ReduceProd", [c.node("Slice", [sizes, c.constant([1]), c.constant([4])])], keepdims=1)
        found = c.node("NonZero", [c.node("ConstantOfShape", [product])])
        c.node("Tile", [c.node("Transpose", [found]), c.node("Concat", [one(size(0)), c.constant([1])], axis=0)])


UNARY = """Abs Ceil Cos Elu Erf Exp Floor HardSigmoid HardSwish Identity LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign
Sin Softplus Sqrt Tanh Softmax LogSoftmax Gelu Dropout Flatten Shape Size NonZero Clip""".split()
CASES = {
    **{name: unary(name) for name in UNARY},
    **{name: stretched(name) for name in "Add Sub Mul Div Pow Greater Less Equal PRelu".split()},
    **{name: stretched(name, count=3) for name in "Max Min Sum Mean".split()},
    **{name: stretched(name, bool) for name in "And Or Xor".split()},
    **{name: reduce(name) for name in "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL2".split()},
    **{name: arg(name) for name in ("ArgMax", "ArgMin")},
    **{name: pool(name) for name in ("MaxPool", "AveragePool")},
    **{name: blocks(name) for name in ("DepthToSpace", "SpaceToDepth")},
    **{name: normalised(name) for name in ("BatchNormalization", "LayerNormalization", "InstanceNormalization")},
    "GlobalAveragePool": lambda c: c.node("GlobalAveragePool", [c.tensor(picture(c.rng))]),
    "Conv": conv, "ConvTranspose": conv_transpose, "MatMul": matmul, "Gemm": gemm, "Einsum": einsum, "Reshape": reshape,
    "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Transpose": transpose, "Concat": concat, "Split": split, "Slice": slice_,
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "Expand": expand, "Tile": tile, "Pad": pad,
    "Resize": resize, "TopK": top, "OneHot": one_hot, "GridSample": grid, "RoiAlign": regions, "LSTM": recurrent("LSTM", 4),
    "GRU": recurrent("GRU", 3), "QuantizeLinear": quantised, "Cast": cast, "Where": where, "computed": computed_shape,
}
# Known only at run time: the number of places that are not zero, and what it gives in turn.
OPEN = {"NonZero"}


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    rng = random.Random(seed)
    numpy.random.seed(seed)
    ran, refused, faults = collections.Counter(), 0, []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "case.onnx")
        for name, build in CASES.items():
            for number in range(EACH * (4 if name in ("computed", "Slice", "Resize", "MaxPool") else 1)):
                case = Case(rng, rng.choice([13, 16, 17, 18, 20]))
                build(case)
                case.save(path)
                try:
                    shapes = runtime_shapes(path, case.feed)
                except Exception:  # noqa: BLE001
                    refused += 1
                    continue
                ran[name] += 1
                try:
                    wrong, unknown, _ = differences(inspect(program, path, []), shapes)
                except ValueError as error:
                    wrong, unknown = [str(error)], []
                if name in OPEN:
                    unknown = []
                for fault in wrong + unknown:
                    faults.append(f"{name} (opset {case.opset}): {fault}\n        {helper.printable_node(case.nodes[-1])}")
    for fault in faults[:40]:
        print(f"    {fault}")
    never = sorted(set(CASES) - set(ran))
    print(f"{sum(ran.values())} graphs of {len(ran)} operators, {refused} that ONNX Runtime refuses; {len(faults)} differ")
    if never:
        print(f"never run: {', '.join(never)}")
    sys.exit(bool(faults or never))


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    main()
