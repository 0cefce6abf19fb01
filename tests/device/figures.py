"""Figures as text, and the table that they go into."""

import math

# Largest deviation from the reference, relative to the largest value.
TOLERANCE = 0.02
SCALES = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p")]


class Missing(Exception):
    """Why a part cannot be had, for the table."""


def amount(value, unit):
    """Four digits and the unit with its prefix."""
    if value == 0:
        return f"0 {unit}"
    for scale, prefix in SCALES:
        if abs(value) >= scale:
            break
    return f"{value / scale:.4g} {prefix}{unit}"


def gigabytes(rate):
    return f"{rate / 1e9:.0f} GB/s" if rate >= 1e11 else f"{rate / 1e9:.3g} GB/s"


def percent(ratio):
    return f"{ratio * 100:.1f} %"


class Table:
    """Rows as they come, so that nothing that was measured is lost to what hangs later."""

    HEAD = ["part", "figure", "value", "yardstick", "ratio", "goal", "verdict", "source"]

    def __init__(self):
        self.wrong = self.missed = self.met = self.alone = self.absences = 0
        self.line(self.HEAD)
        self.line(["---"] * len(self.HEAD), "|")

    def line(self, cells, around=" "):
        separator = f"{around}|{around}" if around == " " else "|"
        start, end = ("| ", " |") if around == " " else ("|", "|")
        clean = [" ".join(str(cell).replace("|", "/").split()) or "-" for cell in cells]
        print(start + separator.join(clean) + end, flush=True)

    def row(self, part, figure, value, yardstick="-", ratio=None, goal=None, source="-", most=False):
        """`goal` is a lower bound of the ratio; an upper one of it with `most`."""
        verdict = "shown"
        if goal is not None and ratio is not None:
            met = ratio <= goal if most else ratio >= goal
            self.met, self.missed = self.met + met, self.missed + (not met)
            verdict = "met" if met else "**missed**"
        elif goal is not None:
            verdict = "no yardstick"
            self.alone += 1
        goal = "-" if goal is None else f"{'≤' if most else '≥'} {goal:g}"
        ratio = "-" if ratio is None else f"{ratio:.3f}"
        self.line([part, figure, value, yardstick, ratio, goal, verdict, source])

    def checked(self, figure, error, source):
        """A row about a result; `error` is `None` where it is no number at all."""
        right = error is not None and math.isfinite(error) and error <= TOLERANCE
        self.wrong += not right
        value = "no finite result" if error is None else f"error {error:.2g}"
        goal = f"error ≤ {TOLERANCE:g}"
        self.line(["correctness", figure, value, "f64 on the CPU", "-", goal, "met" if right else "**missed**", source])

    def absent(self, part, figure, reason, source="-", wrong=False):
        self.wrong += wrong
        self.absences += 1
        self.line([part, figure, f"not had: {reason}", "-", "-", "-", "**missed**" if wrong else "not run", source])
