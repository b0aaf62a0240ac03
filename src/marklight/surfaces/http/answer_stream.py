"""Stream an answer with sources as server-sent events: the search, then each checked sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
import anyio.from_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from marklight.answer import Answer
from marklight.citations import Sentence
from marklight.errors import MarklightError
from marklight.library import Library
from marklight.library.ask import validate
from marklight.operations import OPERATIONS
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.errors import error_body, unexpected
from marklight.surfaces.http.execution import event

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
                anyio.from_thread.run_sync(put, event(name, item.to_dict()))

        answer: dict[str, Any] = {}
        try:
            answer = await self._host.call("ask", self._arguments, emit=emit)
        except MarklightError as error:
            put(event("error", error_body(error)))
        except Exception as error:
            put(event("error", error_body(unexpected(error))))
        put(event("done", answer))
