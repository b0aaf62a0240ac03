"""Execute operations for HTTP requests: cancelled when the client disconnects, or streamed as server-sent events."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from marklight.answer import Answer
from marklight.errors import MarklightError, ModelError, NotConfigured, Stopped
from marklight.library import Library
from marklight.library.ask import validate
from marklight.operations import OPERATIONS
from marklight.query import Query
from marklight.results import Sentence
from marklight.serialization import json_values
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.errors import error_body, unexpected
from marklight.surfaces.render import to_json

Arguments = Mapping[str, Any]
Result = TypeVar("Result")
Step = tuple[str, Arguments]
"""Name of a step, and the arguments of its search or the answer."""


async def cancel_on_disconnect(
    request: Request, call: Awaitable[Result], arguments: Arguments
) -> Result:
    """Return the result of a call with these arguments, which is cancelled if the client disconnects."""

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        raise Stopped("The client disconnected")

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            result = await call
            group.cancel_scope.cancel()
        return result
    except ExceptionGroup as raised:
        raise missing_reranker(raised.exceptions[0], arguments) from None


def missing_reranker(error: Exception, arguments: Arguments) -> Exception:
    """Convert the error of a requested but missing cross-encoder to a client error: a retry does not help."""
    if isinstance(error, ModelError) and arguments.get("rerank"):
        return NotConfigured(error.message, error.hint)
    return error


async def stream_search(request: Request, host: LibraryHost, arguments: Arguments) -> Response:
    """Stream the results of each step: keyword, fused, reranked; a client that disconnects cancels the rest.

    The first step runs before the response starts, so that invalid arguments get an error status.
    """
    started_at = time.perf_counter()
    remaining = steps(arguments, await _will_rerank(host, arguments))
    name, first = next(remaining)
    answer = await cancel_on_disconnect(request, host.call("search", first), first)
    return StreamingResponse(
        _events(host, (name, answer), remaining, started_at),
        media_type="text/event-stream",
        # Without it, buffering proxies deliver all events at the end.
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    host: LibraryHost, first: Step, remaining: Iterator[Step], started_at: float
) -> AsyncIterator[bytes]:
    done = [first[0]]
    yield FIRST_ID + event("results", {"step": first[0], **first[1]})
    try:
        for name, arguments in remaining:
            answer = await host.call("search", arguments)
            done.append(name)
            yield event("results", {"step": name, **answer})
    except MarklightError as error:
        yield event("error", error_body(error))
    except Exception as error:
        yield event("error", error_body(unexpected(error)))
    took_ms = round((time.perf_counter() - started_at) * 1000, 1)
    yield event("done", {"steps": done, "took_ms": took_ms})


async def _will_rerank(host: LibraryHost, arguments: Arguments) -> bool:
    """Return whether there is a reranking step; raise if it is requested but impossible."""

    def work(library: Library, **_: Any) -> bool:
        query = Query(arguments["query"], rerank=arguments.get("rerank"))
        wanted = library.models.reranks(query, library.pipeline)
        return wanted and (not arguments.get("rerank") or library.models.any_reranker is not None)

    try:
        return await host.run(work)
    except MarklightError as error:
        raise missing_reranker(error, arguments) from None


def steps(arguments: Arguments, reranks: bool) -> Iterator[Step]:
    """Yield the steps of a streamed search; the last has the given arguments and thus the usual answer."""
    mode = arguments.get("mode", "hybrid")
    name = "keyword" if mode == "keyword" else "fused"
    if mode == "hybrid":
        # Without a refresh, to answer at once: the next step refreshes the index.
        yield "keyword", {**arguments, "mode": "keyword", "rerank": False, "refresh": False}
    if reranks:
        yield name, {**arguments, "rerank": False}
        yield "reranked", {**arguments, "refresh": False}
    else:
        yield name, arguments


FIRST_ID = b"id: 1\n\n"
"""Begins every stream: an EventSource that reconnects sends it as Last-Event-ID, and `routes.py` answers 204."""


def event(name: str, value: object) -> bytes:
    """Encode one server-sent event, its data on one line."""
    return f"event: {name}\ndata: {to_json(value, indent=None)}\n\n".encode("utf-8", "replace")


KEEP_ALIVE_SECONDS = 10.0
"""Interval of comments while the model is silent, so that no proxy closes the connection."""
CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, RuntimeError)


async def validate_question(host: LibraryHost, arguments: Mapping[str, Any]) -> None:
    """Raise an error for invalid arguments or a missing model, which get an error status before a stream starts."""
    operation = OPERATIONS["ask"]
    values = {**operation.hooks, **operation.complete(arguments)}

    def check(library: Library, **_: Any) -> None:
        validate(library, values["query"], values)

    await host.run(check)


class AnswerStream(Response):
    """Runs `ask` while the client listens; a client that disconnects cancels it, also while the model is silent."""

    media_type = "text/event-stream"

    def __init__(self, host: LibraryHost, arguments: Mapping[str, Any]) -> None:
        # Without the header, buffering proxies deliver all events at the end.
        super().__init__(headers={"x-accel-buffering": "no", "cache-control": "no-store"})
        del self.headers["content-length"]
        self._host, self._arguments = host, arguments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - an ASGI application
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send({"type": "http.response.body", "body": FIRST_ID, "more_body": True})
        writer, events = anyio.create_memory_object_stream[bytes](math.inf)
        async with anyio.create_task_group() as group:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                group.cancel_scope.cancel()

            async def work() -> None:
                with writer:
                    await self._write(writer.send_nowait)

            group.start_soon(watch)
            group.start_soon(work)
            with suppress(anyio.EndOfStream, OSError), events:
                while True:
                    data = b": waiting\n\n"
                    with anyio.move_on_after(KEEP_ALIVE_SECONDS):
                        data = await events.receive()
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            with suppress(OSError):
                await send({"type": "http.response.body", "body": b""})
            group.cancel_scope.cancel()

    async def _write(self, put: Any) -> None:
        """Run `ask` and put its events; the last one is `done`."""

        def emit(item: Answer | Sentence) -> None:
            name = "sentence" if isinstance(item, Sentence) else "sources"
            with suppress(*CLOSED):  # the client has disconnected; the next check ends the work
                anyio.from_thread.run_sync(put, event(name, json_values(item)))

        answer: dict[str, Any] = {}
        try:
            answer = await self._host.call("ask", self._arguments, emit=emit)
        except MarklightError as error:
            put(event("error", error_body(error)))
        except Exception as error:
            put(event("error", error_body(unexpected(error))))
        put(event("done", answer))
