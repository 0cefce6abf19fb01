"""HTTP/1.1, events and lines as bytes: no socket is touched here, so both clients share it."""

import json
import os
import stat
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlencode

from .errors import ConnectionLost, Refused, Unexpected

MAX_ANSWER_BYTES = 64 << 20
MAX_HEAD_BYTES = 64 << 10
MAX_EVENT_BYTES = 1 << 20
# The daemon says that it is still there every 15 s; a stream that is silent for longer is broken.
SILENCE_S = 60.0
# Between two tries to reach a daemon that has gone.
AGAIN_S = 0.5
# An idle connection that is older is not used again: the daemon closes it after five seconds.
IDLE_S = 3.0
# A switch of the power mode may come before the answer.
SWITCH_S = 120.0


class Event(NamedTuple):
    """One event of a stream. `name` is state, mode, throttle, roofline, calibration, hold, degraded, advice_stale, recommend,
    or what a later daemon adds; `reconnected` comes from this client: events may be missing before it."""

    name: str
    serial: Optional[int]
    data: Any


class Request(NamedTuple):
    """One request: which socket it goes to, and whether it changes something, in which case it is never sent twice."""

    method: str
    route: str
    body: Optional[Dict[str, Any]] = None
    socket: str = "query"
    changes: bool = False
    text: bool = False


def path(*parts: str, **query: Optional[str]) -> str:
    """A route with its parts and parameters escaped; parameters that are None are left out."""
    route = "/" + "/".join(quote(part, safe="") for part in parts)
    given = {key: value for key, value in query.items() if value is not None}
    return f"{route}?{urlencode(given)}" if given else route


def given(**fields: Any) -> Dict[str, Any]:
    """A body of those fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


class Encoded:
    """A request as bytes, with the files that it names by descriptor; closes those that it opened."""

    def __init__(self, request: Request) -> None:
        self.fds: List[int] = []
        self._opened: List[int] = []
        try:
            body = b"" if request.body is None else json.dumps(self._attach(request.body), allow_nan=False).encode()
        except BaseException:
            self.close()
            raise
        head = f"{request.method} {request.route} HTTP/1.1\r\nhost: rooflined\r\ncontent-length: {len(body)}\r\n"
        if request.body is not None:
            head += "content-type: application/json\r\n"
        self.data = head.encode("ascii") + b"\r\n" + body

    def _attach(self, value: Any) -> Any:
        """`value` with every open file and every path object as the daemon takes it."""
        if isinstance(value, dict):
            return {key: self._attach(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._attach(inner) for inner in value]
        if isinstance(value, os.PathLike):
            file = os.path.abspath(os.fspath(value))
            if os.path.isdir(file):
                # A checkpoint has several files, which the daemon opens with its own rights.
                return {"path": file}
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._opened.append(descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError(f"{file} is no regular file; give a GGUF file, a .safetensors file or a config.json")
            return self._descriptor(descriptor, file)
        if hasattr(value, "fileno"):
            name = getattr(value, "name", None)
            return self._descriptor(value.fileno(), os.path.abspath(name) if isinstance(name, str) else None)
        return value

    def _descriptor(self, descriptor: int, name: Optional[str]) -> Dict[str, Any]:
        self.fds.append(descriptor)
        if len(self.fds) > 2:
            raise ValueError("a request carries two open files at most; ask twice")
        return given(fd=len(self.fds) - 1, path=name)

    def close(self) -> None:
        for descriptor in self._opened:
            os.close(descriptor)
        self._opened = []

    def __enter__(self) -> "Encoded":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Response:
    """Takes bytes as they come and gives the body's; `status` is 0 until the head is complete."""

    def __init__(self, route: str) -> None:
        self.route = route
        self.status = 0
        self.complete = False
        self.keeps = True
        self.began = False
        self._pending = b""
        # Bytes of the body, or of the chunk, that are still to come; None until that is known.
        self._left: Optional[int] = None
        self._chunked = False
        self._last = False

    def feed(self, data: bytes) -> bytes:
        """The part of the body in `data`; no data is the end of the connection.

        Raises ConnectionLost where it ends too early and Unexpected where it is no HTTP.
        """
        if not data:
            if self.complete:
                return b""
            raise ConnectionLost(self.route)
        self.began = True
        self._pending += data
        if not self.status and not self._head():
            return b""
        return self._chunks() if self._chunked else self._plain()

    def _head(self) -> bool:
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            if len(self._pending) > MAX_HEAD_BYTES or not b"HTTP/1.".startswith(self._pending[:7]):
                raise Unexpected("what answers is no HTTP server", "look at which program listens on the socket")
            return False
        lines = self._pending[:end].decode("latin-1").split("\r\n")
        self._pending = self._pending[end + 4 :]
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise Unexpected(f"what answers is no HTTP server: {lines[0][:80]!r}", "look at which program listens on the socket")
        pairs = [line.partition(":") for line in lines[1:]]
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self.status = int(words[1])
        self.keeps = headers.get("connection", "").lower() != "close"
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if not self._chunked:
            length = headers.get("content-length", "0")
            if not length.isdigit():
                raise Unexpected(f"the answer's length is {length[:20]!r}")
            self._left = int(length)
        return True

    def _plain(self) -> bytes:
        assert self._left is not None
        body, self._pending = self._pending[: self._left], self._pending[self._left :]
        self._left -= len(body)
        self.complete = self._left == 0
        return body

    def _chunks(self) -> bytes:
        body = b""
        while not self.complete:
            if self._left is None:
                size, found, rest = self._pending.partition(b"\r\n")
                if not found:
                    break
                try:
                    self._left = int(size.split(b";")[0], 16)
                except ValueError:
                    raise Unexpected(f"the length of a chunk is {size[:20]!r}") from None
                self._pending, self._last = rest, self._left == 0
            # The chunk with the line end behind it.
            part = self._pending[: self._left]
            body += part
            self._pending = self._pending[len(part) :]
            self._left -= len(part)
            if self._left or len(self._pending) < 2:
                break
            self._pending, self._left = self._pending[2:], None
            self.complete = self._last
        return body


