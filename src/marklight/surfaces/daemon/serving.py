"""Serve a library in this process, unless another does: where is settled before a server is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from marklight.errors import UsageError
from marklight.library import Library
from marklight.surfaces.daemon.control import stuck
from marklight.surfaces.daemon.starting import answering, file_for
from marklight.surfaces.daemon.state import State, own_settings, read
from marklight.surfaces.http.address import Address
from marklight.surfaces.http.listening import listen

if TYPE_CHECKING:
    from marklight.surfaces.daemon.running import Watch


def serve(
    folder: Path | None,
    asked: Mapping[str, Any],
    assignments: Sequence[str],
    *,
    leave_idle: bool,
    ready: Callable[[State], None],
    say: Callable[[str], None],
    watch: Watch | None = None,
) -> None:
    """Until it is told to end; `asked` are settings of the table `serve`, `ready` hears where it is."""
    library = Library(folder, {"serve": asked}, assignments)
    settings = own_settings(assignments)
    file = file_for(library.place.folder, settings)
    lock = FileLock(file.with_suffix(".lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        first = _first(file)
        where = f"at {first.address} (process {first.pid})" if first else "and starts just now"
        told = f"{library.place.folder} is served already, {where}"
        if first and asked.keys() & {"host", "port", "token"}:
            raise UsageError(told, "`marklight stop` ends it") from None
        say(told)
        return
    with lock:
        listening = _listen(library, "port" in asked, say)
        idle_seconds = library.serve.idle_minutes * 60 if leave_idle else None
        for notice in library.notices():
            say(notice)
        from marklight.surfaces.daemon.running import run  # takes a second to load

        run(library, listening, file, settings, idle_seconds, ready, watch)


def _first(file: Path) -> State | None:
    """Who serves it; None while that one only begins."""
    before, first = read(file), answering(file)
    if before and not first and read(file) == before:
        raise stuck(before)
    return first


def _listen(library: Library, explicit: bool, say: Callable[[str], None]) -> socket:
    """A socket where the settings say; where that is taken and nobody insists, at a free port."""
    wanted = library.serve
    Address(wanted.host, wanted.port, wanted.token)  # refuses what must not be opened
    try:
        return listen(wanted.host, wanted.port)
    except UsageError as error:
        if explicit or library.settings.sources["serve.port"] != "built-in":
            raise
        made = listen(wanted.host, 0)
        say(f"{error.message}, so a free port is taken")
        return made
