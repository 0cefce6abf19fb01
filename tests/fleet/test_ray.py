"""clients/python/examples/ray_placement.py in a cluster of three Ray nodes on this machine, each with the daemon of a simulated board."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from daemon import REPOSITORY, Daemon

EXAMPLE = str(REPOSITORY / "clients/python/examples/ray_placement.py")
RAY = str(pathlib.Path(sys.executable).with_name("ray"))
NANO, AGX, THOR = "jetson-orin-nano-8gb-super", "jetson-agx-orin-64gb", "jetson-agx-thor-t5000"
# Without a word, whether nodes and drivers agree depends on what an earlier Ray left in this user's ~/.ray.
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
CONTROLLED = "[control]\nenabled = true\ndwell_s = 0.0\n[calibration]\nautomatic = false\n"
# A stand-in for a server; it says what rate it had, and in which mode.
WORK = [sys.executable, "-c", "import json, os; print(os.environ['ROOFLINED_MODE']); print(json.dumps({'tokens_per_s': 15.0}))"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Node:
    """A board: its daemon, and `ray start` with what the example says that the board can."""

    def __init__(self, board, home, head=None):
        self.daemon = Daemon(board, CONTROLLED)
        self.environment = {**os.environ, "ROOFLINED_SOCKET": self.daemon.socket, "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
                            "RAY_DEDUP_LOGS": "0", "RAY_ADDRESS": "", "RAY_gcs_server_request_timeout_seconds": "10"}
        said = subprocess.run([sys.executable, EXAMPLE, "resources"], env=self.environment, check=True, stdout=subprocess.PIPE).stdout
        self.resources = json.loads(said)
        port = free_port()
        place = ["--head", "--port", str(port), "--temp-dir", home, "--include-dashboard", "false"] if head is None else ["--address", head]
        self.address = head or f"127.0.0.1:{port}"
        command = [RAY, "start", "--block", "--node-ip-address", "127.0.0.1", "--num-cpus", "1", "--object-store-memory", str(80 << 20),
                   "--disable-usage-stats", "--resources", said.decode(), *place]
        with open(str(self.daemon.home / "ray.log"), "w") as log:
            self.process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def restart(self, config):
        self.daemon.kill()
        (self.daemon.home / "rooflined.toml").write_text(config)
        self.daemon.start()

    def leave(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, 9)
                self.process.wait()

    def stop(self):
        self.leave()
        if self.daemon.process.poll() is None:
            self.daemon.stop()


class Placement(unittest.TestCase):
    """In the order of their names: what is lost stays lost."""

    @classmethod
    def setUpClass(cls):
        home = tempfile.TemporaryDirectory(prefix="rlray-", dir="/tmp")
        cls.addClassCleanup(home.cleanup)
        cls.head = Node(NANO, home.name)
        cls.addClassCleanup(cls.head.stop)
        cls.nodes = {NANO: cls.head}
        # The others find the cluster once it is there; on a cold disk Ray takes its time.
        end = time.monotonic() + 150
        while True:
            try:
                host, port = cls.head.address.split(":")
                socket.create_connection((host, int(port)), 1).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
        cls.wait_for(1, end)
        for count, board in enumerate((AGX, THOR), 2):
            # One after the other: two that start at once on one address take each other for themselves.
            cls.nodes[board] = Node(board, home.name, cls.head.address)
            cls.addClassCleanup(cls.nodes[board].stop)
            cls.wait_for(count, end)

    @classmethod
    def wait_for(cls, count, end):
        while cls.alive() < count:
            if time.monotonic() > end:
                logs = "".join((node.daemon.home / "ray.log").read_text() for node in cls.nodes.values())
                raise RuntimeError("the cluster does not come up:\n" + logs)
            time.sleep(0.5)

    @classmethod
    def alive(cls):
        text = ("import ray; ray.init(address='auto', log_to_driver=False, logging_level='ERROR')\n"
                "print(sum(bool(n['Alive'] and n['Resources'].get('rooflined')) for n in ray.nodes()))")
        said = subprocess.run([sys.executable, "-c", text], env={**os.environ, "RAY_ADDRESS": cls.head.address}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if not said.stdout:
            print(said.stderr.decode()[-2000:], flush=True)
        return int(said.stdout or 0)

    def place(self, model, power, time_s, command=None):
        """The exit code, the answers by board (or None), and the last line."""
        # The driver's own socket leads nowhere: each node is asked for itself.
        environment = {**os.environ, "RAY_ADDRESS": self.head.address, "ROOFLINED_SOCKET": "/nonexistent"}
        done = subprocess.run([sys.executable, EXAMPLE, "place", model, "--max-power-w", str(power), "--max-time-per-token-s", str(time_s), "--",
                               *(command or WORK)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
        self.assertTrue(lines, done.stderr.decode())
        print(f"{model} within {power} W and {time_s} s a token: {lines[-1]}", flush=True)
        self.passed_over = [line for line in lines if "passed_over" in line]
        return done.returncode, [line for line in lines if "feasible" in line], lines[-1], done.stderr.decode()

    def test_1_a_node_advertises_its_ceilings(self):
        for board, node in self.nodes.items():
            self.assertEqual(node.resources["rooflined"], 1, board)
        bandwidths = {board: node.resources["bandwidth_gb_per_s"] for board, node in self.nodes.items()}
        self.assertGreater(bandwidths[THOR], bandwidths[NANO])

    def test_2_the_board_that_can_is_found_and_its_mode_held_while_it_works(self):
        held = [sys.executable, "-c", "import json, rooflined; h = rooflined.Client().holds()['holds']; print(json.dumps({'tokens_per_s': 15.0}));"
                "assert [(one['app_id'], one['attached']) for one in h] == [('ray', True)], h"]
        code, answers, last, _ = self.place("llama-3.2-3b", 25, 0.09, held)
        self.assertEqual((code, last["placed"], last["satisfied"]), (0, NANO, True))
        self.assertEqual(sorted(one["board"] for one in answers), sorted(self.nodes))
        # Of those that can, it is the one that needs least energy.
        can = [one["board"] for one in answers if one["feasible"]]
        self.assertTrue(NANO in can and THOR not in can, can)
        self.assertTrue(all(one["simulated"] for one in answers))
        self.assertEqual((last["reported"], last["told"]), (15.0, "1 report accepted"))
        # And it is given back.
        import rooflined
        client = rooflined.Client(self.nodes[NANO].daemon.socket)
        self.addCleanup(client.close)
        end = time.monotonic() + 20
        while client.holds()["holds"] and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(client.holds()["holds"], [])
        self.assertEqual([one["model"] for one in client.observations()["observations"]], ["llama-3.2-3b"])

    def test_3_other_limits_lead_to_another_board(self):
        code, _, last, _ = self.place("llama-3.1-8b", 140, 0.05)
        self.assertEqual((code, last["placed"]), (0, THOR))

    def test_4_where_no_board_can_it_says_why_and_runs_nothing(self):
        code, answers, _, said = self.place("llama-3.1-8b", 15, 0.08)
        self.assertEqual((code, [one["feasible"] for one in answers]), (3, [False] * 3))
        self.assertTrue(all("nothing meets" in one["why"] for one in answers))
        self.assertIn("no board can", said)

    def test_5_a_board_that_refuses_the_hold_is_passed_over(self):
        nano = self.nodes[NANO]
        nano.restart(CONTROLLED.replace("enabled = true", "enabled = false"))
        mark = nano.daemon.home / "ran"
        command = [sys.executable, "-c", f"open({str(mark)!r}, 'a').write('x'); print('{{\"tokens_per_s\": 15.0}}')"]
        code, answers, last, said = self.place("llama-3.2-1b", 25, 0.08, command)
        nano.restart(CONTROLLED)
        self.assertEqual((code, last["placed"]), (0, AGX), said)
        self.assertTrue(next(one["feasible"] for one in answers if one["board"] == NANO))
        self.assertEqual([line["node"] for line in self.passed_over], [one["node"] for one in answers if one["board"] == NANO])
        self.assertIn("control is not enabled", self.passed_over[0]["passed_over"])
        self.assertEqual(mark.read_text(), "x")

    def test_6_a_report_that_fails_does_not_start_the_command_again(self):
        nano = self.nodes[NANO]
        mark = nano.daemon.home / "reported"
        command = [sys.executable, "-c", f"import os, time; open({str(mark)!r}, 'a').write('x'); os.kill({nano.daemon.process.pid}, 9); "
                   "time.sleep(0.5); print('{\"tokens_per_s\": 15.0}')"]
        code, _, last, said = self.place("llama-3.2-1b", 25, 0.08, command)
        self.assertEqual((code, last["placed"], last["reported"]), (0, NANO, None), said)
        self.assertIn("the report failed: no daemon answers", last["told"])
        self.assertEqual(mark.read_text(), "x")

    def test_7_a_board_without_its_daemon_is_passed_over(self):
        self.nodes[NANO].daemon.kill()
        code, answers, last, _ = self.place("llama-3.2-1b", 25, 0.08)
        self.assertEqual((code, last["placed"]), (0, AGX))
        self.assertEqual([one["why"].split(":")[0] for one in answers if one["board"] is None], ["unreachable"])

    def test_8_a_node_that_left_is_passed_over(self):
        self.nodes[AGX].leave()
        code, answers, last, _ = self.place("llama-3.2-1b", 130, 0.08)
        self.assertEqual((code, last["placed"]), (0, THOR))
        self.assertNotIn(AGX, [one["board"] for one in answers])

    def test_9_a_node_that_leaves_while_it_works_is_told(self):
        environment = {**os.environ, "RAY_ADDRESS": self.head.address}
        mark = self.nodes[THOR].daemon.home / "working"
        command = [sys.executable, "-c", f"import time; open({str(mark)!r}, 'w').close(); time.sleep(600)"]
        placing = subprocess.Popen([sys.executable, EXAMPLE, "place", "llama-3.2-1b", "--max-power-w", "130", "--", *command],
                                   env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertTrue(mark.exists())
        os.killpg(self.nodes[THOR].process.pid, 9)
        said, errors = placing.communicate(timeout=120)
        self.assertEqual(placing.returncode, 3, errors.decode())
        self.assertIn("the node left", said.decode())


if __name__ == "__main__":
    unittest.main()
