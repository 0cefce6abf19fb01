#!/usr/bin/env python3
"""Checks what a machine can check of the project's English: check.py [PAGE…]

Documents, the help of every command (rooflinectl in $ROOFLINED_BINARIES, or target/release) and the comments of the
shipped configuration: phrases of banned.txt, sentences of more than 30 words, spelling (hunspell, en_GB, and words.txt),
and for each document the Flesch reading ease (textstat), which has to be 50 or more. Dead links and commands are checked by
tests/architecture and tests/documents. Prints one line for each finding and ends with 1 if there is any.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import textstat

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LONGEST_SENTENCE = 30
LEAST_FLESCH = 50
# A cell with three operators is a formula and not a sentence.
OPERATOR = re.compile(r" [x/=+] ")
# What was decided and when stays as it was written.
USER_PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md"]
OTHER_PAGES = ["docs/internals/*.md"]
# A table of other people's names.
UNSPELT = ["docs/internals/dependencies.md"]
COMMENTED = ["config/*.toml", "config/conf.d/*.toml"]


def banned():
    for line in (HERE / "banned.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, instead = line.split("\t")
            yield re.compile(pattern), instead


def paragraphs(text):
    """Paragraphs of Markdown as (line, words), without code, markup, tables of figures and comments."""
    fenced, comment, start, found = False, False, 0, []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if re.match(r"\s*(```[^`]*$|~~~)", line):
            fenced = not fenced
            line = ""
        elif fenced:
            continue
        if "<!--" in line or comment:
            comment = "-->" not in line
            line = ""
        item = re.match(r"\s*([-*+]|\d+\.)\s+", line)
        row = line.lstrip().startswith("|")
        if line.startswith("    ") and not found:
            continue
        if not line.strip() or item or row or line.startswith("#"):
            if found:
                yield start, plain(" ".join(found))
            found = []
        if row:
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield number, plain(cell)
            continue
        if line.strip():
            if not found:
                start = number
            found.append(line[item.end():] if item else line.lstrip("# >"))
            if line.startswith("#"):
                yield start, plain(found.pop())


def plain(text):
    text = re.sub(r"``.*?``|`[^`]*`|\w*_\w+", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+|<[^>]+>", "CODE", text)
    return re.sub(r"[*_]{1,2}(\S.*?\S|\S)[*_]{1,2}", r"\1", text).strip()


def help_pages():
    """The help of every command, as (name, text)."""
    program = Path(os.environ.get("ROOFLINED_BINARIES", ROOT / "target/release")) / "rooflinectl"
    waiting = [[]]
    while waiting:
        command = waiting.pop()
        shown = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout
        yield " ".join(["rooflinectl", *command, "--help"]), shown
        # Those of the program stand in groups.
        section = re.search(r"^(?:Commands|Ask):\n(.*?)^Options:", shown, re.M | re.S)
        for name in re.findall(r"^  ([a-z][a-z-]*)(?:\s|$)", section[1] if section else "", re.M):
            if name != "help":
                waiting.append([*command, name])


def help_paragraphs(text):
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("Usage:") or re.match(r"\s*(\$|rooflinectl )", line):
            continue
        # The option itself stands to the left of its description.
        description = re.sub(r"^\s*(-\w, )?--?[\w-]+(=| )?(<[^>]*>|\[[^\]]*\])?(\.\.\.)?\s*", "", line)
        description = re.sub(r"\[(default|possible values|env|aliases|alias): .*?\]", "", description)
        yield number, re.sub(r"[\"'`][^\"'`]*[\"'`]|\b[A-Z_]{2,}\b", "CODE", description).strip()


def comments(text):
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*# ?[A-Za-z]", line) and not re.match(r"\s*# ?[\w.\"-]+ = ", line):
            yield number, re.sub(r"`[^`]*`", "CODE", line.strip("# "))


def sentences(text):
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"(])|(?<=[.!?])\s+(?=\d)", text)


def misspelt(words):
    dictionary = HERE / "words.txt"
    run = subprocess.run(["hunspell", "-d", "en_GB", "-p", dictionary, "-l"], input="\n".join(words), capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def pages(names):
    if names:
        return [(name, list(paragraphs(Path(name).read_text())), False) for name in names]
    found = []
    for patterns, judged in ((USER_PAGES, True), (OTHER_PAGES, True)):
        for pattern in patterns:
            for path in sorted(ROOT.glob(pattern)):
                found.append((str(path.relative_to(ROOT)), list(paragraphs(path.read_text())), judged))
    found += [(name, list(help_paragraphs(text)), False) for name, text in help_pages()]
    for pattern in COMMENTED:
        found += [(str(path.relative_to(ROOT)), list(comments(path.read_text())), False) for path in sorted(ROOT.glob(pattern))]
    return found


def main():
    phrases = list(banned())
    findings, spelt, table = [], {}, []
    for name, parts, judged in pages(sys.argv[1:]):
        for line, text in parts:
            for pattern, instead in phrases:
                for match in pattern.finditer(text):
                    findings.append(f"{name}:{line}: “{match[0]}”: write {instead}")
            for sentence in sentences(text):
                words = len(re.findall(r"[\w’'-]+", sentence))
                if words > LONGEST_SENTENCE and len(OPERATOR.findall(sentence)) < 3:
                    findings.append(f"{name}:{line}: a sentence of {words} words: {sentence[:90]}…")
            # Not names of files, keys and crates, nor abbreviations and names with capitals inside.
            for word in re.findall(r"(?<![\w/.@+-])[A-Za-z][a-z]+(?![\w/@+-]|\.\w)", text.replace("CODE", " ")):
                if name not in UNSPELT:
                    spelt.setdefault(word, f"{name}:{line}")
        prose = " ".join(text if text.endswith((".", "!", "?")) else text + "." for _, text in parts if len(text.split()) > 4)
        flesch = textstat.flesch_reading_ease(prose.replace("CODE", "it"))
        table.append((name, len(prose.split()), flesch))
        if judged and flesch < LEAST_FLESCH:
            findings.append(f"{name}: reading ease {flesch:.0f}, less than {LEAST_FLESCH}: shorter sentences and words")
    wrong = misspelt(spelt)
    findings += [f"{spelt[word]}: “{word}” is not in the dictionary; a term goes into tests/prose/words.txt" for word in sorted(wrong)]
    for name, words, flesch in table:
        print(f"{words:6} words  reading ease {flesch:4.0f}  {name}")
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(table)} texts")
    return bool(findings)


sys.exit(main())
