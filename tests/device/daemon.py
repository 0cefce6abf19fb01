"""Calibration and `compare`, through a daemon of its own."""

import json
import math
import os
import re
import signal
import statistics
import subprocess
import threading
import time

from commands import complaint, objects, run
from figures import Missing, amount, percent
from probe import described, point_name

# Shapes that no calibration measures, between and beyond those that it does.
COMPARED = [
    ("gemv", "1024,2048x8192,4096,14336x4096,8192", "fp16,bf16,int8,int4_g128,q8_0,q4_0,q4_k_m,q6_k,fp8_e4m3"),
    ("gemm", "2x4096x4096,8x4096x4096,16x4096x14336,32x8192x8192", "fp16,int8,int4_g128,q4_k_m"),
]


def daemon(session):
    if not session.facts:
        raise Missing("no GPU to calibrate")
    if session.ctl is None:
        raise Missing("no rooflinectl beside the program or on the PATH")
    # Torch's memory and its context would be in the way of what the machine can do.
    session.torch.stop()
    config = os.path.join(session.directory, "rooflined.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write('[daemon]\naccelerator = "gpu"\n[calibration]\nautomatic = false\n')
    socket = os.path.join(session.directory, "s")
    os.mkdir(socket, 0o700)
    command = [
        session.program,
        "serve",
        "--bus",
        "none",
        "--socket",
        socket,
        "--state-dir",
        os.path.join(session.directory, "state"),
        "--config",
        config,
    ]
    log = os.path.join(session.directory, "daemon.log")
    with open(log, "w", encoding="utf-8") as file:
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        begun = time.monotonic()
        while not os.path.exists(os.path.join(socket, "control.sock")):
            if daemon.poll() is not None or time.monotonic() - begun > session.clock.share(15):
                with open(log, encoding="utf-8", errors="replace") as file:
                    raise Missing(f"the daemon does not start: {complaint(file.read())}")
            time.sleep(0.05)
        session.part("calibration", lambda: calibrate(session, socket, "quick"))
        session.part("calibration", lambda: calibrate(session, socket, "full"))
        session.part("compare", lambda: compare(session, socket))
    finally:
        daemon.terminate()
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(daemon.pid, signal.SIGKILL)


def ask(session, socket, seconds, *words):
    code, out, err = run([session.ctl, "--socket", socket, *words, "-o", "json"], session.clock.share(seconds))
    if code != 0:
        raise Missing(complaint(err))
    return json.loads(out)


def calibrate(session, socket, kind):
    words = ["calibrate", "--wait", "--force"] + (["--quick"] if kind == "quick" else [])
    source = "rooflinectl " + " ".join(words)
    watch = subprocess.Popen(
        [session.ctl, "--socket", socket, "watch", "--events", "-o", "jsonl"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    seen = []

    def follow():
        for line in watch.stdout:
            for event in objects(line):
                if event.get("event") == "calibration":
                    seen.append((time.monotonic(), (event.get("data") or {}).get("step") or ""))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        answer = ask(session, socket, 120, *words)
    finally:
        time.sleep(0.2)
        watch.kill()
        watch.wait()
        follower.join(2)
    record = answer["record"]
    regime = (record.get("regimes") or [{}])[0]
    if regime.get("point") is None:
        raise Missing("the daemon found no GPU and calibrated the CPU")
    wall = record["wall"]
    held = sum(after - at for (at, step), (after, _) in zip(seen, seen[1:]) if step.startswith("power of"))
    limit = {"quick": 2.0, "full": 10.0}[kind]
    figure = f"{kind} calibration" + (f", without {held:.1f} s of held loads" if held else "")
    session.table.row(
        "calibration", figure, f"{wall - held:.2f} s", f"{limit:g} s", (wall - held) / limit, 1.0, source, most=True
    )
    if held:
        session.table.row(
            "calibration", f"{kind} calibration with them", f"{wall:.2f} s", f"{limit:g} s", wall / limit, source=source
        )
    rejected = record.get("rejected") or []
    codes = sorted({one["code"] for one in rejected})
    # Those of a clock that moved are the machine's; a wrong result is the kernel's.
    for one in rejected:
        if one["code"] == "wrong_result":
            session.table.absent(
                "correctness", f"{kind} calibration: {described(one['kernel'])}", one["reason"], source, wrong=True
            )
    session.table.row(
        "calibration",
        f"{kind}: samples",
        f"{regime.get('samples', 0)} used, {len(rejected)} rejected" + (f" ({', '.join(codes)})" if codes else ""),
        "; ".join(record.get("skipped") or []) and f"cannot: {'; '.join(record['skipped'])}" or "-",
        source=source,
    )
    if kind == "full":
        for point in regime.get("power_points") or []:
            session.daemons_power[point_name(point.get("kernel"))] = point
        if regime.get("power_reason"):
            session.table.absent("power", "power model of the daemon", regime["power_reason"], source)


def compare(session, socket):
    rows, skipped = [], []
    for kind, sizes, formats in COMPARED:
        words = ["compare", kind, "--sizes", sizes, "--formats", formats]
        source = "rooflinectl " + " ".join(words)
        try:
            answer = ask(session, socket, 100, *words)
        except Missing as missing:
            session.table.absent("compare", kind, missing, source)
            continue
        found = answer.get("rows") or []
        if any(not row["isa"].startswith("sm_") for row in found):
            raise Missing("the daemon found no GPU and measured the CPU")
        rows += found
        skipped += answer.get("skipped") or []
        if found:
            errors(session, f"{kind}, median error of the prediction", found, None, source)
    reasons = {}
    for one in dict.fromkeys(skipped):
        what, _, reason = one.rpartition(": ")
        reasons.setdefault(re.sub(r"\bgemv_\w+", "…", reason), []).append(what or one)
    for reason, what in reasons.items():
        more = f" and {len(what) - 3} more" if len(what) > 3 else ""
        session.table.absent("compare", ", ".join(what[:3]) + more, reason, "rooflinectl compare")
    if not rows:
        raise Missing("nothing could be compared")
    source = "the rows of both"
    errors(session, "all shapes, none calibrated, median error", rows, 0.08, source)
    worst = max(rows, key=lambda row: abs(row["error_ratio"]))
    session.table.row(
        "compare",
        "worst row",
        percent(worst["error_ratio"]),
        f"{described(worst['op'])} {worst['format']}: predicted"
        f" {amount(worst['predicted_time_s']['value'], 's')}, took {amount(worst['measured_time_s']['value'], 's')}",
        source=source,
    )
    impossible = sum(row.get("verdict") == "impossible" for row in rows)
    session.table.row("compare", "rows faster than the bound", f"{impossible} of {len(rows)}", source=source)


def errors(session, figure, rows, goal, source):
    errors = sorted(abs(row["error_ratio"]) for row in rows)
    middle = statistics.median(errors)
    high = errors[min(math.ceil(0.9 * len(errors)), len(errors)) - 1]
    inside = sum(
        row["predicted_time_s"]["low"] <= row["measured_time_s"]["value"] <= row["predicted_time_s"]["high"]
        for row in rows
    )
    session.table.row(
        "compare",
        figure,
        percent(middle),
        f"measured times; 90th percentile {percent(high)}, {inside} of {len(rows)} inside their interval",
        middle,
        goal,
        source,
        most=True,
    )
