#!/usr/bin/env python3
"""What it costs to ask many boards: ask_many.py ROOFLINED [--daemons N] [--questions N]

Starts N daemons of simulated boards on this machine and asks all of them at once for a recommendation, then asks one of them
many times. Prints memory, times and bytes as measured, and one extrapolation, which says that it is one.
"""

import argparse
import asyncio
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import rooflined

BOARD = "jetson-orin-nano-8gb-super"
QUESTION = {"workload": {"model": "llama-3.2-3b", "format": "q4_k_m", "phase": "decode", "context_tokens": 512}, "engine": "llama.cpp",
            "objective": "energy", "constraints": {"max_power_w": 25, "max_time_per_token_s": 0.09}, "freedom": {"power_modes": "live"}}
MANY = 10_000


def start(binary, home):
    home.mkdir()
    (home / "board").mkdir()
    (home / "rooflined.toml").write_text("[calibration]\nautomatic = false\n")
    command = [binary, "serve", "--config", str(home / "rooflined.toml"), "--socket", str(home / "run"), "--state-dir", str(home / "state"),
               "--bus", "none", "--exit-on-stdin-close", "--simulate", BOARD, "--root", str(home / "board")]
    with open(str(home / "log"), "w") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)


def stop(daemons):
    for daemon in daemons:
        daemon.stdin.close()
    for daemon in daemons:
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


def memory(pid):
    """Proportional and resident bytes of a process and its children: pages that processes share count once in the first."""
    total = [0, 0]
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        for index, name in enumerate(("Pss:", "Rss:")):
            if line.startswith(name):
                total[index] += int(line.split()[1]) << 10
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            total = [one + other for one, other in zip(total, memory(int(child)))]
    return total


async def ready(client, home):
    for _ in range(300):
        try:
            return await client.request("GET", "/-/ready")
        except rooflined.RooflinedError:
            await asyncio.sleep(0.1)
    raise SystemExit(f"a daemon does not become ready; start fewer with --daemons. It said:\n{(home / 'log').read_text()[-500:]}")


async def timed(client, times):
    began = time.perf_counter()
    answer = await client.request("POST", "/v1/recommend", QUESTION)
    times.append(time.perf_counter() - began)
    return answer


async def many_daemons(homes):
    clients = [rooflined.AsyncClient(home / "run") for home in homes]
    for client, home in zip(clients, homes):
        await ready(client, home)
    for name in ("first time", "again, cached"):
        times, began = [], time.perf_counter()
        answers = await asyncio.gather(*(timed(client, times) for client in clients))
        wall = time.perf_counter() - began
        assert all(answer["feasible"] for answer in answers)
        print(f"{len(homes)} daemons asked at once, {name}: {wall:.3f} s in all, median {statistics.median(times) * 1e3:.1f} ms, "
              f"slowest {max(times) * 1e3:.1f} ms", flush=True)
    for client in clients:
        await client.close()


async def one_daemon(home, questions):
    async with rooflined.AsyncClient(home / "run") as client:
        times, answer = [], None
        for _ in range(1000):
            answer = await timed(client, times)
        print(f"one daemon, one question after the other: median {statistics.median(times) * 1e3:.3f} ms, answer {len(json.dumps(answer))} bytes of JSON, "
              f"question {len(json.dumps(QUESTION))} bytes", flush=True)
        left = iter(range(questions))

        async def worker():
            for _ in left:
                await client.request("POST", "/v1/recommend", QUESTION)

        for at_once in (1, 8, 32):
            left, began, used = iter(range(questions)), time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
            await asyncio.gather(*(worker() for _ in range(at_once)))
            wall, now = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
            own = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            print(f"one daemon, {questions} questions, {at_once} at a time: {wall:.2f} s, {questions / wall:.0f}/s; "
                  f"the asker's own CPU time is {own / wall:.0%} of it", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rooflined", help="the program")
    parser.add_argument("--daemons", type=int, default=100)
    parser.add_argument("--questions", type=int, default=MANY)
    options = parser.parse_args()
    binary = os.path.abspath(options.rooflined)
    print(f"{os.cpu_count()} logical CPUs, load {os.getloadavg()[0]:.1f}; boards are simulated ({BOARD})", flush=True)
    with tempfile.TemporaryDirectory(prefix="rlmany-") as place:
        homes = [pathlib.Path(place) / str(index) for index in range(options.daemons)]
        daemons = []
        try:
            began = time.perf_counter()
            daemons = [start(binary, home) for home in homes]
            asyncio.run(many_daemons(homes))
            print(f"started and asked after {time.perf_counter() - began:.1f} s", flush=True)
            shared, resident = zip(*(memory(daemon.pid) for daemon in daemons))
            each = statistics.mean(shared)
            print(f"memory of a daemon with its helpers: {each / 2**20:.1f} MiB with shared pages counted once (resident {statistics.mean(resident) / 2**20:.1f} MiB); "
                  f"extrapolated, {MANY} on one machine would take {each * MANY / 2**30:.0f} GiB", flush=True)
            asyncio.run(one_daemon(homes[0], options.questions))
        finally:
            stop(daemons)


if __name__ == "__main__":
    main()
