"""Checks that engines have every option that rooflined prints: flags.py ARCHIVE BINARIES

ARCHIVE is the source package of llama-cpp-python, which has llama.cpp's own parser of options: the rows of
tests/laws/settings/names.txt are held to it. BINARIES holds rooflinectl, whose recommendations for many models, machines,
engines and targets are then held to those rows, which have the options of the other engines too.
"""

import itertools
import json
import pathlib
import random
import subprocess
import sys

SETTINGS = pathlib.Path(__file__).resolve().parent.parent / "laws/settings"
sys.path.append(str(SETTINGS))

import names  # noqa: E402  it is found by the line before

PACKAGES = {"llama.cpp": "llama_cpp_python", "vllm": "vllm", "tensorrt-llm": "tensorrt_llm",
            "tensorrt-edge-llm": "tensorrt_edgellm", "mlc": "mlc_llm"}
MODELS = ["llama-3.1-8b", "gemma-3-4b", "qwen3-30b-a3b", "gpt-oss-20b", "qwen2.5-0.5b"]
HARDWARE = ["jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000", "gb10", "rtx-4090", "h100-sxm"]
TARGETS = [["--objective", "latency"], ["--objective", "throughput", "--batch", "1..8", "--context", "2048"],
           ["--prompt", "1024", "--output-tokens", "128"], ["--kv-formats", "q8_0"], ["--kv-formats", "fp8_e4m3"],
           ["--speculative", "ngram", "--acceptance", "0.7"]]
CASES = 250


def table():
    """By package and option: its type, and the words that it takes."""
    found = {}
    for name in ("names.txt", "documented.txt"):
        for line in (SETTINGS / name).read_text().splitlines():
            package, kind, *rest = line.split(" ")
            if kind == "option":
                found[package, rest[0]] = rest[1:]
    return found


def takes(kind, value):
    """Whether an option of this type takes the word behind it."""
    follows = value is not None and not value.startswith("--") and not value[:2].strip("-").isalpha()
    match kind:
        case ["switch"]:
            return value is None or value.startswith("-")
        case ["int"]:
            return follows and value.removeprefix("-").isdecimal()
        case ["float"]:
            return follows and value.replace(".", "", 1).isdecimal()
        case ["choice", *words]:
            return value in words
    return value is not None and not value.startswith("-")


def faults(options, package, line):
    """What of the commands in a line the engine would refuse, and how many options there are."""
    words = line.split("  #")[0].split(" ")
    wrong, seen = [], 0
    for word, value in itertools.zip_longest(words, words[1:]):
        if word.startswith("-") and not word[1:].isdecimal():
            seen += 1
            kind = options.get((package, word))
            if kind is None or not takes(kind, value):
                wrong.append(f"{package} {word} {value}: {'no such option' if kind is None else ' '.join(kind)}")
    return wrong, seen


def recommendations(binaries):
    """The lines of every engine, of every case that has a recommendation."""
    cases = list(itertools.product(MODELS, HARDWARE, PACKAGES, TARGETS))
    for model, hardware, engine, target in random.Random(1).sample(cases, CASES):
        command = [binaries / "rooflinectl", "recommend", model, "--hardware", hardware, "--engine", engine, *target, "-o", "json"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        # 2: the engine does not run there, or not with that cache; 3: nothing fits.
        if answer.returncode not in (0, 2, 3):
            raise SystemExit(f"{command}: {answer.stderr}")
        if answer.returncode == 0:
            yield json.loads(answer.stdout)["apply"]["settings"]


def main(archive, binaries):
    package, release, rows = names.rows(archive)
    kept = [line for line in (SETTINGS / "names.txt").read_text().splitlines() if line.startswith(f"{package} ")]
    if changed := set(rows) ^ set(kept):
        raise SystemExit(f"names.txt is not what {package} {release} has: {sorted(changed)}")
    options, wrong, lines, seen = table(), set(), 0, dict.fromkeys(PACKAGES, 0)
    for settings in recommendations(pathlib.Path(binaries)):
        for engine, of in PACKAGES.items():
            if not settings.get(engine, "not available").startswith("not available"):
                refused, count = faults(options, of, settings[engine])
                wrong.update(refused)
                lines, seen[engine] = lines + 1, seen[engine] + count
    print(f"{lines} commands against {package} {release} and names.txt; options: {seen}")
    for fault in sorted(wrong):
        print("check: FAILED", fault)
    rare = [engine for engine, count in seen.items() if count < 30]
    if wrong or rare:
        raise SystemExit(f"options that engines do not have: {len(wrong)}; engines with hardly a command: {rare}")
    print("check: ok every option of every command is one of its engine")


if __name__ == "__main__":
    main(*sys.argv[1:])
