#!/usr/bin/env python3
"""Runs the commands of the documents: run.py [--update] [PAGE…]

A block is what stands between ```sh or ```python and ```: a script, which has to end with 0. In one between ```console and ``` each line after
"$ " is a command (it goes on behind a backslash or a pipe), and what follows is what it printed: the labels have to be printed again, in that order, figures and units may
differ. A line "…" stands for any lines. A block with a file's name, as in ```json target.json, is put into that file.

What a block needs or gives stands in a comment on the line before it, between its mark and "-->":

    <!-- run: board gb10, control     a simulated board and [control] enabled = true (else: that of DEFAULT, without control)
    <!-- run: control, auto           and [policy] auto = "switch"
    <!-- run: no daemon               none is started
    <!-- run: endless                 it is interrupted after three seconds and must have printed something
    <!-- run: exit 3                  the exit code of its last command
    <!-- run: exact                   every figure is printed again
    <!-- not run: needs a Jetson      why; "; stage NAME" at its end says which stage of CI runs it instead
    <!-- every block not run: …       the same for a whole page
    <!-- printed by: COMMAND          what stands from here to a comment "end" is exactly what the command prints, run like a block

Everything runs in namespaces of its own: no network but a loopback, private /etc, /run and /var/lib, and nothing outlives it. The
programs are those of ROOFLINED_BINARIES (target/release), the working directory is a scratch one with the files of `fixtures`.
--update writes what was printed into the console blocks that differ and have no "…".
"""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARIES = pathlib.Path(os.environ.get("ROOFLINED_BINARIES") or REPOSITORY / "target/release").resolve()
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
PAGES += [str(page.relative_to(REPOSITORY)) for pages in ("docs/*.md", "docs/internals/*.md") for page in sorted(REPOSITORY.glob(pages))]
STAGES = {path.stem.split("-", 1)[1] for path in REPOSITORY.glob(".ci/stages/*.sh")}
DEFAULT = "jetson-orin-nano-8gb-super"
SOCKET = "/run/rooflined"
LIMIT_S = 180
KEPT = pathlib.Path("/run/rooflined-calibrated")
KINDS = ("sh", "console", "python", "printed")
UNITS = set(
    "s ms us µs ns min h d B kB KB MB GB TB KiB MiB GiB B/s MB/s GB/s TB/s Hz kHz MHz GHz W mW J mJ uJ µJ A mA V mV °C C % /s x K M G T "
    "OP/s GOP/s TOP/s FLOP/s GFLOP/s TFLOP/s tokens/s FLOP/byte".split()
)
BUS = """<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><policy context="default">
<allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>"""


class Wrong(Exception):
    """What a document says is not so."""


class Block:
    """One fenced block of a page: where it begins, what kind it is, what its marker says, its lines."""

    def __init__(self, page, line, info, marker):
        self.page, self.line, self.lines = page, line, []
        self.kind, _, self.file = info.partition(" ")
        self.not_run, self.exit, self.board, self.daemon = None, 0, DEFAULT, True
        self.control = self.auto = self.endless = self.exact = False
        what, _, rest = marker.partition(":")
        if what.endswith("not run"):
            self.not_run, _, stage = rest.strip().partition("; stage ")
            self.stage = stage.strip()
            if not self.not_run or self.stage and self.stage not in STAGES:
                raise Wrong(f"{self}: no reason, or no such stage: {marker}")
            return
        for word in filter(None, (word.strip() for word in rest.split(","))):
            key, _, value = word.partition(" ")
            if key == "board" and value:
                self.board = value
            elif key == "exit" and value.isdigit():
                self.exit = int(value)
            elif word == "no daemon":
                self.daemon = False
            elif word in ("control", "auto", "endless", "exact"):
                setattr(self, word, True)
            else:
                raise Wrong(f"{self}: {word!r} is no marker")

    def __str__(self):
        return f"{self.page}:{self.line}"

    def commands(self):
        """Of a console block: (command, the lines printed, where these begin)."""
        if self.kind == "printed":
            return [[self.command, self.lines, 0]]
        found = []
        for number, line in enumerate(self.lines):
            if found and found[-1][0].endswith(("\\", "|")) and not found[-1][1]:
                found[-1][0] += "\n" + line
                found[-1][2] = number + 1
            elif line.startswith("$ "):
                found.append([line[2:], [], number + 1])
            elif not found:
                raise Wrong(f"{self}: output without a command")
            else:
                found[-1][1].append(line)
        return found


