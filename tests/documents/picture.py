#!/usr/bin/env python3
"""Draws what commands show in a terminal: picture.py BOARD COLUMNS LINES SECONDS COMMAND… >FILE.svg

A daemon of the simulated BOARD is started and calibrated, the COMMANDs run in a pseudo terminal, for SECONDS at most, and the cells of its
screen are written as SVG text. Needs rooflined and rooflinectl on the PATH, and pyte 0.8.2 of PyPI. docs/images/terminal.svg is that of

    picture.py jetson-agx-orin-64gb 130 70 20 'rooflinectl roofline | head -42' \\
        'rooflinectl recommend llama-3.1-8b --engine llama.cpp --max-time-per-token 200ms --formats q4_k_m,q8_0'
"""

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from xml.sax.saxutils import escape

import pyte

WIDTH, HEIGHT, MARGIN, BAR = 8.4, 17, 14, 30
INK, PAPER, FRAME = "#d6d9de", "#14171c", "#22262e"
COLOURS = {
    "default": INK, "black": "#5c6370", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "yellow": "#e5c07b", "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#e8eaed", "brightblack": "#7d8590",
}


def colour(name, other):
    if name in COLOURS and name != "default":
        return COLOURS[name]
    return other if name == "default" else COLOURS.get(name.removeprefix("bright"), "#" + name if len(name) == 6 else other)


def screen(commands, columns, lines, seconds):
    """What the commands have drawn when they end or are interrupted."""
    script = "\n".join(f"printf '\\033[1;32m$\\033[0m %s\\n' {shlex.quote(command)}\n{command}" for command in commands)
    shown = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(shown)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8", COLUMNS=str(columns), LINES=str(lines))
        time.sleep(0.2)
        os.execvp("sh", ["sh", "-c", script])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:
                break
            # Queries of the terminal are not answered, and private modes are no text.
            stream.feed(data)
    try:
        os.kill(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)
    os.close(terminal)
    return shown


def runs(row, columns):
    """Cells of a line that look alike and stand side by side: (column, text, foreground, background, bold)."""
    found = []
    for column in range(columns):
        cell = row[column]
        ink, paper = colour(cell.fg, INK), colour(cell.bg, PAPER)
        if cell.reverse:
            ink, paper = paper, ink
        look = (ink, paper, cell.bold)
        if found and found[-1][2:] == look:
            found[-1] = (found[-1][0], found[-1][1] + cell.data, *look)
        else:
            found.append((column, cell.data, *look))
    return found


def svg(shown, title):
    used = max((line for line in range(shown.lines) if shown.display[line].strip()), default=0) + 1
    width, height = shown.columns * WIDTH + 2 * MARGIN, used * HEIGHT + 2 * MARGIN + BAR
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/><path d="M0 8a8 8 0 0 1 8-8h{width - 16:.0f}a8 8 0 0 1 8 8v{BAR - 8}H0z" fill="{FRAME}"/>',
        f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="14" fill="{INK}">',
        f'<text x="{width / 2:.0f}" y="20" text-anchor="middle" font-size="12.5">{escape(title)}</text>',
    ]
    for line in range(used):
        top = BAR + MARGIN + line * HEIGHT
        for column, text, ink, paper, bold in runs(shown.buffer[line], shown.columns):
            left, wide = MARGIN + column * WIDTH, len(text) * WIDTH
            if paper != PAPER:
                out.append(f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{HEIGHT}" fill="{paper}"/>')
            look = (f' fill="{ink}"' if ink != INK else "") + (' font-weight="bold"' if bold else "")
            # Each word at its place, with its length, keeps columns in line whatever font the reader has.
            for word in re.finditer(r"\S+(?: \S+)*", text):
                bare, at = word[0], left + word.start() * WIDTH
                out.append(f'<text x="{at:.1f}" y="{top + 13}" textLength="{len(bare) * WIDTH:.1f}" lengthAdjust="spacingAndGlyphs" '
                           f'xml:space="preserve"{look}>{escape(bare)}</text>')
    return "\n".join([*out, "</g></svg>"]) + "\n"


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    board, columns, lines, seconds, commands = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:]
    with tempfile.TemporaryDirectory(prefix="rl-") as place:
        os.mkdir(f"{place}/board")
        os.environ["ROOFLINED_SOCKET"] = f"{place}/run"
        daemon = subprocess.Popen(
            ["rooflined", "serve", "--simulate", board, "--root", f"{place}/board", "--socket", f"{place}/run", "--state-dir", f"{place}/state",
             "--bus", "none", "--exit-on-stdin-close"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            for _ in range(100):
                if subprocess.run(["rooflinectl", "status"], capture_output=True, check=False).returncode == 0:
                    break
                time.sleep(0.1)
            subprocess.run(["rooflinectl", "calibrate", "--force", "--wait", "--timeout", "120s"], check=True, capture_output=True)
            shown = screen(commands, columns, lines, seconds)
        finally:
            daemon.stdin.close()
            daemon.wait(20)
    if not any(line.strip() for line in shown.display):
        sys.exit("the command has shown nothing")
    sys.stdout.write(svg(shown, f"rooflinectl - SIMULATED {board}: no value describes hardware"))


if __name__ == "__main__":
    main()
