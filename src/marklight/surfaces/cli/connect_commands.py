"""Commands that connect: serve for the daemon, mcp for an assistant, install-mcp for its configuration, worker for the queue of a shared index."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marklight.errors import NotFound, UsageError
from marklight.formatting import columns, one_line
from marklight.platforms import on_termination
from marklight.surfaces import render
from marklight.surfaces.cli.options import AS_JSON, SET, completer, in_library, open_own
from marklight.surfaces.cli.output import Bar, close_sentence, note, show, show_json

if TYPE_CHECKING:
    from marklight.surfaces.daemon import State
    from marklight.surfaces.daemon.process import Daemon
    from marklight.surfaces.setup import Client
    from marklight.surfaces.setup.config_file import FileChange


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
    from marklight.surfaces.daemon import lifecycle

    def ready(state: State) -> None:
        _print_addresses(state, as_json)
        if sys.stdout.isatty():
            note("Press Ctrl-C to stop")

    given = {name: value for name, value in options.items() if value is not None}
    if detach:
        _print_addresses(lifecycle.detach(folder, given, assignments, note), as_json)
        return 0
    lifecycle.serve(
        folder,
        given,
        assignments,
        leave_idle=leave_idle,
        ready=ready,
        notify=note,
        monitor=_show_indexing if sys.stderr.isatty() else None,
    )
    return 0


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
    from marklight.surfaces.mcp.server import serve_stdio

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
    from marklight.library.shared_index import EmbeddingWorker

    with open_own(folder, assignments) as library:
        embedding = EmbeddingWorker(library, note)
        if retry_failed:
            count = embedding.queue.retry_failed(embedding.model)
            note(f"Put {count:,} failed texts back into the queue")
        show(f"embedding for {library.engine.describe()} as {embedding.name}")
        with _stopping_on_signals(embedding.stop):
            embedding.run(drain=drain)
        show(f"embedded: {embedding.embedded:,}")
    return 0


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop after the current batch at the first SIGINT or SIGTERM, at once at the second."""

    def handle(number: int, _: Any) -> None:
        stop()
        signal.signal(number, signal.default_int_handler)

    restore = on_termination(handle)
    try:
        yield
    finally:
        restore()


@click.command("install-mcp", short_help="Connect an assistant to a library.")
@click.argument("client", required=False, shell_complete=completer("clients"))
@in_library
@click.option("--list", "listing", is_flag=True, help="List the libraries that are installed.")
@click.option("--project", is_flag=True, help="Configure only the project in the current folder.")
@click.option(
    "--name",
    help="Register the server under this name (default: marklight; with another library, marklight-FOLDER).",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    help="Change this configuration file instead of the default one.",
)
@click.option(
    "--skill",
    is_flag=True,
    help="Also install the skill file, which explains when and how to search.",
)
@click.option("--remove", is_flag=True, help="Remove the entry from the client's configuration.")
@click.option(
    "--dry-run", "--print", "dry_run", is_flag=True, help="Print the entry; change nothing."
)
def install_mcp(
    client: str | None,
    folder: Path | None,
    listing: bool,
    project: bool,
    name: str | None,
    file: Path | None,
    skill: bool,
    remove: bool,
    dry_run: bool,
) -> int:
    """Connect an assistant to a library.

    CLIENT is claude-code, claude-desktop, cursor, vscode, codex, gemini, opencode, zed, windsurf or cline.
    PATH defaults to the library that contains the current folder. The rest of the client's configuration
    stays as it is.
    """
    from marklight.surfaces import setup as clients

    if listing:
        return _list(client)
    if client is None:
        raise UsageError(
            "No client given",
            f"Name one: {', '.join(clients.CLIENTS)}; --list shows what is installed",
        )
    assistant = clients.find_client(client)
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        # The rule of the strictest clients, Claude Code and Codex.
        raise UsageError(f"Not a valid server name: {name[:100]!r}", "Use letters, digits, - and _")
    project_folder = Path.cwd() if project else None
    config = (
        file.expanduser() if file else clients.config_path(assistant, project_folder)
    ).absolute()
    skill_file = clients.skill_file(assistant, project_folder) if skill else None
    if remove:
        _remove(assistant, name, folder, config, skill_file, dry_run)
        return 0
    served = _served_folder(folder, client)
    keys = _entry_keys(assistant, config, name, served)
    entry = assistant.entry(clients.server_command(served))
    if dry_run:
        _print_entry(config, keys, skill_file, entry)
        return 0
    if not (project or file or config.parent.is_dir()):
        note(f"{config.parent} does not exist yet. Is {assistant.title} installed?")
    _install(assistant, config, keys, served, entry)
    if skill_file:
        from marklight.surfaces.setup.config_file import write_skill

        _print_change(
            write_skill(skill_file), "the skill", f"The skill is already up to date: {skill_file}"
        )
    if variables := sorted(key for key in os.environ if key.startswith("MARKLIGHT_")):
        from marklight.settings import user_file

        note(
            f"{', '.join(variables)} {'is' if len(variables) == 1 else 'are'} set in this shell but may not be"
            f" set when {assistant.title} starts Marklight. Put settings it needs in {user_file()}"
        )
    return 0


