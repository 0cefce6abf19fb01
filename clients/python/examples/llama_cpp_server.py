#!/usr/bin/env python3
"""Starts llama-server with the settings that rooflined recommends, and reports how fast it was.

    llama_cpp_server.py MODEL.gguf [--server PROGRAM] [--requests N] [--prompt N] [--tokens N] [--max-time-per-token S] [--hold]

The model file is read with your rights (its descriptor goes to the daemon). N requests are sent one after another, the server's
own timings are reported, and it is stopped; take the last part away to serve. `rooflinectl run` does the same and more for good.

Exit codes: 0 done, 1 failed, 3 nothing meets the target.
"""

import argparse
import contextlib
import json
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

import rooflined

# Of the recommended command; what else stands there is llama-server's default today.
TAKEN = ("-c", "-np", "-b", "-ub", "-ngl", "-t", "--fit", "--cache-ram", "--ctx-checkpoints")


def options(line):
    """The options of TAKEN in the line of `apply.settings`, which may quantise before it serves."""
    words = shlex.split(line.split("&&")[-1], comments=True)
    return [word for name, value in zip(words, words[1:]) if name in TAKEN for word in (name, value)]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until_ready(process, base, limit_s=120):
    end = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, OSError):
            if urllib.request.urlopen(f"{base}/health", timeout=2).status == 200:
                return
        time.sleep(0.1)
    sys.exit("error: the server did not become ready")


def completed(base, prompt, tokens):
    """The server's timings of one request; tokens of the prompt have no meaning, which costs the same."""
    body = {"prompt": [1 + index % 250 for index in range(prompt)], "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}
    request = urllib.request.Request(f"{base}/completion", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["timings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--server", default="llama-server")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--max-time-per-token", type=float, metavar="S")
    parser.add_argument("--hold", action="store_true", help="hold the recommended power mode meanwhile (needs [control] enabled)")
    given = parser.parse_args()
    with rooflined.Client() as client:
        constraints = {"max_time_per_token_s": given.max_time_per_token} if given.max_time_per_token else None
        asked = {"model": given.model, "phase": "serve", "prompt_tokens": given.prompt, "output_tokens": given.tokens}
        # The file is served as it is; of one in 16 bits the advice may otherwise be about a format to be made of it.
        own = client.sweep({"models": [given.model], "engine": "llama.cpp"})["rows"][0].get("format")
        if own is not None:
            asked["format"] = own
        advice = client.recommend(asked, engine="llama.cpp", objective="latency", constraints=constraints)
        decision = advice.get("decision")
        if not decision:
            print(f"nothing meets the target: {advice['reason']}", file=sys.stderr)
            return 3
        port = free_port()
        command = [given.server, "-m", str(given.model), "--port", str(port), *options(advice["apply"]["settings"]["llama.cpp"])]
        print(f"{advice['reason']}\n$ {shlex.join(command)}", flush=True)
        mode = decision.get("power_mode")
        held = client.hold({"mode": mode["name"]}, app_id="llama-server") if given.hold and mode else contextlib.nullcontext()
        with held:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                base = f"http://127.0.0.1:{port}"
                until_ready(process, base)
                timings = [completed(base, given.prompt, given.tokens) for _ in range(given.requests)]
            finally:
                process.terminate()
                process.wait(20)
        # The first token comes with the prompt.
        rate = statistics.median((one["predicted_n"] - 1) / one["predicted_ms"] * 1e3 for one in timings)
        workload = {"model": given.model, "phase": "decode", "context_tokens": given.prompt + given.tokens // 2}
        if decision.get("threads"):
            workload["threads"] = decision["threads"]
        before = client.predict(workload, engine="llama.cpp")["tokens_per_s"]
        client.observe(workload, engine="llama.cpp", tokens_per_s=rate)
        after = client.predict(workload, engine="llama.cpp")["tokens_per_s"]
        print(f"predicted {before['value']:.1f} tokens/s ({before['low']:.1f} to {before['high']:.1f}), measured {rate:.1f} by "
              f"{len(timings)} requests, predicted now {after['value']:.1f} ({after['low']:.1f} to {after['high']:.1f})")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (rooflined.RooflinedError, OSError) as error:
        sys.exit(f"error: {error}")
