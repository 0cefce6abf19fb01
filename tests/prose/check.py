#!/usr/bin/env python3
"""Checks what a machine can check of the project's English: check.py [PAGE…]

Documents, the help of every command (rooflinectl in $ROOFLINED_BINARIES, or target/release), the package's description, the
docstrings of the Python client, and comments of configuration, units and packaging: phrases of banned.txt, sentences of more
than 30 words, spelling (hunspell, en_GB, and words.txt), and for each document the Flesch reading ease (textstat), which has to
be 50 or more. Documents begin with a command, stay short, say nothing twice, link to what exists, and are reached from README.
Commands are run by tests/documents. Prints one line for each finding and ends with 1 if there is any.
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
# Shorter texts are checked without a line of their own.
LEAST_SHOWN = 40
# Words of prose, and of all that `wc -w` counts, in the README; of all documents for users together; of one decision.
MOST_README_PROSE, MOST_README, MOST_DOCUMENTS, MOST_DECISION = 400, 650, 15000, 420
# A document begins with what most readers came for: a command, within so many words.
MOST_BEFORE_COMMAND = 60
WITHOUT_COMMAND = ["architecture.md", "comparison.md"]
# Shorter sentences may be the same in two documents.
REPEATED_WORDS = 9
LINKED_PAGES = ["*.md", "docs/**/*.md", "clients/**/*.md", "config/**/*.md", "fuzz/*.md", "kernels/*.md", "packaging/**/*.md", "tests/data/*.md"]
# A cell with three operators is a formula and not a sentence.
OPERATOR = re.compile(r" [x/=+] ")
USER_PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md"]
OTHER_PAGES = ["docs/internals/*.md", "docs/decisions/*.md", "config/*/README.md", "clients/python/README.md", "packaging/wheel/README.md",
               "fuzz/README.md"]
# A table of other people's names.
UNSPELT = ["docs/internals/dependencies.md"]
COMMENTED = ["Cargo.toml", "config/**/*.toml", "systemd/*.*t", "systemd/*.service", "packaging/build", "packaging/tree", "packaging/*.sh",
             "clients/python/rooflined/*.py"]
# Written from the comments of the API's types.
GENERATED = ["clients/python/rooflined/types.py"]


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
    """Comments line by line, and text between three quotes, paragraph by paragraph."""
    for quoted in re.finditer(r'"""(.*?)"""', text, re.S):
        for line, paragraph in paragraphs(re.sub(r"(?m)^    ", "", quoted[1])):
            yield text.count("\n", 0, quoted.start()) + line, paragraph
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*# ?[A-Za-z]", line) and not re.match(r"\s*# ?([\w.\"-]+ = |shellcheck )", line):
            yield number, re.sub(r"`[^`]*`", "CODE", line.strip("# "))


def sentences(text):
    return re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"(])|(?<=[.!?])\s+(?=\d)", text)


def anchors(text):
    """The fragments that GitHub gives the headings of a page."""
    found, fenced = set(), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-"))
    return found


def dead_links():
    for path in sorted({path for pattern in LINKED_PAGES for path in ROOT.glob(pattern)}):
        if "node_modules" in path.parts:
            continue
        text, name = path.read_text(), path.relative_to(ROOT)
        for match in re.finditer(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)", text):
            target = path.parent / match[1] if match[1] else path
            line = text.count("\n", 0, match.start()) + 1
            if not target.exists():
                yield f"{name}:{line}: a link to {match[1]}, which does not exist"
            elif match[2] and target.suffix == ".md" and match[2] not in anchors(target.read_text()):
                yield f"{name}:{line}: a link to #{match[2]}, which is no heading of {match[1] or name}"


def lengths():
    """Documents that became too long, and those that nobody finds."""
    def count(path):
        return len(path.read_text().split())

    documents = sorted(ROOT.glob("docs/*.md"))
    total, readme = sum(map(count, documents)), ROOT / "README.md"
    print(f"{total:6} words in {len(documents)} documents (at most {MOST_DOCUMENTS}), {count(readme)} in README.md (at most {MOST_README}), as wc counts")
    if total > MOST_DOCUMENTS:
        yield f"docs: {total} words, more than {MOST_DOCUMENTS}: cut, or move what only developers need to docs/internals"
    if count(readme) > MOST_README:
        yield f"README.md: {count(readme)} words, more than {MOST_README}"
    for path in documents:
        if f"(docs/{path.name})" not in readme.read_text():
            yield f"docs/{path.name}: README.md has no link to it"
        before = len(re.sub(r"<!--.*?-->", "", path.read_text().partition("\n```")[0], flags=re.S).split())
        if before > MOST_BEFORE_COMMAND and path.name not in WITHOUT_COMMAND:
            yield f"docs/{path.name}: {before} words before the first command: begin with what most readers came for"
    for path in sorted(ROOT.glob("docs/decisions/*.md")):
        if count(path) > MOST_DECISION:
            yield f"docs/decisions/{path.name}: {count(path)} words, more than {MOST_DECISION}: half a page is enough"


def repeated(pages):
    """Sentences that two documents for users share."""
    first = {}
    for name, parts, _ in pages:
        if name != "README.md" and not re.fullmatch(r"docs/[\w-]+\.md", name):
            continue
        for line, text in parts:
            for sentence in sentences(text):
                if len(sentence.split()) >= REPEATED_WORDS:
                    where = first.setdefault(sentence.strip(" .:"), (name, line))
                    if where[0] != name:
                        yield f"{name}:{line}: also in {where[0]}:{where[1]}: {sentence[:80]}"


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
        for path in sorted(ROOT.glob(pattern)):
            if str(path.relative_to(ROOT)) not in GENERATED:
                found.append((str(path.relative_to(ROOT)), list(comments(path.read_text())), False))
    return found


def main():
    phrases = list(banned())
    findings, spelt, table = [], {}, []
    texts = pages(sys.argv[1:])
    for name, parts, judged in texts:
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
        if name == "README.md" and len(prose.split()) > MOST_README_PROSE:
            findings.append(f"README.md: {len(prose.split())} words of prose, more than {MOST_README_PROSE}")
    wrong = misspelt(spelt)
    findings += [f"{spelt[word]}: “{word}” is not in the dictionary; a term goes into tests/prose/words.txt" for word in sorted(wrong)]
    findings += repeated(texts)
    if not sys.argv[1:]:
        findings += [*dead_links(), *lengths()]
    for name, words, flesch in table:
        if words >= LEAST_SHOWN:
            print(f"{words:6} words  reading ease {flesch:4.0f}  {name}")
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings in {len(table)} texts")
    return bool(findings)


sys.exit(main())
