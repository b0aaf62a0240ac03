"""Execute operations for HTTP requests: cancelled when the client disconnects, or streamed as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

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

EVENTS = "text/event-stream"
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
    return event_stream(_events(host, (name, answer), remaining, started_at))


def event_stream(events: AsyncIterator[bytes]) -> Response:
    """Return server-sent events as a response; a client that disconnects cancels them."""
    # Without the header, buffering proxies deliver all events at the end.
    return StreamingResponse(events, media_type=EVENTS, headers={"x-accel-buffering": "no"})


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
    except Exception as error:
        yield error_event(error)
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


def error_event(error: Exception) -> bytes:
    """Encode an error as an event; an unexpected one is logged and reveals no details."""
    shown = error if isinstance(error, MarklightError) else unexpected(error)
    return event("error", error_body(shown))


KEEP_ALIVE_SECONDS = 10.0
"""Interval of comments while the model is silent, so that no proxy closes the connection."""
CLOSED = (anyio.BrokenResourceError, anyio.ClosedResourceError, RuntimeError)


async def validate_question(host: LibraryHost, arguments: Arguments) -> None:
    """Raise an error for invalid arguments or a missing model, which get an error status before a stream starts."""
    operation = OPERATIONS["ask"]
    values = {**operation.hooks, **operation.complete(arguments)}
    await host.run(lambda library, **_: validate(library, values["query"], values))


async def answer_events(host: LibraryHost, arguments: Arguments) -> AsyncIterator[bytes]:
    """Run `ask` and yield its events, `done` last; a client that disconnects cancels it, also while the model is silent."""
    events: asyncio.Queue[bytes] = asyncio.Queue()

    def emit(item: Answer | Sentence) -> None:
        name = "sentence" if isinstance(item, Sentence) else "sources"
        with suppress(*CLOSED):  # the client has disconnected; the next check ends the work
            anyio.from_thread.run_sync(events.put_nowait, event(name, json_values(item)))

    async def work() -> None:
        try:
            last = event("done", await host.call("ask", arguments, emit=emit))
        except Exception as error:
            last = error_event(error) + event("done", {})
        events.put_nowait(last)
        events.put_nowait(b"")

    task = asyncio.create_task(work())
    try:
        data = FIRST_ID
        while data:
            yield data
            data = b": waiting\n\n"
            with anyio.move_on_after(KEEP_ALIVE_SECONDS):
                data = await events.get()
    finally:
        task.cancel()
