"""How far a call is, or the run that it waits for: told to a client that asked to be told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from marklight.library.watching import IndexingProgress, Watcher
from marklight.ports import Progress, no_progress

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

EVERY_SECONDS = 0.2
"""Often enough to see it move; a run tells a thousand times a second."""


class _Steps:
    """Phases one after the other as one number that only grows, as the protocol wants it."""

    def __init__(self) -> None:
        self.last: IndexingProgress | None = None
        self.before = 0

    def after(self, at: IndexingProgress) -> tuple[int, int]:
        """How much is done of how much, all phases so far together."""
        if self.last and (at.phase != self.last.phase or at.done < self.last.done):
            self.before += max(self.last.done, self.last.total)
        self.last = at
        return self.before + at.done, self.before + max(at.total, at.done)


@asynccontextmanager
async def reported(ctx: ServerRequestContext[Any], following: Watcher) -> AsyncIterator[Progress]:
    """What a call tells its progress to; sent on now and then, from whichever thread it comes."""
    if (ctx.meta or {}).get("progress_token") is None:
        yield no_progress
        return
    heard: list[IndexingProgress] = []

    def hear(phase: str, done: int, total: int) -> None:
        heard[:] = [IndexingProgress(phase, done, total)]

    steps, sent = _Steps(), -1

    async def tell() -> None:
        nonlocal sent
        at = heard[0] if heard else following.progress
        if at is None:
            return
        done, total = steps.after(at)
        if done > sent:
            sent = done
            await ctx.session.report_progress(done, total, str(at))

    async def tell_now_and_then() -> None:
        while True:
            await tell()
            await anyio.sleep(EVERY_SECONDS)

    async with anyio.create_task_group() as group:
        group.start_soon(tell_now_and_then)
        failed: Exception | None = None
        try:
            yield hear
        except Exception as error:
            failed = error  # the group would wrap it in one of its own
        group.cancel_scope.cancel()
    if failed:
        raise failed
    if heard:
        await tell()  # how far it came in the end, however quick it was
