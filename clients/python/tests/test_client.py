"""The client against a real daemon of a simulated board, and against programs that answer badly."""

import asyncio
import concurrent.futures
import copy
import errno
import itertools
import json
import os
import pathlib
import pickle
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import rooflined
from daemon import BINARIES, REPOSITORY, Daemon, Impostor
from rooflined import _address, _wire

GEMV = {"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"}
CHAT = {"model": "llama-3.2-1b", "format": "q4_k_m", "phase": "decode", "context_tokens": 512}
LLAMA = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True, "torch_dtype": "bfloat16"}


def until(what, limit_s=30):
    """Whether `what()` becomes true in time."""
    end = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def ask_nobody():
    return rooflined.Client("/nonexistent").board()


class Shared(unittest.TestCase):
    """Tests that leave the daemon as it was share one."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.stop)

    def setUp(self):
        self.client = rooflined.Client(self.daemon.socket)
        self.addCleanup(self.client.close)

    def asynchronously(self, work):
        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client:
                return await work(client)

        return asyncio.run(whole())


class Verbs(Shared):
    def test_a_prediction_has_its_interval_around_it_and_is_not_faster_than_physics(self):
        answer = self.client.predict(GEMV)
        self.assertTrue(answer["time_s"]["low"] <= answer["time_s"]["value"] <= answer["time_s"]["high"])
        self.assertGreaterEqual(answer["time_s"]["low"], answer["roofline_time_s"])
        self.assertTrue(answer["simulated"])

    def test_both_clients_get_the_same_answer(self):
        async def both(client):
            return await client.predict(CHAT, engine="llama.cpp", hardware="t4")

        mine = self.client.predict(CHAT, engine="llama.cpp", hardware="t4")
        theirs = self.asynchronously(both)
        self.assertEqual({**mine, "serial": 0}, {**theirs, "serial": 0})

    def test_a_recommendation_says_how_to_apply_it_and_an_infeasible_one_what_is_closest(self):
        free = {key: value for key, value in CHAT.items() if key != "format"}
        found = self.client.recommend(free, engine="llama.cpp", freedom={"formats": ["q4_k_m", "q8_0"], "batch": {"min": 1, "max": 4}})
        self.assertTrue(found["feasible"])
        self.assertIn("llama-server", found["apply"]["settings"]["llama.cpp"])
        none = self.client.recommend(CHAT, engine="llama.cpp", constraints={"min_tokens_per_s": 1e6})
        self.assertFalse(none["feasible"])
        self.assertEqual(none["violated"], ["min_tokens_per_s"])

    def test_every_question_of_the_machine_is_answered(self):
        client = self.client
        self.assertEqual(client.board()["key"], "jetson-orin-nano-8gb-super")
        self.assertIn("power_mode", client.state())
        self.assertGreater(client.roofline()["bandwidth_bytes_per_s"]["value"], 0)
        self.assertTrue(client.roofline(hardware="t4", precision="fp16"))
        self.assertEqual([mode["name"] for mode in client.modes()["modes"]], ["15W", "25W", "MAXN_SUPER", "7W"])
        self.assertIn("t4", [one["key"] for one in client.hardware()])
        self.assertEqual(client.hardware_entry("t4")["compute_capability"], "7.5")
        self.assertIn("llama-3.2-1b", [one["key"] for one in client.models()])
        self.assertGreater(client.model("llama-3.2-1b", format="q4_k_m")["bytes"], 0)
        self.assertIn("int4_g128", [one["key"] for one in client.formats()])
        self.assertIn("status", client.calibration())
        self.assertIn("# TYPE", client.metrics())
        self.assertEqual(client.openapi()["openapi"], "3.1.0")
        self.assertEqual(len(client.sweep({"ops": [GEMV["op"]], "formats": ["int8"], "batches": [1, 2], "hardware": "t4"})["rows"]), 2)
        self.assertTrue(client.tiling(512, 512, 512, format="fp16", hardware="t4")["candidates"])
        self.assertEqual(client.analyze(GEMV, time_s=1e-9)["verdict"], "impossible")

    def test_what_is_observed_is_listed_and_forgotten(self):
        rate = self.client.predict(CHAT, engine="llama.cpp")["tokens_per_s"]["value"]
        self.assertEqual(self.client.observe(CHAT, engine="llama.cpp", tokens_per_s=rate * 1.1)["accepted"], 1)
        listed = self.client.observations(engine="llama.cpp")["observations"]
        self.assertEqual([one["model"] for one in listed], ["llama-3.2-1b"])
        after = self.client.predict(CHAT, engine="llama.cpp")
        self.assertEqual(after["tier"], "observed")
        self.assertEqual(self.client.forget(listed[0]["id"]), 1)
        self.assertEqual(self.client.forget(engine="llama.cpp"), 0)

    def test_a_report_that_cannot_be_true_is_refused_and_one_that_is_far_off_is_learnt_from(self):
        predicted = self.client.predict(CHAT, engine="llama.cpp")["tokens_per_s"]["value"]
        for rate in (predicted / 1000, predicted * 1000):
            with self.assertRaises(rooflined.Refused) as caught:
                self.client.observe(CHAT, engine="llama.cpp", tokens_per_s=rate)
            self.assertEqual((caught.exception.status, caught.exception.code), (200, "impossible_observation"))
        with self.assertRaises(rooflined.Refused) as caught:
            self.client.observe(GEMV, time_s=self.client.predict(GEMV)["time_s"]["value"])
        self.assertIn("not calibrated", caught.exception.message)
        report = self.client.observe(CHAT, engine="llama.cpp", tokens_per_s=predicted / 10)
        self.assertEqual(report["learnt"][0]["tier"], "observed")
        self.assertEqual(self.client.forget(), 1)

    def test_a_mode_is_entered_and_given_back(self):
        self.assertEqual(self.client.set_mode("15W", dry_run=True)["dry_run"], True)
        done = self.client.set_mode("15W", confirm_within_s=30)
        self.assertEqual(done["reached"], "15W")
        self.client.revert(done["confirm"]["id"])
        self.assertTrue(until(lambda: self.client.modes()["active"] == "25W"))

    def test_types_and_verbs_are_what_the_daemon_describes(self):
        import importlib.util

        place = pathlib.Path(__file__).resolve().parents[1] / "make_types.py"
        spec = importlib.util.spec_from_file_location("make_types", str(place))
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        package = place.parent / "rooflined"
        again = "run make_types.py"
        self.assertEqual((package / "types.py").read_text(), made.types(self.client.openapi()["components"]["schemas"]), again)
        self.assertEqual((package / "_verbs.py").read_text(), made.verbs((package / "_averbs.py").read_text()), again)

    def test_every_route_has_a_verb(self):
        source = (pathlib.Path(rooflined.__file__).parent / "_averbs.py").read_text() + "/v1/events /v1/recommend/watch /v1/holds/attached"
        for route in self.client.openapi()["paths"]:
            if not route.startswith("/-/"):
                fixed = route.split("/{")[0].strip("/")
                self.assertTrue(fixed in source or '"' + fixed.replace("/", '", "') in source, route)


class Refusals(Shared):
    def test_a_refusal_carries_code_field_and_what_to_do(self):
        with self.assertRaises(rooflined.Refused) as caught:
            self.client.predict({"op": {"kind": "gemv", "n": 4096}})
        error = caught.exception
        self.assertEqual((error.status, error.code, error.field), (400, "missing_field", "workload.op.k"))
        self.assertEqual(error.details["code"], error.code)
        self.assertTrue(error.hint)
        self.assertFalse(error.is_temporary)
        # The connection goes on.
        self.assertTrue(self.client.board())

    def test_a_body_that_is_too_large_is_refused_by_name(self):
        with self.assertRaises(rooflined.Refused) as caught:
            self.client.predict({"model": {"model_type": "x" * 70000}})
        self.assertEqual(caught.exception.code, "body_too_large")

        async def large(client):
            await client.predict({"model": {"model_type": "x" * 900000}})

        with self.assertRaises(rooflined.Refused) as caught:
            self.asynchronously(large)
        self.assertEqual(caught.exception.code, "body_too_large")

    def test_what_json_has_no_word_for_is_not_sent(self):
        with self.assertRaises(ValueError):
            self.client.observe(GEMV, time_s=float("nan"))

    def test_an_unknown_key_cannot_leave_its_route(self):
        with self.assertRaises(rooflined.Refused) as caught:
            self.client.hardware_entry("t4/../../x y\r\n")
        self.assertIn(caught.exception.status, (400, 404))

    def test_without_a_daemon_it_says_where_it_looked_and_what_to_do(self):
        with self.assertRaises(rooflined.Unreachable) as caught:
            rooflined.Client("/nonexistent").board()
        self.assertEqual(caught.exception.code, "unreachable")
        self.assertEqual(caught.exception.tried, [("/nonexistent/query.sock", "no such file or directory")])
        self.assertIn("systemctl start rooflined", str(caught.exception))
        for path in ("/" + "long" * 40, "/dev/null", ""):
            with self.assertRaises(rooflined.Unreachable):
                rooflined.Client(path).board()

    def test_control_that_is_disabled_is_refused(self):
        daemon = Daemon(config="[calibration]\nautomatic = false\n")
        self.addCleanup(daemon.stop)
        with self.assertRaises(rooflined.Refused) as caught:
            with rooflined.Client(daemon.socket).hold({"mode": "15W"}):
                self.fail("nothing is held")
        self.assertEqual(caught.exception.code, "control_disabled")


class Errors(unittest.TestCase):
    def test_each_survives_the_way_to_another_process_and_a_copy(self):
        places = [("/x/query.sock", "no such file or directory")]
        details = {"code": "busy", "message": "m", "field": "f", "hint": "h", "more": [1]}
        errors = [rooflined.RooflinedError("m"), rooflined.RooflinedError("m", "h", {"code": "c"}), rooflined.Unreachable(places),
                  rooflined.Denied("/x/control.sock"), rooflined.TimedOut("/v1/predict", 0.5), rooflined.ConnectionLost("/v1/predict"),
                  rooflined.Unexpected("m", "h"), rooflined.Refused(409, details), rooflined.Refused(500, {})]
        self.assertEqual({type(error).__name__ for error in errors}, set(rooflined.errors.__all__))

        class Own(rooflined.Refused):
            pass

        for error in [*errors, Own(409, details)]:
            ways = [copy.copy, copy.deepcopy]
            if type(error) is not Own:
                ways += [lambda one, level=level: pickle.loads(pickle.dumps(one, level)) for level in range(pickle.HIGHEST_PROTOCOL + 1)]
            for way in ways:
                other = way(error)
                self.assertIs(type(other), type(error))
                self.assertEqual((str(other), repr(other), vars(other)), (str(error), repr(error), vars(error)))
                self.assertEqual((other.code, other.is_temporary), (error.code, error.is_temporary))

    def test_one_in_a_process_of_a_pool_is_raised_here(self):
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            with self.assertRaises(rooflined.Unreachable) as caught:
                pool.submit(ask_nobody).result()
        self.assertEqual(caught.exception.tried, [("/nonexistent/query.sock", "no such file or directory")])


class Places(unittest.TestCase):
    def test_a_directory_and_each_socket_name_the_same_daemon(self):
        both = {"query": "/x/query.sock", "control": "/x/control.sock"}
        self.assertEqual(_address.of_path("/x"), both)
        self.assertEqual(_address.of_path(pathlib.Path("/x/query.sock")), both)
        self.assertEqual(_address.of_path("/x/control.sock"), {"query": "/x/control.sock", "control": "/x/control.sock"})
        self.assertEqual(_address.of_path("/run/rooflined")["control"], "/run/rooflined-control/control.sock")

    def test_the_environment_names_the_only_place_and_a_parameter_comes_before_it(self):
        before = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ["ROOFLINED_SOCKET"] = "/there"
        self.assertEqual([one.address["query"] for one in _address.places(None)], ["/there/query.sock"])
        self.assertEqual([one.address["query"] for one in _address.places("/here")], ["/here/query.sock"])
        del os.environ["ROOFLINED_SOCKET"]
        os.environ["XDG_RUNTIME_DIR"] = "/own"
        found = [one.address["query"] for one in _address.places(None)]
        self.assertEqual((found[0], found[-1]), ("/own/rooflined/query.sock", "/run/rooflined/query.sock"))


    @unittest.skipUnless(os.getuid() == 0, "SKIPPED: only root can give directories away; run as root")
    def test_a_daemon_is_looked_for_at_each_connection_and_a_strangers_is_not_asked(self):
        # In a /run and /tmp of its own, by a process that may do everything there.
        here = pathlib.Path(__file__).resolve().parent
        script = here.parents[2] / "tests/client/apart.sh"
        environment = {**os.environ, "XDG_RUNTIME_DIR": "/run/user"}
        environment.pop("ROOFLINED_SOCKET", None)
        if subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
            self.assertNotEqual(os.environ.get("ROOFLINED_STRICT"), "1", "there is no right to mount, which CI forbids")
            self.skipTest("SKIPPED: there is no right to mount")
        done = subprocess.run(["unshare", "-m", str(script), sys.executable, str(here / "places.py")], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())


class Bytes(unittest.TestCase):
    def test_an_answer_survives_any_cut(self):
        plain = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
        for text, cut in itertools.product((plain, chunked), range(1, 60)):
            response = _wire.Response("/x")
            body = b"".join(response.feed(part) for part in (text[:cut], text[cut:]) if part)
            self.assertEqual((response.status, body, response.complete), (200, b"hello", True), (text, cut))

    def test_events_survive_any_cut_and_comments_are_none(self):
        text = b': hello\n\nevent: state\r\nid: 4\r\ndata: {"a":1}\r\n\r\ndata: [1,\ndata: 2]\n\n'
        for cut in range(len(text)):
            blocks = _wire.Blocks(lines=False)
            events = [event for part in (text[:cut], text[cut:]) for event in blocks.feed(part)]
            self.assertEqual(events, [("state", 4, {"a": 1}), ("message", None, [1, 2])], cut)

    def test_what_has_no_body_is_complete_with_its_head(self):
        for rest in (b"content-length: 5\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n", b"\r\n"):
            cases = (("HEAD", b"200 OK", True), ("GET", b"204 No Content", True), ("GET", b"304 Not Modified", True), ("GET", b"200 OK", False))
            for method, status, complete in cases:
                response = _wire.Response("/x", method)
                response.feed(b"HTTP/1.1 " + status + b"\r\n" + rest)
                self.assertEqual(response.complete, complete, (method, status, rest))

    def test_odd_ways_to_answer_are_understood(self):
        plain = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
        for text, keeps in ((b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + plain, True),
                            (plain.replace(b"content", b"Connection: keep-alive, Close\r\ncontent"), False),
                            (plain.replace(b"1.1", b"1.0"), False),
                            (plain + b"HTTP/1.1 ", False),
                            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\nz: a\r\n\r\n", True)):
            for cut in range(1, len(text)):
                response = _wire.Response("/x")
                body = b"".join(response.feed(part) for part in (text[:cut], text[cut:]))
                self.assertEqual((body, response.complete), (b"hello", True), (text, cut))
            response = _wire.Response("/x")
            self.assertEqual((response.feed(text), response.keeps), (b"hello", keeps), text)
        # Without a length the answer ends with its connection.
        response = _wire.Response("/x")
        self.assertEqual((response.feed(b"HTTP/1.1 200 OK\r\n\r\nhello"), response.complete), (b"hello", False))
        self.assertEqual((response.feed(b""), response.complete, response.keeps), (b"", True, False))

    def test_what_is_no_http_or_ends_too_early_is_an_error(self):
        head, chunked = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        for bad in (b"220 mail.example.org ESMTP\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 \xb200 OK\r\n\r\n",
                    b"HTTP/1.1 101 Switching Protocols\r\n\r\n", head + b"content-length: -1\r\n\r\n",
                    head + b"content-length: \xb2\r\n\r\n", head + b"content-length: " + b"9" * 5000 + b"\r\n\r\n",
                    head + b"transfer-encoding: gzip, chunked\r\n\r\n", head + b"x: " + b"a" * (80 << 10),
                    head + b"x: " + b"a" * (80 << 10) + b"\r\n\r\n",
                    chunked + b"zz\r\n", chunked + b"-5\r\n", chunked + b"+5\r\n", chunked + b"0x5\r\n", chunked + b"1_0\r\n",
                    chunked + b"\r\n", chunked + b"1\r\nab\r\n", chunked + b"0" * 5000, chunked + b"0\r\n" + b"x" * 5000):
            with self.assertRaises(rooflined.Unexpected, msg=bad[:80]):
                _wire.Response("/x").feed(bad)
        for deep in (b"[" * 100000, b"\xff"):
            with self.assertRaises(rooflined.Unexpected):
                _wire.answer(_wire.Request("GET", "/x"), 200, deep)
            with self.assertRaises(rooflined.Refused):
                _wire.answer(_wire.Request("GET", "/x"), 500, deep)
            with self.assertRaises(rooflined.Unexpected):
                list(_wire.Blocks(lines=True).feed(deep + b"\n"))
        self.assertEqual(list(_wire.Blocks(lines=False).feed(b"id: " + b"9" * 5000 + b"\ndata: 1\n\n")), [("message", None, 1)])
        for early in (b"HT", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel"):
            response = _wire.Response("/x")
            response.feed(early)
            with self.assertRaises(rooflined.ConnectionLost):
                response.feed(b"")


class BadCompany(unittest.TestCase):
    """What listens is no daemon, or one that breaks."""

    def asked(self, behave, ask):
        impostor = Impostor(behave)
        self.addCleanup(impostor.stop)
        outcomes = []
        for kind in (rooflined.Client, rooflined.AsyncClient):
            client = kind(impostor.socket, timeout_s=1.0)
            began = time.monotonic()
            try:
                if kind is rooflined.Client:
                    with client:
                        outcomes.append(ask(client))
                else:
                    async def asynchronously():
                        async with client:
                            return await ask(client)

                    outcomes.append(asyncio.run(asynchronously()))
            except rooflined.RooflinedError as error:
                outcomes.append(error.code)
            self.assertLess(time.monotonic() - began, 5)
        return impostor, outcomes

    def test_one_that_never_answers_is_given_up_in_time(self):
        def silent(self, connection):
            self.read(connection)
            connection.recv(1)

        self.assertEqual(self.asked(silent, lambda client: client.board())[1], ["timed_out", "timed_out"])

    def test_one_that_always_has_more_to_say_is_given_up_in_time(self):
        for head, again in ((b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n")):
            def endless(self, connection):
                self.read(connection)
                connection.sendall(head)
                while True:
                    connection.sendall(again * 4000)

            self.assertEqual(self.asked(endless, lambda client: client.board())[1], ["timed_out", "timed_out"])

    def test_nothing_is_begun_when_the_time_is_over(self):
        def answering(self, connection):
            while self.read(connection):
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        for kept in (False, True):
            impostor = Impostor(answering)
            self.addCleanup(impostor.stop)
            client = rooflined.Client(impostor.socket)
            if kept:
                client.board()
            with self.assertRaises(rooflined.TimedOut):
                client.board(timeout_s=0)
            client.close()

            async def asynchronously():
                async with rooflined.AsyncClient(impostor.socket) as client:
                    if kept:
                        await client.board()
                    with self.assertRaises(rooflined.TimedOut):
                        await client.board(timeout_s=0)

            asyncio.run(asynchronously())
            time.sleep(0.1)
            self.assertEqual(len(impostor.requests), 2 if kept else 0)

    def test_a_time_limit_may_be_endless_and_is_a_number(self):
        def answering(self, connection):
            while self.read(connection):
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

        for limit in (float("inf"), 1e300, 1e12, 3):
            self.assertEqual(self.asked(answering, lambda client: client.board(timeout_s=limit))[1], [{}, {}])
        for kind in (rooflined.Client, rooflined.AsyncClient):
            for wrong, error in ((None, TypeError), ("3", TypeError), (True, TypeError), (float("nan"), ValueError)):
                with self.assertRaisesRegex(error, "timeout_s is a number of seconds"):
                    kind("/nonexistent", timeout_s=wrong)
        client = rooflined.Client("/nonexistent")
        client.timeout_s = None
        for ask in (client.board, client.events):
            with self.assertRaisesRegex(TypeError, "timeout_s is a number of seconds"):
                ask()

    def test_what_goes_wrong_while_it_connects_leaves_no_socket_open(self):
        before = len(os.listdir("/proc/self/fd"))
        with unittest.mock.patch("socket.socket.connect", side_effect=KeyboardInterrupt):
            try:
                rooflined.Client("/nonexistent").board()
            except KeyboardInterrupt as error:
                # Its traceback would keep the socket.
                self.assertEqual(len(os.listdir("/proc/self/fd")), before, error)

    def test_head_and_what_has_no_content_are_answered_with_none(self):
        def head(self, connection):
            while self.read(connection):
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n")

        def empty(self, connection):
            while self.read(connection):
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        self.assertEqual(self.asked(head, lambda client: client.request("HEAD", "/v1/formats"))[1], [None, None])
        self.assertEqual(self.asked(empty, lambda client: client.request("DELETE", "/v1/formats"))[1], [None, None])

    def held(self, behave, **parameters):
        impostor = Impostor(behave, "control.sock")
        self.addCleanup(impostor.stop)
        client = rooflined.Client(impostor.socket)
        self.addCleanup(client.close)
        return client.hold(**parameters)

    def test_a_hold_that_never_begins_or_ends_before_it_is_told(self):
        def waiting(self, connection):
            self.read(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b'{"event":"heartbeat"}\n')
                time.sleep(0.05)

        def ended(self, connection):
            self.read(connection)
            connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"event":"ended","cause":"auto_off"}\n')
            self.read(connection)

        with unittest.mock.patch("rooflined._sync.SWITCH_S", 0.5), unittest.mock.patch("rooflined._async.SWITCH_S", 0.5):
            for behave, error in ((waiting, rooflined.TimedOut), (ended, rooflined.Unexpected)):
                with self.assertRaises(error), self.held(behave):
                    self.fail("nothing is held")

                async def asynchronously():
                    impostor = Impostor(behave, "control.sock")
                    self.addCleanup(impostor.stop)
                    async with rooflined.AsyncClient(impostor.socket).hold():
                        self.fail("nothing is held")

                with self.assertRaises(error):
                    asyncio.run(asynchronously())

    def test_a_hold_whose_callback_raises_says_that_it_is_over(self):
        def changing(self, connection):
            self.read(connection)
            connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"event":"held","id":1,"mode":"15W","satisfied":true}\n')
            time.sleep(0.2)
            # Of another shape than expected.
            connection.sendall(b'{"event":"satisfied"}\n')
            self.read(connection)

        def wrong(hold):
            raise RuntimeError("on purpose")

        with unittest.mock.patch("threading.excepthook"), self.held(changing, on_change=wrong) as hold:
            self.assertEqual(hold.mode, "15W")
            self.assertTrue(until(lambda: hold.ended))
        self.assertEqual((hold.ended, hold.satisfied), ("abandoned", None))

        async def asynchronously():
            impostor = Impostor(changing, "control.sock")
            self.addCleanup(impostor.stop)
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            async with rooflined.AsyncClient(impostor.socket).hold(on_change=wrong) as hold:
                while not hold.ended:
                    await asyncio.sleep(0.05)
            return hold.ended, hold.satisfied

        self.assertEqual(asyncio.run(asyncio.wait_for(asynchronously(), 30)), ("abandoned", None))

    def test_a_hold_outlives_a_lack_of_descriptors(self):
        goes = threading.Event()

        def holding(self, connection):
            self.read(connection)
            connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"event":"held","id":%d,"mode":"15W","satisfied":true}\n' % len(self.requests))
            if len(self.requests) == 1:
                goes.wait(30)
            else:
                self.read(connection)

        real, short = socket.socket, threading.Event()

        def scarce(*arguments, **more):
            if short.is_set():
                raise OSError(errno.EMFILE, "Too many open files")
            return real(*arguments, **more)

        with self.held(holding) as hold:
            with unittest.mock.patch("rooflined._sync.socket.socket", scarce):
                short.set()
                goes.set()
                self.assertTrue(until(lambda: hold.satisfied is None))
                # Asked for again, more than once.
                time.sleep(1.5)
                self.assertIsNone(hold.ended)
                short.clear()
                self.assertTrue(until(lambda: hold.satisfied))
            self.assertEqual(hold.id, 2)
        self.assertEqual(hold.ended, "released")

    def test_one_that_drips_is_given_up_in_time(self):
        def dripping(self, connection):
            self.read(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.1)

        self.assertEqual(self.asked(dripping, lambda client: client.board())[1], ["timed_out", "timed_out"])

    def test_one_that_breaks_off_is_told_as_that_and_a_change_is_sent_once(self):
        def breaking(self, connection):
            self.read(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")

        impostor, outcomes = self.asked(breaking, lambda client: client.observe(GEMV, time_s=1.0))
        self.assertEqual(outcomes, ["connection_lost", "connection_lost"])
        self.assertEqual(len(impostor.requests), 2)

    def test_a_kept_connection_that_closes_is_replaced_for_a_question_and_not_for_a_change(self):
        def once(self, connection):
            self.read(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            self.read(connection)

        impostor = Impostor(once)
        self.addCleanup(impostor.stop)
        client = rooflined.Client(impostor.socket)
        self.addCleanup(client.close)
        client.board()
        client.board()
        self.assertEqual(len(impostor.requests), 3)
        with self.assertRaises(rooflined.ConnectionLost):
            client.observe(GEMV, time_s=1.0)
        self.assertEqual(len(impostor.requests), 4)

    def test_what_is_no_json_or_no_http_is_said(self):
        def html(self, connection):
            self.read(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>")

        def mail(self, connection):
            connection.sendall(b"220 mail.example.org ESMTP\r\n")
            self.read(connection)

        self.assertEqual(self.asked(html, lambda client: client.board())[1], ["unexpected"] * 2)
        self.assertEqual(self.asked(mail, lambda client: client.board())[1], ["unexpected"] * 2)


class Files(Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.daemon.home / "model.gguf"
        maker = str(REPOSITORY / "tests/random_gguf.py")
        # It wants Python 3.9.
        python = sys.executable if sys.version_info >= (3, 9) else "python3"
        subprocess.run([python, maker, "small", "q8_0", str(cls.model)], check=True, stdout=subprocess.DEVNULL)
        cls.model.chmod(0o600)

    def test_a_network_is_named_by_the_path_of_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            fixed, opened = pathlib.Path(folder, "detector.onnx"), pathlib.Path(folder, "open.onnx")
            for command in ([fixed], [opened, "--open"]):
                subprocess.run([sys.executable, REPOSITORY / "tests/random_onnx.py", *command], check=True)
            daemon = Daemon(config=f"[calibration]\nautomatic = false\n[models]\ndirs = [{json.dumps(folder)}]\n")
            self.addCleanup(daemon.stop)
            with rooflined.Client(daemon.socket) as client:
                board = {"hardware": "orin-nano"}
                sizes = {"path": str(opened), "dimensions": {"batch": 1}, "size": [640, 640]}
                expected = client.predict_network(sizes, **board)["latency_s"]
                self.assertEqual(client.predict_network(str(fixed), **board)["latency_s"], expected)
                self.assertEqual(client.predict_network(fixed, **board)["latency_s"], expected)
                answer = client.recommend_network({"workload": {"network": fixed, **board}, "precisions": ["fp16"]})
                self.assertEqual(answer["prediction"]["latency_s"], expected)
                with self.assertRaises(rooflined.Refused) as refused:
                    client.predict_network(opened, **board)
                self.assertEqual((refused.exception.code, refused.exception.field), ("missing_field", "network.dimensions"))
                self.assertIn("`batch`", refused.exception.message)

    def test_a_path_object_and_an_open_file_are_inspected(self):
        by_path = self.client.predict({"model": self.model, "phase": "decode"}, engine="llama.cpp")
        with open(str(self.model), "rb") as file:
            by_file = self.client.predict({"model": file, "phase": "decode"}, engine="llama.cpp")
            self.assertEqual(file.tell(), 0)

        async def asked(client):
            return await client.predict({"model": self.model, "phase": "decode"}, engine="llama.cpp")

        model = self.client.inspect_model(self.model)
        self.assertEqual(model["path"], str(self.model))
        by_model = self.client.predict({"model": model, "phase": "decode"}, engine="llama.cpp")
        # The board may have gone on between the two.
        self.assertEqual({**by_model, "serial": 0}, {**by_path, "serial": 0})
        for answer in (by_file, self.asynchronously(asked)):
            self.assertEqual(answer["bytes"], by_path["bytes"])
        # Weights in q8_0 are 34 bytes for 32; the file is little more than these.
        self.assertLess(abs(by_path["memory_bytes"]["weights"] / self.model.stat().st_size - 1), 0.1)

    def test_text_does_what_it_looks_like(self):
        by_path = self.client.predict({"model": self.model, "phase": "decode"}, engine="llama.cpp")
        before = os.getcwd()
        os.chdir(str(self.daemon.home))
        try:
            for text in (str(self.model), "./model.gguf", "model.gguf"):
                self.assertEqual(self.client.predict({"model": text, "phase": "decode"}, engine="llama.cpp")["bytes"], by_path["bytes"], text)
            self.assertEqual(self.client.predict("./model.gguf", engine="llama.cpp")["bytes"], by_path["bytes"])
            rows = self.client.sweep({"models": ["./model.gguf", "llama-3.2-1b"], "engine": "llama.cpp"})["rows"]
            self.assertEqual(len({row["model"] for row in rows}), 2)
            self.assertEqual(self.client.inspect_model("./model.gguf")["path"], str(self.model))
        finally:
            os.chdir(before)
        named = self.client.predict({"model": "llama-3.2-1b"}, engine="llama.cpp", hardware="l4")
        self.assertEqual(self.client.predict("llama-3.2-1b", engine="llama.cpp", hardware="l4")["bytes"], named["bytes"])
        # A name on Hugging Face is not a path. A missing file is reported here, not by the registry.
        self.assertGreater(self.client.predict("Qwen/Qwen3-4B", hardware="l4")["bytes"], 1e9)
        with self.assertRaises(FileNotFoundError):
            self.client.predict({"model": "./nothing.gguf"})

        async def asked(client):
            return await client.predict(str(self.model), engine="llama.cpp")

        self.assertEqual(self.asynchronously(asked)["bytes"], by_path["bytes"])

    def test_no_refusal_speaks_of_the_daemons_own_types(self):
        for workload, words in [
            ({"model": "llama-3.2-1b", "batch": "two"}, 'workload.batch is "two"; it must be a whole number, 0 or more'),
            ({"model": "llama-3.2-1b", "context_tokens": 1e30}, "it must be a whole number"),
            ({"model": "llama-3.2-1b", "format": 4}, "workload.format is 4; it must be text in quotes"),
        ]:
            with self.assertRaises(rooflined.Refused) as raised:
                self.client.predict(workload)
            self.assertIn(words, str(raised.exception))
        for ask in (
            lambda: self.client.recommend("llama-3.2-1b", constraints={"max_power_w": "x"}),
            lambda: self.client.sweep({"models": 7}),
            lambda: self.client.observe("llama-3.2-1b", engine="llama.cpp", tokens_per_s="fast"),
        ):
            with self.assertRaises(rooflined.Refused) as raised:
                ask()
            self.assertNotRegex(str(raised.exception), r"\b[uif](8|16|32|64)\b|usize|struct|sequence|invalid type|Option")

    def test_of_a_directory_its_configuration_is_inspected(self):
        checkpoint = self.daemon.home / "checkpoint"
        checkpoint.mkdir(mode=0o700)
        with self.assertRaisesRegex(ValueError, "is a directory without a config.json; give"):
            self.client.predict({"model": checkpoint})
        (checkpoint / "config.json").write_text(json.dumps(LLAMA))

        async def asked(client):
            return await client.predict({"model": checkpoint, "phase": "decode"}, engine="llama.cpp")

        whole = self.client.predict({"model": checkpoint, "phase": "decode"}, engine="llama.cpp")
        for same in (self.asynchronously(asked), self.client.predict({"model": checkpoint / "config.json", "phase": "decode"}, engine="llama.cpp")):
            self.assertEqual(same["bytes"], whole["bytes"])
        # A Llama 3.2 1B has 1.236e9 weights of two bytes.
        self.assertLess(abs(whole["memory_bytes"]["weights"] / 2.472e9 - 1), 0.01)

    def test_a_directory_whose_quantisation_would_stay_behind_is_refused(self):
        checkpoint = self.daemon.home / "modelopt"
        checkpoint.mkdir(mode=0o700)
        (checkpoint / "config.json").write_text(json.dumps(LLAMA))
        (checkpoint / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}))
        before = len(os.listdir("/proc/self/fd"))
        remedy = r'modelopt tells in hf_quant_config.json .* give {"path": "/.*/modelopt"}, below a directory of \[models\] dirs'
        with self.assertRaisesRegex(ValueError, remedy):
            self.client.predict({"model": checkpoint})
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        quantised = {"quant_method": "modelopt", "quant_algo": "FP8"}
        # As newer exports have it, also of a language model inside another.
        for told in ({**LLAMA, "quantization_config": quantised}, {"text_config": {**LLAMA, "quantization_config": quantised}}):
            (checkpoint / "config.json").write_text(json.dumps(told))
            row = self.client.sweep({"models": [checkpoint], "engine": "vllm", "hardware": "l4"})["rows"][0]
            self.assertTrue(row["format"].startswith("fp8"), row["format"])
        # What is wrong with a configuration the daemon says.
        for broken in ("{", "[]", "[" * 100000, ""):
            (checkpoint / "config.json").write_text(broken)
            with self.assertRaises(rooflined.Refused):
                self.client.predict({"model": checkpoint})

    def test_of_many_gathered_questions_those_that_wait_have_no_file_open(self):
        async def asked(client, question, count):
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 128, hard))
            try:
                return await asyncio.gather(*(question(client) for _ in range(count)), return_exceptions=True)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        def of_one(client):
            return client.predict({"model": self.model, "phase": "decode"}, engine="llama.cpp")

        def of_two(client):
            return client.sweep({"models": [self.model, self.model], "engine": "llama.cpp"})

        # More than the process may have open.
        for question, count in ((of_one, 200), (of_two, 40)):
            answers = self.asynchronously(lambda client: asked(client, question, count))
            self.assertEqual([one for one in answers if isinstance(one, BaseException)], [])
            self.assertEqual(len(answers), count)

    def test_descriptors_do_not_leak(self):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            self.client.predict({"model": self.model, "phase": "decode"}, engine="llama.cpp")
        with self.assertRaises(FileNotFoundError):
            self.client.predict({"model": pathlib.Path("/nonexistent.gguf")})
        with self.assertRaises(ValueError):
            self.client.predict({"model": pathlib.Path("/dev/null")})
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before + 1)


class Sharing(unittest.TestCase):
    """A daemon that is short of patience or dies."""

    def setUp(self):
        self.daemon = Daemon(config="[control]\nenabled = true\n[calibration]\nautomatic = false\n[daemon]\nheader_timeout_s = 1.0\n")
        self.addCleanup(self.daemon.stop)
        self.client = rooflined.Client(self.daemon.socket)
        self.addCleanup(self.client.close)

    def test_threads_share_a_client_and_a_fork_keeps_it(self):
        wrong = []

        def ask(size):
            for _ in range(20):
                found = self.client.predict({"op": {"kind": "gemv", "n": size, "k": 64}, "format": "fp16"})
                if found["flops"] != 2.0 * size * 64:
                    wrong.append((size, found["flops"]))

        threads = [threading.Thread(target=ask, args=(64 * size,)) for size in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        child = os.fork()
        if child == 0:
            try:
                ask(4096)
            finally:
                os._exit(1 if wrong else 0)
        ask(128)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(wrong, [])

    def test_a_forked_child_closes_the_connections_of_its_parent_and_leaves_them_to_it(self):
        async def asked(client):
            await client.board()

        self.client.board()
        theirs = rooflined.AsyncClient(self.daemon.socket)
        asyncio.run(asked(theirs))
        idle = [self.client._idle[0][1], theirs._idle[0][1]]
        child = os.fork()
        if child == 0:
            try:
                self.client.board()
                asyncio.run(asked(theirs))
                os._exit(0 if [one.fileno() for one in idle] == [-1, -1] else 1)
            finally:
                os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.client.board()
        asyncio.run(asked(theirs))
        self.assertEqual([self.client._idle[0][1], theirs._idle[0][1]], idle)
        asyncio.run(theirs.close())

    def test_a_forked_child_does_not_wait_for_a_thread_that_it_does_not_have(self):
        with self.client._lock:
            child = os.fork()
            if child == 0:
                try:
                    signal.alarm(20)
                    self.client.board()
                    os._exit(0)
                finally:
                    os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_more_tasks_than_a_user_may_have_connections_are_all_answered(self):
        async def many(client, count):
            return await asyncio.gather(*(client.predict(GEMV, hardware="t4") for _ in range(count)))

        client = rooflined.AsyncClient(self.daemon.socket)
        for _ in range(2):
            # In one event loop after the other.
            self.assertEqual(len(asyncio.run(many(client, 400))), 400)
        asyncio.run(client.close())

    def test_one_that_waits_for_its_turn_is_given_up_in_time_and_a_turn_is_given_back(self):
        def silent(self, connection):
            self.read(connection)
            connection.recv(1)

        impostor = Impostor(silent)
        self.addCleanup(impostor.stop)

        async def whole():
            with unittest.mock.patch("rooflined._async.MAX_CONNECTIONS", 2):
                async with rooflined.AsyncClient(impostor.socket, timeout_s=0.5) as client:
                    for _ in range(2):
                        began = time.monotonic()
                        found = await asyncio.gather(*(client.board() for _ in range(6)), return_exceptions=True)
                        self.assertEqual({type(one) for one in found}, {rooflined.TimedOut})
                        self.assertLess(time.monotonic() - began, 2)

        asyncio.run(whole())

    def test_idle_connections_to_one_socket_leave_those_to_the_other_their_places(self):
        pairs = [socket.socketpair() for _ in range(10)]
        for mine, _ in pairs[:9]:
            self.client._keep("control", mine)
        self.client._keep("query", pairs[9][0])
        self.assertEqual([kind for kind, _, _ in self.client._idle], ["control"] * 8 + ["query"])
        for mine, theirs in pairs:
            mine.close()
            theirs.close()

    def test_an_idle_connection_that_was_closed_is_not_noticed(self):
        for _ in range(2):
            self.client.board()
            time.sleep(1.5)
        rate = self.client.predict(CHAT, engine="llama.cpp")["tokens_per_s"]["value"]
        self.client.observe(CHAT, engine="llama.cpp", tokens_per_s=rate)

    def test_a_daemon_that_is_killed_in_the_middle_is_told_and_found_again(self):
        outcomes, over = [], threading.Event()

        def ask():
            while not over.is_set():
                try:
                    self.client.predict(GEMV)
                    outcomes.append("answered")
                except rooflined.RooflinedError as error:
                    outcomes.append(error.code)
                    self.assertTrue(error.is_temporary)
                    time.sleep(0.02)

        thread = threading.Thread(target=ask)
        thread.start()
        self.assertTrue(until(lambda: "answered" in outcomes))
        self.daemon.kill()
        self.assertTrue(until(lambda: "unreachable" in outcomes))
        before = len(outcomes)
        self.daemon.start()
        self.assertTrue(until(lambda: "answered" in outcomes[before:]))
        over.set()
        thread.join()
        self.assertLessEqual(set(outcomes), {"answered", "unreachable", "connection_lost", "denied", "not_ready"})


class Streams(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon()
        self.addCleanup(self.daemon.stop)
        self.client = rooflined.Client(self.daemon.socket)
        self.addCleanup(self.client.close)

    def test_events_begin_with_the_state_and_go_on_over_a_restart(self):
        with self.client.events() as events:
            self.assertEqual(next(events).name, "state")
            self.daemon.restart()
            names = [event.name for event in itertools.takewhile(lambda event: event.name != "reconnected", events)]
            self.assertNotIn("reconnected", names)
            self.assertEqual(next(events).name, "state")

    def test_without_reconnecting_the_end_is_an_error(self):
        events = self.client.events(reconnect_s=0)
        next(events)
        self.daemon.kill()
        with self.assertRaises(rooflined.ConnectionLost):
            for _ in events:
                pass

    def test_another_thread_ends_the_iteration(self):
        events = self.client.events()
        threading.Timer(0.5, events.close).start()
        self.assertGreaterEqual(sum(1 for _ in events), 1)

    def test_a_slow_reader_still_hears_of_a_change(self):
        with self.client.events() as events:
            next(events)
            time.sleep(4)
            self.client.set_mode("15W")
            modes = (event.data for event in events if event.name == "mode")
            self.assertEqual(next(modes)["to"], "15W")

    def test_a_recommendation_is_kept_true(self):
        with self.client.watch(CHAT, engine="llama.cpp") as events:
            first = next(events)
            self.assertEqual((first.name, first.data["feasible"]), ("recommend", True))
            self.client.set_mode("15W")
            names = [event.name for event in itertools.islice(events, 2)]
            self.assertEqual(names, ["advice_stale", "recommend"])

    def test_another_task_ends_the_asynchronous_iteration_at_once(self):
        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client:
                for gone in (False, True):
                    events, heard = client.events(), []

                    async def listen():
                        async for event in events:
                            heard.append(event.name)

                    listening = asyncio.create_task(listen())
                    while not heard:
                        await asyncio.sleep(0.01)
                    if gone:
                        self.daemon.kill()
                        # It is looked for again, or the time to the next look is waited for.
                        await asyncio.sleep(0.2)
                    began = time.monotonic()
                    await events.close()
                    await asyncio.wait_for(listening, 10)
                    self.assertLess(time.monotonic() - began, 0.4)
                    with self.assertRaises(StopAsyncIteration):
                        await events.__anext__()

        asyncio.run(whole())

    def test_an_asynchronous_iteration_that_is_cancelled_can_go_on(self):
        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client, client.events() as events:
                self.assertEqual((await events.__anext__()).name, "state")
                for _ in range(3):
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(self.switched_to(events), 0.1)
                await client.set_mode("15W")
                self.assertEqual(await asyncio.wait_for(self.switched_to(events), 20), "15W")

        asyncio.run(whole())

    async def switched_to(self, events):
        async for event in events:
            if event.name == "mode":
                return event.data["to"]

    def test_asynchronous_events_reconnect_too(self):
        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client:
                async with client.events() as events:
                    self.assertEqual((await events.__anext__()).name, "state")
                    await asyncio.get_running_loop().run_in_executor(None, self.daemon.restart)
                    async for event in events:
                        if event.name == "reconnected":
                            return event.data["gap_s"]

        self.assertGreater(asyncio.run(whole()), 0)


class Holds(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(config="[control]\nenabled = true\ndwell_s = 0.0\n[calibration]\nautomatic = false\n")
        self.addCleanup(self.daemon.stop)
        self.client = rooflined.Client(self.daemon.socket)
        self.addCleanup(self.client.close)

    def active(self):
        return self.client.modes()["active"]

    def test_a_hold_lasts_as_long_as_its_block(self):
        with self.client.hold({"mode": "15W"}, app_id="test", reason="to see") as hold:
            self.assertEqual((hold.mode, hold.satisfied, self.active()), ("15W", True, "15W"))
            held = self.client.holds()["holds"]
            self.assertEqual([(one["app_id"], one["reason"], one["attached"]) for one in held], [("test", "to see", True)])
        self.assertEqual(hold.ended, "released")
        self.assertTrue(until(lambda: self.active() == "25W"))

    def test_one_that_no_mode_meets_is_refused(self):
        with self.assertRaises(rooflined.Refused) as caught:
            with self.client.hold({"mode": "no such mode"}):
                self.fail("nothing is held")
        self.assertEqual(caught.exception.code, "unknown_mode")

    def test_a_hold_is_for_one_block(self):
        hold = self.client.hold({"mode": "15W"})
        with hold:
            with self.assertRaisesRegex(RuntimeError, "ask for the next with hold"), hold:
                self.fail("it is held already")
            self.assertEqual((hold.satisfied, self.active()), (True, "15W"))
        with self.assertRaisesRegex(RuntimeError, "ask for the next with hold"), hold:
            self.fail("nothing is held")
        # One that was refused may be tried again.
        refused = self.client.hold({"mode": "no such mode"})
        for _ in range(2):
            with self.assertRaises(rooflined.Refused), refused:
                self.fail("nothing is held")

        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client:
                hold = client.hold({"mode": "15W"})
                async with hold:
                    with self.assertRaises(RuntimeError):
                        async with hold:
                            self.fail("it is held already")
                    self.assertEqual((hold.satisfied, len((await client.holds())["holds"])), (True, 1))
                with self.assertRaises(RuntimeError):
                    async with hold:
                        self.fail("nothing is held")

        asyncio.run(whole())

    def test_a_hold_goes_on_over_a_restart_of_the_daemon(self):
        changes = []
        with self.client.hold({"mode": "15W"}, on_change=lambda hold: changes.append((hold.mode, hold.satisfied))) as hold:
            self.daemon.restart()
            self.assertTrue(until(lambda: changes))
            # The helper of a simulated board ends with the daemon, so this is a hold in place of the other, with an id of its own.
            self.assertEqual((hold.satisfied, self.active()), (True, "15W"))
            self.assertEqual(len(self.client.holds()["holds"]), 1)
            self.client.release_hold(hold.id)
            self.assertTrue(until(lambda: hold.ended))
        self.assertEqual(hold.ended, "released")

    def test_a_hold_that_is_refused_after_a_restart_says_so(self):
        with self.client.hold({"mode": "15W"}) as hold:
            self.daemon.kill()
            (self.daemon.home / "rooflined.toml").write_text("[calibration]\nautomatic = false\n")
            self.daemon.start()
            self.assertTrue(until(lambda: hold.ended))
            self.assertEqual(hold.ended, "control_disabled")

    def test_a_hold_ends_with_a_process_that_is_killed(self):
        text = f"import rooflined\nwith rooflined.Client({self.daemon.socket!r}).hold({{'mode': '15W'}}):\n print('held', flush=True)\n input()"
        holder = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(holder.stdout.readline(), b"held\n")
        self.assertEqual(self.active(), "15W")
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        self.assertTrue(until(lambda: not self.client.holds()["holds"]))

    def test_a_forked_child_neither_ends_a_hold_nor_keeps_it(self):
        with self.client.hold({"mode": "15W"}) as hold:
            child = os.fork()
            if child == 0:
                hold.release()
                signal.pause()
            time.sleep(0.5)
            self.assertEqual(len(self.client.holds()["holds"]), 1)
        self.assertTrue(until(lambda: not self.client.holds()["holds"], 10))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def test_one_with_an_end_of_its_own_is_renewed_and_released(self):
        held = self.client.post_hold(60, constraints={"mode": "15W"})
        self.assertGreater(self.client.renew_hold(held["id"], 600)["expires_in_s"], 60)
        self.client.release_hold(held["id"])
        with self.assertRaises(rooflined.Refused) as caught:
            self.client.release_hold(held["id"])
        self.assertEqual(caught.exception.code, "unknown_hold")

    def test_asynchronous_holds_do_the_same(self):
        async def whole():
            async with rooflined.AsyncClient(self.daemon.socket) as client:
                async with client.hold({"mode": "15W"}) as hold:
                    await asyncio.get_running_loop().run_in_executor(None, self.daemon.restart)
                    for _ in range(300):
                        if hold.satisfied and (await client.modes())["active"] == "15W":
                            break
                        await asyncio.sleep(0.1)
                    self.assertEqual((hold.satisfied, hold.mode), (True, "15W"))
                self.assertEqual(hold.ended, "released")

        asyncio.run(whole())


class Agreement(Shared):
    def test_rooflinectl_is_given_the_same_answer(self):
        said = subprocess.run([str(BINARIES / "rooflinectl"), "--socket", self.daemon.socket, "-o", "json", "predict", "gemv", "4096", "4096",
                               "--format", "int8", "--hardware", "t4"], check=True, stdout=subprocess.PIPE).stdout
        mine = self.client.predict(GEMV, hardware="t4")
        self.assertEqual(json.loads(said)["time_s"], mine["time_s"])


if __name__ == "__main__":
    unittest.main()
