#!/usr/bin/env python3
"""Predict, choose, run, observe and predict again, with real engines on this machine: loop.py BINARIES [ENGINE…]

BINARIES holds rooflined and rooflinectl, built with --release. Engines are llama.cpp, torch and onnxruntime; all unless named.
Models have random weights. A private daemon is calibrated; then for each case it is asked for format, threads and batch that
meet a target, predicts that, the engine runs it, the run is reported (by `rooflinectl observe --from` where the engine is a
server), and the next stretch of the same run is held against the prediction that has learned. A table says how it went.

Beside each run the daemon reads memory, as it did for its calibration. Where that read is off, or the machine was seen to be
busy, the run is disturbed. Once every case has run, those that were beyond a limit and those that were disturbed run again, as
long as there is time, after a new calibration and with nothing observed. A case has failed if two undisturbed runs are beyond
the same limit on the same side: one run alone may be a neighbour on the machine that the reference did not meet. What was
disturbed, or beyond a limit only once, is reported as that, not as passed.

Exit codes: 0 no case has failed, 1 one has, or an engine of which no run gave a rate, 2 usage.
"""

import argparse
import collections
import dataclasses
import http.client
import json
import math
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent

# A prediction may be off from the run by this factor, to either side. Before anything of an engine was seen, its costs are
# those of other processors; once the very run was reported, what is left is noise.
MOST_BEFORE = 2.5
MOST_AFTER = 1.15
# Of the rate that is observed and that of the server's own timings, which go on after the last look while the context grows.
MOST_APART = 1.25
# Beside an undisturbed run the reference read is within this of the calibrated bandwidth, and the windows of the run are this
# close to each other. By what the reference is off, and the windows are apart, the limits above give way.
SAME_REFERENCE = 0.15
SAME_WINDOWS = 0.25
TRIES = 3
# Nothing is run again later than this after the beginning, for the whole has to end.
REPEAT_UNTIL_S = 240
# How the daemon refuses a run that something else slowed down.
SLOWED = "a cause slowed this run down"
# Time that a server may wait for a processor over the time it runs. Who asks and who watches runs on the same cores, of which the
# engine may have all; what that costs shows beside the server's own timings.
MOST_WAIT = 0.15

# The shape of the layers that torch and ONNX Runtime run: larger than a cache, several steps a second.
LAYERS = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 4096, "tie_word_embeddings": False, "torch_dtype": "float32",
}


