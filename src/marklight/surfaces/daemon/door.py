"""The daemon's private door: programs of the same user, who know its secret, speak to the host through it."""

from __future__ import annotations

import hmac
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.from_thread
from anyio.abc import ByteStream, SocketAttribute, SocketListener, TaskGroup

from marklight.errors import MarklightError, SettingsError
from marklight.surfaces import verbs
from marklight.surfaces.daemon.attach import GREET_SECONDS, LONGEST_GREETING
from marklight.surfaces.daemon.lines import BROKEN, LONGEST_LINE, Lines
from marklight.surfaces.daemon.state import State
from marklight.surfaces.daemon.wire import packed
from marklight.surfaces.host import Host

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from marklight.library import Library

MOST_CONNECTIONS = 200
MOST_TOLD = 50
"""Beyond those, who are told at once that there is no room, and can still ask us to end."""
RETRY_SECONDS = 1.0
"""Pause before the next `accept` when no file descriptor is left."""
PULSE_SECONDS = 1.0
"""While work goes on, how often its asker hears that we live."""
REDRAW_SECONDS = 0.1
"""How often it hears how far the work is."""
MOST_UNSENT = 1000
"""Lines about progress that wait for a client to read; more are left out."""

Speak = Callable[[Lines], Awaitable[None]]


class Door:
    """Listens on this machine alone; whoever does not know the secret gets no answer at all."""

    def __init__(
        self,
        host: Host,
        settings: Mapping[str, Any],
        *,
        stop: Callable[[], None],
        assist: Speak,
        fresh: Callable[[], Awaitable[None]],
    ) -> None:
        self.host = host
        self.settings = settings
        self.stop, self.assist, self.fresh = stop, assist, fresh
        self.connections = 0
        self.port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Door]:
        """Take a port, and answer at it as long as this lasts, once a state has been given."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener,
            anyio.create_task_group() as group,
        ):
            self.port = int(listener.extra(SocketAttribute.local_port))
            for each in cast(Sequence[SocketListener], listener.listeners):
                group.start_soon(self._accept, each, group)
            yield self
            group.cancel_scope.cancel()

    async def _accept(self, listener: SocketListener, group: TaskGroup) -> None:
        """Accept connections; without a free file descriptor, try again later instead of ending."""
        while True:
            try:
                stream = await listener.accept()
            except ConnectionAbortedError:
                continue
            except OSError:
                await anyio.sleep(RETRY_SECONDS)
                continue
            group.start_soon(self._answer, stream)

    state: State
    """What we have told of ourselves; set before anybody can know of us."""

    async def _answer(self, stream: ByteStream) -> None:
        async with stream:
            full = self.connections >= MOST_CONNECTIONS
            if self.connections >= MOST_CONNECTIONS + MOST_TOLD:
                return
            self.connections += 1
            try:
                # Whoever breaks off, is too slow or sends what is no line of JSON is let go.
                with suppress(*BROKEN, TimeoutError, ValueError, RecursionError):
                    await self._converse(Lines(stream), full)
            except Exception as error:
                # One client's fault, or one of ours, ends one conversation.
                print(f"at the door: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                self.connections -= 1

    async def _converse(self, lines: Lines, full: bool) -> None:
        with anyio.fail_after(GREET_SECONDS):
            hello = await lines.receive(LONGEST_GREETING)
        secret = str(hello.get("secret", "")).encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(secret, self.state.secret.encode()):
            return
        await lines.send({"proof": self.state.proof, "pid": self.state.pid, "full": full})
        if hello.get("wants") == "control":
            await self._obey(lines)
        elif full:
            return
        elif await self._settled(lines):
            await (self.assist if hello.get("wants") == "mcp" else self._call_after_call)(lines)

    async def _obey(self, lines: Lines) -> None:
        with anyio.fail_after(GREET_SECONDS):
            told = await lines.receive(LONGEST_GREETING)
        if told.get("do") == "stop":
            await lines.send({"stopping": True})
            self.stop()

    async def _settled(self, lines: Lines) -> bool:
        """Whether the client would answer as we do, were it alone."""
        with anyio.fail_after(GREET_SECONDS):
            told = await lines.receive(LONGEST_LINE)
        if told.get("settings") != self.settings:
            await lines.send({"refused": "other settings"})
            return False
        try:
            await self.fresh()
        except SettingsError:
            # The client reads the same files, and tells its user what is wrong with them.
            await lines.send({"refused": "settings that cannot be read"})
            return False
        library = self.host.library
        folders = {name: str(folder) for name, folder in library.collections.items()}
        await lines.send({"collections": folders, "link_address": library.link_address})
        return True

    async def _call_after_call(self, lines: Lines) -> None:
        while True:
            await self._call(lines, await lines.receive())

    async def _call(self, lines: Lines, asked: dict[str, Any]) -> None:
        say, heard = anyio.create_memory_object_stream[dict[str, Any]](MOST_UNSENT)
        said: dict[str, Any] = {}
        with say, heard:
            async with anyio.create_task_group() as group:
                group.start_soon(lines.until_gone, group.cancel_scope)
                group.start_soon(self._tell, lines, heard)
                said = await self._work(asked, say)
                group.cancel_scope.cancel()
            with suppress(anyio.WouldBlock):
                while True:
                    await lines.send(heard.receive_nowait())
        if said:
            await lines.send({"id": asked.get("id"), **said})

    async def _work(
        self, asked: dict[str, Any], say: MemoryObjectSendStream[dict[str, Any]]
    ) -> dict[str, Any]:
        own = {name: asked.get(name) for name in ("near", "part", "assignments")}

        def work(library: Library, **ours: Any) -> Any:
            return packed(verbs.do(library, asked["verb"], asked["arguments"], **ours, **own))

        try:
            return {"result": await self.host.work(work, Progress(say))}
        except Exception as error:
            hint = error.hint if isinstance(error, MarklightError) else ""
            message = error.message if isinstance(error, MarklightError) else str(error)
            return {"error": {"type": type(error).__name__, "message": message, "hint": hint}}

    @staticmethod
    async def _tell(lines: Lines, heard: MemoryObjectReceiveStream[dict[str, Any]]) -> None:
        while True:
            said: dict[str, Any] = {"pulse": True}
            with anyio.move_on_after(PULSE_SECONDS):
                said = await heard.receive()
            await lines.send(said)


class Progress:
    """How far a run is, told from its thread; it never waits for who listens."""

    def __init__(self, say: MemoryObjectSendStream[dict[str, Any]]) -> None:
        self._say = say
        self._phase, self._at = "", 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if phase == self._phase and done < total and now < self._at + REDRAW_SECONDS:
            return
        self._phase, self._at = phase, now
        with suppress(RuntimeError):  # the daemon ends
            anyio.from_thread.run_sync(self._put, {"progress": [phase, done, total]})

    def _put(self, said: dict[str, Any]) -> None:
        with suppress(anyio.WouldBlock, *BROKEN):
            self._say.send_nowait(said)
