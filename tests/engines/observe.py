#!/usr/bin/env python3
"""Observes a real llama.cpp server with random weights and compares: observe.py BINARIES

BINARIES holds rooflined and rooflinectl. A private daemon is calibrated, the server generates for one request and for two at
once, `rooflinectl observe` watches it, and each rate is put beside the server's own timings. Exit codes: 0 all checks hold,
1 one does not.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
# Of the median of three windows and the mean of a request, whose context grows, on a machine that others may use.
MOST_APART = 0.10
# Of a prediction for the very run that was observed last.
MOST_OFF = 0.15
# Of each request: some ten seconds on a slow core.
TOKENS = 400
# Where others keep the processors busy.
TRIES = 2
FAILED = 0


def check(claim, holds, detail=""):
    """One line that CI counts."""
    global FAILED
    FAILED += not holds
    print(f"check: {'ok' if holds else 'FAILED'} {claim}{': ' + detail if detail else ''}", flush=True)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def generate(port, tokens, answers):
    """One request of `tokens`; its timings are appended to `answers`."""
    body = {"prompt": list(range(5, 37)), "n_predict": tokens, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=170) as answer:
        answers.append(json.load(answer)["timings"])


def watch(ctl, port, batch):
    """What is observed of so many requests at once, and the rate by the server's own clock."""
    timings = []
    requests = [threading.Thread(target=generate, args=(port, TOKENS, timings)) for _ in range(batch)]
    for request in requests:
        request.start()
    seen = ctl("observe", "--from", port, "--kv-format", "fp16", "--max-wait", "0.1", "--interval", "500ms", "--for", "25s", "-o", "json")
    for request in requests:
        request.join()
    if not seen.stdout:
        sys.exit(f"observe says nothing: {seen.stderr}")
    # The first token comes out of the prompt.
    return json.loads(seen.stdout), sum((one["predicted_n"] - 1) / one["predicted_ms"] * 1e3 for one in timings)


def until_ready(port):
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    sys.exit("the server did not become ready")


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        home = pathlib.Path(home)
        model = home / "model.gguf"
        subprocess.run(
            [sys.executable, HERE.parent / "random_gguf.py", "tinyllama", "q8_0", model, "--layers", "4", "--vocab", "4096"],
            check=True,
        )
        (home / "rooflined.toml").write_text("[calibration]\nautomatic = false\n[control]\nenabled = true\n[daemon]\naccelerator = \"cpu\"\n")
        environment = {**os.environ, "ROOFLINED_SOCKET": str(home / "run")}
        daemon = subprocess.Popen(
            [binaries / "rooflined", "serve", "--config", home / "rooflined.toml", "--socket", home / "run",
             "--state-dir", home / "state", "--bus", "none", "--exit-on-stdin-close"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        )

        def ctl(*arguments):
            command = [binaries / "rooflinectl", "--timeout", "60s", *map(str, arguments)]
            return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)

        for _ in range(100):
            if ctl("status").returncode == 0:
                break
            time.sleep(0.1)
        calibrated = ctl("calibrate", "--quick", "--wait", "--force")
        print(calibrated.stdout + calibrated.stderr, end="", flush=True)
        port = free_port()
        server = subprocess.Popen(
            [sys.executable, HERE / "serve.py", model, str(port), "2", "4096", "1"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            until_ready(port)
            for batch in (1, 2):
                for _ in range(TRIES):
                    report, own = watch(ctl, port, batch)
                    noise = set(report["skipped"]) & {"starved", "stolen"}
                    if report["observations"] or not noise:
                        break
                if not report["observations"] and noise:
                    print(f"SKIPPED: others kept the processors busy: {report['skipped']}", flush=True)
                    continue
                check(f"a batch of {batch} is observed", bool(report["observations"]), f"skipped {report['skipped']}")
                if not report["observations"]:
                    continue
                found = report["observations"][0]
                rate, context = found["tokens_per_s"]["value"], found["context_tokens"]
                check(f"a batch of {batch} is learned", (found["batch"], found["outcome"]) == (batch, "learned"),
                      f"{found['batch']}, {found['outcome']} {found['reason'] or ''}")
                check(f"its rate is within {MOST_APART:.0%} of the server's own", abs(rate / own - 1) <= MOST_APART,
                      f"{rate:.1f} of {own:.1f} tokens/s, skipped {report['skipped']}")
                after = ctl("predict", model, "--engine", "llama.cpp", "--batch", batch, "--context", context, "-o", "json")
                predicted = json.loads(after.stdout)["tokens_per_s"]["value"]
                before = found["predicted_tokens_per_s"]["value"]
                check(f"the prediction is then within {MOST_OFF:.0%}", abs(predicted / rate - 1) <= MOST_OFF,
                      f"{predicted:.1f}, before {before:.1f} tokens/s")
        finally:
            for process in (server, daemon):
                process.stdin.close()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
