"""`rooflinectl mcp` against the protocol's own Python client. ROOFLINED_BINARIES names the directory of the programs."""
import asyncio
import os
import subprocess
import tempfile
import time
import unittest
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAMS = Path(os.environ.get("ROOFLINED_BINARIES", Path(__file__).parents[2] / "target/release"))
TOOLS = {"recommend", "predict", "inspect_model", "list_hardware", "board_state", "compare", "explain"}


@asynccontextmanager
async def session(*options):
    command = StdioServerParameters(command=str(PROGRAMS / "rooflinectl"), args=[*options, "mcp"])
    async with stdio_client(command) as streams, ClientSession(*streams) as client:
        await client.initialize()
        yield client


async def ask(client, tool, **arguments):
    """The text of an answer, and whether it is one."""
    result = await client.call_tool(tool, arguments)
    return "\n".join(block.text for block in result.content), not result.is_error


def onnx(path):
    """An ONNX file of one 3x3 convolution over pictures of an open size, with weights of zeros."""

    def number(field, value):
        return varint(field << 3) + varint(value)

    def record(field, *parts):
        body = b"".join(part if isinstance(part, bytes) else part.encode() for part in parts)
        return varint(field << 3 | 2) + varint(len(body)) + body

    def varint(value):
        head = b""
        while value > 127:
            head += bytes([value & 127 | 128])
            value >>= 7
        return head + bytes([value])

    def value(name, *dims):
        shape = (record(1, record(2, size) if isinstance(size, str) else number(1, size)) for size in dims)
        return record(1, name), record(2, record(1, number(1, 1), record(2, *shape)))

    weights = record(5, *(number(1, size) for size in (8, 3, 3, 3)), number(2, 1), record(8, "w"), record(9, bytes(8 * 27 * 4)))
    node = record(1, record(1, "x"), record(1, "w"), record(2, "y"), record(4, "Conv"))
    graph = record(7, node, record(2, "small"), weights, record(11, *value("x", 1, 3, "height", "width")), record(12, *value("y")))
    path.write_bytes(number(1, 8) + graph + record(8, number(2, 17)))


