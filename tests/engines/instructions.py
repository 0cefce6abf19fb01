#!/usr/bin/env python3
"""Calibrate with each set of vector instructions that this CPU has and compare: instructions.py BINARIES [--rounds N]

BINARIES holds rooflined and rooflinectl. For each set a private daemon is started with `[calibration] instruction_set`, calibrated, and
a product from main memory is measured in every format next to its prediction. A set has failed if none of three calibrations
predicts within the limits below: one alone may have had a neighbour on the machine. --rounds N makes N calibrations of each instead.

Exit codes: 0 every set is within the limits, 1 one is not, 2 usage.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from loop import TRIES, Daemon, fail

SETS = ("avx512_vnni", "avx512", "avx_vnni", "avx2", "sse2", "neon_i8mm", "neon_dotprod", "neon")
# Of predicted over measured time, less 1: the median of its size, and the median itself.
# The goal is 8 % and 5 % either way. Five formats at one shape vary by more than that between calibrations of a shared machine
# (3 to 20 % on two virtual cores), so only a gross fault fails here.
MOST_ERROR = 0.30
MOST_BIAS = 0.25
SHAPE = (3072, 5120)


def is_present(binaries, name):
    probe = subprocess.run([binaries / "rooflined", "probe", "--instruction-set", name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "this processor has no" not in probe.stderr


def compare(daemon, name):
    """Median error, bias, and how many rows count as impossible, of one calibration."""
    daemon.calibrate()
    done = daemon.ctl("compare", "gemv", *SHAPE, "-o", "json")
    if not done.stdout.startswith("{"):
        fail(f"nothing was compared with {name}: {done.stderr}")
    rows = json.loads(done.stdout)["rows"]
    errors = [row["error_ratio"] for row in rows]
    impossible = sum(row["verdict"] == "impossible" for row in rows)
    found = statistics.median(map(abs, errors)), statistics.median(errors), impossible
    print(f"{name}: {len(rows)} formats, median error {found[0]:.1%}, bias {found[1]:+.1%}, worst {max(errors, key=abs):+.1%}, {impossible} impossible", flush=True)
    return found


def is_within(found):
    error, bias, impossible = found
    return error <= MOST_ERROR and abs(bias) <= MOST_BIAS and not impossible


def main():
    parser = argparse.ArgumentParser(description="Hold calibrations with forced instruction sets against measurements.")
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=0, help="calibrations of each set, whatever comes of them")
    options = parser.parse_args()
    binaries = options.binaries.resolve()
    failed = []
    for name in SETS:
        if not is_present(binaries, name):
            print(f"{name}: this processor does not have it")
            continue
        with tempfile.TemporaryDirectory(prefix="rl-") as home:
            daemon = Daemon(binaries, pathlib.Path(home), f"instruction_set = \"{name}\"")
            try:
                rounds = []
                for _ in range(options.rounds or TRIES):
                    rounds.append(compare(daemon, name))
                    if not options.rounds and is_within(rounds[-1]):
                        break
            finally:
                daemon.stop()
        if not any(map(is_within, rounds)):
            failed.append(name)
    if failed:
        print(f"FAILED: beyond a median error of {MOST_ERROR:.0%}, a bias of {MOST_BIAS:.0%} or the possible, each time: {', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
