#!/usr/bin/env python3
"""The tables of docs/internals/boards.md, of what was read of the boards in tests/boards: boards.py found|files|missing"""

import json
import pathlib
import re
import sys

BOARDS = {
    "Xavier (root)": "agx-xavier-root", "Orin": "orin-nano-8gb-super-user", "Orin (root)": "agx-orin-64gb-root",
    "Thor": "agx-thor-t5000-user", "GB10": "gb10-devices", "x86 + card": "h100", "x86": "laptop-x86", "ARM": "server-arm64",
}
VALUES = {
    "board.key": "which board", "board.module": "module's part number", "board.l4t": "L4T release", "board.memory_total": "memory installed",
    "board.gpu": "GPU: name, clocks, SMs", "board.modes": "power modes", "state.power_mode": "active power mode",
    "state.cores_online": "CPUs online", "state.cpu_clocks": "CPU clocks", "state.cpu_clock_cap": "cap on the CPU clock",
    "state.gpu_clock": "GPU clock", "state.gpu_clock_cap": "cap on the GPU clock", "state.gpu_load": "GPU load",
    "state.sm_online": "SMs that are on", "state.memory_clock": "memory clock (EMC)", "state.memory_clock_cap": "cap on the memory clock",
    "state.emc_utilisation": "memory utilisation (EMC)", "state.temperatures": "temperatures", "state.rails": "power of each rail",
    "state.total_power": "total power", "state.throttle": "throttling", "state.load": "CPU load", "state.memory": "memory in use",
    "state.pressure": "pressure (PSI)",
}
ROOT = "permission denied"
NVML = "/rooflined/nvml/0"
OF_THE_DRIVER = ("state.gpu_clock", "state.gpu_clock_cap", "state.gpu_load", "state.rails")


def field(board, value):
    where, _, name = value.partition(".")
    return board["state_after" if where == "state" else "board"].get(name)


def reason(found):
    """Why a value is absent; None where it is known."""
    if isinstance(found, dict) and ("absent" in found or "failed" in found):
        return (found.get("absent") or found.get("failed"))["reason"]
    return None


def cell(board, value):
    found = field(board, value)
    why = reason(found)
    if why is None and found not in (None, {"known": {}}, {"known": []}):
        return "yes"
    return "root" if ROOT in (why or "") else "-"


def grouped(pairs):
    """[(value, text, board)] as rows of a value and a text with the boards that have it."""
    rows = {}
    for value, text, name in pairs:
        names = rows.setdefault((value, text), [])
        if name.removesuffix(" (root)") not in names:
            names.append(name)
    return [f"| {VALUES[value]} | {text} | {', '.join(names)} |" for (value, text), names in rows.items()]


def main():
    here = pathlib.Path(__file__).resolve().parents[1] / "boards"
    boards = {name: json.loads((here / tree / "expected.json").read_text()) for name, tree in BOARDS.items()}
    if sys.argv[1:] == ["found"]:
        print("| value |", " | ".join(boards), "|\n" + "|---" * (len(boards) + 1) + "|")
        for value, words in VALUES.items():
            print(f"| {words} |", " | ".join(cell(board, value) for board in boards.values()), "|")
    elif sys.argv[1:] == ["files"]:
        print("| value | read from | on |\n|---|---|---|")
        pairs = []
        for value in VALUES:
            for name, board in boards.items():
                sources = board["board"]["sources"]
                source = sources.get(value.removeprefix("board."))
                # A tree has the answers of the driver's library as files; of the state they are no source by themselves.
                if not source and value in OF_THE_DRIVER and sources.get("gpu") == NVML:
                    source = NVML
                if source and cell(board, value) == "yes":
                    text = "NVML" if source == NVML else f"`{source}`"
                    pairs.append((value, text, name))
        print("\n".join(grouped(pairs)))
    elif sys.argv[1:] == ["missing"]:
        print("| value | why | on |\n|---|---|---|")
        pairs = []
        for value in VALUES:
            for name, board in boards.items():
                why = reason(field(board, value))
                if why:
                    why = re.sub(r"^(no NVIDIA GPU).*", r"\1", why.replace(f"{NVML}/", "NVML: "))
                    pairs.append((value, why.replace("|", "\\|").replace("*", "\\*"), name))
        print("\n".join(grouped(pairs)))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
