#!/usr/bin/env python3
"""Runs `rooflinectl compare FILE.onnx` with the real ONNX Runtime, and predicts encoders of text that both engines run.

usage: compare.py BINARIES

The rate in the answer has to be that of its runs, and the time within a wide factor of one that is taken here. A Python without
ONNX Runtime is told what to install. Of encoders, see encoders.py: the same calibration serves both.
"""

import json
import os
import pathlib
import subprocess
import sys

import encoders
import latency

FACTOR = 3
NAME = "squeezenet1_1"


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve()
    faults = []
    with latency.machine(binaries) as (ask, home):
        path = f"{home}/{NAME}.onnx"
        latency.export(NAME, path)
        answer = json.loads(ask("compare", path, "--threads", "1", "--with", sys.executable, "-o", "json"))
        [row] = answer["rows"]
        rate, runs, duration = (row[key] for key in ("measured_pictures_per_s", "runs", "measured_duration_s"))
        if abs(rate * duration / runs - 1) > 1e-9:
            faults.append(f"{rate} pictures a second are not {runs} in {duration} s")
        time = row["measured_time_s"]
        if not time["low"] <= time["value"] <= time["high"]:
            faults.append(f"the interval of the runs is {time}")
        shortest = latency.run(path, 1)
        if not 1 / FACTOR < time["value"] / shortest < FACTOR:
            faults.append(f"compare measures {time['value']} s, and this program {shortest} s")
        if (row["op"], row["threads"], row["format"]) != ({"kind": "network", "network": NAME, "batch": 1}, 1, "fp32"):
            faults.append(f"the row is of {row['op']}, {row['threads']} threads, {row['format']}")
        if answer["engine"]["version"] != latency.onnxruntime.__version__:
            faults.append(f"the engine is {answer['engine']}")
        bare = pathlib.Path(home, "bare")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        try:
            faults.append(f"without ONNX Runtime: {ask('compare', path, '--with', bare / 'bin/python')}")
        except SystemExit as refused:
            if "pip install onnxruntime" not in str(refused):
                faults.append(f"without ONNX Runtime: {refused}")
        print(f"{NAME}: {1e3 * time['value']:.2f} ms in {runs} runs, {1e3 * shortest:.2f} ms here, predicted {1e3 * row['predicted_time_s']['value']:.2f} ms")
        if not encoders.held(ask, home, is_quick=True):
            faults.append("times of encoders are further from their predictions than these say")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
