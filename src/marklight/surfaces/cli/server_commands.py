"""Commands that run until stopped: serve for the daemon, mcp for an assistant, worker for the queue of a shared index."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound, UsageError
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, SET, in_library, open_own
from marklight.surfaces.cli.output import Bar, note, show, show_json

if TYPE_CHECKING:
    from marklight.surfaces.daemon import State
    from marklight.surfaces.daemon.process import Daemon, Monitor

REDRAW_SECONDS = 0.2


@click.command(short_help="Serve a library: web page, HTTP API and MCP.")
@in_library
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Listen on ADDRESS (default: serve.host); a token is required unless ADDRESS is loopback.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="Listen on this port (default: serve.port, 7433); 0 picks a free one.",
)
@click.option(
    "--token", metavar="TOKEN", help="Require clients to send `Authorization: Bearer TOKEN`."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Serve with N processes (default: serve.workers, 1); one per core is enough.",
)
@click.option("--detach", is_flag=True, help="Run in the background; return once it is ready.")
@click.option("--status", is_flag=True, help="Show the running daemon of the library.")
@click.option("--stop", is_flag=True, help="Stop the daemon of the library; the index is kept.")
@click.option("--all", "every", is_flag=True, help="With --stop: stop all your daemons.")
@click.option("--leave-idle", is_flag=True, hidden=True)
@AS_JSON
@SET
def serve(
    folder: Path | None,
    as_json: bool,
    assignments: tuple[str, ...],
    detach: bool,
    status: bool,
    stop: bool,
    every: bool,
    leave_idle: bool,
    **options: Any,
) -> int:
    """Serve a library: web page, HTTP API, and MCP at /mcp.

    While it runs, other commands send their queries to this process (the daemon).
    """
    if every and not stop:
        raise click.UsageError("--all is used with --stop only")
    if status:
        return _print_daemons(folder, as_json)
    if stop:
        return _stop(folder, every)
    given = {name: value for name, value in options.items() if value is not None}
    if detach:
        return _detach(folder, given, assignments, as_json)
    return _serve(folder, given, assignments, leave_idle, as_json)


@click.command(short_help="Serve a library to an assistant over MCP.")
@in_library
@SET
def mcp(folder: Path | None, assignments: tuple[str, ...]) -> int:
    """Serve a library to an assistant over MCP, on standard input and output."""
    from marklight.surfaces.daemon.mcp_proxy import make_proxy

    if folder is None:
        _refuse_home(assignments)
    if proxy := make_proxy(folder, assignments, note):
        return proxy.run(sys.stdin.buffer, sys.stdout.buffer)
    library = open_own(folder, assignments)
    from marklight.surfaces.mcp.stdio import serve_stdio

    return serve_stdio(library)


def _refuse_home(assignments: tuple[str, ...]) -> None:
    """Raise UsageError in a home folder that is no library: many clients start servers there."""
    from marklight.place import is_home, is_library, locate

    home = locate(None).folder
    if not is_home(home) or is_library(home):
        return
    from marklight.library.configuration import read_settings

    if not read_settings(home, assignments)["collections"]:
        raise UsageError(
            f"No library is named, and {home} is your home folder or above it: everything in it would be indexed",
            "Name the folder of your documents: marklight mcp ~/notes",
        )


def _serve(
    folder: Path | None,
    options: dict[str, Any],
    assignments: tuple[str, ...],
    leave_idle: bool,
    as_json: bool,
) -> int:
    from marklight.surfaces.daemon.lifecycle import serve

    serve(
        folder,
        options,
        assignments,
        leave_idle=leave_idle,
        ready=partial(_print_ready, as_json=as_json),
        notify=note,
        monitor=_monitor(),
    )
    return 0


def _monitor() -> Monitor | None:
    return _show_indexing if sys.stderr.isatty() else None


async def _show_indexing(daemon: Daemon) -> None:
    """Show a progress bar on the terminal whenever the daemon indexes."""
    import anyio

    while True:
        with Bar() as bar:
            while (progress := daemon.host.watcher.progress) and progress.total:
                bar(progress.phase, progress.done, progress.total)
                await anyio.sleep(REDRAW_SECONDS)
        await anyio.sleep(REDRAW_SECONDS)


def _state_values(state: State) -> dict[str, Any]:
    return {"library": state.folder, **state.to_dict()}


def _print_addresses(state: State, as_json: bool) -> None:
    if as_json:
        show_json(_state_values(state))
    else:
        show(f"serving {state.folder}\npage  {state.address}\nMCP   {state.address}mcp")
    sys.stdout.flush()


def _print_ready(state: State, as_json: bool) -> None:
    _print_addresses(state, as_json)
    if sys.stdout.isatty():
        note("Press Ctrl-C to stop")


def _detach(
    folder: Path | None, options: dict[str, Any], assignments: tuple[str, ...], as_json: bool
) -> int:
    from marklight.surfaces.daemon.lifecycle import detach

    _print_addresses(detach(folder, options, assignments, note), as_json)
    return 0


def _print_daemons(folder: Path | None, as_json: bool) -> int:
    from marklight.place import locate
    from marklight.surfaces.daemon.lifecycle import running_daemons

    library = locate(folder).folder
    states = [state for _, state in running_daemons(library)]
    if not states:
        raise NotFound(
            f"No daemon is running for {library}", "Start one with `marklight serve --detach`"
        )
    for state in states:
        if as_json:
            show_json(_state_values(state))
        else:
            show(render.table(_state_values(state)))
    return 0


def _stop(folder: Path | None, every: bool) -> int:
    from marklight.place import locate
    from marklight.surfaces.daemon.lifecycle import stop as stop_daemons

    library = None if every else locate(folder).folder
    stopped = stop_daemons(library)
    for state in stopped:
        show(f"Stopped the daemon at {state.address} (process {state.pid})")
    if not stopped:
        raise NotFound(f"No daemon is running for {library}" if library else "No daemon is running")
    return 0


@click.command(short_help="Embed the queued passages of a shared index.")
@in_library
@click.option("--drain", is_flag=True, help="Stop when the queue is empty.")
@click.option(
    "--retry-failed", is_flag=True, help="First put the failed texts back into the queue."
)
@SET
def worker(
    folder: Path | None,
    drain: bool,
    retry_failed: bool,
    assignments: tuple[str, ...],
) -> int:
    """Embed the queued passages of a shared index, until stopped.

    For an index on a server with `queue.embed = "workers"`. Any number of workers can run at once, on any machine that has
    the model; they need the settings of the library, but not its documents. On SIGTERM or Ctrl-C, a worker finishes its
    current batch and stops; a second signal stops it at once. `marklight status` shows the queue.
    """
    from marklight.library.embedding_worker import EmbeddingWorker

    with open_own(folder, assignments) as library:
        embedding = EmbeddingWorker(library, note)
        if retry_failed:
            count = embedding.queue.retry_failed(embedding.model)
            note(f"Put {count:,} failed texts back into the queue")
        show(f"embedding for {library.engine.describe()} as {embedding.name}")
        _stop_on_signals(embedding.stop)
        embedding.run(drain=drain)
        show(f"embedded: {embedding.embedded:,}")
    return 0


def _stop_on_signals(stop: Callable[[], None]) -> None:
    """Stop after the current batch at the first SIGINT or SIGTERM, at once at the second."""

    def handle(number: int, _: Any) -> None:
        stop()
        signal.signal(number, signal.default_int_handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
