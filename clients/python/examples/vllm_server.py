#!/usr/bin/env python3
"""Starts `vllm serve` with the settings that rooflined recommends, and reports how fast it was.

    vllm_server.py MODEL CHECKPOINT [--dry-run] [--hardware KEY] [--port N] [--prompt N] [--tokens N] [--batch N] [--max-time-per-token S]

MODEL is a key of `rooflinectl models list`, CHECKPOINT what vLLM loads: a directory or a name on a hub, stored as the comment
behind the recommended command says. With --dry-run nothing is started: the command and the report are printed. --hardware asks for
another machine than this one, and is for a dry run only. Decoding is timed from outside, by streaming as many requests at once as
the recommended batch.

Exit codes: 0 done, 1 failed, 3 nothing meets the target.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import rooflined

def until_ready(base, process, limit_s=900):
    end = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"{base}/health", timeout=5).status == 200:
                return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(1)
    sys.exit("error: vLLM did not become ready")


def stream(base, checkpoint, prompt, tokens, steps):
    """Puts the seconds of a token, from the first to the last, into `steps`."""
    body = {"model": checkpoint, "prompt": [1 + index % 250 for index in range(prompt)], "max_tokens": tokens, "ignore_eos": True,
            "stream": True}
    request = urllib.request.Request(f"{base}/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        times = [time.perf_counter() for line in answer if line.startswith(b"data: {")]
    steps.append((times[-1] - times[0]) / (tokens - 1))


def measured(base, checkpoint, prompt, tokens, batch):
    """Tokens/s over the batch; of two rounds the second, because the first meets cold caches."""
    for _ in range(2):
        steps = []
        threads = [threading.Thread(target=stream, args=(base, checkpoint, prompt, tokens, steps)) for _ in range(batch)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if len(steps) < batch:
        sys.exit("error: not every request was answered")
    return batch / statistics.median(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("checkpoint")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--hardware")
    parser.add_argument("--port", type=int, default=8100, help="where vLLM listens [8100]; its own 8000 is also that of rooflinectl dashboard")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32, help="largest batch that is considered [32]")
    parser.add_argument("--max-time-per-token", type=float, default=0.05, metavar="S")
    given = parser.parse_args()
    if given.hardware and not given.dry_run:
        parser.error("--hardware is another machine than this one; add --dry-run")
    with rooflined.Client() as client:
        advice = client.recommend(
            {"model": given.model, "phase": "serve", "prompt_tokens": given.prompt, "output_tokens": given.tokens},
            engine="vllm", objective="throughput", hardware=given.hardware,
            constraints={"max_time_per_token_s": given.max_time_per_token}, freedom={"batch": {"min": 1, "max": given.batch}})
        decision = advice.get("decision")
        if not decision:
            print(f"nothing meets the target: {advice['reason']}", file=sys.stderr)
            return 3
        line, batch = advice["apply"]["settings"]["vllm"], decision["batch"]
        if not line.startswith("vllm serve"):
            sys.exit(f"error: {line}")
        command = [given.checkpoint if word == "CHECKPOINT" else word for word in shlex.split(line, comments=True)]
        command += ["--host", "127.0.0.1", "--port", str(given.port)]
        base = f"http://127.0.0.1:{given.port}"
        comment = line.partition("#")[2].strip()
        print(f"{advice['reason']}\n$ {shlex.join(command)}{f'   # {comment}' if comment else ''}", flush=True)
        workload = {"model": given.model, "format": decision.get("format"), "phase": "decode", "batch": batch,
                    "context_tokens": given.prompt + given.tokens // 2}
        if given.dry_run:
            print(f"then POST /v1/observations {json.dumps({'engine': 'vllm', 'workload': workload, 'tokens_per_s': 'as measured'})}")
            return 0
        process = subprocess.Popen(command)
        try:
            until_ready(base, process)
            rate = measured(base, given.checkpoint, given.prompt, given.tokens, batch)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        before = client.predict(workload, engine="vllm")["tokens_per_s"]
        client.observe(workload, engine="vllm", tokens_per_s=rate)
        print(f"predicted {before['value']:.1f} tokens/s ({before['low']:.1f} to {before['high']:.1f}), measured {rate:.1f}; reported")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (rooflined.RooflinedError, OSError) as error:
        sys.exit(f"error: {error}")