def blocks(page):
    """The blocks of a page, in order."""
    found, marker, everywhere, block = [], "", "", None
    for number, line in enumerate((REPOSITORY / page).read_text().splitlines(), 1):
        if block:
            if line == ("<!-- end -->" if block.kind == "printed" else "```"):
                found.append(block)
                block, marker = None, ""
            else:
                block.lines.append(line)
        elif re.match("```(?!`)", line):
            block = Block(page, number, line[3:].strip(), marker or everywhere)
        elif (comment := re.fullmatch(r"<!-- ((?:every block )?(?:not )?run: .*) -->", line)):
            marker = comment[1]
            if marker.startswith("every block"):
                everywhere, marker = marker, ""
        elif (comment := re.fullmatch(r"<!-- printed by: (.*) -->", line)):
            block = Block(page, number, "printed", "run: exact")
            block.command = comment[1]
        elif marker and line.strip():
            raise Wrong(f"{page}:{number}: a marker stands above the block that it is for")
    if block or marker:
        raise Wrong(f"{page}: ends in a block, or with a marker")
    return found


def shape(line):
    """The words of a line without figures, units and drawing."""
    line = re.sub(r"[^\x20-\x7eµ°]", " ", line)
    words = (word.strip(",.;:()[]{}\"'|+-=") for word in line.split())
    return [word for word in words if word and word not in UNITS and not re.search(r"\d", word)]