def answer(request: Request, status: int, body: bytes) -> Any:
    """What `body` says: JSON, or text where that was asked for. Raises Refused, or Unexpected."""
    try:
        if status == 200 and request.text:
            return body.decode()
        found = json.loads(body)
    except ValueError as error:
        if status != 200:
            raise Refused(status, {}) from None
        raise Unexpected(f"the answer to {request.route} is not understood: {error}") from None
    if status == 200:
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
        # Carriage returns are optional in the framing and no part of JSON.
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
            elif field == b"id" and value.isdigit():
                serial = int(value)
            elif field == b"data":
                data.append(value)
        return Event(name, serial, self._json(b"\n".join(data))) if data else None

    @staticmethod
    def _json(text: bytes) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise Unexpected(f"an event is not understood: {error}") from None


class HoldState:
    """What is known of a hold, from the lines that the daemon sends."""

    #: The cookie of the hold, for POST and DELETE of the holder alone; None before it is in force.
    id: Optional[int] = None
    #: The power mode in force when the daemon last said so.
    mode: Optional[str] = None
    #: Whether that mode meets the hold; None while that is not known.
    satisfied: Optional[bool] = None
    #: Why it does not.
    unmet: Optional[str] = None
    #: Why the hold is over: released, expired, control_disabled, auto_off, or the code of a refusal; None while it is wanted.
    ended: Optional[str] = None

    def take(self, event: Event) -> None:
        if event.name == "held":
            self.id, self.mode, self.satisfied, self.unmet = event.data["id"], event.data["mode"], event.data.get("satisfied"), None
        elif event.name == "satisfied":
            self.mode, self.satisfied, self.unmet = event.data["mode"], event.data["satisfied"], event.data.get("reason")
        elif event.name == "ended":
            self.ended = str(event.data.get("cause", "ended"))


def hold_request(constraints: Any, query: Any, app_id: str, reason: str) -> Request:
    body = given(constraints=constraints or {}, query=query, app_id=app_id, reason=reason)
    return Request("POST", "/v1/holds/attached", body, "control", changes=True)


def failures(tried: List[Tuple[str, str]], path: str, error: OSError) -> None:
    tried.append((path, (error.strerror or str(error)).lower()))
