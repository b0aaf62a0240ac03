"""Commands of the daemon: serve, with its status and stop, and stop."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound, UsageError
from marklight.surfaces import render
from marklight.surfaces.cli import completing
from marklight.surfaces.cli.options import AS_JSON, IN_LIBRARY, SET, note, show, show_json
from marklight.surfaces.cli.progress import Bar

if TYPE_CHECKING:
    from marklight.surfaces.daemon.discovery import State
    from marklight.surfaces.daemon.process import Daemon

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
        return _detach(place, asked, assignments, as_json)
    return _serve(place, asked, assignments, leave_idle, as_json)


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@IN_LIBRARY
@click.option("--all", "every", is_flag=True, help="Every daemon of yours, whatever it serves.")
def stop(path: Path | None, folder: Path | None, every: bool) -> int:
    """End the daemon of a library; what it has indexed is kept."""
    return _end(folder or path, every)


def _serve(
    folder: Path | None,
    asked: dict[str, Any],
    assignments: tuple[str, ...],
    leave_idle: bool,
    as_json: bool,
) -> int:
    from marklight.surfaces.daemon.lifecycle import serve

    serve(
        folder,
        asked,
        assignments,
        leave_idle=leave_idle,
        ready=partial(_greet_here, as_json=as_json),
        notify=note,
        monitor=_show_runs if sys.stderr.isatty() else None,
    )
    return 0


async def _show_runs(daemon: Daemon) -> None:
    """How far indexing is, for a person who watches; nothing once all is done."""
    import anyio

    while True:
        with Bar() as bar:
            while (at := daemon.host.following.at) and at.total:
                bar(at.phase, at.done, at.total)
                await anyio.sleep(REDRAW_SECONDS)
        await anyio.sleep(REDRAW_SECONDS)


def _told(state: State) -> dict[str, Any]:
    return {"library": state.folder, **state.to_dict()}


def _greet(state: State, as_json: bool) -> None:
    if as_json:
        show_json(_told(state))
    else:
        show(f"serving {state.folder}\npage  {state.address}\nMCP   {state.address}mcp")
    sys.stdout.flush()


def _greet_here(state: State, as_json: bool) -> None:
    _greet(state, as_json)
    if sys.stdout.isatty():
        note("Ctrl-C ends it")


def _detach(
    folder: Path | None, asked: dict[str, Any], assignments: tuple[str, ...], as_json: bool
) -> int:
    from marklight.surfaces.daemon.lifecycle import detach

    _greet(detach(folder, asked, assignments, note), as_json)
    return 0


def _tell(folder: Path | None, as_json: bool) -> int:
    from marklight.place import locate
    from marklight.surfaces.daemon.lifecycle import running_daemons

    place = locate(folder)
    found = running_daemons(place.folder)
    if not found:
        raise NotFound(f"no daemon serves {place.folder}", "`marklight serve --detach` starts one")
    for each in found:
        if as_json:
            show_json(_told(each))
        else:
            show(render.table(_told(each)))
    return 0


def _end(folder: Path | None, every: bool) -> int:
    from marklight.place import locate
    from marklight.surfaces.daemon.lifecycle import stop as stop_daemons

    place = None if every else locate(folder).folder
    if not stop_daemons(place, lambda each: show(f"stopped {each.address} (process {each.pid})")):
        raise NotFound(f"no daemon serves {place}" if place else "no daemon runs")
    return 0
