#!/usr/bin/env python3
"""Holds what rooflined makes of a checkpoint's tensors against the configuration beside them: checkpoints.py ROOFLINECTL [MODEL_TYPE…]

transformers saves a small variation of every text generator under the names that it publishes, of which the header is kept. Of what
sees or hears the class names the tensors, around a small text model. The weights have to be as many as the class has. A token has to read the bytes that follow from the configuration alone, within 3 %, and
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
from judge import (
    AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, build, in_turn, modeling_auto, parameters, transformers, with_small_text, without_values,
)

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
LEAST = 200


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


def hollow(model):
    """The header of weights that are not there, and the parameters."""
    at, tensors = 0, {}
    for name, tensor in model.named_parameters():
        tensors[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at := at + 2 * tensor.numel()]}
    return [json.dumps(tensors), parameters(model)]


def differences(ctl, config, folder, text, count):
    """In what the tensors of a configuration differ from what it describes."""
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    alone = inspected(ctl, folder)
    end = max(tensor["data_offsets"][1] for tensor in json.loads(text).values() if "data_offsets" in tensor)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text.encode())
        file.truncate(8 + len(text) + end)
    answer = inspected(ctl, folder)
    if answer is None:
        return None if alone is None else ["its weights are not read"]
    # Weights tell the sizes of a family that is not known.
    alone = alone or answer
    told = [f"{key} {answer[key]:g}, and {alone[key]:g} by the configuration"
            for key in ("kv_bytes_per_token", "kv_bytes_per_token_long", "state_bytes") if answer[key] != alone[key]]
    if abs(answer["parameters"] / count - 1) > CLOSE:
        told.append(f"{answer['parameters']} weights of {count}")
    share = answer["bytes_per_token"] / alone["bytes_per_token"] - 1
    if abs(share) > CLOSE_READ:
        told.append(f"a token reads {share:+.1%}")
    return told


def generator(ctl, kind, work):
    """What is wrong with a text generator's checkpoint; None where it is not compared."""
    config = small(kind, random.Random(kind))
    if config is None or build(config) > MOST_PARAMETERS:
        return None
    return differences(ctl, config, Path(work, kind), *known.made("checkpoint", config, lambda: header(config)))


def seeing(ctl, kind, name, work):
    """The same of a model that sees or hears, around a small text model."""
    def make():
        with without_values():
            return hollow(getattr(transformers, name)(config))

    try:
        config = with_small_text(kind)
        if config is None:
            return None
        config.architectures = [name]
    except Exception as error:
        raise known.Unbuilt from error
    return differences(ctl, config, Path(work, f"{kind}.seeing"), *known.made(f"tensors of {name}", config, make))


def main():
    ctl, *only = sys.argv[1:]
    is_asked = lambda kind: kind in only if only else kind not in APART
    with tempfile.TemporaryDirectory() as work:
        calls = {kind: functools.partial(generator, ctl, kind, work) for kind in filter(is_asked, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)}
        for kind, name in filter(lambda pair: is_asked(pair[0]), modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.items()):
            calls[f"{kind} that sees or hears"] = functools.partial(seeing, ctl, kind, name if isinstance(name, str) else name[0], work)
        answers = {what: found for what, (found, _) in zip(calls, in_turn(calls.values())) if found is not None}
    wrong = {what: told for what, told in answers.items() if told}
    for what, told in wrong.items():
        print(f"FAILED: {what}: {', '.join(told)}")
    print(f"checkpoints that agree with their configurations: {len(answers) - len(wrong)}; wrong: {len(wrong)}; not run: {len(calls) - len(answers)}")
    if wrong or (not only and len(answers) < LEAST):
        sys.exit(1)


if __name__ == "__main__":
    main()
