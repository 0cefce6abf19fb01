"""The asynchronous client."""

import asyncio
import contextlib
import os
import socket
import time
from typing import Any, AsyncIterator, Callable, Coroutine, List, Optional, Tuple, TypeVar

from . import types as t
from ._address import Path, places, said
from ._averbs import AsyncVerbs
from ._sync import CONNECT_S, MAX_IDLE, is_quiet
from ._wire import (
    AGAIN_S, IDLE_S, MAX_ANSWER_BYTES, SILENCE_S, SWITCH_S, BEGINNINGS, Blocks, Event, HoldState, Request, Response, Work, answer, encoded, files_in, given,
    hold_request, inspection, is_temporary, limit_s, named, succeeds, with_models,
)
from .errors import ConnectionLost, Denied, Refused, RooflinedError, TimedOut, Unexpected, Unreachable

T = TypeVar("T")
# One user may have 128 connections to a socket; streams and the user's other programs need some too.
MAX_CONNECTIONS = 64
# The daemon reads one model file of a user at a time; the beginnings of others wait in memory.
MAX_WITH_FILES = 2


class AsyncClient(AsyncVerbs):
    """A daemon on this machine, for asyncio; the parameters are those of Client. For the tasks of one event loop at a time.

    At most 64 exchanges run at once, two of them with files; further ones wait for their turn, and `timeout_s` counts from the call. Events and holds
    use a connection of their own each.
    """

    def __init__(self, socket: Optional[Path] = None, *, timeout_s: float = 30.0) -> None:
        self._given = socket
        self.timeout_s = limit_s(timeout_s)
        self._idle: List[Tuple[str, "socket_", float]] = []
        self._pid = os.getpid()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        # For all, and for those with files.
        self._turns: Optional[Tuple[asyncio.Semaphore, asyncio.Semaphore]] = None

    async def close(self) -> None:
        """Closes idle connections; the client can still be used."""
        idle, self._idle = self._idle, []
        for _, connection, _ in idle:
            connection.close()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    def events(self, *, reconnect_s: float = 60.0) -> "AsyncEvents":
        """Events of all changes, beginning with the state; see AsyncEvents for `reconnect_s`."""
        return AsyncEvents(self, Request("GET", "/v1/events"), reconnect_s)

    def watch(
        self,
        workload: Work,
        *,
        engine: Optional[str] = None,
        objective: Optional[str] = None,
        constraints: Optional[t.Constraints] = None,
        freedom: Optional[t.Freedom] = None,
        reconnect_s: float = 60.0,
    ) -> "AsyncEvents":
        """A recommendation and its updates: event `recommend`, then `advice_stale` and `recommend` at every change."""
        body = given(workload=workload, engine=engine, objective=objective, constraints=constraints, freedom=freedom)
        return AsyncEvents(self, Request("POST", "/v1/recommend/watch", body), reconnect_s)

    def hold(
        self,
        constraints: Optional[t.HoldConstraints] = None,
        *,
        query: Optional[t.RecommendRequest] = None,
        app_id: str = "python",
        reason: str = "",
        on_change: Optional[Callable[["AsyncHold"], None]] = None,
    ) -> "AsyncHold":
        """A power mode that meets `constraints` and `query`, for as long as the `async with` block runs; see Hold."""
        return AsyncHold(self, hold_request(constraints, query, app_id, reason), on_change)

    # Exchanges

    async def _ask(self, request: Request, timeout_s: Optional[float]) -> Any:
        limit = limit_s(self.timeout_s if timeout_s is None else timeout_s)
        return await _within(limit, request.route, self._in_turn(request))

    async def _in_turn(self, request: Request) -> Any:
        loop = asyncio.get_running_loop()
        if self._turns is None or self._loop is not loop:
            self._loop, self._turns = loop, (asyncio.Semaphore(MAX_CONNECTIONS), asyncio.Semaphore(MAX_WITH_FILES))
        of_all, of_files = self._turns
        async with contextlib.AsyncExitStack() as turns:
            if not isinstance(request.body, bytes) and files_in(request.body):
                await turns.enter_async_context(of_files)
            await turns.enter_async_context(of_all)
            # Not before: a waiting request has not read its file yet.
            return await self._answered(await self._with_models(request))

    async def _inspected(self, file: Any, timeout_s: Optional[float]) -> Any:
        limit = limit_s(self.timeout_s if timeout_s is None else timeout_s)
        return await _within(limit, "/v1/models/inspect", self._inspect(file))

    async def _with_models(self, request: Request) -> Request:
        """The request with every model file and every network as the daemon takes it."""
        if isinstance(request.body, bytes):
            return request
        models = [named(await self._inspect(file)) for file in files_in(request.body)]
        return request._replace(body=with_models(request.body, iter(models)))

    async def _inspect(self, file: Any) -> Any:
        for size in BEGINNINGS:
            request, is_whole = inspection(file, size)
            try:
                return await self._answered(request)
            except Refused as error:
                if is_whole or size == BEGINNINGS[-1] or error.code != "unreadable_model":
                    raise

    async def _answered(self, request: Request) -> Any:
        data = encoded(request)
        kept = self._take(request.socket)
        if kept:
            try:
                return await self._exchange(request, data, kept)
            except ConnectionLost:
                # Closed before it saw the request, or while it answered: the same question may be asked again.
                if request.changes:
                    raise
        return await self._exchange(request, data, await self._connect(request.socket))

    async def _exchange(self, request: Request, data: bytes, connection: "socket_") -> Any:
        response, body = Response(request.route, request.method), []  # type: Response, List[bytes]
        size, done = 0, False
        try:
            await _send(connection, data, request.route)
            while not response.complete:
                part = response.feed(await _receive(connection))
                body.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise Unexpected("the answer is larger than 64 MiB", "ask for fewer candidates at a time")
            done = response.keeps
        finally:
            alike = sum(kind == request.socket for kind, _, _ in self._idle)
            if done and self._pid == os.getpid() and alike < MAX_IDLE:
                self._idle.append((request.socket, connection, time.monotonic()))
            else:
                connection.close()
        return answer(request, response.status, b"".join(body))

    def _take(self, which: str) -> Optional["socket_"]:
        """An idle connection that the daemon has not closed."""
        if self._pid != os.getpid():
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

    async def _connect(self, which: str) -> "socket_":
        """Connects to the first daemon that accepts a connection."""
        tried: List[Tuple[str, str]] = []
        denied: Optional[Denied] = None
        for place in places(self._given):
            path = place.address[which]
            if place.objection:
                tried.append((path, place.objection))
                continue
            connection = socket.socket(socket.AF_UNIX)
            connection.setblocking(False)
            until = time.monotonic() + CONNECT_S
            try:
                while True:
                    try:
                        # Over AF_UNIX this ends at once, unless the daemon's backlog is full.
                        connection.connect(path)
                        return connection
                    except BlockingIOError:
                        if time.monotonic() > until:
                            raise
                        await asyncio.sleep(0.02)
            except PermissionError:
                connection.close()
                # The reason counts only if no other place answers.
                denied = denied or Denied(path)
            except OSError as error:
                connection.close()
                tried.append((path, said(error)))
            except BaseException:
                connection.close()
                raise
        raise denied or Unreachable(tried)

    async def _open(self, request: Request) -> Tuple["socket_", Response, bytes]:
        """A separate connection with a continuing answer, and its beginning. Raises as a verb does."""
        connection: Optional[socket_] = None
        try:
            data = encoded(await self._with_models(request))
            connection = await self._connect(request.socket)
            await _send(connection, data, request.route)
            response, body = Response(request.route, request.method), b""
            while not response.status or (not succeeds(response.status) and not response.complete):
                body += response.feed(await _receive(connection))
            if not succeeds(response.status):
                answer(request, response.status, body)
            opened, connection = connection, None
            return opened, response, body
        finally:
            if connection is not None:
                connection.close()


