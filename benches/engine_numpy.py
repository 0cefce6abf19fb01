#!/usr/bin/env python3
"""How well another engine is predicted after one calibration of it: NumPy's sgemv and sgemm.

    python3 benches/engine_numpy.py [DIRECTORY OF THE BINARIES, default target/release]

Starts a private daemon, calibrates the machine, then measures NumPy at shapes of 2048 and 3072 and reports them as
observations of the engine `numpy`: that is the one calibration of the engine. It then predicts NumPy at 4096 and
measures it there. Weights are rotated through copies, so that they come from main memory as a model's would.
"""
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("rooflined", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(path, route, body):
    connection = Unix(path)
    connection.request("POST", route, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        raise SystemExit(f"{route}: {answer['error']['message']}")
    return answer


def densest(times):
    """The half-sample mode: what the daemon takes as the centre of its own runs."""
    rest = sorted(times)
    while len(rest) > 3:
        half = (len(rest) + 1) // 2
        start = min(range(len(rest) - half + 1), key=lambda i: rest[i + half - 1] - rest[i])
        rest = rest[start:start + half]
    if len(rest) == 3:
        rest = rest[:2] if rest[1] - rest[0] < rest[2] - rest[1] else rest[1:]
    return statistics.mean(rest)


def measure(m, n, k, seconds=0.6):
    copies = max(2, -(-160_000_000 // (4 * n * k)))
    weights = [np.random.rand(n, k).astype(np.float32) for _ in range(copies)]
    x = np.random.rand(k, m).astype(np.float32) if m > 1 else np.random.rand(k).astype(np.float32)
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds or len(times) < 2 * copies:
        w = weights[len(times) % copies]
        start = time.perf_counter()
        w @ x
        times.append(time.perf_counter() - start)
    return densest(times[copies:])


def workload(m, n, k):
    op = {"kind": "gemv", "n": n, "k": k} if m == 1 else {"kind": "gemm", "m": m, "n": n, "k": k}
    return {"op": op, "format": "fp32"}


def main():
    binaries = sys.argv[1] if len(sys.argv) > 1 else "target/release"
    with tempfile.TemporaryDirectory(prefix="rlnumpy.") as home:
        daemon = subprocess.Popen(
            [os.path.join(binaries, "rooflined"), "--socket", home, "--state-dir", os.path.join(home, "state"),
             "--bus", "none", "--exit-on-stdin-close"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            daemon.stdout.readline()
            query, control = os.path.join(home, "query.sock"), os.path.join(home, "control.sock")
            ask(control, "/v1/calibrate", {"wait": True})
            rows = [1, 8, 64, 512]
            shapes = [(2048, 2048), (3072, 2048), (3072, 3072)]
            seen = [(m, n, k) for n, k in shapes for m in rows]
            observations = [{"workload": workload(*shape), "engine": "numpy", "time_s": measure(*shape)} for shape in seen]
            for observation in observations:
                answer = ask(query, "/v1/observations", observation)
                if answer["accepted"] != 1:
                    raise SystemExit(f"refused: {answer['refused']}")
            errors, covered = [], 0
            print(f"{'numpy ' + np.__version__:<24}{'predicted':>12}{'measured':>12}{'error':>9}  in interval")
            for m in rows:
                body = {"workload": workload(m, 4096, 4096), "engine": "numpy"}
                estimate = ask(query, "/v1/predict", body)["time_s"]
                time_s = measure(m, 4096, 4096)
                error = estimate["value"] / time_s - 1
                inside = estimate["low"] <= time_s <= estimate["high"]
                errors.append(abs(error))
                covered += inside
                name = "sgemv 4096x4096" if m == 1 else f"sgemm {m}x4096x4096"
                print(f"{name:<24}{estimate['value'] * 1e3:>9.3f} ms{time_s * 1e3:>9.3f} ms{error:>+9.1%}  {inside}")
            print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}, {covered} of {len(rows)} inside")
        finally:
            daemon.stdin.close()
            daemon.wait(timeout=10)


if __name__ == "__main__":
    main()
