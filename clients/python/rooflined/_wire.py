"""HTTP/1.1, events and lines as bytes, without sockets, so that both clients share this module."""

import errno
import json
import os
import pathlib
import re
import stat
from numbers import Real
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union
from urllib.parse import quote, urlencode

from .errors import ConnectionLost, Refused, RooflinedError, Unexpected
from .types import NetworkFile, Workload

MAX_ANSWER_BYTES = 64 << 20
MAX_HEAD_BYTES = 64 << 10
# The longest line before a chunk, or after the last one.
MAX_LINE_BYTES = 4 << 10
MAX_EVENT_BYTES = 1 << 20
# The daemon refuses a longer config.json.
MAX_CONFIG_BYTES = 16 << 20
# Bytes of a model file to send, and those for a longer header, which is the daemon's limit.
BEGINNINGS = (16 << 20, 64 << 20)
# How ModelOpt quantised a checkpoint; newer exports have it in config.json too.
QUANTISATION = "hf_quant_config.json"
# The daemon sends a sign of life every 15 s; a stream without one for longer is broken.
SILENCE_S = 60.0
# Pause between two attempts to reach the daemon.
AGAIN_S = 0.5
# Older idle connections are not reused, because the daemon closes them after five seconds.
IDLE_S = 3.0
# The power mode may be switched before the answer.
SWITCH_S = 120.0
_STATUS = re.compile("[1-9][0-9][0-9]\\Z")
# Longer lengths are not those of a readable answer.
_DIGITS = {10: re.compile("[0-9]{1,18}\\Z"), 16: re.compile("[0-9a-fA-F]{1,15}\\Z")}
# Shortages that may pass: descriptors, memory, threads.
_SHORT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETOOMANYREFS, errno.EAGAIN}


class Event(NamedTuple):
    """One event of a stream. `name` is state, mode, throttle, roofline, calibration, hold, degraded, advice_stale, recommend,
    or what a later daemon adds; `reconnected` comes from this client: events may be missing before it."""

    name: str
    serial: Optional[int]
    data: Any


#: What is asked about: a workload, or a model alone.
Work = Union[Workload, str, "os.PathLike[str]"]


#: A vision network: the path of an .onnx file, that path with the sizes that it leaves open, or its layers.
Network = Union[str, "os.PathLike[str]", NetworkFile, Dict[str, Any]]


class Request(NamedTuple):
    """One request: which socket it goes to, and whether it changes something, in which case it is never sent twice."""

    method: str
    route: str
    #: What JSON has a word for, or the bytes of a file.
    body: Any = None
    socket: str = "query"
    changes: bool = False
    text: bool = False


def path(*parts: str, **query: Optional[str]) -> str:
    """A route with its parts and parameters escaped; parameters that are None are left out."""
    route = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {key: value for key, value in query.items() if value is not None}
    return f"{route}?{urlencode(given)}" if given else route


