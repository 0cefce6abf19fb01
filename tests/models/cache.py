#!/usr/bin/env python3
"""Holds the cache and the state that rooflined counts against the cache objects of transformers: cache.py ROOFLINECTL [--write] [MODEL_TYPE…]

A small variation of every text generator reads texts of two lengths on the CPU, below its windows and far beyond them, with the
cache that its class keeps. What another token adds, and what is there whatever the length, have to be what
`rooflinectl models inspect` says of the saved configuration, within 1 %. Keys, values and the inputs of convolutions count in 16 bits, and
recurrent states in 32, as engines keep them.
"""

import functools
import json
import random
import subprocess
import sys
import tempfile

import known
from judge import AutoModelForCausalLM, CONFIG_MAPPING, INNER, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, WIDTHS, WINDOWS, build, in_turn, variation

import torch

CLOSE = 0.01
WINDOW = 16
SHORT, LONG = (6, 10), (64, 80)
MOST_PARAMETERS = 120_000_000
# What these keep follows from more than a text's length.
EXEMPT = {
    "cpmant": "a prompt of its own stands before every text",
    # The inputs of its short convolutions, some kilobytes a sequence, are not counted.
    **dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text"), "its windows bound what is read, not what transformers keeps"),
    "deepseek_v4": "one vector is kept of many tokens, once the last of them is there",
}
# So many classes ran when this was written.
LEAST = 110


def small(kind, rng):
    """A configuration whose class runs in a moment."""
    cls = CONFIG_MAPPING[kind]
    inner = (getattr(cls, "sub_configs", None) or {}).get("text_config")
    part = inner if inner is not None and getattr(inner, "model_type", "") else cls
    fields = variation(part, rng)
    for name in fields:
        if name in WIDTHS:
            fields[name] = rng.choice([128, 256])
        elif name in INNER:
            fields[name] = rng.choice([64, 128, 192])
        elif name in WINDOWS:
            fields[name] = WINDOW
        elif name == "head_dim":
            fields[name] = rng.choice([16, 32])
    fields |= {"vocab_size": 512} if "vocab_size" in fields else {}
    for _ in range(6):
        try:
            config = cls(**fields) if part is cls else cls(text_config=dict(fields))
            return config if build(config) <= MOST_PARAMETERS else None
        except Exception:  # noqa: BLE001: whatever a class says of fields that do not fit together
            for name in rng.sample(sorted(fields), min(2, len(fields))):
                del fields[name]
    return None


def tensors(thing, name, seen):
    """Every tensor of two dimensions or more in an object, with the name of the field that holds it."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        if thing.dim() > 1:
            yield name, thing
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from tensors(value, str(key) if isinstance(key, str) else name, seen)
    elif isinstance(thing, (list, tuple)):
        for value in thing:
            yield from tensors(value, name, seen)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        yield from tensors({key: value for key, value in vars(thing).items() if not key.startswith("_") and key != "config"}, name, seen)


def cached(model, length):
    """Bytes of the cache after a text of that length."""
    with torch.no_grad():
        answer = model(input_ids=torch.full((1, length), 3), use_cache=True)
    name, kept = next((key, answer[key]) for key in ("past_key_values", "cache_params", "state") if answer.get(key) is not None)
    wide = ("recurrent", "ssm", "state", "linear")
    is_wide = lambda name: any(word in name for word in wide) and "conv" not in name
    return sum(tensor.numel() * (4 if is_wide(name) else 2) for name, tensor in tensors(kept, name, set()))


def measured(config):
    """What another token adds before and behind the windows, and what is there before any."""
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    grown = []
    for first, last in (SHORT, LONG):
        few, many = cached(model, first), cached(model, last)
        grown.append((many - few) / (last - first))
        if first == SHORT[0]:
            state = few - first * grown[0]
    return *grown, state


def compared(ctl, kind, work, is_shown):
    """Whether a class agrees, in words where it does not, or why it is not compared."""
    config = small(kind, random.Random(kind))
    if config is None:
        return kind, None
    config.save_pretrained(f"{work}/{kind}")
    found = subprocess.run([ctl, "models", "inspect", f"{work}/{kind}", "-o", "json"], capture_output=True, text=True, timeout=60)
    if found.returncode:
        return f"{kind} (refused)", None
    try:
        theirs = known.made("cache", config, lambda: measured(config))
    except known.Unbuilt as error:
        return f"{kind} ({error})", None
    answer = json.loads(found.stdout)
    ours = [answer[key] for key in ("kv_bytes_per_token", "kv_bytes_per_token_long", "state_bytes")]
    off = [abs(a - b) > CLOSE * max(a, b) for a, b in zip(ours, theirs)]
    words = ("a token adds", "behind windows", "state")
    told = ", ".join(f"{word} {a:g} of {b:g}" for word, a, b, bad in zip(words, ours, theirs, off) if bad or is_shown)
    return None, f"{kind}: {told}" if any(off) else ""


def main():
    ctl, only = sys.argv[1], {word for word in sys.argv[2:] if word != "--write"}
    kinds = [kind for kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if (kind in only if only else kind not in EXEMPT)]
    with tempfile.TemporaryDirectory() as work:
        answers = in_turn([functools.partial(compared, ctl, kind, work, bool(only)) for kind in kinds])
    answers = [answer for answer, _ in answers]
    skipped = [reason for reason, _ in answers if reason is not None]
    wrong = [told for _, told in answers if told]
    agreed = len(answers) - len(skipped) - len(wrong)
    print(f"caches within {CLOSE:.0%}: {agreed}; wrong: {len(wrong)}")
    print("not run:", ", ".join(skipped) or "none")
    for line in wrong:
        print("FAILED:", line)
    is_known = bool(only) or known.hold("caches", [
        ("text generators that ran", f"caches and states within {CLOSE:.0%}", "that do not run here"),
        ("---", "---", "---"),
        (agreed + len(wrong), agreed, len(skipped)),
    ])
    if wrong or not is_known or (not only and agreed < LEAST):
        sys.exit(1)


if __name__ == "__main__":
    main()
