#!/usr/bin/env python3
"""What watching a server costs: cost.py BINARIES [--seconds N]

A daemon, and `rooflinectl observe` on a server that only counts, so that all CPU time is that of watching. Prints CPU time and
memory of the daemon before and while the server is watched, and of `observe`. Exit codes: 0 measured, 1 not, 2 usage.
"""

import argparse
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

RATE = 20


class Slots(http.server.BaseHTTPRequestHandler):
    """A llama-server that generates RATE tokens a second."""

    protocol_version = "HTTP/1.1"
    began = time.monotonic()

    def do_GET(self):
        decoded = 1 + int((time.monotonic() - self.began) * RATE)
        slot = {"id": 0, "n_ctx": 1 << 20, "speculative": False, "is_processing": True, "id_task": 1, "n_prompt_tokens": 100 + decoded,
                "next_token": [{"n_decoded": decoded, "has_next_token": True}]}
        answers = {"/slots": [slot], "/props": {"default_generation_settings": {}, "total_slots": 1, "model_path": "/none.gguf",
                                               "build_info": "b6500-none"}}
        body = json.dumps(answers.get(self.path, {"error": {"code": 404}})).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("server", "llama.cpp")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def used(pid):
    """CPU seconds and resident MiB."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    resident = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), resident


def share(pid, seconds):
    before, began = used(pid)[0], time.monotonic()
    time.sleep(seconds)
    after, resident = used(pid)
    return f"{(after - before) / (time.monotonic() - began):.2%} of a core, {resident:.1f} MiB"


def main():
    parser = argparse.ArgumentParser(description="Measure what watching a server costs.")
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=180)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slots)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="rl-") as home:
        home = pathlib.Path(home)
        (home / "rooflined.toml").write_text("[calibration]\nautomatic = false\n[daemon]\naccelerator = \"cpu\"\n")
        daemon = subprocess.Popen(
            [given.binaries / "rooflined", "serve", "--config", home / "rooflined.toml", "--socket", home / "run", "--state-dir", home / "state",
             "--bus", "none", "--exit-on-stdin-close"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        observer = None
        try:
            while not (home / "run/query.sock").exists():
                time.sleep(0.1)
            # Until its start is over.
            time.sleep(5)
            print(f"daemon alone:        {share(daemon.pid, given.seconds / 3)}", flush=True)
            with open(home / "observed", "w") as out:
                observer = subprocess.Popen(
                    [given.binaries / "rooflinectl", "--socket", home / "run", "-o", "jsonl", "observe", "--from", str(server.server_port),
                     "--count", "0", "llama-3.2-1b", "--format", "q4_0", "--kv-format", "fp16", "--threads", "2", "--max-wait", "1"], stdout=out, stderr=out)
                time.sleep(5)
                print(f"daemon with observe: {share(daemon.pid, given.seconds)}", flush=True)
                if observer.poll() is not None:
                    print(f"error: observe ended: {(home / 'observed').read_text()}")
                    return 1
                print(f"observe:             {share(observer.pid, given.seconds / 3)}")
            lines = (home / "observed").read_text().splitlines()
            print(f"{len(lines)} medians, the last: {lines[-1] if lines else 'none'}")
            return 0 if lines else 1
        finally:
            if observer:
                observer.terminate()
                observer.wait()
            daemon.stdin.close()
            daemon.wait(20)


if __name__ == "__main__":
    sys.exit(main())