def alike(shown, printed, exact):
    """Whether what is shown is what was printed; a line "…" is any lines."""
    same = (lambda a, b: a.rstrip() == b.rstrip()) if exact else (lambda a, b: shape(a) == shape(b))
    shown = [line for line in shown if line.strip()]
    printed = [line for line in printed if line.strip()]
    # Which prefixes of what was printed are told by the lines so far.
    ends = {0}
    for line in shown:
        if line.strip() == "…":
            ends = set(range(min(ends), len(printed) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(printed) and same(line, printed[end])}
    return len(printed) in ends


class Scratch:
    """A working directory and, while a block needs one, a daemon."""

    def __init__(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="rl-documents-"))
        self.work = self.home / "work"
        self.work.mkdir()
        self.daemon, self.settings = None, None
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("ROOFLINED_")},
            "PATH": f"{BINARIES}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(REPOSITORY / "clients/python"), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self.work),
            "XDG_RUNTIME_DIR": "/run/user/me", "ROOFLINED_SOCKET": SOCKET, "TABLES": str(REPOSITORY / "tests/documents"), "LC_ALL": "C.UTF-8", "COLUMNS": "140",
        }
        for directory in ("/run/user/me", "/run/dbus", "/etc/rooflined", "/var/lib/rooflined",
                          "/var/lib/prometheus/node-exporter", "/etc/kubernetes/node-feature-discovery/features.d"):
            os.makedirs(directory, exist_ok=True)
        # Where a daemon started by hand has its sockets, and an installed one the second of them.
        os.symlink(SOCKET, "/run/user/me/rooflined")
        os.symlink(SOCKET, "/run/rooflined-control")
        self.fixtures()
        (self.home / "bus.xml").write_text(BUS)
        subprocess.run(["dbus-daemon", "--fork", "--config-file", str(self.home / "bus.xml")], check=True)

    def fixtures(self):
        """Files that the pages take for granted: a model, a network and a service."""
        subprocess.run([sys.executable, REPOSITORY / "tests/random_onnx.py", self.work / "detector.onnx"], check=True)
        subprocess.run([sys.executable, REPOSITORY / "tests/random_gguf.py", "small", "q8_0", self.work / "model.gguf"],
                       check=True, stdout=subprocess.DEVNULL)
        (self.work / "service").write_text("#!/bin/sh\nexec sleep 0.2\n")
        (self.work / "service").chmod(0o755)

    def enter(self, block):
        """Has the daemon that a block asks for; one state for each kind of daemon."""
        settings = (block.board, block.control, block.auto) if block.daemon else None
        if settings == self.settings and (not self.daemon or self.daemon.poll() is None):
            return
        self.leave()
        self.settings = settings
        if not settings:
            return
        place = self.home / "-".join(map(str, settings))
        # Calibrated once for each board; what a page does to its own does not meet the next one.
        calibrated = KEPT / block.board
        if not place.exists() and calibrated.exists():
            shutil.copytree(calibrated, place, symlinks=True)
        (place / "root").mkdir(parents=True, exist_ok=True)
        config = pathlib.Path("/etc/rooflined/rooflined.toml")
        config.write_text("[control]\nenabled = true\n" * block.control + '[policy]\nauto = "switch"\n' * block.auto)
        with open(place / "log", "ab") as log:
            self.daemon = subprocess.Popen(
                [BINARIES / "rooflined", "serve", "--simulate", block.board, "--root", place / "root", "--socket", SOCKET,
                 "--state-dir", place / "state", "--bus", "system"], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(300):
            if self.ask("status").returncode == 0:
                break
            if self.daemon.poll() is not None:
                break
            time.sleep(0.1)
        else:
            self.daemon.kill()
        said = self.ask("status") if calibrated.exists() else self.ask("calibrate", "--quick", "--force", "--wait", "--timeout", "60s")
        if self.daemon.poll() is not None or said.returncode != 0:
            raise Wrong(f"the daemon of {block.board} is not ready:\n{said.stderr}{(place / 'log').read_text()[-2000:]}")
        if not calibrated.exists():
            shutil.copytree(place, calibrated, symlinks=True)

    def ask(self, *words):
        return subprocess.run([BINARIES / "rooflinectl", *words], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def leave(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            try:
                self.daemon.wait(20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        self.daemon = self.settings = None

    def run(self, script, endless=False, shell=("bash", "-euo", "pipefail")):
        """Exit code and what was printed by both streams together. What the script leaves running ends with it."""
        with tempfile.TemporaryFile() as output:
            shell = subprocess.Popen([*shell, "-c", script], cwd=self.work, env=self.environment,
                                     stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                code = shell.wait(3 if endless else LIMIT_S)
                if endless:
                    time.sleep(1)
            except subprocess.TimeoutExpired:
                # 0 for what was not meant to end, and did not.
                code = 0 if endless else f"none after {LIMIT_S} s"
            for kill in (signal.SIGINT, signal.SIGKILL):
                try:
                    os.killpg(shell.pid, kill)
                    shell.wait(5)
                    time.sleep(0.2)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
            output.seek(0)
            return code, output.read().decode(errors="replace")


def check(block, scratch):
    """Runs a block; what a console block printed where it differs: [(where, lines)]."""
    scratch.enter(block)
    differing = []
    if block.kind in ("sh", "python"):
        shell = {"shell": [sys.executable]} if block.kind == "python" else {}
        code, output = scratch.run("\n".join(block.lines), block.endless, **shell)
        if code != block.exit:
            raise Wrong(f"exit code {code} instead of {block.exit}:\n{output[-3000:]}")
        if block.endless and not output.strip():
            raise Wrong("it printed nothing in three seconds")
        return differing
    commands = block.commands()
    for command, shown, where in commands:
        code, output = scratch.run(command, block.endless)
        wanted = block.exit if command == commands[-1][0] else 0
        if code != wanted:
            raise Wrong(f"exit code {code} instead of {wanted} of {command}:\n{output[-3000:]}")
        if not alike(shown, output.splitlines(), block.exact):
            differing.append((where, shown, [line.rstrip() for line in output.rstrip("\n").split("\n")]))
    return differing


def update(page, changes):
    """Writes what was printed into the page, from its end so that places stay true."""
    path = REPOSITORY / page
    lines = path.read_text().splitlines()
    for block, (where, shown, printed) in reversed(changes):
        lines[block.line + where : block.line + where + len(shown)] = printed
    path.write_text("\n".join(lines) + "\n")


def isolated():
    """Inside the namespaces: a loopback, and private copies of what the commands write to."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source, target, kind, flags, data=None):
        if libc.mount(source, target.encode(), kind, flags, data) != 0:
            raise OSError(ctypes.get_errno(), f"mount {target}")

    bind, recursive, private = 0x1000, 0x4000, 0x40000
    mount(None, "/", None, recursive | private)
    # A place that every system has; what is mounted there is seen in here alone and ends with it.
    copy = "/mnt"
    mount(b"tmpfs", copy, b"tmpfs", 0, b"mode=755")
    shutil.copytree("/etc", f"{copy}/etc", symlinks=True, ignore_dangling_symlinks=True)
    mount(f"{copy}/etc".encode(), "/etc", None, bind)
    for directory in ("/run", "/var/lib"):
        mount(b"tmpfs", directory, b"tmpfs", 0, b"mode=755")
    up = struct.pack("16sh", b"lo", 1 | 0x40)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, up)
    os.environ["TMPDIR"] = tempfile.tempdir = f"{copy}/tmp"
    os.mkdir(tempfile.tempdir, 0o1777)


def main():
    words = sys.argv[1:]
    if words[:1] != ["--isolated"]:
        here = [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", ["unshare", *here, "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc",
                              sys.executable, __file__, "--isolated", *words])
    words = words[1:]
    updating = "--update" in words
    pages = [word for word in words if not word.startswith("-")] or PAGES
    isolated()
    began, ran, failed, files, elsewhere, not_run, unmarked = time.monotonic(), 0, 0, 0, {}, [], 0
    for page in pages:
        try:
            found = blocks(page)
        except Wrong as wrong:
            print(f"check: FAILED {wrong}")
            failed += 1
            continue
        scratch, changes = None, []
        for block in found:
            if block.kind in KINDS and block.not_run:
                if block.stage:
                    elsewhere.setdefault(block.stage, []).append(block)
                else:
                    not_run.append(block)
                continue
            if block.file or block.kind in KINDS:
                scratch = scratch or Scratch()
            if block.file:
                (scratch.work / block.file).write_text("\n".join(block.lines) + "\n")
                files += 1
            if block.kind not in KINDS:
                continue
            first = block.command if block.kind == "printed" else block.lines[0].removeprefix("$ ") if block.lines else ""
            first, started = first[:70], time.monotonic()
            try:
                differing = check(block, scratch)
                loose = [change for change in differing if updating and not any(line.strip() == "…" for line in change[1])]
                changes += [(block, change) for change in loose]
                for where, shown, printed in differing:
                    if (where, shown, printed) not in loose:
                        raise Wrong("it prints something else:\n" + "\n".join(printed[:60]))
                print(f"check: ok {block} {first} ({time.monotonic() - started:.1f} s)", flush=True)
                ran += 1
            except Wrong as wrong:
                failed += 1
                print(f"check: FAILED {block} {first}\n" + re.sub("^", "    ", str(wrong), flags=re.M), flush=True)
        if changes:
            update(page, changes)
        if scratch:
            scratch.leave()
            # The next page finds nothing of this one: its bus, its links.
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                if int(process.name) not in (1, os.getpid()):
                    try:
                        os.kill(int(process.name), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            for path in ("/run", "/var/lib", "/etc/rooflined"):
                for entry in os.scandir(path):
                    if entry.path == str(KEPT):
                        continue
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
    for stage, there in sorted(elsewhere.items()):
        print(f"run by stage {stage}: {', '.join(map(str, there))}")
    for block in not_run:
        print(f"not run: {block}: {block.not_run}")
    print(f"documents: {ran} blocks run, {failed} failed, {sum(map(len, elsewhere.values()))} run by other stages, {len(not_run)} not run, "
          f"in {time.monotonic() - began:.0f} s")
    # A runner that finds nothing proves nothing.
    return 1 if failed or (pages is PAGES and ran < 30) else 0


if __name__ == "__main__":
    sys.exit(main())