# The name of the module is that of a parameter.
socket_ = socket.socket


async def _within(limit: float, route: str, work: Coroutine[Any, Any, T]) -> T:
    # Nothing begins when the time is over.
    if limit <= 0:
        work.close()
        raise TimedOut(route, limit)
    try:
        return await asyncio.wait_for(work, limit)
    except asyncio.TimeoutError:
        raise TimedOut(route, limit) from None


async def _send(connection: socket_, data: bytes, route: str) -> None:
    try:
        await asyncio.get_running_loop().sock_sendall(connection, data)
    except (BrokenPipeError, ConnectionResetError):
        # The request may have been refused before it was read; then the answer has arrived.
        if is_quiet(connection):
            raise ConnectionLost(route) from None


async def _receive(connection: socket_) -> bytes:
    # Bytes that have arrived are received without the loop, and so without its time limits.
    await asyncio.sleep(0)
    try:
        return await asyncio.get_running_loop().sock_recv(connection, 1 << 16)
    except ConnectionResetError:
        return b""


async def _ended(task: "asyncio.Task[None]") -> None:
    """Ends a task and waits for its end, without its exceptions."""
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


class _Stream:
    """One connection with a continuing answer."""

    def __init__(self, opened: Tuple[socket_, Response, bytes], lines: bool) -> None:
        self._connection, self._response, self._first = opened
        self._blocks, self._pid = Blocks(lines), os.getpid()

    async def read(self) -> List[Event]:
        """The next events, perhaps none. Raises ConnectionLost at the end and after a minute of silence."""
        if self._first:
            data, self._first = self._first, b""
            return list(self._blocks.feed(data))
        if self._response.complete:
            raise ConnectionLost(self._response.route)
        try:
            data = await asyncio.wait_for(_receive(self._connection), SILENCE_S)
        except (OSError, asyncio.TimeoutError):
            data = b""
        return list(self._blocks.feed(self._response.feed(data)))

    def close(self) -> None:
        # Also if a forked child still has the connection open, but not by that child.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class AsyncEvents:
    """An asynchronous iterator over events. Use it in `async with`, or call `close`, to end the subscription. If the
    daemon goes away, it reconnects as Events does."""

    def __init__(self, client: AsyncClient, request: Request, reconnect_s: float) -> None:
        self._client, self._request, self._reconnect_s = client, request, reconnect_s
        self._stream: Optional[_Stream] = None
        self._waiting: List[Event] = []
        self._closed = False
        # The wait of an iteration, which `close` ends.
        self._step: Optional["asyncio.Task[None]"] = None

    async def _open(self) -> _Stream:
        opened = await _within(limit_s(self._client.timeout_s), self._request.route, self._client._open(self._request))
        return _Stream(opened, False)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            if self._waiting:
                return self._waiting.pop(0)
            # A separate task, because the loop never notices a socket that is closed while it waits for it.
            self._step = step = asyncio.get_running_loop().create_task(self._advance())
            try:
                await asyncio.wait([step])
            finally:
                await _ended(step)
            if not self._closed:
                step.result()
        raise StopAsyncIteration

    async def _advance(self) -> None:
        if self._stream is None:
            self._stream = await self._open()
            return
        try:
            self._waiting = await self._stream.read()
        except ConnectionLost as error:
            await self._again(error)

    async def _again(self, why: Exception) -> None:
        began = time.monotonic()
        if self._stream:
            self._stream.close()
        while not self._closed:
            if time.monotonic() - began >= self._reconnect_s:
                raise why
            await asyncio.sleep(AGAIN_S)
            try:
                self._stream = await self._open()
                self._waiting = [Event("reconnected", None, {"gap_s": time.monotonic() - began})]
                return
            except (RooflinedError, OSError) as error:
                if not is_temporary(error):
                    raise
                why = error

    async def close(self) -> None:
        """Ends the subscription and the iteration, also in another task."""
        self._closed = True
        if self._step:
            await _ended(self._step)
        if self._stream:
            self._stream.close()

    async def __aenter__(self) -> "AsyncEvents":
        if self._stream is None:
            self._stream = await self._open()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class AsyncHold(HoldState):
    """Hold, for `async with`; a task reads its changes."""

    def __init__(
        self, client: AsyncClient, request: Request, on_change: Optional[Callable[["AsyncHold"], None]]
    ) -> None:
        self._client, self._request, self._on_change = client, request, on_change
        self._stream: Optional[_Stream] = None
        self._task: Optional["asyncio.Task[None]"] = None
        self._released = False

    async def _open(self) -> _Stream:
        return _Stream(await _within(SWITCH_S, self._request.route, self._client._open(self._request)), True)

    async def __aenter__(self) -> "AsyncHold":
        self.enter()
        await _within(SWITCH_S, self._request.route, self._begin())
        self._task = asyncio.get_running_loop().create_task(self._attend())
        return self

    async def _begin(self) -> None:
        self._stream = await self._open()
        try:
            while self.id is None:
                self.begin(await self._stream.read())
        except BaseException:
            self._stream.close()
            raise

    async def __aexit__(self, *_: Any) -> None:
        await self.release()

    async def release(self) -> None:
        """Ends the hold. Does nothing if it has already ended."""
        self._released = True
        if self._task and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._stream:
            self._stream.close()
        self.ended = self.ended or "released"

    async def _attend(self) -> None:
        try:
            await self._keep()
        finally:
            if not self._released:
                self.abandon()
            if self._stream:
                self._stream.close()

    async def _keep(self) -> None:
        while not self.ended and not self._released and self._stream:
            try:
                events = await self._stream.read()
            except RooflinedError:
                await self._again()
                continue
            for event in events:
                if event.name != "heartbeat":
                    self.take(event)
                    self._tell()

    async def _again(self) -> None:
        if self._stream:
            self._stream.close()
        self.satisfied = None
        while True:
            await asyncio.sleep(AGAIN_S)
            try:
                self._stream = await self._open()
                return
            except (RooflinedError, OSError) as error:
                if not is_temporary(error):
                    self.fail(error)
                    self._tell()
                    return

    def _tell(self) -> None:
        if self._on_change:
            self._on_change(self)
