#!/usr/bin/env python3
"""table.py ROOFLINED SECONDS: the rows of h200.sh, one after the other, as a Markdown table.

Every part that cannot run gives a row with its reason. Correctness decides the exit code: 0 if every kernel that is
offered on this GPU was checked and is right, else 1. Speed is printed beside its goal and decides nothing, because a
machine that others share is slow for reasons of its own. Standard library only.
"""

import datetime
import json
import math
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile

import daemon
import power
from commands import Clock, complaint, objects, run
from comparison import HERE, Torch
from figures import Missing, Table, amount, gigabytes, percent
from probe import Gpu, described

# Each array of the bandwidth kernels at most, and the part of the memory that it is where there is less.
ARRAY_BYTES, ARRAY_SHARE = 2 << 30, 16
SIDE = 8192
ROUNDS = 3
# Formats by their keys, and their goals as a share of what their bytes would take at the measured read bandwidth.
FORMATS = {
    "fp16": None,
    "int8": 0.85,
    "int4_g128": 0.85,
    "q8_0": None,
    "q4_0": None,
    "q4_k_m": None,
    "q6_k": None,
    "fp8_e4m3": None,
    "nvfp4": None,
    "mxfp4": None,
}
# Precisions and their goals beside torch's best product.
PEAKS = {
    "fp32": None,
    "tf32": None,
    "fp16": 0.9,
    "bf16": 0.9,
    "int8": 0.9,
    "fp8": 0.9,
    "fp4": None,
    "int4": None,
}


