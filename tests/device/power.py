"""The power roofline: four loads held, and a meter beside them."""

import os
import signal
import subprocess
import sys
import time

from commands import complaint, objects
from comparison import HERE
from figures import Missing, amount
from probe import point_name

# What a meter that averages over a second needs until it shows only the load.
SETTLES_S, HOLD_S, METER_S = 1.2, 4.0, 0.05


def power(session):
    if not session.facts:
        raise Missing("no GPU to meter")
    session.torch.stop()
    gpu = session.gpu
    cache = max(4 * session.facts["l2_bytes"], 64 << 20)
    decode = {"kind": "gemv", "n": 6144, "k": 5120, "columns": 1, "format": "fp16", "case": "dram"}
    loads = [
        ("idle", None),
        ("read", {"kind": "stream", "pattern": "read", "bytes": cache, "stores": "temporal"}),
        ("fp16 peak", {"kind": "peak", "precision": "fp16"}),
        ("decode, fp16 gemv 6144x5120", decode),
    ]
    holds = [{"kernel": kernel, "threads": session.facts["sm_count"], "hold_s": HOLD_S} for _, kernel in loads]
    readings = os.path.join(session.directory, "power.jsonl")
    session.clock.share(1)
    # What ran before has warmed the chip and left its clocks up.
    time.sleep(2)
    with open(readings, "w", encoding="utf-8") as file:
        meter = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "meter.py"), session.facts["pci"], str(METER_S)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    try:
        events = gpu.probe([], 60, holds)
    finally:
        ended = meter.poll()
        if ended is None:
            os.killpg(meter.pid, signal.SIGKILL)
        said = meter.communicate()[1]
    with open(readings, encoding="utf-8") as file:
        lines = list(objects(file.read()))
    if not lines:
        raise Missing(f"no meter: {complaint(said)}" if ended is not None else "the meter gave no reading in time")
    source = lines[0].get("source", "?")
    held = {point_name(event["kernel"]): event for event in events if event.get("event") == "held"}
    refused = {
        point_name(event.get("kernel")): event.get("reason") for event in events if event.get("event") == "not_held"
    }
    idle = None
    for name, kernel in loads:
        key = point_name(kernel)
        try:
            if key not in held:
                raise Missing(refused.get(key) or "it was not held")
            watts = metered(session, name, held[key], lines, idle, source)
            idle = watts if kernel is None else idle
            point = session.daemons_power.get(key)
            if point and point.get("power_w"):
                session.table.row(
                    "power",
                    f"{name}, the daemon's figure",
                    f"{point['power_w']:.1f} W",
                    f"{watts:.1f} W above",
                    point["power_w"] / watts,
                    source=f"its calibration, {point['readings']} readings, scope {point['scope']}",
                )
            elif point:
                session.table.absent("power", f"{name}, the daemon's figure", point.get("reason"), "its calibration")
        except Missing as missing:
            session.table.absent("power", name, missing, source)


def metered(session, name, event, lines, idle, source):
    """Energy by the trapezoid over the readings' own times, from when the load has settled until it ends."""
    begun, ended = event["began"] + SETTLES_S, event["ended"]
    inside = [line for line in lines if "watts" in line and begun <= line["at"] <= ended]
    if len(inside) < 5:
        raise Missing(f"{len(inside)} readings of the meter while it was held, 5 are wanted")
    span = inside[-1]["at"] - inside[0]["at"]
    joules = sum(
        (after["at"] - before["at"]) * (after["watts"] + before["watts"]) / 2
        for before, after in zip(inside, inside[1:])
    )
    watts = joules / span
    counted = [line for line in inside if line.get("joules") is not None]
    moved = counted and counted[-1]["joules"] - counted[0]["joules"]
    counter = moved / (counted[-1]["at"] - counted[0]["at"]) if moved else None
    share = (event["ended"] - event["began"]) or 1
    above = "" if idle is None else f", {watts - idle:.1f} W above idle"
    cost = ""
    if idle is not None:
        for amount_of, unit in (("weights", "J a weight"), ("bytes", "J a byte"), ("flops", "J a FLOP")):
            if event[amount_of]:
                cost = f", {amount((watts - idle) / (event[amount_of] / share), unit)} above idle"
                break
    rate = (len(inside) - 1) / span
    session.table.row(
        "power",
        name,
        f"{watts:.1f} W{above}{cost}",
        f"energy counter of NVML: {counter:.1f} W" if counter else "not had: no energy counter",
        watts / counter if counter else None,
        source=f"{source} ({rate:.0f} a second over {span:.1f} s, trapezoid); rooflined probe, held {share:.1f} s",
    )
    return watts
