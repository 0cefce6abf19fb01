#!/usr/bin/env python3
"""The tables of docs/accuracy.md, of what rooflined-lab finds and of two rules of thumb: accuracy.py gpu|time|thumb|cpu LAB"""

import csv
import json
import pathlib
import statistics
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PUBLISHED = "tests/data/published_llm.csv"
# Devices of the file by their keys in the registry, where they differ.
KEYS = {"agx-thor": "jetson-agx-thor-t5000", "agx-xavier-32gb": "jetson-agx-xavier", "a100-sxm-80": "a100-80gb", "a100-pcie-80": "a100-80gb"}
GPU_LINES = {
    "decode, engine known, model unknown": "decode, one sequence; the model was never seen",
    "decode, machine and model unknown": "decode, one sequence; neither model nor machine was seen",
    "decode of several sequences": "decode, several sequences; the model was never seen",
    "prompts": "prompt; the model was never seen",
    "another power mode, one observation": "another power mode, after one run in this one",
    "into or out of gated multiprocessors, one observation": "the same, if fewer or more SMs are on",
    "another context, one observation": "another context length, after one run",
    "other batches, three observations": "other batches, after three runs",
}
INTERVALS = {
    "decode, engine known, model unknown": "one sequence", "decode of several sequences": "several sequences",
    "prompts": "prompts", "another power mode, one observation": "another power mode",
    "another context, one observation": "another context", "other batches, three observations": "other batches",
}


def lab(program, *words):
    said = subprocess.run([program, "evaluate", "-o", "json", *words], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


def percent(ratio):
    return f"{ratio * 100:.1f} %"


def gpu(program):
    found = lab(program, "engines", PUBLISHED)
    errors_of, intervals = ({row["quantity"]: row for row in found[section]["rows"]} for section in ("errors", "intervals"))
    print("| question | rows | median error | 9 of 10 within | inside the 90 % interval | interval, half-width |\n|---|---:|---:|---:|---:|---:|")
    for quantity, words in GPU_LINES.items():
        errors, interval = errors_of[quantity], intervals.get(INTERVALS.get(quantity))
        inside = [percent(interval["covered_ratio"]), percent(interval["median_half_width_ratio"])] if interval else ["-", "-"]
        print("|", " | ".join([words, str(errors["rows"]), percent(errors["median_error_ratio"]), percent(errors["p90_error_ratio"]), *inside]), "|")


def time(program):
    """Rows added later, from those known before, and from those of other machines and sources."""
    found = lab(program, "groups", PUBLISHED)
    print("| question | rows | median error | 9 of 10 within | inside the 90 % interval | constant efficiency | machine left out | source left out |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    left_out = [{group["group"]: group for group in found[split]["rows"]} for split in ("machine", "source")]
    for group in found["time"]["rows"]:
        if group["group"].count(",") == 1 and group["rows"] >= 10:
            figures = ("median_error_ratio", "p90_error_ratio", "covered_ratio", "thumb_median_error_ratio")
            figures = [*(group[figure] for figure in figures), *(of[group["group"]]["median_error_ratio"] for of in left_out)]
            print("|", " | ".join([group["group"], str(group["rows"]), *map(percent, figures)]), "|")


def bandwidth(device, emc_mhz):
    """Of the data sheet, at the memory clock of the run; None for a device that the registry has not."""
    for key in (KEYS.get(device, device), f"jetson-{device}"):
        said = subprocess.run(["rooflinectl", "hardware", "show", key, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if said.returncode == 0:
            entry = json.loads(said.stdout)
            part = float(emc_mhz) * 1e6 / entry["memory_clock_hz"] if emc_mhz and entry["memory_clock_hz"] else 1
            return entry["bandwidth_bytes_per_s"] * part
    return None


def thumb():
    """Decodes of one sequence: seconds by the bytes of the weights over the bandwidth, and that times what other
    models took with the same engine on the same device."""
    rows, bandwidths = [], {}
    with open(REPOSITORY / PUBLISHED) as file:
        for row in csv.DictReader(file):
            if row["phase"] != "decode" or row["batch"] != "1" or row["quality"] == "C":
                continue
            place = row["device"], row["emc_mhz"]
            if place not in bandwidths:
                bandwidths[place] = bandwidth(*place)
            parameters = row["active_params_b"] or row["params_b"]
            if bandwidths[place] and parameters and row["weight_bits"]:
                bound = float(parameters) * 1e9 * float(row["weight_bits"]) / 8 / bandwidths[place]
                rows.append((row["engine"], row["device"], row["model"], 1 / float(row["tok_s"]), bound))
    print("| engine | rows | bandwidth / weights: median error | 9 of 10 within | with a constant efficiency: median error | 9 of 10 within |")
    print("|---|---:|---:|---:|---:|---:|")
    engines = [engine for engine in dict.fromkeys(row[0] for row in rows) if sum(row[0] == engine for row in rows) >= 20]
    for engine in [*sorted(engines), None]:
        pure, constant = [], []
        for of, device, model, measured, bound in rows:
            if engine not in (None, of):
                continue
            others = [time / least for name, there, other, time, least in rows if (name, there) == (of, device) and other != model]
            if others:
                pure.append(abs(bound / measured - 1))
                constant.append(abs(bound * statistics.median(others) / measured - 1))
        cells = [percent(figure) for errors in (pure, constant) for figure in (statistics.median(errors), sorted(errors)[int(0.9 * len(errors))])]
        print("|", " | ".join([engine or "all engines", str(len(pure)), *cells]), "|")


def cpu(program):
    print("| engine | question | runs | median error | 9 of 10 within | inside the 90 % interval | interval, half-width |\n|---|---|---:|---:|---:|---:|---:|")
    for engine, name in (("llama.cpp", "llama_cpp"), ("PyTorch", "torch"), ("ONNX Runtime", "onnxruntime")):
        for found in lab(program, "cpu", f"tools/lab/data/cpu_{name}.csv")["cpu"]["rows"]:
            if found["observed"] == "nothing":
                figures = [percent(found[key]) for key in ("median_error_ratio", "p90_error_ratio", "covered_ratio", "median_half_width_ratio")]
                print("|", " | ".join([engine, found["asked"], str(found["runs"]), *figures]), "|")


if __name__ == "__main__":
    if sys.argv[1:] == ["thumb"]:
        thumb()
    elif len(sys.argv) == 3 and sys.argv[1] in ("gpu", "time", "cpu"):
        {"gpu": gpu, "time": time, "cpu": cpu}[sys.argv[1]](sys.argv[2])
    else:
        sys.exit(__doc__)
