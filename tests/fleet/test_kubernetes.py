"""`rooflinectl features` and config/fleet/k3s, held against the rules of Node Feature Discovery and of Kubernetes.

Neither runs here. What follows is written from their documents: the input format of NFD's local source (customization guide,
version 0.17 and later: 64 KiB, `KEY[=VALUE]`, comments, directives `# +expiry-time`, `# +no-feature`, `# +no-label`, files of a
name that starts with a dot passed over), its rules for labels (a namespace is required, that of kubernetes.io is denied but for two),
Kubernetes' syntax of labels, and its node affinity (terms are alternatives, expressions of a term hold together, Gt and Lt compare
whole numbers). Schemas are Kubernetes' own, from the package kubernetes-validate.
"""

import copy
import datetime
import re
import subprocess
import tempfile
import unittest
import pathlib

import kubernetes_validate
import yaml
from daemon import BINARIES, REPOSITORY, Daemon

NANO, AGX, THOR = "jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000"
DOMAIN = "rooflined.github.io/"
EXAMPLE = REPOSITORY / "config/fleet/k3s/chat.yaml"
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
PART = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def label_problem(key, value):
    """Why NFD or Kubernetes would not take a label; None where they would."""
    prefix, slash, name = key.rpartition("/")
    if not slash:
        return "it has no namespace"
    if len(prefix) > 253 or not all(PART.fullmatch(part) for part in prefix.split(".")):
        return "its namespace is no DNS subdomain"
    denied = prefix == "kubernetes.io" or prefix.endswith(".kubernetes.io")
    allowed = ("feature.node.kubernetes.io", "profile.node.kubernetes.io")
    if denied and not any(prefix == one or prefix.endswith("." + one) for one in allowed):
        return "its namespace is denied"
    if not NAME.fullmatch(name):
        return "its name is none of a label"
    if value and not NAME.fullmatch(value):
        return "its value is none of a label"
    return None


def read_features(path, now):
    """The labels that NFD makes of a feature file, or its reason to make none."""
    data = path.read_bytes()
    if path.name.startswith("."):
        raise ValueError("files whose name starts with a dot are passed over")
    if len(data) > 65536:
        raise ValueError("a file over 64 KiB is ignored")
    labels, expiry, labelled = {}, None, True
    for line in data.decode().splitlines():
        line = line.strip()
        if line.startswith("# +"):
            key, equals, value = line[3:].partition("=")
            if key == "expiry-time" and equals:
                expiry = datetime.datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
            elif key == "no-label":
                labelled = False
            elif key != "no-feature":
                raise ValueError(f"{line!r} is no directive")
        elif line and not line.startswith("#") and labelled and not (expiry and expiry < now):
            key, equals, value = line.partition("=")
            labels[key] = value if equals else "true"
    for key, value in labels.items():
        problem = label_problem(key, value)
        if problem:
            raise ValueError(f"{key}={value}: {problem}")
    return labels


def whole(text):
    return int(text) if re.fullmatch(r"[+-]?[0-9]+", text) else None


def holds(expression, labels):
    """One expression of a node affinity. `Gt` and `Lt`: false where either side is no whole number."""
    operator, values, value = expression["operator"], expression.get("values", []), labels.get(expression["key"])
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    if operator == "In":
        return value in values if value is not None else False
    if operator == "NotIn":
        return value not in values
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise ValueError(f"{operator} takes one value")
        mine, theirs = whole(value or ""), whole(values[0])
        return mine is not None and theirs is not None and (mine > theirs if operator == "Gt" else mine < theirs)
    raise ValueError(f"{operator} is no operator")


def fits(pod, labels):
    """Whether the pod may run on a node with these labels."""
    selected = all(labels.get(key) == value for key, value in pod.get("nodeSelector", {}).items())
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    # A term without expressions matches nothing.
    terms = (term.get("matchExpressions") for term in required["nodeSelectorTerms"])
    return selected and any(term and all(holds(expression, labels) for expression in term) for term in terms)


def features_of(board, home):
    daemon = Daemon(board)
    try:
        path = pathlib.Path(home) / board
        subprocess.run([str(BINARIES / "rooflinectl"), "--socket", daemon.socket, "features", "--file", str(path)], check=True)
        return path
    finally:
        daemon.stop()


