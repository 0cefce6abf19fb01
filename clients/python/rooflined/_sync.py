"""The synchronous client."""

import contextlib
import os
import socket
import threading
import time
import weakref
from typing import Any, Callable, Iterator, List, Optional, Tuple

from . import types as t
from ._address import Path, places, said
from ._verbs import Verbs
from ._wire import (
    AGAIN_S, IDLE_S, MAX_ANSWER_BYTES, SILENCE_S, SWITCH_S, BEGINNINGS, Blocks, Event, HoldState, Request, Response, Work, answer, encoded, files_in, given,
    hold_request, inspection, is_temporary, limit_s, named, succeeds, with_models,
)
from .errors import ConnectionLost, Denied, Refused, RooflinedError, TimedOut, Unexpected, Unreachable

CONNECT_S = 5.0
# The system's own limit is 2^31 ms.
MAX_WAIT_S = 2e6
# Of one socket.
MAX_IDLE = 8


class Client(Verbs):
    """A daemon on this machine. Connections open on demand; threads may share the client, and it survives a fork.

    `socket`: directory of the sockets, or one of them. The default is $ROOFLINED_SOCKET, else the daemon of this user or of the system,
    looked up at every connection. `timeout_s`: seconds for an exchange, unless the method has its own default; `float("inf")` waits without limit.
    """

    def __init__(self, socket: Optional[Path] = None, *, timeout_s: float = 30.0) -> None:
        self._given = socket
        self.timeout_s = limit_s(timeout_s)
        self._lock = threading.Lock()
        self._idle: List[Tuple[str, "socket_", float]] = []
        self._pid = os.getpid()
        _clients.add(self)

    def close(self) -> None:
        """Closes idle connections; the client can still be used."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection, _ in idle:
            connection.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def events(self, *, reconnect_s: float = 60.0) -> "Events":
        """Events of all changes, beginning with the state; see Events for `reconnect_s`."""
        return Events(self, Request("GET", "/v1/events"), reconnect_s)

    def watch(
        self,
        workload: Work,
        *,
        engine: Optional[str] = None,
        objective: Optional[str] = None,
        constraints: Optional[t.Constraints] = None,
        freedom: Optional[t.Freedom] = None,
        reconnect_s: float = 60.0,
    ) -> "Events":
        """A recommendation and its updates: event `recommend`, then `advice_stale` and `recommend` at every change."""
        body = given(workload=workload, engine=engine, objective=objective, constraints=constraints, freedom=freedom)
        return Events(self, Request("POST", "/v1/recommend/watch", body), reconnect_s)

    def hold(
        self,
        constraints: Optional[t.HoldConstraints] = None,
        *,
        query: Optional[t.RecommendRequest] = None,
        app_id: str = "python",
        reason: str = "",
        on_change: Optional[Callable[["Hold"], None]] = None,
    ) -> "Hold":
        """A power mode that meets `constraints` and `query`, for as long as the `with` block runs; see Hold."""
        return Hold(self, hold_request(constraints, query, app_id, reason), on_change)

    # Exchanges

    def _ask(self, request: Request, timeout_s: Optional[float]) -> Any:
        limit = limit_s(self.timeout_s if timeout_s is None else timeout_s)
        deadline = time.monotonic() + limit
        try:
            return self._answered(self._with_models(request, deadline), deadline)
        except socket.timeout:
            raise TimedOut(request.route, limit) from None

    def _inspected(self, file: Any, timeout_s: Optional[float]) -> Any:
        limit = limit_s(self.timeout_s if timeout_s is None else timeout_s)
        try:
            return self._inspect(file, time.monotonic() + limit)
        except socket.timeout:
            raise TimedOut("/v1/models/inspect", limit) from None

    def _with_models(self, request: Request, deadline: float) -> Request:
        """The request with every model file and every network as the daemon takes it."""
        if isinstance(request.body, bytes):
            return request
        models = [named(self._inspect(file, deadline)) for file in files_in(request.body)]
        return request._replace(body=with_models(request.body, iter(models)))

    def _inspect(self, file: Any, deadline: float) -> Any:
        for size in BEGINNINGS:
            request, is_whole = inspection(file, size)
            try:
                return self._answered(request, deadline)
            except Refused as error:
                if is_whole or size == BEGINNINGS[-1] or error.code != "unreadable_model":
                    raise

    def _answered(self, request: Request, deadline: float) -> Any:
        data = encoded(request)
        kept = self._take(request.socket)
        if kept:
            try:
                return self._exchange(request, data, kept, deadline)
            except ConnectionLost:
                # Closed before it saw the request, or while it answered: the same question may be asked again.
                if request.changes:
                    raise
        return self._exchange(request, data, self._connect(request.socket, deadline), deadline)

    def _exchange(self, request: Request, data: bytes, connection: "socket_", deadline: float) -> Any:
        response, body = Response(request.route, request.method), []  # type: Response, List[bytes]
        size, done = 0, False
        try:
            _send(connection, data, deadline, request.route)
            while not response.complete:
                part = response.feed(_receive(connection, deadline))
                body.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise Unexpected("the answer is larger than 64 MiB", "ask for fewer candidates at a time")
            done = response.keeps
        finally:
            if done:
                self._keep(request.socket, connection)
            else:
                connection.close()
        return answer(request, response.status, b"".join(body))

    def _take(self, which: str) -> Optional["socket_"]:
        """An idle connection that the daemon has not closed."""
        with self._lock:
            if self._pid != os.getpid():
                # The parent's connections; it continues to use its own descriptors.
                for _, connection, _ in self._idle:
                    connection.close()
                self._idle, self._pid = [], os.getpid()
            for index in range(len(self._idle) - 1, -1, -1):
                kind, connection, since = self._idle[index]
                if kind != which:
                    continue
                del self._idle[index]
                if time.monotonic() - since < IDLE_S and is_quiet(connection):
                    return connection
                connection.close()
        return None

    def _keep(self, which: str, connection: "socket_") -> None:
        with self._lock:
            alike = sum(kind == which for kind, _, _ in self._idle)
            if self._pid == os.getpid() and alike < MAX_IDLE:
                self._idle.append((which, connection, time.monotonic()))
                return
        connection.close()

    def _connect(self, which: str, deadline: float) -> "socket_":
        """Connects to the first daemon that accepts a connection."""
        tried: List[Tuple[str, str]] = []
        denied: Optional[Denied] = None
        for place in places(self._given):
            path = place.address[which]
            if place.objection:
                tried.append((path, place.objection))
                continue
            if time.monotonic() >= deadline:
                raise socket.timeout
            connection = socket.socket(socket.AF_UNIX)
            until = min(deadline, time.monotonic() + CONNECT_S)
            try:
                while True:
                    connection.settimeout(max(until - time.monotonic(), 0.001))
                    try:
                        connection.connect(path)
                        return connection
                    except BlockingIOError:
                        # The daemon's backlog is full.
                        if time.monotonic() > until:
                            raise
                        time.sleep(0.02)
            except PermissionError:
                connection.close()
                # The reason counts only if no other place answers.
                denied = denied or Denied(path)
            except OSError as error:
                connection.close()
                if time.monotonic() >= deadline:
                    raise socket.timeout from None
                tried.append((path, said(error)))
            except BaseException:
                connection.close()
                raise
        raise denied or Unreachable(tried)

    def _open(self, request: Request, limit: float) -> Tuple["socket_", Response, bytes]:
        """A separate connection with a continuing answer, and its beginning. Raises as a verb does."""
        deadline = time.monotonic() + limit_s(limit)
        connection = None
        try:
            data = encoded(self._with_models(request, deadline))
            connection = self._connect(request.socket, deadline)
            _send(connection, data, deadline, request.route)
            response, body = Response(request.route, request.method), b""
            while not response.status or (not succeeds(response.status) and not response.complete):
                body += response.feed(_receive(connection, deadline))
            if not succeeds(response.status):
                answer(request, response.status, body)
            opened, connection = connection, None
            return opened, response, body
        except socket.timeout:
            raise TimedOut(request.route, limit) from None
        finally:
            if connection is not None:
                connection.close()


# The name of the module is that of a parameter.
socket_ = socket.socket


# A forked child must not wait for a lock of a thread that it does not have.
_clients: "weakref.WeakSet[Client]" = weakref.WeakSet()


def _unlock() -> None:
    for client in list(_clients):
        client._lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def _wait_until(connection: socket_, deadline: float) -> None:
    """Limits the wait of the next operation; raises socket.timeout if the time is over before it begins."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout
    connection.settimeout(min(left, MAX_WAIT_S))


