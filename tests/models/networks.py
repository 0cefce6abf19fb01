#!/usr/bin/env python3
"""Holds `rooflinectl models inspect` of ONNX files against PyTorch and ONNX Runtime.

usage: networks.py ROOFLINECTL [--all] [NETWORK…]

Networks of torchvision and timm are exported with random weights by both exporters and in several operator sets. The shape of
every tensor is compared with what ONNX Runtime computes, the parameters with the module's, and the operations of convolutions
and products with torch's own counter. --all takes every network below, which needs some minutes; otherwise every sixth is taken.
"""

import collections
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime

# Library, name, size, exporter, operator set, and what is special: sizes are left `open`; encodings of places are `folded`, so that
# their convolutions run once and for all; exporters unfold `tables` of places, or standardised weights, into more constants.
NETWORKS = """
torchvision alexnet 224 legacy 11            | torchvision convnext_tiny 224 legacy 12
torchvision densenet121 224 legacy 13        | torchvision efficientnet_b0 224 legacy 14
torchvision efficientnet_v2_s 224 legacy 15  | torchvision googlenet 224 legacy 16
torchvision inception_v3 299 legacy 17       | torchvision mnasnet0_5 224 legacy 18
torchvision mobilenet_v2 224 legacy 19 open  | torchvision mobilenet_v3_small 224 dynamo 18
torchvision mobilenet_v3_large 224 legacy 20 | torchvision regnet_y_800mf 224 legacy 12 open
torchvision regnet_x_400mf 224 dynamo 20     | torchvision resnet18 224 dynamo 18 open
torchvision resnet50 224 legacy 13 open      | torchvision resnext50_32x4d 224 legacy 17
torchvision shufflenet_v2_x1_0 224 legacy 14 | torchvision squeezenet1_1 224 dynamo 22
torchvision swin_t 224 legacy 17             | torchvision swin_v2_t 256 dynamo 18 folded tables
torchvision vgg11 224 legacy 17              | torchvision vit_b_16 224 legacy 17
torchvision vit_b_32 224 dynamo 21           | torchvision maxvit_t 224 legacy 15
torchvision deeplabv3_mobilenet_v3_large 256 legacy 17 open | torchvision fcn_resnet50 256 legacy 13
torchvision lraspp_mobilenet_v3_large 256 dynamo 18 | torchvision wide_resnet50_2 224 dynamo 19
timm efficientvit_b0 224 legacy 17           | timm inception_v4 299 legacy 17
timm mobilenetv4_conv_small 224 legacy 17    | timm vit_tiny_patch16_224 224 legacy 17
timm vit_small_patch16_224 224 dynamo 18     | timm ghostnet_100 224 legacy 13
timm hrnet_w18_small 224 legacy 11           | timm convnextv2_atto 224 legacy 17
timm mobilevit_s 256 legacy 17               | timm edgenext_xx_small 256 legacy 17 folded
timm repvgg_a0 224 legacy 17 open            | timm res2net50_26w_4s 224 legacy 16
timm levit_128s 224 legacy 17                | timm poolformer_s12 224 dynamo 18
timm coatnet_pico_rw_224 224 legacy 17 tables       | timm xcit_nano_12_p16_224 224 legacy 17 folded
timm pvt_v2_b0 224 legacy 17                 | timm mixer_s32_224 224 legacy 17
timm crossvit_tiny_240 240 legacy 17         | timm davit_tiny 224 legacy 17
timm fastvit_t8 256 legacy 17                | timm tf_mixnet_s 224 legacy 13
timm rexnet_100 224 dynamo 18                | timm dla34 224 legacy 17
timm vovnet39a 224 legacy 17                 | timm gcvit_xxtiny 224 legacy 17 tables
timm tinynet_e 106 dynamo 18                 | timm focalnet_tiny_srf 224 legacy 17
timm nf_regnet_b0 192 legacy 17 tables              | timm twins_pcpvt_small 224 dynamo 18
""".replace("|", "\n").strip().splitlines()
# Folding of normalisation into convolutions drops parameters, and masks of windows become constants.
CLOSE = 0.02
# Share of nodes that has to have its shape.
SHAPED = 0.99
# Bytes of a tensor that no shape is computed from.
LARGE = 4096


def inspect(program, path, options):
    run = subprocess.run([program, "models", "inspect", path, "-o", "json", *options], capture_output=True, text=True)
    if run.returncode:
        raise ValueError(run.stderr.strip())
    return json.loads(run.stdout)


