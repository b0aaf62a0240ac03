"""A question answered step by step: first by its words, then by all evidence, then re-ranked."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from marklight.answer import Query
from marklight.errors import MarklightError
from marklight.library import Library
from marklight.surfaces.host import LibraryHost
from marklight.surfaces.http.errors import told, unexpected
from marklight.surfaces.http.waiting import asked_too_much, waited_for
from marklight.surfaces.render import to_json

Given = Mapping[str, Any]
Step = tuple[str, Given]
"""What a step is called, and how the library is asked for it or what it answered."""


async def streamed(request: Request, host: LibraryHost, asked: Given) -> Response:
    """Server-sent events; whoever stops listening stops the work.

    The first step is done before anything is said, so that what makes no sense has its status.
    """
    began = time.perf_counter()
    todo = steps(asked, await _reranks(host, asked))
    name, given = next(todo)
    answer = await waited_for(request, host, "search", given)
    return StreamingResponse(
        _events(host, (name, answer), todo, began),
        media_type="text/event-stream",
        # A proxy that gathers what it hands on would make one event of all.
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    host: LibraryHost, first: Step, todo: Iterator[Step], began: float
) -> AsyncIterator[bytes]:
    done = [first[0]]
    yield event("results", {"step": first[0], **first[1]})
    try:
        for name, given in todo:
            answer = await host.call("search", given)
            done.append(name)
            yield event("results", {"step": name, **answer})
    except MarklightError as error:
        yield event("error", told(error))
    except Exception as error:
        yield event("error", told(unexpected(error)))
    took_ms = round((time.perf_counter() - began) * 1000, 1)
    yield event("done", {"steps": done, "took_ms": took_ms})


async def _reranks(host: LibraryHost, asked: Given) -> bool:
    """Whether there is a last step; one that is asked for and cannot be is told before the first."""

    def work(library: Library, **_: Any) -> bool:
        query = Query(asked["query"], rerank=asked.get("rerank"))
        wanted = library.models.reranks(query, library.pipeline)
        return wanted and (not asked.get("rerank") or library.models.any_reranker is not None)

    try:
        return await host.run(work)
    except MarklightError as error:
        raise asked_too_much(error, asked) from None


def steps(asked: Given, reranks: bool) -> Iterator[Step]:
    """The last of them asks as the asker did, so that it is the answer that others get at once."""
    mode = asked.get("mode", "hybrid")
    name = "keyword" if mode == "keyword" else "fused"
    if mode == "hybrid":
        # At once, from what is there: the step that follows compares with the disk.
        yield "keyword", {**asked, "mode": "keyword", "rerank": False, "refresh": False}
    if reranks:
        yield name, {**asked, "rerank": False}
        yield "reranked", {**asked, "refresh": False}
    else:
        yield name, asked


def event(name: str, value: object) -> bytes:
    """One event, its data on one line."""
    return f"event: {name}\ndata: {to_json(value, indent=None)}\n\n".encode("utf-8", "replace")