def _list(client: str | None) -> int:
    """Print a line for each entry: client, name, folder and configuration file."""
    from marklight.surfaces.setup import CLIENTS, find_client, list_installed

    names = [find_client(client).name] if client else list(CLIENTS)
    rows = []
    for entry in list_installed(names, Path.cwd()):
        if entry.name:
            problem = f" ({entry.problem})" if entry.problem else ""
            row = (entry.client, entry.name, entry.folder, f"{entry.file}{problem}")
            rows.append([one_line(cell) for cell in row])
        else:
            note(one_line(f"{entry.client}: {entry.problem}"))
    if rows:
        show(columns(rows, left=range(4)))
    else:
        where = f" in {find_client(client).title}" if client else ""
        note(f"No library is installed{where}. Add one: `marklight install-mcp CLIENT PATH`")
        return 1
    return 0


def _entry_keys(client: Client, config: Path, name: str | None, folder: Path) -> tuple[str, ...]:
    """Return the keys of the entry for a folder; a second library gets a name of its own."""
    from marklight.surfaces.setup import DEFAULT_NAME, entries_of, entry_name

    values = _values(config)
    if name is None:
        name = entry_name(folder, entries_of(client, values)) if values else DEFAULT_NAME
    return (*client.servers_path(values), name)


def _values(config: Path) -> dict[str, Any]:
    """Return the values of a configuration file; none if it is invalid, which is reported when it is changed."""
    from marklight.surfaces.setup.config_file import CannotEdit, read_values

    try:
        return read_values(config)
    except CannotEdit:
        return {}


def _install(
    client: Client, config: Path, keys: tuple[str, ...], folder: Path, entry: dict[str, Any]
) -> None:
    from marklight.surfaces.setup.config_file import CannotEdit, entry_text, put_entry

    name = keys[-1]
    try:
        change = put_entry(config, keys, entry)
    except CannotEdit as error:
        note(f"Add this to {config}:")
        show(entry_text(config, keys, entry))
        raise CannotEdit(error.message, "Add the entry printed above by hand") from None
    nothing = f"Nothing to do: {name} in {config} already serves {folder}"
    _print_change(change, name, nothing, f"It serves {folder}. {client.next_step}")


def _print_entry(
    config: Path, keys: tuple[str, ...], skill_file: Path | None, entry: dict[str, Any]
) -> None:
    from marklight.surfaces.setup.config_file import SKILL, entry_text

    note(f"Nothing was changed. This would be added to {config}:")
    show(entry_text(config, keys, entry))
    if skill_file:
        note(f"This would be written to {skill_file}:")
        show(SKILL.read_text("utf-8").rstrip("\n"))


def _remove(
    client: Client,
    name: str | None,
    folder: Path | None,
    config: Path,
    skill_file: Path | None,
    dry_run: bool,
) -> None:
    from marklight.surfaces.setup.config_file import CannotEdit, remove_skill, take_entry

    values = _values(config)
    name = name or _name_to_remove(client, values, folder, config)
    if dry_run:
        note(f"Nothing was changed. {name} would be removed from {config}")
        return
    try:
        change = take_entry(config, (*client.servers_path(values), name))
    except CannotEdit as error:
        raise CannotEdit(error.message, f"Remove {name} from it by hand") from None
    nothing = f"Nothing to do: {name} is not in {config}"
    _print_change(change, name, nothing, f"Restart {client.title}")
    if skill_file:
        nothing = f"The skill is not installed: {skill_file}"
        _print_change(remove_skill(skill_file), "the skill", nothing)


def _name_to_remove(client: Client, values: dict[str, Any], folder: Path | None, file: Path) -> str:
    """Return the name of the entry that serves the folder, or of the only one."""
    from marklight.surfaces.setup import DEFAULT_NAME, entries_of, name_of

    entries = entries_of(client, values)
    if folder is not None:
        if name := name_of(folder.expanduser().resolve(), entries):
            return name
        raise UsageError(
            f"No entry in {file} serves {folder}", "See `marklight install-mcp --list`"
        )
    if len(entries) > 1:
        served = ", ".join(f"{name} ({place})" for name, place in sorted(entries.items()))
        raise UsageError(f"{file} has several libraries: {served}", "Choose one with --name")
    return next(iter(entries), DEFAULT_NAME)


def _served_folder(path: Path | None, client: str) -> Path:
    """Return the absolute path of the folder to serve: the given one, or the library that contains the current folder."""
    from marklight.place import is_library, locate

    located = locate(path)
    folder = located.part or located.folder
    home = Path.home().resolve()
    if path is None and folder in (home, *home.parents) and not is_library(folder):
        # A terminal often opens in the home folder; serving all of it is hardly intended.
        raise UsageError(
            f"No folder given, and {folder} is not a library",
            f"Name the folder of your documents: `marklight install-mcp {client} {Path('~', 'notes')}`",
        )
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The name of {folder} is not valid UTF-8, which configuration files require",
            "Rename the folder",
        ) from None
    return folder


def _print_change(change: FileChange, what: str, nothing: str, next_step: str = "") -> None:
    """Print what was changed in a file; `nothing` if it needed no change."""
    if not change.done:
        show(one_line(nothing))
        return
    preposition = {"added": "to", "changed": "in", "removed": "from"}[change.done]
    done = f"{change.done.capitalize()} {what} {preposition} {change.file}"
    backup = f" (backup: {change.backup.name})" if change.backup else ""
    show(one_line(close_sentence(f"{done}{backup}. {next_step}".rstrip(". "))))