def limit_s(value: Any) -> float:
    """A time limit, infinity included. Raises TypeError or ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"timeout_s is a number of seconds, not {value!r}; float('inf') waits as long as it takes")
    if value != value:
        raise ValueError("timeout_s is a number of seconds, not NaN")
    return float(value)


def given(**fields: Any) -> Dict[str, Any]:
    """A body of the fields that are not None; a text is its model."""
    body = {key: value for key, value in fields.items() if value is not None}
    return {**body, "workload": _workload(body["workload"])} if "workload" in body else body


# A text with such an ending is a file, never the name of a model.
FILE_ENDINGS = (".gguf", ".safetensors", ".json", ".onnx", ".pt", ".pth", ".bin", ".engine", ".plan")


def _named_model(text: str) -> Any:
    """A model's name as it is, and a path object for text that looks like a path: `./x.gguf`, `~/models/x`, `x.gguf`.

    `Qwen/Qwen3-4B` is the name of a model, unless there is such a directory.
    """
    is_path = text.endswith(FILE_ENDINGS) or text.startswith(("/", "./", "../", "~")) or ("/" in text and os.path.exists(text))
    return pathlib.Path(os.path.expanduser(text)) if is_path else text


def _workload(value: Any) -> Any:
    """A workload; a text, a path or a file is its model."""
    return {"model": value} if isinstance(value, str) or _is_file(value) else value


def _with_paths(value: Any) -> Any:
    """A body with a path object for every model and every network that is named by a file."""
    if isinstance(value, dict):
        return {key: _models(inner) if key in ("model", "models", "draft_model") else _network(inner) if key == "network" else _with_paths(inner)
                for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_paths(inner) for inner in value]
    return value


def _models(value: Any) -> Any:
    if isinstance(value, str):
        return _named_model(value)
    return [_models(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _network(value: Any) -> Any:
    """A vision network as the daemon takes it: the daemon opens the file that a path names."""
    if isinstance(value, (str, os.PathLike)):
        return {"path": os.path.abspath(os.path.expanduser(os.fspath(value)))}
    return _with_paths(value)


def files_in(body: Any) -> List[Any]:
    """Every path object, every open file and every model that is named by a path, in order."""
    return list(_files(_with_paths(body)))


def _files(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _files(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _files(inner)
    elif _is_file(value):
        yield value


def _is_file(value: Any) -> bool:
    return isinstance(value, os.PathLike) or hasattr(value, "fileno")


def with_models(body: Any, models: Iterator[Any]) -> Any:
    """A body with the next of `models` for each of `files_in`."""
    return _replaced(_with_paths(body), models)


def _replaced(value: Any, models: Iterator[Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(inner, models) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(inner, models) for inner in value]
    return next(models) if _is_file(value) else value


def inspection(file: Any, size: int) -> Tuple[Request, bool]:
    """The question about a model file, with its first `size` bytes, and whether these are all. The file's offset stays."""
    file = pathlib.Path(os.path.expanduser(file)) if isinstance(file, str) else file
    if not isinstance(file, os.PathLike):
        return _inspection(file.fileno(), getattr(file, "name", None), size)
    # Runs of the model are stored under this name.
    name = place = os.path.abspath(os.fspath(file))
    if os.path.isdir(place):
        # The daemon takes one file; for a checkpoint, the one that describes it.
        place = os.path.join(place, "config.json")
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if place == name:
            raise
        objection = f"{name} is a directory without a config.json; give a GGUF file, a .safetensors file or the directory of a checkpoint"
        raise ValueError(objection) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{place} is not a regular file; give a GGUF file, a .safetensors file or a config.json")
        if place != name and os.path.exists(os.path.join(name, QUANTISATION)) and not _is_quantised(descriptor):
            # Sent alone, its configuration would pass for 16 bits.
            raise ValueError(
                f"{name} tells in {QUANTISATION} how it is quantised, and its config.json, which alone would be sent, does not; "
                f"let the daemon read the directory: give {json.dumps({'path': name})}, below a directory of [models] dirs"
            )
        return _inspection(descriptor, name, size)
    finally:
        os.close(descriptor)


def _inspection(descriptor: int, name: Any, size: int) -> Tuple[Request, bool]:
    start = os.pread(descriptor, size, 0)
    called = os.path.abspath(name) if isinstance(name, str) else None
    return Request("POST", path("v1", "models", "inspect", name=called), start), len(start) < size


def named(model: Any) -> Dict[str, Any]:
    """The part of an inspected model that a request needs."""
    return {key: model[key] for key in ("path", "definition")}


def encoded(request: Request) -> bytes:
    """A request as bytes."""
    if isinstance(request.body, bytes):
        kind, body = "application/octet-stream", request.body
    else:
        kind, body = "application/json", b"" if request.body is None else json.dumps(request.body, allow_nan=False).encode()
    head = f"{request.method} {request.route} HTTP/1.1\r\nhost: rooflined\r\ncontent-length: {len(body)}\r\n"
    if request.body is not None:
        head += f"content-type: {kind}\r\n"
    return head.encode("ascii") + b"\r\n" + body


def _is_quantised(descriptor: int) -> bool:
    """Whether this config.json states a quantisation. Mistakes in the file are left to the daemon."""
    try:
        outer = json.loads(os.pread(descriptor, MAX_CONFIG_BYTES + 1, 0))
    except (ValueError, RecursionError):
        return True
    if not isinstance(outer, dict):
        return True
    inner = [outer.get(key) for key in ("text_config", "language_config", "llm_config")]
    return any(isinstance(one, dict) and isinstance(one.get("quantization_config"), dict) for one in [outer, *inner])


