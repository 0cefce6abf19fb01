"""The table in docs/internals/model-files.md, of which each judge has a part: a run has to find what it says.

A judge with --write in its arguments writes its part instead.
"""

import sys
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


def names(all):
    return ", ".join(f"`{name}`" for name in dict.fromkeys(all)) or "none"
