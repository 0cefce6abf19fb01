#!/usr/bin/env python3
"""Writes rooflined/types.py and rooflined/_verbs.py: make_types.py

Types come from the schemas that the daemon serves in GET /v1/openapi.json, the synchronous verbs from the asynchronous ones in
rooflined/_averbs.py. A test runs the same and compares.
"""

import json
import keyword
import pathlib
import re
import textwrap

HERE = pathlib.Path(__file__).resolve().parent / "rooflined"
SCHEMAS = HERE.parents[2] / "crates/rooflined-api/src/schemas.json"

HEAD = '''"""Bodies of requests and answers, as the daemon's OpenAPI document describes them. Written by make_types.py.

Every number carries its unit in its key. `None` is unknown, never zero. Keys of a class whose name ends in `Optional_` may be
absent. A later daemon may add keys to answers and values to enumerations.
"""

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union
'''


def reference(schema):
    return schema["$ref"].rsplit("/", 1)[1]


def type_of(schema):
    if "$ref" in schema:
        return f'"{reference(schema)}"'
    if "oneOf" in schema:
        parts = [type_of(part) for part in schema["oneOf"]]
        known = [part for part in parts if part != "None"]
        joined = known[0] if len(known) == 1 else f"Union[{', '.join(known)}]"
        return f"Optional[{joined}]" if len(known) < len(parts) else joined
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(key) for key in schema['enum'])}]"
    kinds = schema.get("type", "any")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    plain = [kind for kind in kinds if kind != "null"]
    if plain == ["array"]:
        made = f"List[{type_of(schema.get('items', {}))}]"
    elif plain == ["object"]:
        inner = schema.get("additionalProperties")
        made = f"Dict[str, {type_of(inner) if isinstance(inner, dict) and inner else 'Any'}]"
    else:
        made = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}.get(
            plain[0] if plain else "null", "Any")
    return f"Optional[{made}]" if len(plain) < len(kinds) and plain else made


def wrapped(text):
    """A type on as many lines as it needs."""
    if len(text) <= 100:
        return text
    head, parts = text[:-1].split("[", 1)
    return f"{head}[\n" + textwrap.fill(parts, 120, initial_indent="    ", subsequent_indent="    ") + "\n]"


def comment(text, indent, mark):
    for line in textwrap.wrap(" ".join(text.split()), 120 - len(indent)):
        yield f"{indent}{mark} {line}"


def fields(properties, names):
    for name in names:
        parts = [properties[name]] + properties[name].get("oneOf", [])
        described = next((part["description"] for part in parts if "description" in part), "")
        yield from comment(described, "    ", "#:")
        yield f"    {name}: {type_of(properties[name])}"


def a_class(name, schema):
    base, described = "TypedDict", schema.get("description", "")
    for part in schema.get("allOf", []):
        if "$ref" in part:
            base = reference(part)
        else:
            schema = part
    properties, required = schema.get("properties"), schema.get("required", [])
    if properties is None:
        # Each variant of an object that its `kind` tells apart is a class of its own.
        variants = [part for part in schema.get("oneOf", []) if "properties" in part]
        names = [name + part["properties"]["kind"]["enum"][0].title() for part in variants]
        for variant, part in zip(names, variants):
            yield from a_class(variant, part)
            yield "\n"
        if variants:
            schema = {"oneOf": [{"$ref": f"#/{variant}"} for variant in names]}
        yield from comment(described, "", "#:")
        yield f"{name} = {wrapped(type_of(schema))}"
        return
    if any(keyword.iskeyword(key) for key in properties):
        # Only this spelling takes such a key; which keys may be absent is not told then.
        yield from comment(described, "", "#")
        yield f"{name} = TypedDict(\"{name}\", {{"
        for key in sorted(properties):
            yield f'    "{key}": {type_of(properties[key])},'
        yield "}, total=False)"
        return
    needed = sorted(key for key in properties if key in required)
    free = sorted(key for key in properties if key not in required)
    if free and needed:
        yield f"class {name}Optional_({base}, total=False):"
        yield from fields(properties, free)
        yield "\n"
        base = f"{name}Optional_"
    yield f"class {name}({base}{'' if needed or not free else ', total=False'}):"
    described = " ".join(described.replace("\\", "\\\\").split()) or f"{name}."
    yield textwrap.fill(f'"""{described}"""', 124, initial_indent="    ", subsequent_indent="    ")
    if needed or free:
        yield ""
    yield from fields(properties, needed or free)


def types(schemas):
    order, done = [], set()

    def visit(name):
        if name in done:
            return
        done.add(name)
        for part in schemas[name].get("allOf", []):
            if "$ref" in part:
                visit(reference(part))
        order.append(name)

    # Aliases come first, because they are evaluated; those of one another's parts after these.
    aliases = [name for name in schemas if "properties" not in schemas[name] and "allOf" not in schemas[name]]
    for name in sorted(aliases, key=lambda name: ("enum" not in schemas[name], name)) + sorted(schemas):
        visit(name)
    text = HEAD
    for name in order:
        text += "\n\n" + "\n".join(a_class(name, schemas[name])) + "\n"
    return text


def verbs(text):
    """The synchronous twin of asynchronous source."""
    head = '"""What a daemon can be asked. Written by make_types.py from _averbs.py."""\n'
    text = head + text.split('"""', 2)[2].lstrip("\n").replace("AsyncVerbs", "Verbs")
    return re.sub(r"\bawait ", "", text.replace("async def", "def"))


def main():
    (HERE / "types.py").write_text(types(json.loads(SCHEMAS.read_text())))
    (HERE / "_verbs.py").write_text(verbs((HERE / "_averbs.py").read_text()))


if __name__ == "__main__":
    main()
