"""When a case counts as failed: test_loop.py"""

import math
import types
import unittest

import loop

NOISELESS = ((1.0, None), (1.0, None))


def run(before=10.0, measured=10.0, after=10.0, again=10.0, spread=0.0, **more):
    more.setdefault("references", NOISELESS)
    return loop.Run(before, measured, after, again, spread, **more)


def case(*runs):
    made = loop.Case(types.SimpleNamespace(engine="engine", name="model"))
    for one in runs:
        disturbed = one.disturbed()
        made.tries.append(({"format": "fp16", "batch": 1, "threads": 1}, one, disturbed, {} if disturbed else one.beyond()))
    return made


class Verdicts(unittest.TestCase):
    def test_one_run_beyond_a_limit_is_run_again_and_no_failure(self):
        once = case(run(after=13.0))
        self.assertEqual((once.state(), once.wants_again()), ("unconfirmed", 2))
        self.assertEqual(case(run(after=13.0), run(after=7.0)).state(), "unconfirmed")
        self.assertEqual(case(run(after=13.0), run()).state(), "ok")

    def test_two_runs_beyond_one_limit_on_one_side_are_a_failure(self):
        for broken in ({"after": 13.0}, {"before": 30.0}, {"measured": 30.0}, {"own": 7.0}, {"refused": "too fast"}):
            failed = case(run(**broken), run(), run(**broken))
            self.assertEqual((failed.state(), failed.wants_again()), ("FAILED", 0), broken)
            self.assertTrue(failed.verdict().startswith("twice "), failed.verdict())

    def test_what_is_disturbed_is_not_judged(self):
        for noise in ({"spread": 0.5}, {"references": ((1.4, None), (1.0, None))}, {"references": ((1.0, "busy"), (1.0, None))},
                      {"references": ((None, None), (1.0, None))}, {"measured": math.nan, "noise": "nothing was observed"},
                      {"refused": f"{loop.SLOWED}: another process"}):
            disturbed = case(run(after=13.0, **noise), run(after=13.0, **noise))
            self.assertEqual((disturbed.state(), disturbed.wants_again()), ("disturbed", 1), noise)

    def test_limits_give_way_by_the_noise_that_was_seen(self):
        self.assertEqual(case(run(after=11.6)).state(), "unconfirmed")
        self.assertEqual(case(run(after=11.6, spread=0.1)).state(), "ok")
        self.assertEqual(case(run(after=11.6, references=((1.1, None), (1.0, None)))).state(), "ok")


if __name__ == "__main__":
    unittest.main()
