"""Programs that are given a time, and what they print."""

import json
import os
import signal
import subprocess
import time

from figures import Missing


class Clock:
    """What is left of the time for all."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return self.end - time.monotonic()

    def share(self, seconds):
        """At most so many of the seconds left."""
        left = self.left()
        if left < 3:
            raise Missing("the time for the whole table is over")
        return min(seconds, left)


def run(command, seconds, stdin=subprocess.DEVNULL):
    """Exit code and output of a command; what it printed before it was stopped counts."""
    try:
        with subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=seconds)
                return process.returncode, out, err
            except BaseException as stopped:
                os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(stopped, subprocess.TimeoutExpired):
                    raise
                try:
                    out, err = process.communicate(timeout=3)
                except subprocess.TimeoutExpired:
                    # In a system call of the driver that does not return.
                    out, err = "", ""
                    process.returncode = -signal.SIGKILL
                return None, out, f"stopped after {seconds:.0f} s\n{err}"
    except OSError as error:
        raise Missing(f"{command[0]}: {error.strerror or error}") from error


def complaint(text):
    """What a program says of its failure: the line that begins with "error", else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error")]
    return (errors or lines[-1:] or ["no reason given"])[0]


def objects(text):
    """JSON objects of lines; a line that was cut is none."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found
