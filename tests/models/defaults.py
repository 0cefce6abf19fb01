#!/usr/bin/env python3
"""Writes config/families/defaults.toml: what a configuration class of transformers assumes where a file leaves a field out.

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
HEAD = """\
# Fields that a file may leave out, and their values then: those of the configuration classes of transformers 5.24
# (https://github.com/huggingface/transformers, src/transformers/models/*/configuration_*.py). Written by tests/models/defaults.py.

"""


def families():
    """The names that the tables describe, and every field that their expressions use."""
    names, fields = set(), set()
    for path in sorted(FAMILIES.glob("*.toml")):
        if path.name == "defaults.toml":
            continue
        for name, table in tomllib.loads(path.read_text()).items():
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


def line(name, fields):
    if name not in CONFIG_MAPPING:
        return None
    cls = CONFIG_MAPPING[name]
    parts = getattr(cls, "sub_configs", None) or {}
    inner = parts.get("text_config") or parts.get("thinker_config")
    # Whatever holds a language model of any kind says nothing of it.
    if inner is not None and getattr(inner, "model_type", ""):
        cls = inner
    kept = {key: value for key, value in defaults(cls).items() if key in fields}
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in kept.items())
    return f"{json.dumps(name)} = {{ {values} }}\n" if kept else None


def main():
    names, fields = families()
    text = HEAD + "".join(filter(None, (line(name, fields) for name in names)))
    path = FAMILIES / "defaults.toml"
    if "--check" not in sys.argv:
        path.write_text(text)
    elif path.read_text() != text:
        sys.exit(f"{path} is not what transformers says: run {sys.argv[0]}")


main()
