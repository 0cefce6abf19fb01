#!/usr/bin/env python3
"""Holds what rooflined makes of a checkpoint's tensors against the configuration beside them: checkpoints.py ROOFLINECTL [MODEL_TYPE…]

transformers saves a small variation of every text generator under the names that it publishes, of which the header is kept. The
weights have to be as many as the class has. A token has to read the bytes that follow from the configuration alone, within 3 %, and
its cache and state have to be the same.
"""

import functools
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import known
from cache import small
from judge import AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, build, in_turn, parameters

import torch
from transformers.utils import logging

logging.disable_progress_bar()
CLOSE, CLOSE_READ = 0.005, 0.03
MOST_PARAMETERS = 60_000_000
# Parts that no wider model notices, and old ones whose tensors are called as those of no other.
APART = {
    "minimax": "it saves tables of decays with its weights",
    **dict.fromkeys(("big_bird", "biogpt", "camembert", "cpmant", "ctrl", "modernbert-decoder", "rembert", "roberta-prelayernorm",
                     "roc_bert", "roformer", "rwkv", "xlm"), "names"),
}
# So many were judged when this was written.
LEAST = 130


def header(config):
    """The header of what the class saves, and its parameters."""
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with open(Path(folder, "model.safetensors"), "rb") as file:
            return [file.read(struct.unpack("<Q", file.read(8))[0]).decode(), parameters(model)]


def inspected(ctl, folder):
    found = subprocess.run([ctl, "models", "inspect", folder, "-o", "json"], capture_output=True, text=True, timeout=60)
    return None if found.returncode else json.loads(found.stdout)


def compared(ctl, kind, work):
    """Whether a checkpoint agrees, in words where it does not; None where it is not compared."""
    config = small(kind, random.Random(kind))
    if config is None or build(config) > MOST_PARAMETERS:
        return None
    try:
        text, count = known.made("checkpoint", config, lambda: header(config))
    except known.Unbuilt:
        return None
    folder = Path(work, kind)
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    alone = inspected(ctl, folder)
    end = max(tensor["data_offsets"][1] for tensor in json.loads(text).values() if "data_offsets" in tensor)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text.encode())
        file.truncate(8 + len(text) + end)
    answer = inspected(ctl, folder)
    if answer is None:
        return None if alone is None else f"{kind}: its weights are not read"
    # Weights tell the sizes of a family that is not known.
    alone = alone or answer
    told = [f"{key} {answer[key]:g}, and {alone[key]:g} by the configuration"
            for key in ("kv_bytes_per_token", "kv_bytes_per_token_long", "state_bytes") if answer[key] != alone[key]]
    if abs(answer["parameters"] / count - 1) > CLOSE:
        told.append(f"{answer['parameters']} weights of {count}")
    share = answer["bytes_per_token"] / alone["bytes_per_token"] - 1
    if abs(share) > CLOSE_READ:
        told.append(f"a token reads {share:+.1%}")
    return f"{kind}: {', '.join(told)}" if told else ""


def main():
    ctl, *only = sys.argv[1:]
    kinds = [kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if (kind in only if only else kind not in APART)]
    with tempfile.TemporaryDirectory() as work:
        answers, reasons = zip(*in_turn([functools.partial(compared, ctl, kind, work) for kind in kinds]))
    for line in filter(None, answers):
        print("FAILED:", line)
    for kind, reason in zip(kinds, reasons):
        if reason:
            print(f"{kind}: {reason}")
    agreed = answers.count("")
    print(f"checkpoints that agree with their configurations: {agreed}; wrong: {len(list(filter(None, answers)))}; not run: {answers.count(None)}")
    if any(answers) or (not only and agreed < LEAST):
        sys.exit(1)


if __name__ == "__main__":
    main()