def is_quiet(connection: socket_) -> bool:
    """Whether an idle connection is still open."""
    # With a time limit Python itself would wait, regardless of the flags.
    connection.setblocking(False)
    try:
        # Data before any request means that the daemon closes the connection.
        connection.recv(1, socket.MSG_PEEK)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _send(connection: socket_, data: bytes, deadline: float, route: str) -> None:
    _wait_until(connection, deadline)
    try:
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        # The request may have been refused before it was read; then the answer has arrived.
        if is_quiet(connection):
            raise ConnectionLost(route) from None


def _receive(connection: socket_, deadline: float) -> bytes:
    _wait_until(connection, deadline)
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


class _Stream:
    """One connection with a continuing answer; `close` may be called from another thread."""

    def __init__(self, client: Client, request: Request, lines: bool, limit: float) -> None:
        self._connection, self._response, first = client._open(request, limit)
        self._blocks, self._pid = Blocks(lines), os.getpid()
        self._first = first

    def read(self) -> List[Event]:
        """The next events, perhaps none. Raises ConnectionLost at the end and after a minute of silence."""
        if self._first:
            data, self._first = self._first, b""
            return list(self._blocks.feed(data))
        if self._response.complete:
            raise ConnectionLost(self._response.route)
        try:
            data = _receive(self._connection, time.monotonic() + SILENCE_S)
        except OSError:
            # Silent for too long, or closed by another thread.
            data = b""
        return list(self._blocks.feed(self._response.feed(data)))

    def close(self) -> None:
        # Also if a forked child still has the connection open, but not by that child.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class Events:
    """An iterator over events. It ends with the `with` block, or when any thread calls `close`.

    If the daemon goes away, the iterator tries to reconnect twice a second for `reconnect_s` seconds and then raises the error
    (at once with 0, never with infinity). Events of that time are lost, so the event `reconnected` precedes the new state. A slow reader may
    miss states, but no changes.
    """

    def __init__(self, client: Client, request: Request, reconnect_s: float) -> None:
        self._client, self._request, self._reconnect_s = client, request, reconnect_s
        self._closed = threading.Event()
        self._waiting: List[Event] = []
        self._stream: Optional[_Stream] = self._open()

    def _open(self) -> _Stream:
        return _Stream(self._client, self._request, False, self._client.timeout_s)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._closed.is_set():
            if self._waiting:
                return self._waiting.pop(0)
            try:
                if self._stream:
                    self._waiting = self._stream.read()
            except ConnectionLost as error:
                if not self._closed.is_set():
                    self._again(error)
        raise StopIteration

    def _again(self, why: Exception) -> None:
        began = time.monotonic()
        if self._stream:
            self._stream.close()
        while True:
            if time.monotonic() - began >= self._reconnect_s:
                raise why
            if self._closed.wait(AGAIN_S):
                return
            try:
                self._stream = self._open()
                if self._closed.is_set():
                    self._stream.close()
                self._waiting = [Event("reconnected", None, {"gap_s": time.monotonic() - began})]
                return
            except (RooflinedError, OSError) as error:
                if not is_temporary(error):
                    raise
                why = error

    def close(self) -> None:
        """Ends the subscription and the iteration."""
        self._closed.set()
        if self._stream:
            self._stream.close()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Hold(HoldState):
    """A hold for the time of a `with` block. The block starts when the mode is active; Refused is raised if no mode meets the hold.

    A thread reads its changes, updates the fields and calls `on_change(hold)`. After a restart of the daemon, the thread requests the
    same hold twice a second; meanwhile the mode stays for 30 s. The hold ends with the block, `release` or the process. To hold again,
    call `hold` again.
    """

    def __init__(self, client: Client, request: Request, on_change: Optional[Callable[["Hold"], None]]) -> None:
        self._client, self._request, self._on_change = client, request, on_change
        self._stream: Optional[_Stream] = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None

    def __enter__(self) -> "Hold":
        self.enter()
        deadline = time.monotonic() + SWITCH_S
        stream = _Stream(self._client, self._request, True, SWITCH_S)
        try:
            while self.id is None:
                self.begin(stream.read())
                if self.id is None and time.monotonic() >= deadline:
                    raise TimedOut(self._request.route, SWITCH_S)
            self._stream = stream
            self._thread = threading.Thread(target=self._attend, name="rooflined-hold", daemon=True)
            self._thread.start()
        except BaseException:
            stream.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()

    def release(self) -> None:
        """Ends the hold. Does nothing if it has already ended."""
        self._over.set()
        with self._lock:
            if self._stream:
                self._stream.close()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(CONNECT_S)
        self.ended = self.ended or "released"

    def _attend(self) -> None:
        try:
            self._keep()
        finally:
            if not self._over.is_set():
                self.abandon()
            if self._stream:
                self._stream.close()

    def _keep(self) -> None:
        while not self._over.is_set() and not self.ended:
            stream = self._stream
            try:
                events = stream.read() if stream else []
            except RooflinedError:
                self._again()
                continue
            for event in events:
                if event.name != "heartbeat":
                    self.take(event)
                    self._tell()

    def _again(self) -> None:
        if self._stream:
            self._stream.close()
        self.satisfied = None
        while not self._over.wait(AGAIN_S):
            try:
                stream = _Stream(self._client, self._request, True, SWITCH_S)
            except (RooflinedError, OSError) as error:
                if is_temporary(error):
                    continue
                self.fail(error)
                self._tell()
                return
            with self._lock:
                self._stream = stream
                if self._over.is_set():
                    stream.close()
            return

    def _tell(self) -> None:
        if self._on_change and not self._over.is_set():
            self._on_change(self)


__all__: List[str] = ["Client", "Events", "Hold"]
