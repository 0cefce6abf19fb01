#!/usr/bin/env python3
"""What the dashboard costs: a question through it beside the same one to the daemon, its page, memory, and CPU of both.

    python3 benches/dashboard.py [DIRECTORY OF THE BINARIES, default target/release] [SECONDS OF IDLENESS, default 60]

Starts a private daemon on a simulated board. Direct and proxied questions take turns, each on a connection that is kept.
"""
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BOARD = "jetson-orin-nano-8gb-super"
ROUNDS, WARM = 400, 50


class Direct(http.client.HTTPConnection):
    """HTTP over the daemon's Unix socket."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(connection, route, headers):
    """Milliseconds and bytes of one answer."""
    began = time.perf_counter()
    connection.request("GET", route, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    took = (time.perf_counter() - began) * 1e3
    if answer.status != 200:
        sys.exit(f"{route}: {answer.status} {body[:200]!r}")
    return took, len(body)


def cpu_s(pid):
    """Seconds on a CPU of all threads."""
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def shares(pids, idle_s):
    """Percent of a core that each takes."""
    before = [cpu_s(pid) for pid in pids]
    time.sleep(idle_s)
    return [100 * (cpu_s(pid) - was) / idle_s for pid, was in zip(pids, before)]


def main():
    binaries = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release").resolve()
    idle_s = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    children = []
    with tempfile.TemporaryDirectory(prefix="rlbench.", dir="/tmp") as home:
        config = os.path.join(home, "rooflined.toml")
        pathlib.Path(config).write_text("[calibration]\nautomatic = false\n")
        run = os.path.join(home, "run")

        def start(*command):
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            return children[-1], children[-1].stdout.readline()

        try:
            state = os.path.join(home, "state")
            daemon, _ = start(binaries / "rooflined", "serve", "--config", config, "--socket", run, "--state-dir", state,
                              "--bus", "none", "--simulate", BOARD)
            time.sleep(2)
            alone, = shares([daemon.pid], idle_s)
            dashboard, line = start(binaries / "rooflinectl", "--socket", run, "dashboard", "--listen", "127.0.0.1:0",
                                    "-o", "json")
            address, token = json.loads(line)["url"].removeprefix("http://").split("/#token=")
            token = {"X-Rooflined-Token": token}
            direct, proxied = Direct(os.path.join(run, "query.sock")), http.client.HTTPConnection(address)
            print(f"SIMULATED board {BOARD}; median of {ROUNDS}")
            for route in ["/-/healthy", "/v1/state", "/v1/roofline?hardware=jetson-agx-orin-64gb"]:
                pairs = [(ask(direct, route, {}), ask(proxied, route, token)) for _ in range(WARM + ROUNDS)][WARM:]
                own, through = (statistics.median(pair[which][0] for pair in pairs) for which in (0, 1))
                print(f"{route}: direct {own:.2f} ms, proxied {through:.2f} ms, {through / own:.1f} times; {pairs[0][1][1]} bytes")
            page = [ask(proxied, "/", {}) for _ in range(ROUNDS)]
            print(f"/: {statistics.median(took for took, _ in page):.2f} ms, {page[0][1]} bytes")
            beside, own = shares([daemon.pid, dashboard.pid], idle_s)
            print(f"idle: dashboard {own:.2f} % of a core; daemon {beside:.2f} %, without a dashboard {alone:.2f} %")
            status = pathlib.Path(f"/proc/{dashboard.pid}/status").read_text()
            print("memory:", " ".join(" ".join(line.split()) for line in status.splitlines() if line.startswith(("VmRSS", "RssAnon"))))
        finally:
            for child in children:
                child.terminate()
                child.wait()


if __name__ == "__main__":
    main()
