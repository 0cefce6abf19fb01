#!/usr/bin/env python3
"""Writes defaults.toml and tower_defaults.toml in config/families: what a configuration class of transformers assumes where a
file leaves a field out.

Only fields that an expression of config/families names are kept. With --check nothing is written, and a difference fails.
"""

import inspect
import json
import re
import sys
import tomllib
from pathlib import Path

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FAMILIES = Path(__file__).parents[2] / "config/families"
# The file of defaults, and the tables that it is for.
FILES = {
    "defaults.toml": ("base", "dense", "experts", "gemma", "hybrid", "other"),
    "tower_defaults.toml": ("towers",),
}
HEAD = """\
# Fields that a file may leave out, and their values then: those of the configuration classes of transformers 5.24
# (https://github.com/huggingface/transformers, src/transformers/models/*/configuration_*.py). Written by tests/models/defaults.py.

"""


TIES = """
# Whether models around a text model use its table as its head, where their own object does not say.
"""


def ties():
    """Models that hold a text model, and whether they tie its tables by default."""
    holds = lambda cls: any(part in (getattr(cls, "sub_configs", None) or {}) for part in ("text_config", "thinker_config"))
    found = {name: defaults(cls).get("tie_word_embeddings") for name, cls in CONFIG_MAPPING.items() if holds(cls)}
    return sorted((name, is_tied) for name, is_tied in found.items() if isinstance(is_tied, bool))


def classes():
    """Configuration classes by name, those of parts of models included."""
    found = {}
    for name, cls in CONFIG_MAPPING.items():
        found[name] = cls
        for part in (getattr(cls, "sub_configs", None) or {}).values():
            part = getattr(part, "config_class", part)
            if getattr(part, "model_type", ""):
                found.setdefault(part.model_type, part)
    return found


def families(files):
    """The names that the tables describe, and every field that their expressions use."""
    names, fields = set(), set()
    for file in files:
        for name, table in tomllib.loads((FAMILIES / f"{file}.toml").read_text()).items():
            names |= {name, *table.pop("names", [])}
            table.pop("like", None)
            for value in table.values():
                for expression in value if isinstance(value, list) else [value]:
                    fields |= set(re.findall(r"[A-Za-z_]\w*", re.sub(r"'[^']*'", "", expression)))
    return sorted(names), fields


def defaults(cls):
    """Values of plain parameters; None stands for what the class derives from others."""
    parameters = inspect.signature(cls.__init__).parameters
    plain = {name: parameter.default for name, parameter in parameters.items() if name not in ("self", "kwargs")}
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in plain.items()
        if isinstance(value, (bool, int, float, str, list, tuple))
    }


def part(cls, key):
    """The class of a part of a model."""
    spec = (getattr(cls, "sub_configs", None) or {}).get(key)
    own, kind = getattr(spec, "config_class", spec), getattr(spec, "model_type", "")
    return own if getattr(own, "model_type", "") else CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else None


def line(name, fields, known, is_tower):
    kind, _, key = name.partition(" ")
    if kind not in known or key == "joint":
        return None
    cls = known[kind]
    if is_tower:
        cls = part(cls, key or "vision_config") or (None if key else cls)
    if cls is None:
        return None
    parts = getattr(cls, "sub_configs", None) or {}
    inner = parts.get("text_config") or parts.get("thinker_config")
    # Whatever holds a language model of any kind says nothing of it.
    if inner is not None and getattr(inner, "model_type", ""):
        cls = inner
    kept = {key: value for key, value in defaults(cls).items() if key in fields}
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in kept.items())
    return f"{json.dumps(name)} = {{ {values} }}\n" if kept else None


def main():
    known = classes()
    for name, files in FILES.items():
        names, fields = families(files)
        text = HEAD + "".join(filter(None, (line(kind, fields, known, "tower" in name) for kind in names)))
        if name == "defaults.toml":
            text += TIES + "ties = { " + ", ".join(f"{json.dumps(kind)} = {json.dumps(is_tied)}" for kind, is_tied in ties()) + " }\n"
        path = FAMILIES / name
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path} is not what transformers says: run {sys.argv[0]}")


main()
