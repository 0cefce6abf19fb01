"""Runs an ONNX file on the CPU: python3 -c THIS JSON, with the file, its inputs, the threads and the repetitions; prints JSON."""

import json
import os
import sys
import time

asked = json.loads(sys.argv[1])
try:
    import numpy
    import onnxruntime
except ImportError as error:
    print(json.dumps({"missing": error.name or str(error)}))
    sys.exit()

TYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
    "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}
options = onnxruntime.SessionOptions()
options.inter_op_num_threads = 1
options.log_severity_level = 3
if asked["threads"]:
    options.intra_op_num_threads = asked["threads"]
session = onnxruntime.InferenceSession(asked["file"], options, providers=["CPUExecutionProvider"])
sizes = dict(asked["inputs"])
feed = {}
for taken in session.get_inputs():
    element = TYPES.get(taken.type)
    if element is None or taken.name not in sizes:
        print(json.dumps({"unfed": f"{taken.name}, a {taken.type}"}))
        sys.exit()
    # Random pictures: all zeros would be faster where the processor treats them so.
    values = numpy.random.default_rng(1).standard_normal(sizes[taken.name])
    feed[taken.name] = values.astype(element) if "float" in element else numpy.zeros(sizes[taken.name], dtype=element)


def others():
    """Seconds that other programs have had a CPU; None where the system does not say."""
    try:
        with open("/proc/stat") as stat:
            ticks = [int(field) for field in stat.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    own = os.times()
    # Waiting for disks is idle; time in guests is part of the first two.
    busy = sum(ticks[:8]) - ticks[3] - ticks[4]
    return busy / os.sysconf("SC_CLK_TCK") - own.user - own.system


for _ in range(3):
    session.run(None, feed)
times, before, began = [], others(), time.perf_counter()
while len(times) < asked["least"] or time.perf_counter() - began < asked["seconds"]:
    start = time.perf_counter()
    session.run(None, feed)
    times.append(time.perf_counter() - start)
after, took = others(), time.perf_counter() - began
share = None if before is None or after is None else max(after - before, 0) / took / os.cpu_count()
print(json.dumps({"version": onnxruntime.__version__, "times_s": times, "others_ratio": share}))
