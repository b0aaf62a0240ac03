"""One library for many at once: followed on the disk, asked in threads, by no more than it can bear."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from threading import Event
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from marklight.errors import Overloaded, Stopped
from marklight.library import Library
from marklight.library.following import Following
from marklight.ports import Progress, silent
from marklight.surfaces import verbs

Value = TypeVar("Value")


class Host:
    """A library, who follows its files, and the places for those who ask."""

    def __init__(self, library: Library) -> None:
        limits = library.serve
        self.library = library
        self.following = Following(library)
        self.wait_seconds = limits.wait_seconds
        self.last_asked = time.monotonic()
        self._users: Counter[int] = Counter()
        self._places = anyio.CapacityLimiter(limits.searches)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Host]:
        """Follow the files as long as somebody is served; nobody waits for the first run."""
        self.following.start()
        try:
            yield self
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.following.close)
                await anyio.to_thread.run_sync(self.library.close)

    @property
    def several_collections(self) -> bool:
        """Whether a path needs its collection before it to be told from another."""
        return len(self.library.collections) > 1

    async def call(
        self, verb: str, given: Mapping[str, Any], progress: Progress = silent, **own: Any
    ) -> dict[str, Any]:
        """One of the verbs, as JSON holds its answer."""

        def work(library: Library, **ours: Any) -> dict[str, Any]:
            return verbs.call(library, verb, given, **ours, **own)

        return await self.work(work, progress)

    async def work(self, work: Callable[..., Value], progress: Progress = silent) -> Value:
        """Anything with the library, in a thread; given up by its caller, it stops at the next stage."""
        self.last_asked = time.monotonic()
        given_up = Event()

        def going_on() -> None:
            if given_up.is_set():
                raise Stopped("nobody waits for this any more")

        def watched(phase: str, done: int, total: int) -> None:
            going_on()
            progress(phase, done, total)

        def share() -> Value:
            return work(library, progress=watched, going_on=going_on)

        async with self._place():
            library = self.library
            self._users[id(library)] += 1
            try:
                return await anyio.to_thread.run_sync(share, abandon_on_cancel=True)
            finally:
                given_up.set()
                self.last_asked = time.monotonic()
                self._users[id(library)] -= 1
                await self._let_go(library)

    async def renew(self) -> None:
        """The library opened anew, with settings as they are now; who is being answered still has the old."""
        fresh = await anyio.to_thread.run_sync(self.library.again)
        before, self.library = self.library, fresh
        heard, old = self.following.heard, self.following
        self.following = Following(fresh)
        self.following.heard = heard
        await anyio.to_thread.run_sync(old.close)
        self.following.start()
        await self._let_go(before)

    async def _let_go(self, library: Library) -> None:
        """Close a library that is no longer ours, once nobody is answered by it."""
        if library is not self.library and not self._users[id(library)]:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(library.close)

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        taken = False
        with anyio.move_on_after(self.wait_seconds):
            await self._places.acquire_on_behalf_of(token := object())
            taken = True
        if not taken:
            raise Overloaded("too many questions at once", "Ask again in a second")
        try:
            yield
        finally:
            self._places.release_on_behalf_of(token)