def fail(message):
    sys.exit(f"error: {message}")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Daemon:
    """A private one, which ends with this program."""

    def __init__(self, binaries, home, calibration=""):
        self.binaries, self.home = binaries, home
        (home / "rooflined.toml").write_text(
            f"[calibration]\nautomatic = false\n{calibration}\n[control]\nenabled = true\n[daemon]\naccelerator = \"cpu\"\n"
            # Questions name the files themselves; the command line would send what stands in them.
            f"[models]\ndirs = [\"{home}\"]\n"
        )
        self.process = subprocess.Popen(
            [binaries / "rooflined", "serve", "--config", home / "rooflined.toml", "--socket", home / "run",
             "--state-dir", home / "state", "--bus", "none", "--exit-on-stdin-close"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=open(home / "log", "w"),
        )
        for _ in range(200):
            if (home / "run/query.sock").exists() and self.ask("GET", "/-/ready")[0] == 200:
                return
            time.sleep(0.1)
        fail(f"the daemon did not become ready: {(home / 'log').read_text()}")

    def ask(self, method, path, body=None, which="query"):
        """Status and answer of one request."""
        connection = http.client.HTTPConnection("rooflined", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(120)
        try:
            connection.sock.connect(str(self.home / f"run/{which}.sock"))
            connection.request(method, path, body and json.dumps(body), {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or "null")
        except OSError as error:
            return 0, str(error)
        finally:
            connection.close()

    def post(self, path, body, which="query"):
        status, answer = self.ask("POST", path, body, which)
        if status != 200:
            fail(f"{path} {json.dumps(body)} is answered with {status}: {json.dumps(answer)}")
        return answer

    def command(self, *arguments):
        return [self.binaries / "rooflinectl", "--timeout", "60s", *map(str, arguments)]

    @property
    def environment(self):
        return {**os.environ, "ROOFLINED_SOCKET": str(self.home / "run")}

    def ctl(self, *arguments):
        return subprocess.run(
            self.command(*arguments), env=self.environment, capture_output=True, text=True, timeout=120
        )

    def calibrate(self):
        """Says what came of it; a failed one is tried again, for neighbours come and go."""
        for _ in range(TRIES):
            done = self.ctl("calibrate", "--wait", "--force")
            if done.returncode == 0:
                print((done.stdout + done.stderr).split("the ceilings of")[0].strip().splitlines()[-1].rstrip("; "), flush=True)
                return
        fail(f"the machine cannot be calibrated: {done.stdout}{done.stderr}")

    def reference(self):
        """A read beside a product from main memory over the calibrated one, and what disturbed it."""
        body = {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "formats": ["fp32"]}
        answer = self.post("/v1/measure", body, "control")
        if not answer["rows"]:
            return None, f"no reference: {answer['skipped']}"
        row = answer["rows"][0]
        return row["drift_ratio"], row["disturbed"]

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclasses.dataclass
class Run:
    """What came of one try of a case."""

    before: float
    measured: float
    after: float
    again: float
    # Slowest over fastest window, less 1.
    spread: float
    # Tokens in the cache, in the middle of what was measured first.
    context: int = 0
    # By the server's own timings.
    own: float | None = None
    # Why it may not count, beside the reference.
    noise: str | None = None
    references: tuple = ()
    # Why the daemon does not take the report of it.
    refused: str | None = None

    @property
    def off(self):
        return max((abs(ratio - 1) for ratio, _ in self.references if ratio is not None), default=1.0)

    def disturbed(self):
        if self.noise:
            return self.noise
        # The daemon found what else the machine did meanwhile.
        if self.refused and self.refused.startswith(SLOWED):
            return self.refused
        for ratio, why in self.references:
            if why or ratio is None:
                return why or "no reference read"
        if self.off > SAME_REFERENCE:
            return f"reference read off by {self.off:.0%}"
        if self.spread > SAME_WINDOWS:
            return f"windows {self.spread:.0%} apart"
        return None

    def beyond(self):
        """Limits that it broke, with the side, widened by the noise that was seen, and what is said of each."""
        broken = {"refused": f"refused: {self.refused}"} if self.refused else {}
        for name, ratio, limit in (
            ("before", self.before / self.measured, MOST_BEFORE),
            ("after", self.after / self.again, MOST_AFTER),
            ("own timings", self.own / self.measured if self.own else 1.0, MOST_APART),
        ):
            limit *= (1 + self.off) * (1 + self.spread)
            if max(ratio, 1 / ratio) > limit:
                broken[f"{name} {'high' if ratio > 1 else 'low'}"] = f"{name} {ratio:.2f}x, limit {limit:.2f}x to either side"
        return broken


class Llama:
    """A file served by llama.cpp's server and watched by `rooflinectl observe`, or run and watched by `rooflinectl run`."""

    engine = "llama.cpp"
    context = 256
    # How long a request may take.
    patience_s = 150

    def __init__(self, files, name, target, freedom, tokens, whole=False):
        self.files, self.name, self.target, self.freedom = files, name, target, freedom
        self.tokens, self.whole = tokens, whole

    def workload(self, chosen):
        return {"model": {"path": str(self.files[chosen["format"]])}, "kv_format": "fp16", "phase": "decode",
                "batch": chosen["batch"], "context_tokens": self.context, "threads": chosen["threads"]}

    def question(self):
        # The file that the others were quantised from.
        workload = {"model": {"path": str(self.files["fp16"])}, "kv_format": "fp16", "phase": "decode",
                    "context_tokens": self.context}
        return workload, {**self.freedom, "formats": sorted(self.files)}

    def generate(self, port, timings):
        body = {"prompt": [1 + index % 250 for index in range(self.context - 40)], "n_predict": self.tokens,
                "ignore_eos": True, "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=self.patience_s) as answer:
                timings.append(json.load(answer)["timings"])
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            # Broken off with the server, once enough was seen.
            pass

    def run(self, daemon, chosen, before):
        port = free_port()
        server = ["-m", self.files[chosen["format"]], "--port", port, "-c", 2048 * chosen["batch"], "-np", chosen["batch"]]
        server = [HERE / "llama-server", *map(str, server)]
        path = {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
        if self.whole:
            # It recommends once more, for the file and the slots, and adds the threads.
            start = daemon.command("run", "--context", self.context, "--interval", "500ms", "--max-wait", MOST_WAIT, "-o", "json",
                                   "--optimism", "expected", *self.target_options(), "--", *server)
        else:
            start = [*server, "-t", str(chosen["threads"])]
        process = subprocess.Popen(start, env={**daemon.environment, **path}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        timings = []
        try:
            self.until_ready(port, process)
            requests = [threading.Thread(target=self.generate, args=(port, timings), daemon=True)
                        for _ in range(chosen["batch"])]
            for request in requests:
                request.start()
            if not self.whole:
                seen = daemon.ctl("observe", "--from", port, "--count", 2, "--interval", "500ms", "--max-wait", MOST_WAIT,
                                  "--for", "45s", "-o", "json")
                said, errors = seen.stdout, seen.stderr
            # Where nothing was observed the server ends at once, and its requests with it.
            if self.whole or seen.returncode == 0:
                for request in requests:
                    request.join()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                output = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                output = process.communicate()
        if self.whole:
            # The report is the last line, after all that the server printed.
            said, errors = (output[0].strip().splitlines() or [""])[-1], output[1]
        try:
            report = json.loads(said)
        except json.JSONDecodeError:
            # All that is said without a report is why there is none.
            lines = [line for line in errors.splitlines() if line.startswith("error:")]
            return Run(before, math.nan, math.nan, math.nan, 0, noise=f"nothing was observed: {' '.join(lines) or 'no report'}")
        found = [one for one in report["observations"] if one["batch"] == chosen["batch"]]
        skipped = {why: count for why, count in report["skipped"].items() if why not in ("idle", "prompt", "requests_changed")}
        if len(found) < 2:
            return Run(before, math.nan, math.nan, math.nan, 0, noise=f"{len(found)} observations, skipped {skipped}")
        first, second = found[:2]
        if self.whole:
            # Unless it adds a number of threads, the server takes its own.
            chosen["threads"] = report["recommended"]["threads"] or first["threads"]
        # The prediction for the very context, by what was known before the run.
        before = first["predicted_tokens_per_s"]["value"]
        for one in (first, second):
            if one["outcome"] == "refused":
                rate = one["tokens_per_s"]["value"]
                return Run(before, rate, before, rate, 0.0, context=one["context_tokens"], refused=one["reason"])
            if one["outcome"] != "learned" or one["threads"] != chosen["threads"]:
                fail(f"{self.name}: {json.dumps(one)} is not what ran: {chosen}")
        spread = max(one["tokens_per_s"]["high"] / one["tokens_per_s"]["low"] for one in (first, second)) - 1
        own = sum((one["predicted_n"] - 1) / one["predicted_ms"] * 1e3 for one in timings)
        return Run(before, first["tokens_per_s"]["value"], second["predicted_tokens_per_s"]["value"],
                   second["tokens_per_s"]["value"], spread, context=first["context_tokens"],
                   own=own if len(timings) == chosen["batch"] else None)

    def target_options(self):
        return ["--min-tokens-per-s", self.target["min_tokens_per_s"]] if "min_tokens_per_s" in self.target else []

    def until_ready(self, port, process):
        for _ in range(600):
            if process.poll() is not None:
                fail(f"the server of {self.name} ended: {process.stderr.read()[-2000:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.1)
        fail(f"the server of {self.name} did not become ready")


class Layers:
    """A stack of layers that another program steps through; its times are reported as anybody's."""

    name = "8 layers of 1024"
    context = 256
    seconds = 4

    def __init__(self, engine, formats, target, freedom):
        self.engine, self.formats, self.target, self.freedom = engine, formats, target, freedom

    def workload(self, chosen):
        # The cache is stored as the weights are.
        return {"model": LAYERS, "format": chosen["format"], "kv_format": chosen["format"], "phase": "decode",
                "batch": chosen["batch"], "context_tokens": self.context, "threads": chosen["threads"]}

    def question(self):
        workload = {"model": LAYERS, "kv_format": "fp32", "phase": "decode", "context_tokens": self.context}
        return workload, {**self.freedom, "formats": self.formats}

    def run(self, daemon, chosen, before):
        arguments = [self.engine, json.dumps(LAYERS), chosen["format"], chosen["threads"], chosen["batch"], self.context, self.seconds]
        process = subprocess.Popen([sys.executable, HERE / "layers.py", *map(str, arguments)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)

        def turn():
            process.stdin.write("\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        try:
            if process.stdout.readline().strip() != "ready":
                fail(f"{self.engine} cannot run the layers")
            first = turn()
            observation = {"workload": self.workload(chosen), "engine": self.engine, "time_s": first["time_s"]}
            learned = daemon.post("/v1/observations", observation)
            if learned["refused"]:
                rate = chosen["batch"] / first["time_s"]
                return Run(before, rate, before, rate, 0.0, context=self.context, refused=learned["refused"][0]["reason"])
            after = predicted(daemon, self, chosen)
            second = turn()
        finally:
            process.stdin.close()
            process.wait(20)
        batch = chosen["batch"]
        # Steps scatter more than windows of seconds do, so what counts is how far the two turns are apart.
        spread = max(first["time_s"], second["time_s"]) / min(first["time_s"], second["time_s"]) - 1
        return Run(before, batch / first["time_s"], after, batch / second["time_s"], spread, context=self.context)


def predicted(daemon, case, chosen):
    """Tokens per second over the batch, as everybody would be told now."""
    answer = daemon.post("/v1/predict", {"engine": case.engine, "workload": case.workload(chosen)})
    return answer["tokens_per_s"]["value"]


def choose(daemon, case):
    workload, freedom = case.question()
    body = {"engine": case.engine, "workload": workload, "objective": "latency", "constraints": case.target,
            "freedom": freedom, "optimism": "expected"}
    answer = daemon.post("/v1/recommend", body)
    if not answer["feasible"]:
        fail(f"nothing meets the target of {case.engine} {case.name}: {json.dumps(answer['rejected'])}")
    decision = answer["decision"]
    return {key: decision[key] for key in ("format", "threads", "batch")}


class Case:
    """What is run, and what came of each try."""

    def __init__(self, subject):
        self.subject, self.tries = subject, []

    def try_once(self, daemon):
        began = time.monotonic()
        chosen = choose(daemon, self.subject)
        before = predicted(daemon, self.subject, chosen)
        first = daemon.reference()
        run = self.subject.run(daemon, chosen, before)
        run.references = (first, daemon.reference())
        disturbed = run.disturbed()
        self.tries.append((chosen, run, disturbed, {} if disturbed else run.beyond()))
        shown = " ".join("-" if ratio is None else f"{ratio:.0%}" for ratio, _ in run.references)
        print(f"-- {self.name(chosen)}, try {len(self.tries)}: before {cell(run.before)}, measured {cell(run.measured)},"
              f" after {cell(run.after)}, again {cell(run.again)} tokens/s, reference {shown}: {self.verdict()}"
              f" ({time.monotonic() - began:.0f} s)", flush=True)

    def name(self, chosen):
        case = self.subject
        return f"{case.engine} {case.name} {chosen['format']} x{chosen['batch']} on {chosen['threads']} threads"

    def failed(self):
        """What two undisturbed tries were beyond."""
        counts = collections.Counter(limit for *_, broken in self.tries for limit in broken)
        return [limit for limit, count in counts.items() if count > 1]

    def shown(self):
        """The try that the verdict is about: one that failed, the last that was within its limits, or the last."""
        failed = self.failed()
        within = [one for one in self.tries if not one[2] and not one[3]]
        beyond = [one for one in self.tries if any(limit in one[3] for limit in failed)]
        return (beyond or within or self.tries)[-1]

    def state(self):
        _, run, disturbed, broken = self.shown()
        if self.failed():
            return "FAILED"
        return "disturbed" if disturbed else "unconfirmed" if broken else "ok"

    def verdict(self):
        _, _, disturbed, broken = self.shown()
        return {"FAILED": "twice ", "disturbed": "disturbed: ", "unconfirmed": "once ", "ok": ""}[self.state()] + (
            disturbed or "; ".join(broken.values()) or "within limits")

    def wants_again(self):
        """0 for nothing, more for the more urgent: what may be a fault comes before what may be noise."""
        if len(self.tries) >= TRIES:
            return 0
        return {"FAILED": 0, "ok": 0, "disturbed": 1, "unconfirmed": 2}[self.state()]


def repeat(daemon, all_cases, start):
    while time.monotonic() - start < REPEAT_UNTIL_S:
        # Of two that are as urgent, the one that was tried less often.
        case = max(all_cases, key=lambda one: (one.wants_again(), -len(one.tries)))
        if not case.wants_again():
            return
        forgotten = daemon.ctl("observations", "forget", "--own")
        if forgotten.returncode != 0:
            fail(f"what was observed is not forgotten: {forgotten.stderr}")
        daemon.calibrate()
        case.try_once(daemon)


def files(home, model, formats, *options):
    """The same random model in several formats."""
    made = {}
    for format_name in formats:
        made[format_name] = home / f"{model}-{format_name}.gguf"
        subprocess.run([sys.executable, HERE.parent / "random_gguf.py", model, format_name, made[format_name], *options],
                       check=True, stdout=subprocess.DEVNULL)
        # The first tokens would otherwise wait for the disk.
        with open(made[format_name], "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass
    return made


def cases(home, engines):
    if "llama.cpp" in engines:
        tiny = files(home, "tinyllama", ("fp16", "q8_0", "q4_0"), "--layers", "12", "--vocab", "2048")
        half = files(home, "qwen2.5-0.5b", ("fp16", "q8_0", "q4_0"))
        one = {"threads": [1], "batch": {"min": 1, "max": 1}}
        yield Llama(tiny, "tiny (12 layers of 2048)", {"min_tokens_per_s": 20}, {"threads": [1, 2], "batch": {"min": 1, "max": 1}}, 700)
        yield Llama(half, "qwen2.5-0.5b", {"min_tokens_per_s": 5}, one, 550)
        yield Llama(half, "qwen2.5-0.5b", {"min_tokens_per_s": 10}, {"threads": [1], "batch": {"min": 2, "max": 2}}, 650)
        yield Llama(half, "qwen2.5-0.5b, rooflinectl run", {"min_tokens_per_s": 5}, {"threads": [1, 2], "batch": {"min": 1, "max": 1}}, 550, whole=True)
    free = {"threads": [1, 2], "batch": {"min": 1, "max": 1}}
    four = {"threads": [1, 2], "batch": {"min": 4, "max": 4}}
    for engine, formats in (("torch", ["fp32", "bf16"]), ("onnxruntime", ["fp32"])):
        if engine in engines:
            yield Layers(engine, formats, {"min_tokens_per_s": 5}, free)
            yield Layers(engine, formats, {"min_tokens_per_s": 20}, four)


HEADINGS = ("engine", "model", "format", "threads", "batch", "context", "before", "measured", "ratio", "after", "again", "ratio",
            "reference", "tries", "verdict")


def cell(value, digits=1):
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def show(rows):
    lines = [HEADINGS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def main():
    parser = argparse.ArgumentParser(description="Hold predictions against real engines that run now.")
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("engines", nargs="*", choices=[[], "llama.cpp", "torch", "onnxruntime"], default=[])
    given = parser.parse_args()
    # What was started ends with this program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    engines = given.engines or ["llama.cpp", "torch", "onnxruntime"]
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        home = pathlib.Path(home)
        daemon = Daemon(given.binaries.resolve(), home)
        try:
            daemon.calibrate()
            all_cases = [Case(subject) for subject in cases(home, engines)]
            for case in all_cases:
                case.try_once(daemon)
            repeat(daemon, all_cases, start)
        finally:
            daemon.stop()
    rows, errors = [], {"before": [], "after": []}
    for case in all_cases:
        chosen, run, disturbed, _ = case.shown()
        state, percent = case.state(), " ".join("-" if ratio is None else f"{ratio:.0%}" for ratio, _ in run.references)
        rows.append((
            case.subject.engine, case.subject.name, chosen["format"], str(chosen["threads"]), str(chosen["batch"]),
            str(run.context), cell(run.before), cell(run.measured), cell(run.before / run.measured, 2), cell(run.after),
            cell(run.again), cell(run.after / run.again, 2), percent, str(len(case.tries)), case.verdict(),
        ))
        print(f"{'check: ' if state in ('ok', 'FAILED') else ''}{state} {case.name(chosen)}: {case.verdict()}")
        if state in ("ok", "FAILED"):
            errors["before"].append(abs(run.before / run.measured - 1))
            errors["after"].append(abs(run.after / run.again - 1))
    print("\ntokens/s predicted before, measured, predicted after and measured again; reference read before and after the run, of"
          " the calibrated bandwidth")
    show(rows)
    states = collections.Counter(case.state() for case in all_cases)
    print(f"\n{', '.join(f'{count} {state}' for state, count in sorted(states.items()))}", end="")
    if errors["before"]:
        medians = {which: f"{statistics.median(found):.1%}" for which, found in errors.items()}
        print(f"; median error before {medians['before']}, after {medians['after']}", end="")
    print()
    # However busy the machine is, every engine has to run and to be understood.
    silent = [engine for engine in engines
              if not any(not run.noise for case in all_cases if case.subject.engine == engine for _, run, *_ in case.tries)]
    for engine in silent:
        print(f"check: FAILED no run of {engine} gave a rate")
    return 1 if silent or states["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
