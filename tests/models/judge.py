#!/usr/bin/env python3
"""Holds `rooflinectl models` against transformers: parameters of every class that it can build, and of every model of the
catalogue, which is built from the fields of its entry.

usage: judge.py ROOFLINECTL [--write] [MODEL_TYPE…]

Each text generator is built on torch's meta device, which counts its parameters exactly, from its default configuration and
from one with other sizes, heads, experts, windows and tied tables; `save_pretrained` writes what is inspected. Of every other
class (encoders, labellers, encoder-decoders, models that see and hear, and all that is no model of text) the default
configuration is inspected, and the class is built where there is an answer. What sees or hears is inspected once more with a
text model so small that its towers, and what joins them, are most of it. A model passes within 2 %, or refused by the name
of its architecture. Classes that transformers cannot build are listed and count for nothing. As many are judged at once as there are
processors.
"""

import concurrent.futures
import contextlib
import functools
import inspect
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import tomllib
import warnings
from pathlib import Path
from unittest.mock import patch

warnings.filterwarnings("ignore")
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import known  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from known import Unbuilt, made  # noqa: E402
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, initialization  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402

CATALOGUE = Path(__file__).parents[2] / "config/models"
CLOSE = 0.02
# So many classes were built when this was written; fewer would mean that nothing is judged any more.
LEAST = 170
OTHERS = ("MODEL", "MODEL_FOR_MASKED_LM", "MODEL_FOR_SEQUENCE_CLASSIFICATION", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM", "MODEL_FOR_MULTIMODAL_LM")
SEEING = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_MULTIMODAL_LM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM")
LEAST_OTHERS = 300
LEAST_KNOWN = 170
LEAST_SEEING = 60
# Sizes of a text model beside which a tower is large.
SMALL = {
    "hidden_size": 512, "n_embd": 512, "d_model": 512, "intermediate_size": 1024, "moe_intermediate_size": 256, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 4000, "num_experts": 8, "n_routed_experts": 8,
    "num_local_experts": 8, "pad_token_id": 0,
}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model", "emb_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "attention_heads", "decoder_attention_heads")
GROUPS = ("num_key_value_heads", "num_kv_heads")
INNER = (
    "intermediate_size", "n_inner", "ffn_dim", "decoder_ffn_dim", "dff", "dim_ff", "moe_intermediate_size",
    "shared_expert_intermediate_size", "shared_intermediate_size",
)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk")
WINDOWS = ("sliding_window", "attention_window_size", "attention_chunk_size")


def variation(cls, rng):
    """Other values of what the class has a number for."""
    given = {name: parameter.default for name, parameter in inspect.signature(cls.__init__).parameters.items()}
    has = lambda names: [name for name in names if isinstance(given.get(name), int)]
    fields = {name: rng.choice([3, 5, 8, 12]) for name in has(LAYERS)}
    fields |= {name: rng.choice([512, 768, 1024, 1536]) for name in has(WIDTHS)}
    fields |= {name: rng.choice([8, 16]) for name in has(HEADS)}
    fields |= {name: rng.choice([2, 4, 8]) for name in GROUPS if name in given}
    fields |= {name: 64 * rng.randint(8, 60) for name in has(INNER)}
    fields |= {name: rng.choice([8, 16, 32]) for name in has(EXPERTS)}
    fields |= {name: rng.choice([1, 2, 4]) for name in has(ACTIVE)}
    fields |= {name: rng.choice([128, 256, 1024]) for name in has(WINDOWS)}
    fields |= {name: 1 for name in ("n_group", "topk_group", "num_expert_group") if name in given}
    if has(["head_dim"]):
        fields["head_dim"] = rng.choice([64, 128])
    if has(["vocab_size"]):
        fields["vocab_size"] = 1000 * rng.randint(20, 60)
    if has(["pad_token_id"]):
        fields["pad_token_id"] = 0
    if "tie_word_embeddings" in given and rng.random() < 0.5:
        fields["tie_word_embeddings"] = not given["tie_word_embeddings"]
    return fields


