"""docs/api.md and docs/internals/migration.md do what they say."""

import json
import os
import re
import subprocess
import sys
import unittest

import rooflined
from daemon import REPOSITORY, Daemon

MANUAL = (REPOSITORY / "docs/api.md").read_text()
MIGRATION = (REPOSITORY / "docs/internals/migration.md").read_text()


def fenced(language, page=MANUAL):
    return re.findall(r"^```" + language + r"\n(.*?)^```", page, re.M | re.S)


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    def setUp(self):
        self.environment = {**os.environ, "ROOFLINED_SOCKET": self.daemon.socket}

    def test_its_programs_run(self):
        for program, rates in zip(fenced("python"), (1, 3)):
            said = subprocess.run([sys.executable, "-c", program], env=self.environment, check=True, stdout=subprocess.PIPE)
            lines = said.stdout.decode().splitlines()
            self.assertEqual(len(lines), rates + 2, lines)
            self.assertTrue(all(float(rate) > 0 for line in lines[:rates] for rate in line.split()), lines)
            self.assertEqual(lines[rates], "state")
            self.assertTrue(lines[rates + 1].startswith(("unsatisfiable", "15W", "7W")), lines)
        self.assertEqual(len(fenced("python")), 2)

    def test_the_notebook_shows_what_it_gives_and_that_it_was_simulated(self):
        notebook = json.loads((REPOSITORY / "clients/python/examples/roofline.ipynb").read_text())
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
        self.assertEqual(sum("image/png" in output.get("data", {}) for output in outputs), 3)
        self.assertFalse([output for output in outputs if output["output_type"] == "error"])
        self.assertRegex("".join(outputs[0]["text"]), r"^.* \(SIMULATED\)\n")
        # The name of the machine is in the title of each picture.
        code = "".join(line for cell in notebook["cells"] if cell["cell_type"] == "code" for line in cell["source"])
        titles = re.findall(r"title=f\"(.*?)\"", code)
        self.assertEqual(len(titles), 3)
        self.assertTrue(all("{name}" in title for title in titles), titles)

    def test_each_line_of_the_table_of_old_routes_is_answered(self):
        (lines,) = fenced("sh", MIGRATION)
        for line in lines.splitlines():
            said = subprocess.run(line, shell=True, env=self.environment, check=True, stdout=subprocess.PIPE).stdout
            self.assertIsInstance(json.loads(said), dict, line)
        for route in ("analyze", "recommend", "sweep", "tiling", "hardware", "state", "board"):
            self.assertIn(f"http://rooflined/v1/{route}", lines)

    def test_it_names_every_method(self):
        table = MANUAL.split("| method | socket | purpose |")[1].split("\n\n")[0]
        verbs = {name for name in dir(rooflined.Client) if not name.startswith("_")} - {"close"}
        self.assertEqual(set(re.findall(r"`(\w+)`", table)), verbs)


if __name__ == "__main__":
    unittest.main()
