"""The table in docs/internals/model-files.md, of which each judge has a part: a run has to find what it says.

A judge with --write in its arguments writes its part instead. What transformers makes of a configuration is kept next to its exact
version, in the virtual environment: it can only be the same again.
"""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/internals/model-files.md"


def hold(part, rows):
    """Whether the document's part is these rows; with --write it is made so."""
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->\n"
    before, rest = DOCUMENT.read_text().split(begin)
    found, after = rest.split(end)
    text = "\n" + "".join(f"| {' | '.join(str(cell) for cell in row)} |\n" for row in rows) + "\n"
    if "--write" in sys.argv:
        DOCUMENT.write_text(before + begin + text + end + after)
        return True
    if found != text:
        print(f"FAILED: {DOCUMENT} says of {part}:{found}and this run:{text}give --write where that is right")
    return found == text


class Unbuilt(Exception):
    """transformers cannot build the class of a configuration, or run it."""


def made(what, config, make):
    """What transformers makes of a configuration: from an earlier run, if there was one. Refusals are kept like counts."""
    text = what + config.to_json_string(use_diff=False)
    path = Path(sys.prefix) / "made" / hashlib.sha256(text.encode()).hexdigest()
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        try:
            found = make()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001: whatever a class says of fields that do not fit together
            found = {"error": f"{type(error).__name__}"}
        path.parent.mkdir(exist_ok=True)
        # Several write at once: a name of its own, and then the whole file in one step.
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(json.dumps(found))
        os.replace(file.name, path)
    if isinstance(found, dict):
        raise Unbuilt(found["error"])
    return found


def names(all):
    return ", ".join(f"`{name}`" for name in dict.fromkeys(all)) or "none"