class Rules(unittest.TestCase):
    """The rules themselves, on examples of their documents."""

    def test_labels(self):
        for key, value in [("vendor.io/feature1", "featureValue"), ("example.com/a", ""), ("sub.feature.node.kubernetes.io/x", "true")]:
            self.assertIsNone(label_problem(key, value), key)
        for key, value in [("nothing", "1"), ("kubernetes.io/x", "1"), ("x.kubernetes.io/x", "1"), ("a.b/x y", "1"), ("A.b/x", "1"), ("a.b/" + "x" * 64, "1"),
                           ("a.b/x", "-1"), ("a.b/x", "x" * 64), ("a.b/x", "25 W"), ("a..b/x", "1"), ("a.b/", "1")]:
            self.assertIsNotNone(label_problem(key, value), (key, value))

    def test_feature_files(self):
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
        with tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home) / "f"
            path.write_text("# +expiry-time=2012-07-28T11:22:33Z\nvendor.io/feature1=a\n\n# +expiry-time=2080-07-28T11:22:33Z\nvendor.io/feature2=b\n"
                            "# +expiry-time=2070-07-28T11:22:33Z\nvendor.io/feature3\n# a comment\n# +no-label\nvendor.io/feature4=d\n")
            self.assertEqual(read_features(path, now), {"vendor.io/feature2": "b", "vendor.io/feature3": "true"})
            for text in ("# +random-key=random-value\n", "# + Something\n", "plain=1\n", "a.b/x=1\n" * 9000):
                path.write_text(text)
                with self.assertRaises(ValueError):
                    read_features(path, now)

    def test_expressions(self):
        def one(operator, *values):
            return holds({"key": "k", "operator": operator, "values": list(values)}, {"k": "100"})

        self.assertEqual([one("Gt", "99"), one("Gt", "100"), one("Lt", "101"), one("Gt", "99.5"), one("Gt", "x"), one("In", "1", "100"), one("NotIn", "1")],
                         [True, False, True, False, False, True, True])
        # As text 9 is more than 100; as a number it is not.
        self.assertFalse(holds({"key": "k", "operator": "Gt", "values": ["100"]}, {"k": "9"}))
        self.assertFalse(holds({"key": "k", "operator": "Gt", "values": ["1"]}, {}))
        self.assertTrue(holds({"key": "k", "operator": "NotIn", "values": ["1"]}, {}))


class Boards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        home = tempfile.TemporaryDirectory()
        cls.addClassCleanup(home.cleanup)
        now = datetime.datetime.now(datetime.timezone.utc)
        cls.labels = {board: read_features(features_of(board, home.name), now) for board in (NANO, AGX, THOR)}
        cls.deployment = yaml.safe_load(EXAMPLE.read_text())

    def test_the_files_are_taken_and_say_what_is_asked_for(self):
        for board, labels in self.labels.items():
            self.assertEqual((labels[DOMAIN + "board"], labels[DOMAIN + "simulated"]), (board, "true"))
            for name in ("bandwidth-gb-per-s", "memory-gib"):
                self.assertIsNotNone(whole(labels[DOMAIN + name]), (board, name))
        # Nothing that the example asks for is a label that nobody has.
        asked = set(re.findall(r"rooflined\.github\.io/[a-z-]+", EXAMPLE.read_text()))
        self.assertEqual(asked - set(self.labels[THOR]), set())

    def test_the_example_is_what_kubernetes_takes(self):
        for version in ("1.28", "1.32"):
            kubernetes_validate.validate(self.deployment, version, strict=True)
        wrong = copy.deepcopy(self.deployment)
        wrong["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["required"] = {}
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.32", strict=True)

    def test_the_example_lands_on_the_board_with_the_bandwidth(self):
        pod = self.deployment["spec"]["template"]["spec"]
        self.assertEqual([board for board, labels in self.labels.items() if fits(pod, labels)], [], "a simulated board is none")
        real = {board: {**labels, DOMAIN + "simulated": "false"} for board, labels in self.labels.items()}
        self.assertEqual([board for board, labels in real.items() if fits(pod, labels)], [], "none was calibrated")
        real = {board: {**labels, DOMAIN + "provenance": "measured"} for board, labels in real.items()}
        told = {board: (labels[DOMAIN + "bandwidth-gb-per-s"], labels[DOMAIN + "memory-gib"]) for board, labels in real.items()}
        print(f"GB/s and GiB: {told}", flush=True)
        # The Orin Nano has the bandwidth and not the memory, the AGX Orin the memory and, at 30 W, not the bandwidth.
        self.assertEqual([board for board, labels in real.items() if fits(pod, labels)], [THOR], told)


if __name__ == "__main__":
    unittest.main()
