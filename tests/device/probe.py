"""`rooflined probe`: plans for a GPU, and the best of its samples."""

import json
import os

from commands import complaint, objects, run
from figures import TOLERANCE, Missing


class Gpu:
    """The program's probe, given plans."""

    def __init__(self, program, facts, clock, directory):
        self.program, self.facts, self.clock = program, facts, clock
        self.plan_file = os.path.join(directory, "plan.json")
        self.samples = {}
        self.skipped = {}
        # Why the last run that failed did.
        self.failure = "the probe gave no sample"
        # Of samples whose result was wrong: what ran, and how wrong it was.
        self.bad = {}

    def step(self, budget, **kernel):
        return {"kernel": kernel, "threads": self.facts.get("sm_count", 1), "budget_s": budget}

    def gemv(self, n, k, form, budget=0.15):
        return self.step(budget, kind="gemv", n=n, k=k, columns=1, format=form, case="dram")

    def stream(self, pattern, size, budget=0.15):
        return self.step(budget, kind="stream", pattern=pattern, bytes=size, stores="temporal")

    def probe(self, steps, seconds, holds=()):
        """Events of a run. Samples are kept by what ran, the best of all runs."""
        seconds = self.clock.share(seconds)
        plan = {
            "steps": list(steps),
            "holds": list(holds),
            "accelerator": "gpu",
            "cpus": [],
            "warm_up_s": 1.0,
            "time_limit_s": max(seconds - 2, 1),
            "memory_limit_bytes": self.facts.get("memory_bytes", 1 << 30),
            "seed": 1,
        }
        # From a file, because a pipe that is closed cancels the run.
        with open(self.plan_file, "w", encoding="utf-8") as file:
            json.dump(plan, file)
            file.write("\n")
        with open(self.plan_file, encoding="utf-8") as file:
            code, out, err = run([self.program, "probe"], seconds, file)
        events = list(objects(out))
        for event in events:
            if event.get("event") == "sample":
                self.keep(event)
            elif event.get("event") == "skipped":
                self.skipped[name_of(event["kernel"])] = event.get("reason", "no reason given")
        if code != 0:
            self.failure = complaint(err)
        elif not any(event.get("event") == "finished" for event in events):
            self.failure = "the probe ended before its plan did"
        # What came before it ended is kept.
        if not any(event.get("event") in ("sample", "held", "not_held", "skipped") for event in events):
            raise Missing(self.failure)
        return events

    def keep(self, sample):
        name = name_of(sample["kernel"])
        # Infinity and no number have no JSON form: they come as null.
        if sample["kernel"]["kind"] not in ("wake", "submit"):
            error = sample.get("max_error_ratio")
            if error is None or not error <= TOLERANCE:
                self.bad[name] = error
        times = [time for time in sample.get("times") or [] if time and time > 0]
        if times:
            best = self.samples.get(name)
            if best is None or min(times) < best["best"]:
                self.samples[name] = {**sample, "best": min(times)}

    def best(self, step):
        """The sample with the shortest time of a step."""
        name = name_of(step["kernel"])
        if name not in self.samples:
            raise Missing(self.skipped.get(name, self.failure))
        return self.samples[name]

    def rate(self, step, what):
        sample = self.best(step)
        return sample[what] / sample["best"]


def name_of(kernel):
    return json.dumps(kernel, sort_keys=True)


def point_name(kernel):
    """A load by what makes it: sizes differ between plans."""
    if kernel is None:
        return "idle"
    return " ".join(str(kernel.get(key, "")) for key in ("kind", "pattern", "precision", "format")).strip()


def described(kernel):
    kind = kernel.get("kind", "?")
    sizes = "x".join(str(kernel[key]) for key in ("m", "n", "k") if key in kernel)
    rest = [str(kernel[key]) for key in ("pattern", "precision", "format", "case") if key in kernel]
    return " ".join([kind, *([sizes] if sizes else []), *rest])
