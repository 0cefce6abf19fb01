#!/usr/bin/env python3
"""Holds predicted latencies of vision networks on this CPU against ONNX Runtime.

usage: latency.py BINARIES [--all | --others] [--learn]

A daemon of its own calibrates this machine. Networks of torchvision with random weights are exported, predicted with
`--engine onnxruntime`, and run by ONNX Runtime in fp32 with one thread and with all; the shortest of its runs counts, because other work only
ever lengthens one. --all takes every network below; otherwise every third is taken. --others takes those that no constant was fitted to. Prints
the error of each and fails if the median is above the stated half-width of the interval: no single time is asserted. --learn goes on with
what is predicted once runs were reported: those of all other networks, and one of its own.
"""

import contextlib
import io
import json
import logging
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402

NETWORKS = ("resnet18 resnet50 vgg11 mobilenet_v2 mobilenet_v3_large efficientnet_b0 squeezenet1_1 shufflenet_v2_x1_0 densenet121 regnet_y_800mf "
            "googlenet vit_b_32").split()
OTHERS = ("resnext50_32x4d mnasnet0_5 convnext_tiny swin_t regnet_x_400mf wide_resnet50_2 mobilenet_v3_small vgg16 alexnet efficientnet_v2_s "
          "resnet34 vit_b_16").split()
SECONDS = 1.5
# A kernel of torch alone, which no exporter knows.
torch.backends.mha.set_fastpath_enabled(False)


def export(name, path):
    module = getattr(torchvision.models, name)(weights=None).eval()
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(module, torch.zeros(1, 3, 224, 224), path, opset_version=17, dynamo=False)


def run(path, threads):
    """The shortest of the runs, in seconds."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: numpy.random.default_rng(1).standard_normal((1, 3, 224, 224), dtype=numpy.float32)}
    times, end = [], time.monotonic() + SECONDS
    while len(times) < 5 or time.monotonic() < end:
        began = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - began)
    return min(times)


@contextlib.contextmanager
def machine(binaries):
    """A daemon of its own, which has calibrated the CPU, as a function that asks rooflinectl."""
    with tempfile.TemporaryDirectory(prefix="rl-latency-") as home:
        settings = pathlib.Path(home, "rooflined.toml")
        settings.write_text("[daemon]\naccelerator = \"cpu\"\n[calibration]\nautomatic = false\n")
        daemon = subprocess.Popen(
            [binaries / "rooflined", "serve", "--config", settings, "--socket", f"{home}/run", "--state-dir", f"{home}/state", "--bus", "none",
             "--exit-on-stdin-close"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def ask(*words, **options):
            answer = subprocess.run([binaries / "rooflinectl", "--socket", f"{home}/run", "--timeout", "300s", *words], capture_output=True, text=True,
                                    **options)
            if answer.returncode:
                raise SystemExit(f"{' '.join(map(str, words))}: {answer.stderr.strip()}")
            return answer.stdout

        try:
            while daemon.poll() is None and not pathlib.Path(home, "run/control.sock").exists():
                time.sleep(0.05)
            ask("calibrate", "--wait", "--force")
            yield ask, home
        finally:
            daemon.communicate()


def summary(name, rows):
    """What a list of (predicted, measured) comes to; the errors in rising order."""
    off = sorted(abs(said["value"] / took - 1) for said, took in rows)
    inside = sum(said["low"] <= took <= said["high"] for said, took in rows)
    width = statistics.median(said["high"] / said["value"] - 1 for said, _ in rows)
    bias = statistics.median(said["value"] / took - 1 for said, took in rows)
    print(f"{name}: {len(off)} latencies, median {100 * statistics.median(off):.1f} %, 9 of 10 within {100 * off[int(0.9 * len(off))]:.1f} %, "
          f"{inside} inside their interval (+{100 * width:.0f} %); bias {100 * bias:+.1f} %", flush=True)
    return statistics.median(off), width


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve()
    names = OTHERS if "--others" in sys.argv else NETWORKS if "--all" in sys.argv else NETWORKS[::3]
    cores = len(os.sched_getaffinity(0))
    with machine(binaries) as (ask, home):
        words = [(name, threads) for name in names for threads in sorted({1, cores})]

        def predict(name, threads):
            return json.loads(ask("predict", f"{home}/{name}.onnx", "--engine", "onnxruntime", "--threads", str(threads), "-o", "json"))["latency_s"]

        took, before = {}, {}
        for name, threads in words:
            path = f"{home}/{name}.onnx"
            if not os.path.exists(path):
                export(name, path)
            said = before[name, threads] = predict(name, threads)
            took[name, threads] = run(path, threads)
            print(f"{name:20} {threads} threads: {1e3 * took[name, threads]:7.2f} ms, predicted {1e3 * said['value']:7.2f} ms"
                  f" ({1e3 * said['low']:.2f} to {1e3 * said['high']:.2f}), {100 * (said['value'] / took[name, threads] - 1):+.0f} %", flush=True)
        median, width = summary("before anything was learned", [(before[key], took[key]) for key in words])
        if "--learn" in sys.argv:
            learn(ask, home, names, words, took, predict)
    return 0 if median <= width else 1


def learn(ask, home, names, words, took, predict):
    """Errors of each network after the others were reported, and of each with two threads after its own run with one."""
    def report(name, threads):
        ask("observe", f"{home}/{name}.onnx", "--engine", "onnxruntime", "--threads", str(threads), "--time", f"{took[name, threads]:.9f}s")

    others, own = [], []
    for name in names:
        ask("observations", "forget", "--own")
        for other, threads in words:
            if other != name:
                report(other, threads)
        others += [(predict(name, threads), took[name, threads]) for of, threads in words if of == name]
        report(name, 1)
        own += [(predict(name, threads), took[name, threads]) for of, threads in words if of == name and threads > 1]
    summary("after runs of the other networks", others)
    if own:
        summary("after its own run with one thread as well", own)


if __name__ == "__main__":
    sys.exit(main())
