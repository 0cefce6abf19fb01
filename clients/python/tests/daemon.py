"""A private daemon in a temporary directory, and programs that answer badly."""

import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time

import rooflined

BINARIES = pathlib.Path(os.environ.get("ROOFLINED_BINARIES") or "ROOFLINED_BINARIES is not set")
REPOSITORY = pathlib.Path(__file__).resolve().parents[3]


class Daemon:
    """`rooflined`, of a simulated board unless `board` is None; `restart` comes back with the same state and board."""

    def __init__(self, board="jetson-orin-nano-8gb-super", config="[control]\nenabled = true\n[calibration]\nautomatic = false\n"):
        self._home = tempfile.TemporaryDirectory(prefix="rl-")
        self.home = pathlib.Path(self._home.name)
        self.socket = str(self.home / "run")
        (self.home / "rooflined.toml").write_text(config)
        self._command = [str(BINARIES / "rooflined"), "serve", "--config", str(self.home / "rooflined.toml"), "--socket", self.socket,
                         "--state-dir", str(self.home / "state"), "--bus", "none", "--exit-on-stdin-close"]
        if board:
            (self.home / "board").mkdir()
            self._command += ["--simulate", board, "--root", str(self.home / "board")]
        self.process = None
        self.start()

    def start(self):
        with open(str(self.home / "log"), "a") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log)
        client = rooflined.Client(self.socket, timeout_s=10)
        for _ in range(300):
            if self.process.poll() is not None:
                break
            try:
                client.request("GET", "/-/ready")
                client.close()
                return
            except (rooflined.RooflinedError, ValueError):
                time.sleep(0.1)
        raise RuntimeError("the daemon does not become ready:\n" + (self.home / "log").read_text())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
        self._home.cleanup()


class Impostor:
    """Listens where a daemon would; `behave(connection)` treats each connection, `requests` holds what was sent."""

    def __init__(self, behave, name="query.sock", directory=None):
        self._home = None if directory else tempfile.TemporaryDirectory(prefix="rl-")
        self.socket, self.requests, self._behave = directory or self._home.name, [], behave
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(self.socket, name))
        self._listener.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self._behave(self, connection)
                except OSError:
                    pass

    def read(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(1 << 16)
            if not part:
                return False
            data += part
        self.requests.append(data)
        return True

    def stop(self):
        self._listener.close()
        if self._home:
            self._home.cleanup()
