#!/usr/bin/env python3
"""Holds `rooflinectl models inspect` of ONNX files against PyTorch and ONNX Runtime.

usage: networks.py ROOFLINECTL [--all] [NETWORK…]

Networks of torchvision and timm are exported with random weights by both exporters and in several operator sets. The shape of
every tensor is compared with what ONNX Runtime computes, the parameters with the module's, and the operations of convolutions
and products with torch's own counter. --all takes every network below, which needs some minutes; otherwise every sixth is taken.
"""

import collections
import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

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


def build(library, name):
    torch.manual_seed(0)
    module = create(library, name).eval()
    # Exporters store equal weights once, and many layers start with the same.
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.1, 0.1)
    return module


def create(library, name):
    if library == "timm":
        return timm.create_model(name, pretrained=False)
    extra = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    if "deeplab" in name or "fcn" in name or "lraspp" in name:
        extra = {"weights_backbone": None}
    return torchvision.models.get_model(name, weights=None, **extra)


def export(module, picture, path, exporter, opset, is_open):
    named = {"input_names": ["images"]}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if exporter == "dynamo":
            if is_open:
                named["dynamic_shapes"] = [{0: torch.export.Dim("batch")}]
            torch.onnx.export(module, (picture,), path, opset_version=opset, dynamo=True, external_data=False, **named)
        else:
            if is_open:
                named["dynamic_axes"] = {"images": {0: "batch", 2: "height", 3: "width"}}
            torch.onnx.export(module, (picture,), path, opset_version=opset, dynamo=False, **named)


def judge(program, line, folder):
    """What is wrong with one network, and what to print about it."""
    library, name, size, exporter, opset, *special = line.split()
    open_ = "open" in special
    size, batch = int(size), 2 if open_ else 1
    module, path = build(library, name), os.path.join(folder, "network.onnx")
    # Two of a batch: exporters take one for a constant.
    picture = torch.rand(2 if open_ and exporter == "dynamo" else 1, 3, size, size)
    export(module, picture, path, exporter, int(opset), bool(open_))
    options = ["--dim", f"batch={batch}"] if open_ else []
    if open_ and exporter == "legacy":
        options += ["--size", f"{size}x{size}"]
    began = time.monotonic()
    answer = inspect(program, path, options)
    took = time.monotonic() - began
    picture = torch.rand(batch, 3, size, size)
    wrong, unknown, count = differences(answer, runtime_shapes(path, {"images": picture.numpy()}))
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        module(picture)
    flops = sum(work["flops"] or 0 for work in answer["work"] if work["kind"] in ("convolution", "product"))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    faults = wrong[:5]
    if len(unknown) > (1 - SHAPED) * count:
        faults.append(f"{len(unknown)} of {count} tensors have no shape: {unknown[:3]}")
    expected = counter.get_total_flops()
    if not (flops == expected or "folded" in special and (1 - CLOSE) * expected < flops < expected):
        faults.append(f"{flops} FLOP of convolutions and products, not {expected}")
    if abs(answer["parameters"] / parameters - 1) > CLOSE and "tables" not in special:
        faults.append(f"{answer['parameters']} parameters, not {parameters}")
    share = f"{answer['parameters'] / parameters - 1:+.2%}"
    print(f"{line}: {count} tensors, {len(unknown)} without a shape, {flops / 1e9:.3f} GFLOP, parameters {share}, {took * 1e3:.0f} ms")
    return faults, count, len(unknown)


def main():
    program, *rest = sys.argv[1:]
    torch.set_num_threads(2)
    # The counter does not see into fused attention.
    torch.backends.mha.set_fastpath_enabled(False)
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
    numpy.random.seed(0)
    main()
