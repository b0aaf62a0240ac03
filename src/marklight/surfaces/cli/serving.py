"""Commands of the daemon: serve, with its status and stop, and stop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound, StoreError, UsageError
from marklight.surfaces import render
from marklight.surfaces.cli import completing
from marklight.surfaces.cli.options import AS_JSON, IN_LIBRARY, SET, note, show
from marklight.surfaces.cli.progress import Bar

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.running import Daemon
    from marklight.surfaces.daemon.state import State

READY_SECONDS = 30.0
"""For a daemon to answer; it loads no model before it does."""
STOP_SECONDS = 20.0
REDRAW_SECONDS = 0.2


@click.command(short_help="Serve a library: web page, HTTP API and MCP.")
@click.argument(
    "path",
    required=False,
    type=click.Path(),
    metavar="[PATH]|status|stop",
    shell_complete=completing.served,
)
@click.argument("served", required=False, type=click.Path(path_type=Path), metavar="")
@IN_LIBRARY
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Where to listen, else serve.host; any but loopback needs a token.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Else serve.port, 7433; 0 takes a free one."
)
@click.option("--token", help="What others must send as `Authorization: Bearer …`.")
@click.option("--detach", is_flag=True, help="Return once it answers; it goes on by itself.")
@click.option("--leave-idle", is_flag=True, hidden=True)
@AS_JSON
@SET
def serve(
    path: str | None,
    served: Path | None,
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    detach: bool,
    leave_idle: bool,
    **given: Any,
) -> int:
    """Serve a library: web page, HTTP API, MCP at /mcp; other commands attach to it.

    `serve status [PATH]` and `serve stop [PATH]` tell of and end the one that runs; a folder of such a name is ./status.
    """
    if path == "status":
        return _tell(folder or served, as_json)
    if path == "stop":
        return _end(folder or served, False)
    if served:
        raise UsageError(
            f"one folder is served, not {path} and {served}",
            "`[collections]` in marklight.toml makes one library of several",
        )
    asked = {name: value for name, value in given.items() if value is not None}
    place = folder or (Path(path) if path else None)
    if detach:
        return _detach(place, asked, assignments)
    return _serve(place, asked, assignments, leave_idle)


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@IN_LIBRARY
@click.option("--all", "every", is_flag=True, help="Every daemon of yours, whatever it serves.")
def stop(path: Path | None, folder: Path | None, every: bool) -> int:
    """End the daemon of a library; what it has indexed is kept."""
    return _end(folder or path, every)


def _serve(
    folder: Path | None, asked: dict[str, Any], assignments: tuple[str, ...], leave_idle: bool
) -> int:
    import asyncio

    import anyio
    from filelock import FileLock, Timeout

    from marklight.library import Library
    from marklight.surfaces.daemon.running import Daemon
    from marklight.surfaces.daemon.starting import answering, file_for
    from marklight.surfaces.daemon.state import own_settings, read

    library = Library(folder, {"serve": asked}, assignments)
    settings = own_settings(assignments)
    file = file_for(library.place.folder, settings)
    lock = FileLock(file.with_suffix(".lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        before = read(file)
        first = answering(file)
        if before and not first and read(file) == before:
            raise _stuck(before) from None
        where = f"at {first.address} (process {first.pid})" if first else "and starts just now"
        told = f"{library.place.folder} is served already, {where}"
        if first and asked.keys() & {"host", "port", "token"}:
            raise UsageError(told, "`marklight stop` ends it") from None
        note(told)
        return 0
    with lock:
        listening = _listen(library, "port" in asked)
        idle = library.serve.idle_minutes * 60 if leave_idle else None
        if library.notice:
            note(library.notice)

        async def run() -> None:
            daemon = Daemon(library, listening, file, settings, idle)
            showing = asyncio.create_task(_show_runs(daemon)) if sys.stderr.isatty() else None
            try:
                await daemon.run(_greet_here)
            finally:
                if showing:
                    showing.cancel()

        try:
            anyio.run(run)
        except BaseExceptionGroup as several:
            # Of what failed, the first is why the rest did.
            raise _first(several) from several
    return 0


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def _show_runs(daemon: Daemon) -> None:
    """How far indexing is, for a person who watches; nothing once all is done."""
    import anyio

    while True:
        with Bar() as bar:
            while (at := daemon.host.following.at) and at.total:
                bar(at.phase, at.done, at.total)
                await anyio.sleep(REDRAW_SECONDS)
        await anyio.sleep(REDRAW_SECONDS)


def _listen(library: Library, explicit: bool) -> Any:
    """A socket where the settings say; where that is taken and nobody insists, at a free port."""
    from marklight.surfaces.http.door import Door
    from marklight.surfaces.http.server import listen

    wanted = library.serve
    Door(wanted.host, wanted.port, wanted.token)  # refuses what must not be opened
    try:
        return listen(wanted.host, wanted.port)
    except UsageError as error:
        if explicit or library.settings.sources["serve.port"] != "built-in":
            raise
        made = listen(wanted.host, 0)
        note(f"{error.message}, so a free port is taken")
        return made


def _greet(state: State) -> None:
    show(f"serving {state.folder}\npage  {state.address}\nMCP   {state.address}mcp")
    sys.stdout.flush()


def _greet_here(state: State) -> None:
    _greet(state)
    if sys.stdout.isatty():
        note("Ctrl-C ends it")


def _detach(folder: Path | None, asked: dict[str, Any], assignments: tuple[str, ...]) -> int:
    from marklight.place import locate
    from marklight.surfaces.daemon.attach import as_arguments
    from marklight.surfaces.daemon.starting import file_for, start, wait_for
    from marklight.surfaces.daemon.state import own_settings

    place, settings = locate(folder), own_settings(assignments)
    arguments = [
        *(word for name in ("host", "port") if name in asked for word in (f"--{name}", str(asked[name]))),
        *as_arguments(assignments),
    ]  # fmt: skip
    process = start(place.folder, arguments, settings, asked.get("token", ""))
    file = file_for(place.folder, settings)
    found = wait_for(file, process, READY_SECONDS)
    if found is None:
        said = file.with_suffix(".log").read_text("utf-8", "replace").strip().splitlines()
        reason = said[-1].removeprefix("marklight: ") if said else "it does not answer"
        error = UsageError if process.poll() == UsageError.exit_code else StoreError
        raise error(f"no daemon could be started: {reason}")
    if found.pid != process.pid and process.poll() is None:
        process.wait(READY_SECONDS)
    if found.pid != process.pid:
        note(f"it was running already, as process {found.pid}")
        if process.returncode:
            raise UsageError(
                f"{place.folder} is served at {found.address}", "`marklight stop` ends it"
            )
    _greet(found)
    return 0


def _tell(folder: Path | None, as_json: bool) -> int:
    from marklight.place import locate

    place = locate(folder)
    found = _running(place.folder)
    if not found:
        raise NotFound(f"no daemon serves {place.folder}", "`marklight serve --detach` starts one")
    for each in found:
        told = {"library": each.folder, **each.to_dict()}
        show(render.to_json(told) if as_json else render.table(told))
    return 0


def _running(folder: Path | None) -> list[State]:
    from marklight.surfaces.daemon.attach import Gone, greet
    from marklight.surfaces.daemon.state import states

    found = []
    for file, state in list(states(folder)):
        try:
            line = greet(file, state, "control")
        except Gone:
            raise _stuck(state) from None
        if line:
            line.close()
            found.append(state)
    return found


def _stuck(state: State) -> StoreError:
    return StoreError(
        f"the daemon, process {state.pid}, does not answer",
        f"`kill -9 {state.pid}` ends it; nothing is lost",
    )


def _end(folder: Path | None, every: bool) -> int:
    from filelock import FileLock, Timeout

    from marklight.place import locate
    from marklight.surfaces.daemon.attach import Gone, greet
    from marklight.surfaces.daemon.state import states

    place = None if every else locate(folder).folder
    ended = False
    for file, state in list(states(place)):
        try:
            if (line := greet(file, state, "control")) is None:
                continue
            line.send({"do": "stop"})
            line.receive()
            line.close()
            # Which it holds as long as it lives.
            with FileLock(file.with_suffix(".lock"), timeout=STOP_SECONDS):
                pass
        except (Gone, Timeout):
            raise _stuck(state) from None
        ended = True
        show(f"stopped {state.address} (process {state.pid})")
    if not ended:
        raise NotFound(f"no daemon serves {place}" if place else "no daemon runs")
    return 0
