#!/usr/bin/env python3
"""Holds predicted times of encoders of text on this CPU against torch and ONNX Runtime: encoders.py BINARIES

A daemon of its own calibrates this machine. Encoders of transformers with random weights are saved as configurations, predicted with
the engine's own costs, and run in fp32 by both engines, at several batches and lengths, with one thread and with all; the shortest of its
runs counts, because other work only ever lengthens one. Prints each error, and fails if the median of an engine is above the stated
half-width of the interval: no single time is asserted.
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import time

import numpy
import onnxruntime
import torch
from latency import machine, summary
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, ModernBertConfig, ModernBertModel

MODELS = {
    "minilm-l6": (BertModel, BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)),
    "distilbert": (DistilBertModel, DistilBertConfig()),
    "bert-base": (BertModel, BertConfig()),
    "modernbert": (ModernBertModel, ModernBertConfig(num_hidden_layers=12)),
}
RUNS = ((1, 128), (8, 128), (1, 512), (4, 256))
# Of those, and of the models, what a quick run takes.
FEW = ("minilm-l6", "modernbert"), RUNS[:3:2]
SECONDS = 1.0


def shortest(run, seconds):
    times, end = [], time.monotonic() + seconds
    while len(times) < 3 or time.monotonic() < end:
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


class Output(torch.nn.Module):
    """The last state alone, which is all that an exporter may see."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).last_hidden_state


def exported(model, ids, path):
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(model, (ids,), path, opset_version=17, dynamo=False, input_names=["ids"], dynamic_axes={"ids": {0: "batch", 1: "length"}})


def held(ask, home, is_quick=False):
    """Whether the median error of each engine is within the interval that predictions state."""
    names, runs = FEW if is_quick else (MODELS, RUNS)
    seconds = SECONDS / 4 if is_quick else SECONDS
    rows = {"torch": [], "onnxruntime": []}
    for name in names:
        cls, config = MODELS[name]
        config.architectures = [cls.__name__]
        config.dtype = "float32"
        config.save_pretrained(f"{home}/{name}")
        model = Output(cls._from_config(config, attn_implementation="sdpa")).eval()
        path = f"{home}/{name}.onnx"
        try:
            exported(model, torch.ones(2, 64, dtype=torch.long), path)
        except Exception as error:  # noqa: BLE001: what the exporter does not know, torch alone runs
            print(f"{name}: not exported ({type(error).__name__})")
        # Other work disturbs several threads far more than one.
        for threads in [1] if is_quick else sorted({1, len(os.sched_getaffinity(0))}):
            torch.set_num_threads(threads)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
            has_network = os.path.exists(path)
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) if has_network else None
            for batch, length in runs:
                predicted = {engine: json.loads(ask("predict", f"{home}/{name}/config.json", "--engine", engine, "--threads", str(threads),
                                                    "--batch", str(batch), "--prompt", str(length), "-o", "json"))["time_s"] for engine in rows}
                ids = torch.full((batch, length), 7)
                with torch.no_grad():
                    took = {"torch": shortest(lambda: model(ids), seconds)}
                if session is not None:
                    took["onnxruntime"] = shortest(lambda: session.run(None, {"ids": ids.numpy().astype(numpy.int64)}), seconds)
                for engine, least in took.items():
                    rows[engine].append((predicted[engine], least))
                shown = ", ".join(f"{engine} {1e3 * least:.1f} ms ({100 * (predicted[engine]['value'] / least - 1):+.0f} %)" for engine, least in took.items())
                print(f"{name:10} {threads} threads, {batch} x {length}: {shown}", flush=True)
    judged = [summary(engine, found) for engine, found in rows.items() if found]
    return all(median <= width for median, width in judged)


def main():
    with machine(pathlib.Path(sys.argv[1]).resolve()) as (ask, home):
        return 0 if held(ask, home) else 1


if __name__ == "__main__":
    sys.exit(main())