class Tools(unittest.IsolatedAsyncioTestCase):
    async def test_every_tool_is_described_and_only_reads(self):
        async with session() as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        self.assertEqual(set(tools), TOOLS)
        for tool in tools.values():
            self.assertTrue(tool.description and tool.annotations.read_only_hint, tool.name)
            for name, schema in tool.input_schema["properties"].items():
                self.assertTrue(schema["description"], f"{tool.name}: {name}")
        # A server is explained by its port or its process alone.
        explain = tools["explain"].input_schema
        self.assertLessEqual({"model", "port", "pid"}, set(explain["properties"]))
        self.assertFalse(explain.get("required"))

    async def test_hardware_is_asked_about_without_a_daemon(self):
        async with session("--socket", "/nowhere") as client:
            text, answered = await ask(client, "recommend", model="Qwen/Qwen3-4B", engine="llama.cpp", hardware="orin-nano", modes="all",
                                       max_power_w=20)
            self.assertTrue(answered, text)
            self.assertRegex(text, r"^Use .* tokens/s .* W \(module\)")
            self.assertIn("llama-server -m", text)
            text, answered = await ask(client, "predict", model="qwen3:4b", hardware="thor", format="fp16", batch=2)
            self.assertTrue(answered, text)
            self.assertRegex(text, r"rate +[\d.]+ /s \([\d.]+ to [\d.]+ /s\)")
            text, answered = await ask(client, "list_hardware")
            self.assertTrue(answered and "jetson-orin-nano-8gb-super" in text, text)
            text, answered = await ask(client, "inspect_model", model="llama-3.1-8b")
            self.assertTrue(answered and "8030261248" in text, text)

    async def test_vision_networks_are_asked_about_by_their_file(self):
        with tempfile.TemporaryDirectory(prefix="rl-mcp-") as home:
            onnx(Path(home) / "small.onnx")
            network = {"model": f"{home}/small.onnx", "size": "64x48"}
            async with session("--socket", "/nowhere") as client:
                for tool, arguments, expected in [
                    ("inspect_model", network, r"parameters +216\b"),
                    ("predict", {**network, "hardware": "orin-nano", "precision": "int8"}, r"tensorrt int8, batch 1 on jetson-orin-nano"),
                    ("predict", {**network, "hardware": "orin-nano", "scope": "frame"}, r"scope +frame "),
                    ("recommend", {**network, "hardware": "orin-nano", "precision": "int8", "scope": "copies"}, "--int8"),
                    ("recommend", {**network, "hardware": "orin-nano", "min_fps": 30, "streams": 2, "modes": "all"}, "trtexec --onnx="),
                ]:
                    with self.subTest(tool=tool):
                        text, answered = await ask(client, tool, **arguments)
                        self.assertTrue(answered, text)
                        self.assertRegex(text, expected)
                text, answered = await ask(client, "predict", model=network["model"], hardware="orin-nano")
                self.assertFalse(answered, text)
                self.assertIn("height", text)

    async def test_a_target_that_nothing_meets_is_an_answer(self):
        async with session("--socket", "/nowhere") as client:
            text, answered = await ask(client, "recommend", model="llama-3.1-8b", hardware="orin-nano", max_time_per_token_ms=1)
        self.assertTrue(answered, text)
        self.assertRegex(text, "^Nothing meets --max-time-per-token; the nearest is ")

    async def test_mistakes_reach_the_agent_with_what_to_do(self):
        async with session("--socket", "/nowhere") as client:
            for tool, arguments, expected in [
                ("recommend", {}, "recommend needs model"),
                ("predict", {"model": "llama-3.1-8b", "batch": 0}, "batch is 0, and has to be a whole number from 1"),
                ("predict", {"model": "llama-3.1-8b", "speed": 1}, "predict has no argument speed; it takes model"),
                ("predict", {"model": "no-such-model", "hardware": "thor"}, "rooflinectl models list"),
                ("predict", {"model": "llama-3.1-8b", "hardware": "no-such-board"}, "hint: "),
                ("inspect_model", {"model": "/nowhere.gguf"}, "hint: "),
                ("board_state", {}, "hint: start the daemon"),
                ("compare", {"model": "llama-3.2-1b"}, "compare runs a file"),
            ]:
                with self.subTest(tool=tool, arguments=arguments):
                    text, answered = await ask(client, tool, **arguments)
                    self.assertFalse(answered, text)
                    self.assertIn(expected, text)
            with self.assertRaisesRegex(MCPError, "no tool is called mode_set; there are recommend, predict"):
                await client.call_tool("mode_set", {})

    async def test_this_machine_is_asked_through_its_daemon(self):
        with tempfile.TemporaryDirectory(prefix="rl-mcp-") as home:
            settings = Path(home) / "rooflined.toml"
            settings.write_text("[calibration]\nautomatic = false\n")
            daemon = subprocess.Popen(
                [PROGRAMS / "rooflined", "serve", "--config", settings, "--socket", f"{home}/run", "--state-dir", f"{home}/state", "--bus", "none",
                 "--exit-on-stdin-close", "--simulate", "jetson-orin-nano-8gb-super"],
                stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
            try:
                while daemon.poll() is None and not Path(home, "run/query.sock").exists():
                    time.sleep(0.05)
                subprocess.run([PROGRAMS / "rooflinectl", "--socket", f"{home}/run", "calibrate", "--quick", "--force", "--wait"],
                               check=True, stdout=subprocess.DEVNULL)
                async with session("--socket", f"{home}/run") as client:
                    explained, is_explained = await ask(client, "explain", model="llama-3.2-1b", tokens_per_s=2)
                    # Several at a time, as agents ask.
                    (state, is_state), (choice, is_choice) = await asyncio.gather(
                        ask(client, "board_state"), ask(client, "recommend", model="llama-3.2-1b", max_power_w=25, modes="all"))
            finally:
                daemon.communicate()
        self.assertTrue(is_state and is_choice and is_explained, state + choice + explained)
        self.assertRegex(explained, r"expected +.* as \w+ in \S+ at ")
        self.assertRegex(explained, r"2\.00 tokens/s are \d+ % below the [\d.]+ that were expected")
        self.assertIn("SIMULATED", state.upper())
        self.assertRegex(choice, r"(?m)^Use .* tokens/s")


if __name__ == "__main__":
    unittest.main()
