#!/usr/bin/env python3
"""Slow an engine down in known ways and hold `rooflinectl explain` against that: explain.py BINARIES [--singles N] [--pairs N]

The engine is llama.cpp's server, or a program of torch or ONNX Runtime, which knows its rate itself.
BINARIES holds rooflined and rooflinectl. A private daemon is calibrated, and a healthy server is explained: nothing may be
named. Its rate is reported, so that the expectation is that of this machine. Then each fault is injected into a server of its
own, and the first cause and the rate that is promised without it are compared with what was injected and with the healthy rate.
The kinds come in turn, the strengths are drawn.

A run counts where the rest of the machine was idle: the CPU time that neither this program nor what it started used is
measured, and a run beside more of it than BUSY is reported as disturbed and counts as nothing. A healthy server runs between faults.

Exit codes: 0 the faults that count were named well enough, 1 they were not, 2 usage, 75 others use the machine.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from loop import HERE, LAYERS, Daemon, Llama, files, free_port

# CPUs that others may use beside a run that counts.
BUSY = 0.1
# What a server of the q4_0 model takes beside the file, of which a part has room: less and it is killed, more and it is not slow.
LITTLE_MIB = (320, 350)
LEAST_FIRST = {"single": 0.9, "pair": 0.75}
CONTEXT = 256
TURN_S = 1
THREADS = min(2, os.cpu_count() or 1)
# Faults that can be had together: each of them slows the server by something else.
APART = ("another file", "fewer threads", "long context", "low priority", "quota")
# Faults of a server that a program of torch or ONNX Runtime cannot have, or does not tell.
OF_SERVERS = ("another file", "long context", "quantised cache", "small batch", "no mapping", "little memory")
NO_GROUP = set()
GROUPS = []

SPIN = "while True: pass"
# Larger than any cache, so that every byte comes from memory.
STREAM = "import array\na = bytearray(1 << 29)\nwhile True: b = bytes(a)"


class Fault:
    """What is done to a server, and the causes that may be named for it."""

    def __init__(self, name, causes, *, server=(), prefix=(), context=CONTEXT, neighbour=None, cpus=None, file="q4_0", named=None,
                 threads=THREADS, expect=(), evict=False):
        self.name, self.causes = name, causes
        self.server, self.prefix, self.context = list(server), list(prefix), context
        self.neighbour, self.cpus, self.file, self.named, self.threads = neighbour, cpus, file, named, threads
        self.expect, self.evict = list(expect), evict

    def __and__(self, other):
        both = Fault(f"{self.name} + {other.name}", self.causes | other.causes)
        both.server, both.prefix = self.server + other.server, self.prefix + other.prefix
        both.context = max(self.context, other.context)
        both.neighbour, both.cpus = self.neighbour or other.neighbour, self.cpus or other.cpus
        both.file = self.file if self.file != "q4_0" else other.file
        both.named = self.named or other.named
        both.threads = min(self.threads, other.threads)
        both.expect = self.expect + other.expect
        return both


HEALTHY = Fault("healthy", set())


def faults(source):
    """Faults by name, each of a random strength. What needs a second core, or a control group that may be written, is left out
    where there is none."""
    cpus = os.cpu_count() or 1
    cpu = str(source.randrange(min(2, cpus)))
    context = source.randrange(1500, 5000, 100)
    batch = source.choice((8, 16, 32, 64))
    # The file that runs, and the smaller one that is named.
    runs, named = source.choice((("q8_0", "q4_0"), ("fp16", "q8_0"), ("fp16", "q4_0")))
    found = {
        "fewer threads": Fault("fewer threads", {"threads"}, threads=1),
        "another file": Fault("another file", {"model"}, file=runs, named=named),
        "long context": Fault("long context", {"context"}, context=context, expect=["--context-tokens", str(CONTEXT)]),
        "one core": Fault("one core", {"affinity"}, prefix=["taskset", "-c", cpu]),
        "neighbour": Fault("neighbour", {"other_process"}, neighbour=(SPIN, cpu), cpus=cpu),
        # It needs a neighbour to have an effect, so either is right.
        "low priority": Fault("low priority", {"low_priority", "other_process"},
                              prefix=["nice", "-n", str(source.choice((5, 10, 15, 19)))], neighbour=(SPIN, cpu), cpus=cpu),
        "memory neighbour": Fault("memory neighbour", {"other_process", "memory_bandwidth"}, neighbour=(STREAM, cpu)),
        "quantised cache": Fault("quantised cache", {"kv_format", "context"}, server=["-ctk", "q8_0", "-ctv", "q8_0"], context=context,
                                 expect=["--context-tokens", str(context)]),
        "too many threads": Fault("too many threads", {"threads"}, threads=cpus * source.randint(2, 8)),
        # Neither slows what is generated: a batch splits prompts, and memory that suffices holds the file as well as its mapping.
        "small batch": Fault("small batch", set(), server=["-b", str(batch), "-ub", str(batch)]),
        "no mapping": Fault("no mapping", set(), server=["--no-mmap"]),
    }
    if cpus < 2:
        for name in ("fewer threads", "one core"):
            del found[name]
    quota = int(100_000 * THREADS * source.uniform(0.2, 0.6))
    little = source.randint(*LITTLE_MIB) << 20
    for name, causes, controller, settings in (
        ("quota", {"cpu_quota"}, "cpu", {"cpu.max": f"{quota} 100000", "cpu.cfs_quota_us": quota}),
        # Less than the file, so that its pages are read again and again.
        ("little memory", {"page_faults", "swap"}, "memory", {"memory.max": little, "memory.limit_in_bytes": little}),
    ):
        enter = control_group(controller, settings)
        if enter:
            found[name] = Fault(name, causes, prefix=enter, evict=name == "little memory")
        elif name not in NO_GROUP:
            NO_GROUP.add(name)
            print(f"no control group can be written, so no {name}")
    return found


def draw(source, singles, pairs, engine):
    """That many faults of each kind, as ("single" or "pair", fault): the kinds in turn, so that each comes about equally often."""
    for kind, count in (("single", singles), ("pair", pairs)):
        for index in range(count):
            known = faults(source)
            if engine != "llama.cpp":
                known = {name: fault for name, fault in known.items() if name not in OF_SERVERS}
            if kind == "single":
                yield kind, known[list(known)[index % len(known)]]
            else:
                apart = list(itertools.combinations([name for name in APART if name in known], 2))
                one, other = apart[index % len(apart)]
                yield kind, known[one] & known[other]


def control_group(controller, settings):
    """What starts a command in a group of its own, of either version; nothing where none can be made."""
    for root in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{controller}"):
        group = pathlib.Path(root) / f"rooflined-{controller}-{os.getpid()}-{len(GROUPS)}"
        try:
            group.mkdir(exist_ok=True)
            # In a directory that is no control group, the kernel makes no files.
            files = [name for name in settings if (group / name).exists()]
            if not files:
                group.rmdir()
                continue
            GROUPS.append(group)
            (group / files[0]).write_text(str(settings[files[0]]))
            return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        except OSError:
            continue
    return None


def busy_s():
    """CPU time that the machine has spent, and that of this program and of all that it started, in seconds."""
    ticks = os.sysconf("SC_CLK_TCK")
    user, nice, system = map(int, pathlib.Path("/proc/stat").read_text().split()[1:4])
    stats = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # Parent, and time with that of the children that ended.
        stats[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    def is_own(pid):
        while pid not in (0, os.getpid()):
            pid = stats.get(pid, (0, 0))[0]
        return pid != 0
    own = sum(time for pid, (_, time) in stats.items() if is_own(pid))
    return (user + nice + system) / ticks, own / ticks


class Bench:
    """Runs of one engine, each explained while it goes on."""

    def __init__(self, daemon):
        self.daemon = daemon

    def explain(self, *arguments):
        began, before = time.monotonic(), busy_s()
        done = self.daemon.ctl("explain", *arguments, "--threads", THREADS, "-o", "json")
        seconds, after = time.monotonic() - began, busy_s()
        if done.returncode != 0:
            print(f"-- {done.stderr.strip()}", flush=True)
            return None
        answer = json.loads(done.stdout)
        answer["seconds"] = seconds
        answer["others"] = max(0, (after[0] - before[0]) - (after[1] - before[1])) / seconds
        return answer


def beside(neighbour):
    """A process that takes CPU time or memory bandwidth."""
    code, cpus = neighbour
    return subprocess.Popen(["taskset", "-c", cpus, sys.executable, "-c", code])


class Program(Bench):
    """Layers of random weights that torch or ONNX Runtime steps through."""

    def __init__(self, daemon, home, engine):
        super().__init__(daemon)
        self.engine = engine
        self.config = home / "layers/config.json"
        self.config.parent.mkdir()
        self.config.write_text(json.dumps(LAYERS))

    def run(self, fault, report=False):
        """The measured rate and the explanation."""
        arguments = [self.engine, json.dumps(LAYERS), "fp32", fault.threads, 1, CONTEXT, TURN_S]
        process = subprocess.Popen([*fault.prefix, sys.executable, HERE / "layers.py", *map(str, arguments)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        neighbour = None
        try:
            process.stdout.readline()
            if fault.neighbour:
                neighbour = beside(fault.neighbour)
            # It goes on while it is watched.
            process.stdin.write("\n" * 100)
            process.stdin.flush()
            times = [json.loads(process.stdout.readline())["time_s"] for _ in range(4)]
            time_s = statistics.median(times[1:])
            if report:
                workload = {"model": LAYERS, "format": "fp32", "kv_format": "fp32", "phase": "decode", "batch": 1,
                            "context_tokens": CONTEXT, "threads": THREADS}
                self.daemon.post("/v1/observations", {"workload": workload, "engine": self.engine, "time_s": time_s})
            return self.explain(self.config, "--engine", self.engine, "--format", "fp32", "--kv-format", "fp32", "--context-tokens",
                                CONTEXT, "--time", f"{time_s}s", "--pid", process.pid)
        finally:
            process.kill()
            process.communicate()
            if neighbour:
                neighbour.kill()
                neighbour.wait()


class Server(Bench):
    """llama.cpp's."""

    def __init__(self, daemon, home):
        super().__init__(daemon)
        self.models = files(home, "tinyllama", ("q4_0", "q8_0", "fp16"), "--layers", "8", "--vocab", "2048", "--context", "8192")

    def run(self, fault, report=False):
        """The measured rate and the explanation; None where nothing steady was seen."""
        port = free_port()
        llama = Llama(self.models, fault.name, {}, {}, 3000)
        llama.context, llama.patience_s = fault.context, 600
        server = [*fault.prefix, sys.executable, HERE / "llama-server", "-m", self.models[fault.file], "--port", port,
                  "-c", 8192, "-t", fault.threads, *fault.server]
        neighbour = None
        if fault.evict:
            # Pages that another group has read already count for that one.
            with open(self.models[fault.file], "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        process = subprocess.Popen(list(map(str, server)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            try:
                llama.until_ready(port, process)
            except SystemExit as error:
                print(f"-- {fault.name}: {str(error).splitlines()[0]}", flush=True)
                return None
            threading.Thread(target=llama.generate, args=(port, []), daemon=True).start()
            if not self.until_generating(port):
                print(f"-- {fault.name}: the server does not generate", flush=True)
                return None
            if fault.neighbour:
                neighbour = beside(fault.neighbour)
            if report:
                self.daemon.ctl("observe", "--from", port, "--interval", "500ms", "--for", "20s")
            subject = [str(self.models[fault.named])] if fault.named else []
            return self.explain(*subject, "--port", port, *fault.expect)
        finally:
            if neighbour:
                neighbour.kill()
                neighbour.wait()
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def until_generating(self, port):
        # A long prompt takes a slow machine minutes.
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/slots", timeout=60) as answer:
                    slots = json.load(answer)
            except OSError:
                # It ended, or was ended.
                return False
            if any(slot["is_processing"] and slot["next_token"][0]["n_decoded"] > 0 for slot in slots):
                return True
            time.sleep(0.1)
        return False


def main():
    parser = argparse.ArgumentParser(description="Slow llama.cpp down and ask why.")
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--engine", choices=("llama.cpp", "torch", "onnxruntime"), default="llama.cpp")
    parser.add_argument("--singles", type=int, default=4, help="faults, the kinds in turn")
    parser.add_argument("--pairs", type=int, default=0, help="two faults at once")
    parser.add_argument("--seed", type=int, default=1, help="of the strengths")
    parser.add_argument("--only", nargs="*", default=[], help="these kinds, once each")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    source = random.Random(given.seed)
    if given.only:
        cases = [("single", faults(source)[name]) for name in given.only]
    else:
        cases = list(draw(source, given.singles, given.pairs, given.engine))
    rows = []
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        home = pathlib.Path(home)
        daemon = Daemon(given.binaries.resolve(), home)
        try:
            daemon.calibrate()
            bench = Server(daemon, home) if given.engine == "llama.cpp" else Program(daemon, home, given.engine)
            first = bench.run(HEALTHY, report=True)
            if not first or first["verdict"] == "slower_than_expected":
                print(f"others use the machine, so nothing can be held against it: {first and first['reason']}")
                sys.exit(75)
            for index, (kind, fault) in enumerate(cases):
                for of, one in ([("healthy", HEALTHY)] if index % 5 == 0 else []) + [(kind, fault)]:
                    answer = bench.run(one)
                    if answer:
                        rows.append((of, one, answer))
                        show(one, answer)
        finally:
            daemon.stop()
            for group in GROUPS:
                group.rmdir()
    sys.exit(judge(rows))


def is_quiet(answer):
    return answer["others"] <= BUSY


def show(fault, answer):
    causes = ", ".join(f"{cause['cause']} {cause['share_ratio']:.0%} -> {cause['without_tokens_per_s']:.1f}" for cause in answer["causes"])
    expected = answer["expected_tokens_per_s"]
    print(f"-- {fault.name}: {answer['measured_tokens_per_s']:.1f} tokens/s, expected {expected['value']:.1f} ({expected['low']:.1f} to"
          f" {expected['high']:.1f}): {answer['verdict']}; {causes or 'no cause'} ({answer['seconds']:.1f} s)"
          + ("" if is_quiet(answer) else f", disturbed: others used {answer['others']:.2f} CPUs"), flush=True)


def judge(rows):
    failed = 0
    rows = [row for row in rows if is_quiet(row[2])]
    healthy = [answer for _, fault, answer in rows if not fault.causes]
    base = statistics.median(answer["measured_tokens_per_s"] for answer in healthy) if healthy else None
    alarms = sum(bool(answer["causes"]) for answer in healthy)
    table = collections.Counter()
    gains = []
    for kind, least in LEAST_FIRST.items():
        count, good = 0, 0
        for of, fault, answer in rows:
            # What is within the interval of the prediction, or above it, is not slow.
            if of != kind or not fault.causes or answer["verdict"] != "slower_than_expected":
                continue
            first = answer["causes"][0] if answer["causes"] else None
            named = first["cause"] if first else "nothing"
            count += 1
            good += named in fault.causes
            table[fault.name, named] += 1
            if kind == "single" and base and first and named in fault.causes:
                gains.append(abs(first["without_tokens_per_s"] / base - 1))
        if count:
            print(f"{kind}: the first cause is right {good} times of {count}")
            failed |= good < least * count - 1e-9
    for (fault, named), count in sorted(table.items()):
        print(f"  {fault:32} {named:20} {count}")
    if gains:
        print(f"gain of the first cause, off from the measured one: median {statistics.median(gains):.0%} of {len(gains)}")
    print(f"false alarms: {alarms} of {len(healthy)} quiet healthy runs")
    print(f"seconds to an answer: {statistics.median(answer['seconds'] for _, _, answer in rows):.1f}" if rows else "no quiet run")
    return 1 if failed or alarms else 0


if __name__ == "__main__":
    main()
