#!/usr/bin/env python3
"""Inject faults into simulated boards and hold `POST /v1/explain` against them: boards.py BINARIES [--singles N] [--pairs N] …

A daemon with a simulated board is calibrated. Each case writes what a fault would leave in the board's files: caps, masks, the
room's temperature, a clock that firmware holds. The board's physics makes clocks and times of it, /v1/measure runs an operation
on that, and the measured time is explained while the load still runs. So the truth is the simulator's and not the predictor's.

Cases come from a generator with a seed, and strengths are random. A fault that slows the operation down by less than the
interval of its prediction is none, and is drawn again. A confusion matrix is printed.

Exit codes: 0 the first cause was right in 90 % of the single faults and 75 % of the pairs, and no healthy run was blamed;
1 otherwise; 2 usage.
"""

import argparse
import collections
import http.client
import json
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BOARDS = ("jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000", "gb10")
# The mode that a board is calibrated in.
MODES = {"jetson-orin-nano-8gb-super": "25W", "jetson-agx-orin-64gb": "MODE_30W", "jetson-agx-thor-t5000": "120W"}
GPU = {
    "jetson-orin-nano-8gb-super": "sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu/max_freq",
    "jetson-agx-orin-64gb": "sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq",
    "jetson-agx-thor-t5000": "sys/devices/platform/bus@0/d0b0000000.pcie/0000:01:00.0/devfreq/gpu-gpc-0/max_freq",
}
EMC = {
    "jetson-orin-nano-8gb-super": "sys/kernel/nvpmodel_clk_cap/emc",
    "jetson-agx-orin-64gb": "sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
}
MASK = {
    "jetson-orin-nano-8gb-super": "sys/devices/platform/bus@0/17000000.gpu/tpc_pg_mask",
}
OPERATIONS = [("gemv", 8192, 8192, "int8"), ("gemv", 6144, 6144, "fp16"), ("gemv", 8192, 8192, "q4_0"), ("gemv", 8192, 8192, "fp32")]
LEAST = {"single": 0.9, "pair": 0.75}