class Response:
    """Takes bytes as they arrive and returns those of the body; `status` is 0 until the head is complete."""

    def __init__(self, route: str, method: str = "GET") -> None:
        self.route = route
        # The answer to HEAD has no body, whatever its stated length.
        self._bodiless = method == "HEAD"
        self.status = 0
        self.complete = False
        self.keeps = True
        self._pending = b""
        # Bytes of the body, or of the chunk, that are still to come; None until that is known.
        self._left: Optional[int] = None
        self._chunked = self._until_end = False
        # After the last chunk, up to an empty line.
        self._trailers = False

    def feed(self, data: bytes) -> bytes:
        """The part of the body in `data`; no data is the end of the connection.

        Raises ConnectionLost where it ends too early and Unexpected where it is no HTTP.
        """
        if not data:
            if self._until_end and not self.complete:
                self.complete, self.keeps = True, False
            if self.complete:
                return b""
            raise ConnectionLost(self.route)
        self._pending += data
        # 100 Continue and similar precede the answer.
        while not self.status:
            if not self._head():
                return b""
        body = self._chunks() if self._chunked else self._plain()
        # Bytes after an answer were not requested.
        self.keeps = self.keeps and not (self.complete and self._pending)
        return body

    def _head(self) -> bool:
        end = self._pending.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
        if end < 0:
            if len(self._pending) > MAX_HEAD_BYTES or not b"HTTP/1.".startswith(self._pending[:7]):
                raise _no_http("its head has no end")
            return False
        lines = self._pending[:end].decode("latin-1").split("\r\n")
        self._pending = self._pending[end + 4 :]
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not _STATUS.match(words[1]):
            raise _no_http(repr(lines[0][:80]))
        status = int(words[1])
        if status == 101:
            raise _no_http("it changes to another protocol, which nobody asked for")
        if status < 200:
            return True
        pairs = [line.partition(":") for line in lines[1:]]
        headers = {name.strip().lower(): value.strip().lower() for name, _, value in pairs}
        self.status = status
        closes = [word.strip() for word in headers.get("connection", "").split(",")]
        self.keeps = words[0] != "HTTP/1.0" and "close" not in closes
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self._bodiless or status in (204, 304):
            self._left = 0
        elif coding is not None:
            if coding != "chunked":
                raise _no_http("its answer has a coding that nobody asked for")
            self._chunked = True
        elif length is None:
            self._until_end = True
        else:
            self._left = _number(length, 10, "the answer's length")
        return True

    def _plain(self) -> bytes:
        if self._until_end:
            body, self._pending = self._pending, b""
            return body
        assert self._left is not None
        body, self._pending = self._pending[: self._left], self._pending[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body

    def _chunks(self) -> bytes:
        body: List[bytes] = []
        # Used bytes of the pending ones; they are cut off once.
        used = 0
        while not self.complete:
            if self._left:
                part = self._pending[used : used + self._left]
                body.append(part)
                used += len(part)
                self._left -= len(part)
                if self._left:
                    break
            elif self._left == 0:
                end = self._pending[used : used + 2]
                if not b"\r\n".startswith(end):
                    raise Unexpected("a chunk of the answer is longer than it says")
                if len(end) < 2:
                    break
                used, self._left = used + 2, None
            else:
                found = self._pending.find(b"\r\n", used, used + MAX_LINE_BYTES)
                if found < 0:
                    if len(self._pending) - used >= MAX_LINE_BYTES:
                        raise Unexpected("a line between the chunks of the answer has no end")
                    break
                line, used = self._pending[used:found], found + 2
                if self._trailers:
                    self.complete = not line
                else:
                    size = _number(line.partition(b";")[0].decode("latin-1").strip(), 16, "the length of a chunk")
                    self._trailers, self._left = size == 0, size or None
        self._pending = self._pending[used:]
        return b"".join(body)


def _no_http(why: str) -> Unexpected:
    return Unexpected(f"what answers is no HTTP server: {why}", "look at which program listens on the socket")


def _number(text: str, base: int, what: str) -> int:
    # `int` itself takes signs, spaces, underscores and digits of other scripts.
    if not _DIGITS[base].match(text):
        raise Unexpected(f"{what} is {text[:20]!r}")
    return int(text, base)


def succeeds(status: int) -> bool:
    return 200 <= status < 300


def is_temporary(error: Exception) -> bool:
    """Whether the same request may succeed a little later."""
    return error.is_temporary if isinstance(error, RooflinedError) else isinstance(error, OSError) and error.errno in _SHORT


def answer(request: Request, status: int, body: bytes) -> Any:
    """The content of `body`: JSON, or text if requested. Raises Refused or Unexpected."""
    try:
        if succeeds(status) and request.text:
            return body.decode()
        if succeeds(status) and not body and (request.method == "HEAD" or status == 204):
            return None
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        if not succeeds(status):
            raise Refused(status, {}) from None
        raise Unexpected(f"the answer to {request.route} is not understood: {error}") from None
    if succeeds(status):
        return found
    details = found.get("error") if isinstance(found, dict) else None
    raise Refused(status, details if isinstance(details, dict) else {})


class Blocks:
    """Cuts a stream into events (server-sent events) or lines (JSON, one a line)."""

    def __init__(self, lines: bool) -> None:
        self._end = b"\n" if lines else b"\n\n"
        self._lines = lines
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that `data` completes, comments left out. Raises Unexpected beyond 1 MiB for one of them."""
        # Carriage returns are optional in the framing and not part of JSON.
        self._pending += data.replace(b"\r", b"")
        *blocks, self._pending = self._pending.split(self._end)
        if len(self._pending) > MAX_EVENT_BYTES:
            raise Unexpected("an event is larger than 1 MiB")
        for block in blocks:
            event = self._line(block) if self._lines else self._event(block)
            if event:
                yield event

    def _line(self, block: bytes) -> Optional[Event]:
        if not block.strip():
            return None
        data = self._json(block)
        return Event(str(data.get("event")) if isinstance(data, dict) else "message", None, data)

    def _event(self, block: bytes) -> Optional[Event]:
        name, serial, data = "message", None, []  # type: str, Optional[int], List[bytes]
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value[1:] if value.startswith(b" ") else value
            if field == b"event":
                name = value.decode(errors="replace")
            elif field == b"id" and value.isdigit() and len(value) < 20:
                serial = int(value)
            elif field == b"data":
                data.append(value)
        return Event(name, serial, self._json(b"\n".join(data))) if data else None

    @staticmethod
    def _json(text: bytes) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unexpected(f"an event is not understood: {error}") from None


class HoldState:
    """The state of a hold, from the lines that the daemon sends."""

    #: The cookie of the hold, for POST and DELETE of the holder alone; None before it is active.
    id: Optional[int] = None
    #: The active power mode, as the daemon last reported it.
    mode: Optional[str] = None
    #: Whether that mode meets the hold; None while that is not known.
    satisfied: Optional[bool] = None
    #: Why it does not.
    unmet: Optional[str] = None
    #: Why the hold is over: released, expired, control_disabled, auto_off, the code of a refusal, or abandoned where `on_change`
    #: raised; None while it is wanted.
    ended: Optional[str] = None

    def enter(self) -> None:
        """Raises RuntimeError if the hold was active before, because it would not hold again."""
        if self.id is not None or self.ended:
            raise RuntimeError("a hold is for one block; ask for the next with hold(...)")

    def take(self, event: Event) -> None:
        data = event.data if isinstance(event.data, dict) else {}
        if event.name == "held":
            # A hold counts even if its id is not a number.
            self.id = data["id"] if isinstance(data.get("id"), int) else 0
            self.mode, self.satisfied, self.unmet = data.get("mode"), data.get("satisfied"), None
        elif event.name == "satisfied":
            self.mode, self.satisfied, self.unmet = data.get("mode", self.mode), data.get("satisfied"), data.get("reason")
        elif event.name == "ended":
            self.ended = str(data.get("cause", "ended"))

    def begin(self, events: List[Event]) -> None:
        """Takes the lines before the hold is active. Raises Unexpected if the stream ends before."""
        for event in events:
            self.take(event)
        if self.ended:
            raise Unexpected(f"the hold ended before it began: {self.ended}")

    def fail(self, error: Exception) -> None:
        """It cannot be requested again."""
        code, message = (error.code, error.message) if isinstance(error, RooflinedError) else ("system", str(error))
        self.ended, self.unmet = code, message

    def abandon(self) -> None:
        """Nobody reads it any longer, for instance after an exception in on_change."""
        if not self.ended:
            self.ended, self.satisfied = "abandoned", None


def hold_request(constraints: Any, query: Any, app_id: str, reason: str) -> Request:
    body = given(constraints=constraints or {}, query=query, app_id=app_id, reason=reason)
    return Request("POST", "/v1/holds/attached", body, "control", changes=True)
