"""Networks of torchvision and timm as both exporters of torch write them, with what torch counts of them.

Importing torch takes longer than reading what an earlier run has kept: `networks.py` imports this where nothing is.
"""

import contextlib
import io
import logging
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import timm  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

torch.set_num_threads(2)
# The counter does not see into fused attention.
torch.backends.mha.set_fastpath_enabled(False)


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


def exported(path, library, name, size, exporter, opset, is_open):
    """Writes a network; its operations on a batch, and its parameters."""
    batch = 2 if is_open else 1
    module = build(library, name)
    # Two of a batch: exporters take one for a constant.
    picture = torch.rand(2 if is_open and exporter == "dynamo" else 1, 3, size, size)
    export(module, picture, path, exporter, opset, is_open)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        module(torch.rand(batch, 3, size, size))
    return {"flops": counter.get_total_flops(), "parameters": sum(parameter.numel() for parameter in module.parameters())}