@contextlib.contextmanager
def without_values():
    """Tensors of what is built in here have shapes alone: computing their first values takes half of the time."""
    names = [name for name in dir(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
    with contextlib.ExitStack() as stack:
        for module in (torch.nn.init, initialization):
            found = {name: lambda tensor, *_, **__: tensor for name in names if hasattr(module, name)}
            stack.enter_context(patch.multiple(module, **found))
        stack.enter_context(torch.device("meta"))
        yield


def build(config):
    """Parameters of a text generator, whose class the configuration then names."""
    # transformers gives weights to experts that compute nothing; published checkpoints have none for them.
    if hasattr(config, "zero_expert_num"):
        config.zero_expert_num = 0

    def make():
        with without_values():
            model = AutoModelForCausalLM.from_config(config)
        return [parameters(model), type(model).__name__]

    count, name = made("AutoModelForCausalLM", config, make)
    config.architectures = [name]
    return count


def parameters(model):
    return sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())


def varied(kind, rng):
    """A varied configuration that the class accepts: fields go until it does."""
    cls = CONFIG_MAPPING[kind]
    inner = (getattr(cls, "sub_configs", None) or {}).get("text_config")
    part = inner if inner is not None and getattr(inner, "model_type", "") else cls
    fields = variation(part, rng)
    for _ in range(5):
        try:
            config = cls(**fields) if part is cls else cls(text_config=dict(fields))
            return config, build(config)
        except Exception:  # noqa: BLE001: whatever a class says of fields that do not fit together
            for name in rng.sample(sorted(fields), min(2, len(fields))):
                del fields[name]
    return None


def judged(ctl, config, expect, folder):
    """`passed`, `refused`, or what is wrong; `expect` is asked only for what has an answer."""
    config.save_pretrained(folder)
    found = subprocess.run([ctl, "models", "inspect", folder, "-o", "json"], capture_output=True, text=True, timeout=60)
    if found.returncode:
        line = found.stderr.strip().split("\n")[0]
        # transformers builds fewer query heads than key/value heads, and cannot run them.
        named = any(words in line for words in ("architecture \"", "tower \"", "must be a whole multiple", "generates no text"))
        return "refused" if named else f"refused without a name: {line}"
    counted, expected = json.loads(found.stdout)["parameters"], expect()
    difference = counted / expected - 1
    return "passed" if abs(difference) <= CLOSE else f"{difference:+.1%}: {counted} of {expected}"


def by_default(kind):
    return CONFIG_MAPPING[kind]()


def with_small_text(kind):
    """The default configuration around a small text model; None for a class that holds none."""
    cls = CONFIG_MAPPING[kind]
    parts = getattr(cls, "sub_configs", None) or {}
    key = next((key for key in ("text_config", "thinker_config") if key in parts), None)
    if key is None:
        return None
    inner = getattr(cls(), key)
    text = type(inner.text_config if key == "thinker_config" else inner)
    sizes = {name: size for name, size in SMALL.items() if name in inspect.signature(text.__init__).parameters}
    sizes["model_type"] = text.model_type
    return cls(**{key: {"text_config": sizes} if key == "thinker_config" else sizes})


def judged_class(ctl, kind, name, folder, configure):
    """The verdict on a class of that name and a configuration of its kind; None where there is no such configuration."""
    def make():
        with without_values():
            return parameters(getattr(transformers, name)(config))

    try:
        config = configure(kind)
        if config is None:
            return None
        config.architectures = [name]
        if hasattr(config, "zero_expert_num"):
            config.zero_expert_num = 0
    except Exception as error:
        raise Unbuilt from error
    return judged(ctl, config, lambda: made(name, config, make), folder)


def without_nulls(fields):
    """TOML has no null: these fields of 0 stand for one."""
    given = {key: without_nulls(value) if isinstance(value, dict) else value for key, value in fields.items()}
    return given | {key: None for key in ("sliding_window", "q_lora_rank") if given.get(key) == 0}


def counted(fields):
    """Parameters of an entry's configuration, and whether its tower is among them."""
    fields = without_nulls(fields)
    sees = "hidden_size" in fields.get("vision_config", {})
    for with_tower in (True, False) if sees else (False,):
        given = fields if with_tower else fields.get("text_config", fields)
        given = {key: value for key, value in given.items() if with_tower or not key.endswith("_config")}
        kind = given["model_type"]
        auto = AutoModelForImageTextToText if with_tower else AutoModelForCausalLM

        def make():
            with without_values():
                return parameters(auto.from_config(config))

        try:
            config = CONFIG_MAPPING[kind](**{key: value for key, value in given.items() if key != "model_type"})
            return made(f"parameters of {auto.__name__}", config, make), with_tower
        except Exception:  # noqa: BLE001: towers need further packages
            if not with_tower:
                raise


def listed(ctl, key, fields):
    """Whether a model of the catalogue has transformers' parameters: None, what is wrong, or why nobody can say."""
    try:
        expected, with_tower = counted(fields)
    except Exception as error:  # noqa: BLE001: nothing to judge with
        raise Unbuilt(f"{key} ({error if isinstance(error, Unbuilt) else type(error).__name__})") from error
    found = subprocess.run([ctl, "models", "show", key, "-o", "json"], capture_output=True, check=True, timeout=60)
    model = json.loads(found.stdout)
    towers = sum(of["parameters"] for of in model["classes"] if of["class"] == "tower")
    parameters = model["parameters"] - (0 if with_tower else towers)
    difference = parameters / expected - 1
    return None if abs(difference) <= CLOSE else f"{key}: {difference:+.1%}: {parameters} of {expected}"


def generator(ctl, kind, work):
    """The verdicts on a text generator by default and with other sizes."""
    try:
        config = CONFIG_MAPPING[kind]()
        cases = [(config, build(config))]
    except Exception as error:
        raise Unbuilt(str(error) if isinstance(error, Unbuilt) else type(error).__name__) from error
    cases = enumerate(filter(None, [*cases, varied(kind, random.Random(kind))]))
    return [judged(ctl, config, lambda expected=expected: expected, f"{work}/{kind}.{number}") for number, (config, expected) in cases]


def done(call):
    """The answer of a call, or why transformers has none."""
    try:
        return call(), None
    except Unbuilt as error:
        return None, str(error)


def in_turn(calls):
    """The answers of calls, of which each processor makes one at a time."""
    # torch's own threads would not survive the fork.
    torch.set_num_threads(1)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork")) as pool:
        return list(pool.map(done, calls))


def main():
    ctl, only = sys.argv[1], {word for word in sys.argv[2:] if word != "--write"}
    wrong, refused, unbuilt, unknown, listing = [], [[], []], [], [], 0
    others, seeing = {"passed": 0, "refused": 0}, {"passed": 0, "refused": 0}
    generators = [{"passed": 0, "refused": 0}, {"passed": 0, "refused": 0}]
    asked = lambda kinds: [kind for kind in kinds if not only or kind in only]
    # What each call is about, and the call.
    calls = []
    with tempfile.TemporaryDirectory() as work:
        for kind in asked(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
            calls.append((("generator", kind), functools.partial(generator, ctl, kind, work)))
        for mapping in dict.fromkeys((*OTHERS, *SEEING)):
            classes = getattr(modeling_auto, f"{mapping}_MAPPING_NAMES")
            for kind in asked(classes):
                name = classes[kind] if isinstance(classes[kind], str) else classes[kind][0]
                ways = [(by_default, "default"), *([(with_small_text, "small text")] if mapping in SEEING else [])]
                for way, told in ways:
                    folder = f"{work}/{len(calls)}"
                    calls.append(((told, f"{kind}, {name}, {told}"), functools.partial(judged_class, ctl, kind, name, folder, way)))
        entries = [entry for path in sorted(CATALOGUE.glob("*.toml")) for entry in tomllib.loads(path.read_text()).items()]
        for key, entry in entries if not only else []:
            calls.append((("catalogue", key), functools.partial(listed, ctl, key, entry["config"])))
        answers = in_turn([call for _, call in calls])
    for ((part, name), _), (found, error) in zip(calls, answers):
        if part == "generator":
            unbuilt += [f"{name} ({error})"] * (error is not None)
            for number, verdict in enumerate(found or ()):
                if verdict in generators[number]:
                    generators[number][verdict] += 1
                    refused[number] += [name] * (verdict == "refused")
                else:
                    wrong.append(f"{name}, {'varied' if number else 'default'}: {verdict}")
        elif part == "catalogue":
            unknown += [error] * (error is not None)
            wrong += [found] * (found is not None)
            listing += error is None and found is None
        elif error is None and found is not None:
            counted_as = others if part == "default" else seeing
            if found in counted_as:
                counted_as[found] += 1
            else:
                wrong.append(f"{name}: {found}")
    counts = {verdict: sum(of[verdict] for of in generators) for verdict in ("passed", "refused")}
    print(f"generators: parameters within {CLOSE:.0%}: {counts['passed']}; refused by name: {counts['refused']} ({', '.join(sum(refused, []))})")
    print(f"other classes: parameters within {CLOSE:.0%}: {others['passed']}; refused by name: {others['refused']}")
    print(f"with a small text model: parameters within {CLOSE:.0%}: {seeing['passed']}; refused by name: {seeing['refused']}")
    print(f"wrong: {len(wrong)}")
    print("not built by transformers:", ", ".join(unbuilt) or "none")
    is_known = True
    if not only:
        print(f"models of the catalogue within {CLOSE:.0%}: {listing}; not built:", ", ".join(unknown) or "none")
        row = lambda what, verdicts, refused: (what, sum(verdicts.values()), verdicts["passed"], verdicts["refused"], refused)
        ours = [entry.split(" (")[0] for entry in unknown]
        is_known = known.hold("parameters", [
            ("configuration", "judged", f"within {CLOSE:.0%}", "refused by name", "which"),
            ("---", "---", "---", "---", "---"),
            row("text generators, by default", generators[0], known.names(refused[0])),
            row("text generators, other sizes", generators[1], known.names(refused[1])),
            row("models that see or hear, around a small text model", seeing, "towers that no family describes"),
            row("encoders, encoder-decoders and all other classes, by default", others, "networks without text, and those above"),
            ("models of the catalogue", len(entries) - len(ours), listing, 0, f"none; transformers cannot build {known.names(ours)}"),
        ])
    for line in wrong:
        print("FAILED:", line)
    few = counts["passed"] < 2 * LEAST or others["passed"] < LEAST_OTHERS or seeing["passed"] < LEAST_SEEING or listing < LEAST_KNOWN
    if wrong or not is_known or (not only and few):
        sys.exit(1)


if __name__ == "__main__":
    main()