class Session:
    """One run of the script."""

    def __init__(self, program, seconds, directory):
        self.clock = Clock(seconds)
        self.table = Table()
        self.program, self.directory = program, directory
        beside = os.path.join(os.path.dirname(os.path.abspath(program)), "rooflinectl")
        self.ctl = beside if os.access(beside, os.X_OK) else shutil.which("rooflinectl")
        self.torch = Torch(self.clock)
        self.facts = {}
        self.gpu = Gpu(program, self.facts, self.clock, directory)
        self.read = None
        self.daemons_power = {}

    def part(self, name, work):
        """Whatever happens in a part is a row, and the next part follows."""
        try:
            work()
        except Missing as reason:
            self.table.absent(name, "the rest of this part", reason)
        except Exception as error:  # A mistake of this script, or an answer of another shape.
            self.table.absent(name, "the rest of this part", f"{type(error).__name__}: {error}")

    def everything(self):
        """All parts, and the exit code."""
        try:
            return self.parts()
        finally:
            self.torch.stop()

    def parts(self):
        for name, work in [
            ("machine", self.machine),
            ("correctness", self.correctness),
            ("bandwidth", self.bandwidth),
            ("peak", self.peaks),
            ("gemv", self.gemvs),
            ("launch", self.launch),
            ("calibration", lambda: daemon.daemon(self)),
            ("power", lambda: power.power(self)),
            ("correctness", self.wrong_samples),
        ]:
            self.part(name, work)
        table = self.table
        verdict = "met" if table.wrong == 0 else "**missed**"
        table.line(
            [
                "end",
                "goals",
                f"{table.met} met, {table.missed} missed, {table.alone} without a yardstick;"
                f" {table.absences} rows not had",
                "-",
                "-",
                "every kernel right",
                verdict,
                f"{table.wrong} rows of correctness missed",
            ]
        )
        return 1 if table.wrong else 0

    # The machine.

    def machine(self):
        table = self.table
        table.row(
            "machine", "date", f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC", source="clock"
        )
        code, out, err = run([sys.executable, os.path.join(HERE, "facts.py")], self.clock.share(30))
        if code == 0:
            self.facts.update(next(objects(out)))
            facts = self.facts
            table.row(
                "machine",
                "GPU",
                f"{facts['name']}, compute capability {facts['capability']},"
                f" {facts['sm_count']} SMs, L2 {facts['l2_bytes'] / 2**20:.0f} MiB,"
                f" {facts['memory_bytes'] / 2**30:.1f} GiB, {facts['pci']}",
                source="libcuda.so.1",
            )
            table.row("machine", "CUDA of the driver", facts["cuda"], source="libcuda.so.1")
            if facts["compute_mode"]:
                table.row(
                    "machine",
                    "compute mode",
                    {2: "prohibited", 3: "exclusive process: torch and the probe take turns"}.get(
                        facts["compute_mode"], str(facts["compute_mode"])
                    ),
                    source="libcuda.so.1",
                )
        else:
            table.absent("machine", "GPU", complaint(err), "facts.py")
        self.part("machine", self.driver)
        code, out, err = run([self.program, "--version"], self.clock.share(10))
        table.row("machine", "program", complaint(out or err), source=f"{self.program} --version")
        if self.facts:
            self.torch.takes_turns = self.facts["compute_mode"] == 3
            self.torch.start()
        else:
            self.torch.reason = "no GPU to compare on"
        about = self.torch.about
        if about:
            table.row("machine", "torch", f"{about['torch']}, CUDA {about['cuda']}", source="yardsticks.py")
        else:
            table.absent("machine", "torch", self.torch.reason, "yardsticks.py")
        if self.torch.takes_turns:
            self.torch.stop()

    def driver(self):
        query = "driver_version,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        try:
            code, out, err = run([*command, f"--id={self.facts.get('pci', '0')}"], self.clock.share(20))
        except Missing:
            code, out, err = 1, "", "nvidia-smi: not installed"
        if code == 0:
            version, sm, memory, limit, degrees = (out.strip().splitlines()[0].split(", ") + ["?"] * 5)[:5]
            self.table.row(
                "machine",
                "driver",
                f"{version}; clocks to {sm} (SM) and {memory} (memory), limit {limit}, {degrees} °C",
                source=f"nvidia-smi --query-gpu={query}",
            )
            return
        try:
            with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
                self.table.row("machine", "driver", file.readline(), source="/proc/driver/nvidia/version")
        except OSError:
            self.table.absent("machine", "driver", complaint(err), "nvidia-smi, /proc/driver/nvidia/version")

    # Correctness.

    def correctness(self):
        source = "rooflined probe --verify"
        code, out, err = run([self.program, "probe", "--verify"], self.clock.share(150))
        entries = [found for found in objects(out) if "entry" in found]
        groups, skipped = {}, {}
        for found in entries:
            group = re.sub(r"_b\d+$", "", found["entry"])
            lost = found.get("faulted") or found.get("hung")
            if lost:
                self.table.absent("correctness", found["entry"], lost, source, wrong=True)
            elif "skipped" in found:
                # The same reason of many entries is one row.
                reason = re.sub(rf"\b{re.escape(found['entry'])}\b", "…", found["skipped"])
                skipped.setdefault(reason, {})[group] = None
            else:
                groups.setdefault(group, []).append(found)
        for group, found in groups.items():
            # Infinity and no number come as null, and are worse than any number.
            worst = max(found, key=lambda one: math.inf if one.get("error") is None else one["error"])
            name = worst["entry"] if len(found) == 1 else f"{group}, {len(found)} entries, worst {worst['entry']}"
            self.table.checked(name, worst.get("error"), source)
        for reason, names in skipped.items():
            if "the units it is named after" in reason:
                self.table.row("correctness", ", ".join(names), f"not offered: {reason}", source=source)
            else:
                # It ought to run, and has not been shown to be right.
                self.table.absent("correctness", ", ".join(names), reason, source, wrong=True)
        if not groups:
            why = complaint(err) if code or code is None else "it names no kernel"
            self.table.absent("correctness", "every kernel", why, source, wrong=True)
        elif code != 0 and not re.search("compute wrong results|hang on this GPU", err):
            self.table.absent("correctness", "the kernels after the last", complaint(err), source, wrong=True)

    def wrong_samples(self):
        """What was wrong in any later run: a time without its result is none."""
        for name, error in self.gpu.bad.items():
            self.table.checked(f"sample of {described(json.loads(name))}", error, "rooflined probe, all runs")
        if not self.gpu.bad and self.gpu.samples:
            errors = [sample.get("max_error_ratio") or 0 for sample in self.gpu.samples.values()]
            self.table.checked(
                f"{len(errors)} kinds of samples above, the worst", max(errors), "rooflined probe, all runs"
            )

    # Bandwidth.

    def tried(self, steps, seconds):
        """Runs the probe; whether another run makes sense. Why a step has no sample is asked of `Gpu.best`."""
        try:
            self.gpu.probe(steps.values(), seconds)
        except Missing as missing:
            self.gpu.failure = missing
            return False
        return True

    def array(self):
        memory = self.facts.get("memory_bytes", 1 << 30)
        if self.facts.get("integrated"):
            # The CPU lives in it too.
            with open("/proc/meminfo", encoding="utf-8") as file:
                found = re.search(r"MemAvailable:\s+(\d+) kB", file.read())
                memory = min(memory, int(found.group(1)) * 1024) if found else memory
        return min(ARRAY_BYTES, memory // ARRAY_SHARE) // (1 << 20) * (1 << 20)

    def bandwidth(self):
        size, gpu = self.array(), self.gpu
        arrays = {"read": 1, "write": 1, "copy": 2, "triad": 3}
        steps = {pattern: gpu.stream(pattern, size * count) for pattern, count in arrays.items()}
        torch, why = {"copy": [], "sum": []}, {}
        for _ in range(ROUNDS):
            for bench, found in torch.items():
                try:
                    answer = self.torch.ask(40, bench=bench, size=size)
                    found.append((answer["seconds"], answer["how"]))
                except Missing as missing:
                    why[bench] = missing
            if not self.tried(steps, 60):
                break
        of_torch = {
            bench: size * (2 if bench == "copy" else 1) / min(found)[0] for bench, found in torch.items() if found
        }
        beside = {pattern: of_torch.get(bench) for pattern, bench in (("copy", "copy"), ("read", "sum"))}
        rates = {}
        for pattern, step in steps.items():
            try:
                rates[pattern] = gpu.rate(step, "bytes")
            except Missing as missing:
                theirs = f" (torch: {gigabytes(beside[pattern])})" if beside.get(pattern) else ""
                self.table.absent("bandwidth", pattern, f"{missing}{theirs}", "rooflined probe")
        source = f"rooflined probe, arrays of {size / 2**20:.0f} MiB, best of {ROUNDS} runs in turn with torch"
        self.read = rates.get("read")
        if "read" in rates:
            summed = of_torch.get("sum")
            achievable = max(rates["read"], summed or 0)
            sheet = self.data_sheet()
            share = f"; {percent(achievable / sheet)} of the {sheet / 1e12:.3g} TB/s of the data sheet" if sheet else ""
            beside = f"torch.sum {gigabytes(summed)}" if summed else f"torch.sum not had: {why.get('sum', '-')}"
            self.table.row(
                "bandwidth",
                "read",
                gigabytes(rates["read"]),
                f"best of it and {beside}: {gigabytes(achievable)}{share}",
                rates["read"] / achievable if summed else None,
                0.95,
                source,
            )
        if "copy" in rates:
            self.beside(
                "bandwidth",
                "copy (read + write)",
                rates["copy"],
                of_torch.get("copy"),
                gigabytes,
                0.98,
                source,
                min(torch["copy"])[1] if torch["copy"] else why.get("copy"),
            )
        for pattern in ("write", "triad"):
            if pattern in rates:
                compared = rates.get("copy")
                self.table.row(
                    "bandwidth",
                    pattern,
                    gigabytes(rates[pattern]),
                    f"our copy {gigabytes(compared)}" if compared else "-",
                    rates[pattern] / compared if compared else None,
                    source=source,
                )

    def data_sheet(self):
        """Bandwidth of the built-in entry with this GPU's name."""
        key = re.sub(r"[^a-z0-9]+", "-", self.facts.get("name", "").lower().replace("nvidia", "")).strip("-")
        known = {"h100-80gb-hbm3": "h100-sxm", "h200": "h200", "h100-pcie": "h100-pcie", "gb10": "gb10"}
        if self.ctl is None:
            return None
        code, out, _ = run([self.ctl, "hardware", "show", known.get(key, key), "-o", "json"], self.clock.share(10))
        try:
            return json.loads(out).get("bandwidth_bytes_per_s") if code == 0 else None
        except ValueError:
            return None

    def beside(self, part, figure, ours, theirs, shown, goal, source, how):
        """A rate beside another; `how` is what it is, or why there is none."""
        if theirs:
            self.table.row(part, figure, shown(ours), f"{how}: {shown(theirs)}", ours / theirs, goal, source)
        else:
            self.table.row(part, figure, shown(ours), f"not had: {how or 'torch gave none'}", None, goal, source)

    # Peaks.

    def peaks(self):
        steps = {precision: self.gpu.step(0.3, kind="peak", precision=precision) for precision in PEAKS}
        found = {}
        for order in range(2):
            self.tried(steps, 60)
            if order == 0:
                for precision in PEAKS:
                    if precision in ("fp4", "int4"):
                        found[precision] = Missing("torch has no such product")
                        continue
                    try:
                        found[precision] = self.torch.ask(40, bench="product", precision=precision)
                    except Missing as missing:
                        found[precision] = missing
        for precision, goal in PEAKS.items():
            theirs = found[precision]
            absent = isinstance(theirs, Missing)
            unit = "OP/s" if precision.startswith("int") else "FLOP/s"
            try:
                ours = self.gpu.rate(steps[precision], "flops")
            except Missing as missing:
                beside = "" if absent else f" (torch: {amount(theirs['flops_per_s'], unit)})"
                self.table.absent("peak", precision, f"{missing}{beside}", "rooflined probe")
                continue
            isa = self.gpu.best(steps[precision])["isa"]
            self.beside(
                "peak",
                precision,
                ours,
                None if absent else theirs["flops_per_s"],
                lambda rate, unit=unit: amount(rate, unit),
                goal,
                f"rooflined probe, {isa}, best of 2 runs around torch's",
                theirs if absent else theirs["how"],
            )

    # Matrix times vector.

    def gemvs(self):
        steps = {form: self.gpu.gemv(SIDE, SIDE, form) for form in FORMATS}
        theirs = []
        try:
            theirs.append(self.torch.ask(40, bench="vector", n=SIDE, k=SIDE))
        except Missing as missing:
            why = missing
        for _ in range(2):
            if not self.tried(steps, 60):
                break
            if theirs:
                try:
                    theirs.append(self.torch.ask(40, bench="vector", n=SIDE, k=SIDE))
                except Missing:
                    pass
        source = "rooflined probe, weights from memory, best of 2 runs in turn with torch"
        for form, goal in FORMATS.items():
            figure = f"{form} {SIDE}x{SIDE}"
            try:
                sample = self.gpu.best(steps[form])
            except Missing as missing:
                self.table.absent("gemv", figure, missing, "rooflined probe")
                continue
            took = amount(sample["best"], "s")
            if form == "fp16":
                if theirs:
                    best = min(theirs, key=lambda one: one["seconds"])
                    self.table.row(
                        "gemv",
                        f"{figure} beside torch",
                        took,
                        f"{best['how']}: {amount(best['seconds'], 's')}",
                        best["seconds"] / sample["best"],
                        1.0,
                        source,
                    )
                else:
                    self.table.row("gemv", f"{figure} beside torch", took, f"not had: {why}", None, 1.0, source)
            if self.read:
                bound = sample["bytes"] / self.read
                self.table.row(
                    "gemv",
                    f"{figure}, share of the bytes' bound",
                    took,
                    f"{sample['bytes'] / 1e6:.1f} MB at the read above: {amount(bound, 's')}",
                    bound / sample["best"],
                    goal,
                    source,
                )
            else:
                self.table.row("gemv", figure, took, "not had: no read bandwidth", None, goal, source)

    # Launches.

    def launch(self):
        steps = {kind: self.gpu.step(0.1, kind=kind) for kind in ("wake", "submit")}
        try:
            theirs = self.torch.ask(30, bench="launch")
            how = theirs["how"]
        except Missing as missing:
            theirs, how = {}, missing
        self.tried(steps, 40)
        for kind, figure, key in (
            ("wake", "one more node of a graph", "graph_s"),
            ("submit", "one more launch from a stream", "stream_s"),
        ):
            try:
                best = self.gpu.best(steps[kind])
            except Missing as missing:
                self.table.absent("launch", figure, missing, "rooflined probe")
                continue
            beside = theirs.get(key)
            middle = statistics.median(best["times"])
            self.table.row(
                "launch",
                figure,
                f"{amount(best['best'], 's')}, median {amount(middle, 's')}",
                f"{how}: {amount(beside, 's')}" if beside else f"not had: {how}",
                beside / best["best"] if beside else None,
                source="rooflined probe, an empty kernel of 32 threads",
            )


def main():
    program, seconds = os.path.abspath(sys.argv[1]), float(sys.argv[2])
    # Ended from outside, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))
    directory = tempfile.mkdtemp(prefix="rooflined-")
    try:
        return Session(program, seconds, directory).everything()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
