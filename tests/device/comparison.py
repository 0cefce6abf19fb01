"""The other side of a comparison: torch, in a process of its own."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading

from figures import Missing

HERE = os.path.dirname(os.path.abspath(__file__))


class Torch:
    """yardsticks.py, asked a question at a time; started again when it does not answer."""

    def __init__(self, clock):
        self.clock, self.process, self.reason, self.about = clock, None, None, None
        self.failures = 0
        # The GPU takes one process at a time: torch goes after every answer.
        self.takes_turns = False

    def start(self):
        try:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "yardsticks.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            self.reason = str(error)
            return
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, args=(self.process, self.lines), daemon=True).start()
        hello = self.hear(60)
        if "error" in hello:
            self.reason = hello["error"]
            self.stop()
        else:
            self.about = hello

    @staticmethod
    def listen(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def hear(self, seconds):
        try:
            line = self.lines.get(timeout=self.clock.share(seconds))
            return {"error": "torch's process ended", "hung": True} if line is None else json.loads(line)
        except queue.Empty:
            return {"error": f"torch did not answer within {seconds} s", "hung": True}
        except ValueError:
            return {"error": "torch's process printed what is no answer"}

    def ask(self, seconds, **question):
        if self.process is None and self.reason is None:
            self.start()
        if self.reason is not None:
            raise Missing(self.reason)
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            answer = self.hear(seconds)
        except OSError:
            answer = {"error": "torch's process ended", "hung": True}
        if self.takes_turns:
            self.stop()
        if "error" in answer:
            if answer.get("hung"):
                self.stop()
                self.failures += 1
            if self.failures == 3:
                self.reason = f"torch failed three times, last with: {answer['error']}"
            raise Missing(answer["error"])
        return answer

    def stop(self):
        """Ends the process, and with it its hold on the GPU."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            self.process = None