class Board:
    """A daemon with a board of its own, which end with this program."""

    def __init__(self, binaries, key, home, boards):
        self.key, self.root, self.run = key, home / "board", home / "run"
        (home / "config.toml").write_text(
            "[calibration]\nautomatic = false\n[control]\nenabled = true\n[sampling]\nperiod_s = 0.2\n"
        )
        self.process = subprocess.Popen(
            [binaries / "rooflined", "serve", "--simulate", key, "--root", self.root, "--socket", self.run, "--state-dir", home / "state",
             "--config", home / "config.toml", "--bus", "none", "--exit-on-stdin-close"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(home / "log", "w"))
        boards.append(self)
        for _ in range(300):
            try:
                if self.ask("GET", "/-/ready")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        else:
            raise RuntimeError(f"the daemon is not ready: {(home / 'log').read_text()}")
        self.base, self.slower = MODES.get(key), []
        if self.base:
            self.mode(self.base)
            modes = self.need("GET", "/v1/modes")["modes"]
            top = next(mode for mode in modes if mode["name"] == self.base)
            # Those that need no boot, and have a lower cap.
            self.slower = [mode["name"] for mode in modes if not mode["reboot_required"] and any(
                (mode[cap] or 1e12) < 0.97 * (top[cap] or 1e12) for cap in ("gpu_max_hz", "emc_max_hz"))]
        self.need("POST", "/v1/calibrate", {"plan": "quick", "wait": True, "force": True}, "control")
        self.healthy_files = {path: self.read(path) for path in (GPU.get(key), EMC.get(key), MASK.get(key)) if path}

    def ask(self, method, path, body=None, which="query"):
        connection = http.client.HTTPConnection("rooflined", timeout=180)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(180)
        try:
            connection.sock.connect(str(self.run / f"{which}.sock"))
            connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        finally:
            connection.close()

    def need(self, *call):
        for _ in range(40):
            status, answer = self.ask(*call)
            if status != 409:
                break
            time.sleep(0.25)
        if status != 200:
            raise RuntimeError(f"{self.key}: {call} is answered with {status}: {json.dumps(answer)}")
        return answer

    def read(self, path):
        return (self.root / path).read_text().strip()

    def write(self, path, text):
        (self.root / path).write_text(f"{text}\n")

    def mode(self, name):
        modes = self.ask("GET", "/v1/modes")[1]["modes"]
        number = next(mode["id"] for mode in modes if mode["name"] == name)
        subprocess.run([self.root / "usr/sbin/nvpmodel", "-m", str(number)], input="no\n", capture_output=True, text=True, check=False)
        for _ in range(50):
            state = self.ask("GET", "/v1/state")[1]["power_mode"]["value"]
            if state and state["name"] == name:
                return
            time.sleep(0.1)
        raise RuntimeError(f"{self.key} does not enter {name}: {state}")

    def load(self, seconds):
        """The accelerator is busy for so long, as if an engine ran on."""
        until = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
        text = f"gpu 0.9\nmemory 0.9\ncpu 0.1\nmemory_kib 4096\nuntil_s {until:.3f}\n"
        path = self.root / "rooflined/load"
        with open(path, "r+" if path.exists() else "w") as file:
            file.write(f"{text:<128}")

    def heal(self):
        self.write("rooflined/ambient_c", -60 if self.hot() else 27)
        held = self.root / "rooflined/held_mhz"
        held.unlink(missing_ok=True)
        locked = self.root / "rooflined/nvml/0/locked_clocks_mhz"
        if not GPU.get(self.key):
            locked.unlink(missing_ok=True)
        for path, text in self.healthy_files.items():
            self.write(path, text)
        if self.base:
            self.mode(self.base)
        while self.hot():
            time.sleep(0.2)
        self.write("rooflined/ambient_c", 27)
        time.sleep(0.5)

    def hot(self):
        throttle = self.ask("GET", "/v1/state")[1]["throttle"]["value"]
        return bool(throttle and throttle["active"])

    def measure(self, operation):
        kind, n, k, weights = operation
        op = {"kind": kind, "n": n, "k": k}
        answer = self.need("POST", "/v1/measure", {"op": op, "formats": [weights]}, "control")
        if not answer["rows"]:
            raise RuntimeError(f"{self.key}: {answer}")
        return answer["rows"][0]["measured_time_s"]["value"]

    def explain(self, operation, time_s):
        kind, n, k, weights = operation
        workload = {"op": {"kind": kind, "n": n, "k": k}, "format": weights}
        return self.need("POST", "/v1/explain", {"workload": workload} | ({"time_s": time_s} if time_s else {}))

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def faults(board):
    """Causes that may be named, and what puts the fault in place with a random strength."""
    key = board.key

    def slower_mode(board, dice):
        board.mode(dice.choice(board.slower))

    def gpu_cap(board, dice):
        board.write(GPU[key], int(int(board.healthy_files[GPU[key]]) * dice.uniform(0.3, 0.8)))

    def emc_cap(board, dice):
        top = int(board.healthy_files[EMC[key]] or 0) or 3_199_000_000
        board.write(EMC[key], int(top * dice.uniform(0.25, 0.8)))

    def heat(board, dice):
        board.write("rooflined/ambient_c", int(dice.uniform(115, 140)))
        for _ in range(100):
            board.load(1.0)
            time.sleep(0.1)
            if board.hot():
                break
        # The longer it is hot, the further the clock comes down, to half of it.
        ends = time.monotonic() + dice.uniform(1.5, 4)
        while time.monotonic() < ends:
            board.load(1.0)
            time.sleep(0.1)

    def gated(board, dice):
        board.write(MASK[key], 252 if dice.random() < 0.5 else 248)

    def locked(board, dice):
        board.write("rooflined/nvml/0/locked_clocks_mhz", f"208, {int(dice.uniform(300, 1000))}")

    def supply(board, dice):
        board.write("rooflined/held_mhz", dice.choice([513, 850]) + dice.randint(-10, 10))

    known = {"thermal": ({"thermal"}, heat)}
    if board.slower:
        known["power_mode"] = ({"power_mode"}, slower_mode)
    if key in GPU:
        known["gpu_clock_cap"] = ({"gpu_clock_cap"}, gpu_cap)
    else:
        known["locked_clock"] = ({"gpu_clock_cap"}, locked)
        known["supply"] = ({"supply"}, supply)
    if key in EMC:
        known["memory_clock"] = ({"memory_clock"}, emc_cap)
    if key in MASK:
        known["sm_gated"] = ({"sm_gated"}, gated)
    return known


# Both set the same clock, or the second one undoes the first.
APART = [{"power_mode", "gpu_clock_cap"}, {"power_mode", "memory_clock"}, {"locked_clock", "supply"}, {"power_mode", "sm_gated"},
         {"thermal", "supply"}, {"thermal", "locked_clock"}, {"thermal", "gpu_clock_cap"}]


def work(board, seed, counts, out):
    dice = random.Random(f"{seed} {board.key}")
    known = faults(board)
    pairs = [(a, b) for index, a in enumerate(sorted(known)) for b in sorted(known)[index + 1:] if {a, b} not in APART]
    plan = ["healthy"] * counts["healthy"] + ["ramp"] * counts["ramp"] + ["single"] * counts["single"] + ["pair"] * (counts["pair"] if pairs else 0)
    dice.shuffle(plan)
    for number, kind in enumerate(plan):
        if sys.stderr.isatty():
            print(f"{board.key}: {number} of {len(plan)}", file=sys.stderr)
        if kind == "ramp":
            # What slows a healthy board now, while a load begins and ends.
            seconds = dice.uniform(0.3, 2)
            board.load(seconds)
            for after in (dice.uniform(0, 0.6), seconds):
                time.sleep(after)
                out.append((kind, board.key, "load that begins or ends", set(), board.explain(dice.choice(OPERATIONS), None), None))
            # Until the clocks have come down.
            time.sleep(1)
            continue
        for _ in range(6):
            operation = dice.choice(OPERATIONS)
            chosen = {"healthy": [], "single": [dice.choice(sorted(known))], "pair": list(dice.choice(pairs or [()]))}[kind]
            # Heat comes last: it takes its time, and the others stay.
            for name in sorted(chosen, key=lambda name: name == "thermal"):
                known[name][1](board, dice)
            if kind == "healthy":
                board.write("rooflined/ambient_c", int(dice.uniform(15, 35)))
            # Until the daemon has seen it.
            time.sleep(0.6)
            time_s = board.measure(operation)
            # A clock counts once the load has lasted for a second.
            board.load(6)
            time.sleep(1.8)
            answer = board.explain(operation, time_s)
            board.load(0)
            causes = set().union(*(known[name][0] for name in chosen)) if chosen else set()
            # Removing the first cause: what is really gained.
            board.heal()
            if kind == "healthy" or answer["verdict"] == "slower_than_expected":
                healthy = board.measure(operation) if kind == "single" else None
                out.append((kind, board.key, "+".join(chosen) or "healthy", causes, answer, healthy))
                break


def judge(out):
    failed = False
    matrix = collections.Counter()
    gains = []
    for kind, _, name, causes, answer, healthy in out:
        first = answer["causes"][0] if answer["causes"] else None
        named = first["cause"] if first else answer["verdict"] if kind == "healthy" else "nothing"
        matrix[kind, name, named] += 1
        if kind == "single" and first and named in causes:
            gains.append(abs(first["without_tokens_per_s"] * healthy - 1))
    for kind, least in LEAST.items():
        of = [one for one in out if one[0] == kind]
        right = sum(bool(answer["causes"]) and answer["causes"][0]["cause"] in causes for _, _, _, causes, answer, _ in of)
        if of:
            print(f"{kind}: the first cause is right in {right} of {len(of)} ({right / len(of):.1%})")
            failed |= right < least * len(of)
    healthy = [one for one in out if one[0] in ("healthy", "ramp")]
    alarms = sum(bool(one[4]["causes"]) for one in healthy)
    if gains:
        print(f"gain of the first cause off from the measured one: median {statistics.median(gains):.1%}, worst {max(gains):.1%}")
    print(f"false alarms: {alarms} in {len(healthy)} healthy runs\n\n| kind | injected | first named | cases |\n|---|---|---|--:|")
    for (kind, name, named), count in sorted(matrix.items()):
        print(f"| {kind} | {name} | {named} | {count} |")
    return 1 if failed or alarms else 0


def main():
    parser = argparse.ArgumentParser(description="Inject faults into simulated boards and ask why they are slow.")
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--singles", type=int, default=12)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--healthy", type=int, default=12)
    parser.add_argument("--ramps", type=int, default=40)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    out, boards, problems = [], [], []
    began = time.monotonic()
    counts = {"single": -(-given.singles // len(BOARDS)), "pair": -(-given.pairs // (len(BOARDS) - 1)), "healthy": -(-given.healthy // len(BOARDS)), "ramp": -(-given.ramps // len(BOARDS))}

    def run(key, home):
        try:
            board = Board(given.binaries.resolve(), key, home, boards)
            work(board, given.seed, counts, out)
        except (OSError, RuntimeError, KeyError, TypeError) as problem:
            problems.append(f"{key}: {problem!r}")
            print(f"error: {problems[-1]}", flush=True)

    with tempfile.TemporaryDirectory(prefix="rl-", ignore_cleanup_errors=True) as home:
        threads = []
        for key in BOARDS:
            place = pathlib.Path(home) / key
            place.mkdir()
            threads.append(threading.Thread(target=run, args=(key, place), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
        for board in boards:
            board.stop()
    if given.verbose:
        for kind, key, name, causes, answer, _ in out:
            named = [(cause["cause"], round(cause["share_ratio"], 2)) for cause in answer["causes"]]
            right = bool(named) and named[0][0] in causes
            if kind in LEAST and not right or kind not in LEAST and named:
                print(f"-- {key} {name}: {answer['reason']} {named}")
    print(f"{len(out)} cases in {time.monotonic() - began:.0f} s, seed {given.seed}")
    sys.exit(judge(out) or bool(problems))


if __name__ == "__main__":
    main()