def runtime_shapes(path, feed):
    """The shapes that ONNX Runtime computes: every tensor becomes an output."""
    model = onnx.load(path)
    names = {output.name for output in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in names:
                names.add(name)
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    listed = [output.name for output in session.get_outputs()]
    return {name: list(value.shape) for name, value in zip(listed, session.run(None, feed)) if value is not None and hasattr(value, "shape")}


def differences(answer, shapes):
    """Tensors with another shape, and how many have none."""
    wrong, unknown, count = [], [], 0
    for node in answer["nodes"]:
        for tensor in node["outputs"]:
            if tensor["name"] not in shapes:
                continue
            count += 1
            if tensor["shape"] is None:
                unknown.append(f"{node['operator']} {tensor['name']}")
            elif tensor["shape"] != shapes[tensor["name"]]:
                wrong.append(f"{node['operator']} {tensor['name']}: {tensor['shape']}, not {shapes[tensor['name']]}")
    return wrong, unknown, count


def prepared(line, folder):
    """The file of a network, and the shapes and counts that ONNX Runtime and torch find: those of an earlier run, if there was one.

    They are kept in the virtual environment, next to the exact versions that made them. The values of weights change no shape.
    """
    library, name, size, exporter, opset, *special = line.split()
    size, is_open, path = int(size), "open" in special, pathlib.Path(folder, "network.onnx")
    sources = b"".join(pathlib.Path(__file__).with_name(source).read_bytes() for source in ("networks.py", "exports.py"))
    kept = pathlib.Path(sys.prefix, "made", hashlib.sha256(sources + line.encode()).hexdigest())
    if kept.with_suffix(".json").exists():
        path.write_bytes(gzip.decompress(kept.with_suffix(".gz").read_bytes()))
        return path, json.loads(kept.with_suffix(".json").read_text())
    import exports

    found = exports.exported(path, library, name, size, exporter, int(opset), is_open)
    picture = numpy.random.default_rng(0).random((2 if is_open else 1, 3, size, size), numpy.float32)
    found["shapes"] = runtime_shapes(path, {"images": picture})
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > LARGE:
            tensor.raw_data = bytes(len(tensor.raw_data))
    onnx.save(model, path)
    kept.parent.mkdir(exist_ok=True)
    for ending, content in (".gz", gzip.compress(path.read_bytes(), 1)), (".json", json.dumps(found).encode()):
        whole = kept.with_suffix(f"{ending}.{os.getpid()}")
        whole.write_bytes(content)
        whole.rename(kept.with_suffix(ending))
    return path, found


def judge(program, line, folder):
    """What is wrong with one network, and what to print about it."""
    _, _, size, exporter, _, *special = line.split()
    path, found = prepared(line, folder)
    options = ["--dim", "batch=2"] if "open" in special else []
    if "open" in special and exporter == "legacy":
        options += ["--size", f"{size}x{size}"]
    began = time.monotonic()
    answer = inspect(program, path, options)
    took = time.monotonic() - began
    wrong, unknown, count = differences(answer, found["shapes"])
    flops = sum(work["flops"] or 0 for work in answer["work"] if work["kind"] in ("convolution", "product"))
    faults = wrong[:5]
    if len(unknown) > (1 - SHAPED) * count:
        faults.append(f"{len(unknown)} of {count} tensors have no shape: {unknown[:3]}")
    expected = found["flops"]
    if not (flops == expected or "folded" in special and (1 - CLOSE) * expected < flops < expected):
        faults.append(f"{flops} FLOP of convolutions and products, not {expected}")
    share = answer["parameters"] / found["parameters"] - 1
    if abs(share) > CLOSE and "tables" not in special:
        faults.append(f"{answer['parameters']} parameters, not {found['parameters']}")
    print(f"{line}: {count} tensors, {len(unknown)} without a shape, {flops / 1e9:.3f} GFLOP, parameters {share:+.2%}, {took * 1e3:.0f} ms")
    return faults, count, len(unknown)


def main():
    program, *rest = sys.argv[1:]
    is_all = "--all" in rest
    wanted = [word for word in rest if word != "--all"]
    lines = [line for line in NETWORKS if line.split()[1] in wanted] if wanted else NETWORKS if is_all else NETWORKS[::6]
    failed, totals = 0, collections.Counter()
    for line in lines:
        with tempfile.TemporaryDirectory() as folder:
            try:
                faults, count, unknown = judge(program, line.strip(), folder)
                totals.update(tensors=count, unknown=unknown)
            except Exception as error:  # noqa: BLE001
                faults = [f"{type(error).__name__}: {str(error)[:300]}"]
        for fault in faults:
            print(f"    {fault}")
        failed += bool(faults)
    print(f"{len(lines)} networks, {totals['tensors']} tensors, {totals['unknown']} without a shape; {failed} networks differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
