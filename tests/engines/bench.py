#!/usr/bin/env python3
"""Holds what `rooflinectl observe` sees of llama-server against llama.cpp's own benchmarks: bench.py LLAMA_BIN BINARIES

LLAMA_BIN holds llama-server, llama-bench and llama-batched-bench of one build, BINARIES holds rooflinectl. For every case the
benchmark runs before and after the server, with the same file, threads, batch and tokens in the cache; where these two runs are
more than 3 % apart, the machine was disturbed and the case is run again, four times at most. Nothing is reported to a daemon.

Exit codes: 0 every undisturbed case is within 3 %, 1 one is not, or none could be judged, 2 usage.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
MOST_APART = 0.03
TRIES = 4
# Tokens in the cache in the middle of what is measured, and how many are generated around it: three windows of 50 steps, and
# some steps between looks.
CONTEXT, AROUND = 512, 160
# Model, format, threads, batch.
CASES = (("tinyllama", "q8_0", 1, 1), ("tinyllama", "q4_0", 1, 1), ("tinyllama", "q8_0", 2, 1), ("tinyllama", "q8_0", 1, 2),
         ("tinyllama", "q4_0", 1, 4))


def benchmark(llama, model, threads, batch):
    """Tokens/s over the batch, by the tool for it."""
    depth = CONTEXT - AROUND // 2
    if batch == 1:
        command = [llama / "llama-bench", "-m", model, "-p", 0, "-n", AROUND, "-d", depth, "-t", threads, "-r", 1, "-o", "json"]
        said = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
        return json.loads(said)[0]["avg_ts"]
    command = [llama / "llama-batched-bench", "-m", model, "-c", 2048 * batch, "-npp", depth, "-ntg", AROUND, "-npl", batch,
               "-t", threads, "-tb", threads, "--output-format", "jsonl"]
    said = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    return next(json.loads(line)["speed_tg"] for line in said.splitlines() if line.startswith("{"))


def observed(llama, binaries, model, threads, batch, port):
    """Tokens/s and context of the first median; none where no three windows were taken."""
    server = subprocess.Popen(
        [llama / "llama-server", "-m", model, "--port", str(port), "-t", str(threads), "-tb", str(threads), "-np", str(batch),
         "-c", str(2048 * batch), "--no-webui"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )

    def generate():
        prompt = CONTEXT - AROUND // 2 - 1
        body = {"prompt": [1 + index % 250 for index in range(prompt)], "n_predict": AROUND + 40, "ignore_eos": True,
                "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode())
        urllib.request.urlopen(request, timeout=300).read()

    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).read()
                break
            except OSError:
                time.sleep(0.1)
        requests = [threading.Thread(target=generate) for _ in range(batch)]
        for request in requests:
            request.start()
        seen = watch(binaries, port, requests)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    found = [one for one in json.loads(seen)["observations"] if one["batch"] == batch]
    return (found[0]["tokens_per_s"]["value"], found[0]["context_tokens"]) if found else (None, None)


def watch(binaries, port, requests):
    """Until the requests are done."""
    watcher = subprocess.Popen(
        [binaries / "rooflinectl", "--timeout", "60s", "observe", "--from", str(port), "--count", "0", "--dry-run",
         "--interval", "250ms", "--max-wait", "0.1", "-o", "json"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "ROOFLINED_SOCKET": "/nonexistent"},
    )
    for request in requests:
        request.join()
    watcher.send_signal(signal.SIGINT)
    return watcher.communicate(timeout=30)[0]


def main():
    if len(sys.argv) != 3:
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    llama, binaries = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    failed = judged = 0
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        for index, (name, format_name, threads, batch) in enumerate(CASES):
            model = pathlib.Path(home) / f"{name}-{format_name}.gguf"
            if not model.exists():
                subprocess.run([sys.executable, HERE.parent / "random_gguf.py", name, format_name, model, "--layers", "6"],
                               check=True, stdout=subprocess.DEVNULL)
            for _ in range(TRIES):
                first = benchmark(llama, model, threads, batch)
                rate, context = observed(llama, binaries, model, threads, batch, 18500 + index)
                second = benchmark(llama, model, threads, batch)
                quiet = abs(first / second - 1) <= MOST_APART
                if rate and quiet:
                    break
            what = f"{name} {format_name}, 6 layers, {threads} threads, batch {batch}"
            if not rate or not quiet:
                print(f"DISTURBED {what}: {first:.2f} and {second:.2f} tokens/s, observed {rate}", flush=True)
                continue
            apart = rate / ((first + second) / 2) - 1
            judged += 1
            failed += abs(apart) > MOST_APART
            print(f"check: {'ok' if abs(apart) <= MOST_APART else 'FAILED'} {what}: observed {rate:.2f} tokens/s after {context} tokens,"
                  f" benchmark {first:.2f} and {second:.2f} after {CONTEXT}: {apart:+.1%}", flush=True)
    return 1 if failed or not judged else 0


if __name__ == "__main__":
    sys.exit(main())
