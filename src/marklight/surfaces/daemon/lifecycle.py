"""Start, find and stop daemons: in this process (`serve`), detached, or in the background for a client."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from marklight.errors import SettingsError, StoreError, UsageError
from marklight.model import digest
from marklight.place import complete_commands, locate
from marklight.platforms import kill_command
from marklight.private_files import is_plain_file, lock_file, open_private
from marklight.surfaces.daemon import (
    SUFFIX,
    State,
    make_state_folder,
    process_settings,
    read_state,
    remove_state,
    state_files,
)
from marklight.surfaces.daemon.client import (
    OVERLOADED,
    PROGRAM,
    ClosedEarly,
    Unreachable,
    connect,
    set_options,
)

if TYPE_CHECKING:
    from marklight.library import Library
    from marklight.surfaces.daemon.process import Monitor

END_DAEMON = "End that daemon with `marklight serve --stop`"
POLL_SECONDS = 0.02
READY_SECONDS = 30.0
"""Time limit for a detached daemon to answer; it loads no model before."""
STOP_SECONDS = 20.0


def state_file(folder: Path, settings: Mapping[str, object]) -> Path:
    """Return the state file of a library under these settings; its folder is created."""
    return make_state_folder() / f"{digest(str(folder), repr(settings))}{SUFFIX}"


# In this process


def serve(
    folder: Path | None,
    options: Mapping[str, Any],
    assignments: Sequence[str],
    *,
    leave_idle: bool,
    ready: Callable[[State], None],
    notify: Callable[[str], None],
    monitor: Monitor | None = None,
) -> None:
    """Serve a library until stopped, unless another daemon does; the address is checked before a server is loaded.

    `options` are settings of the table `serve`; `ready` is called once the daemon answers.
    """
    from marklight.library import Library

    given = {"serve": options}
    library = Library(folder, given, assignments)
    settings = process_settings(assignments)
    file = state_file(library.place.folder, settings)
    try:
        lock = lock_file(file.with_suffix(".lock"), 0.0)
    except TimeoutError:
        other = _other_daemon(file)
        where = (
            f"at {other.address} (process {other.pid})" if other else "by a daemon that is starting"
        )
        message = f"{library.place.folder} is already served {where}"
        if other and options.keys() & {"host", "port", "token"}:
            raise UsageError(message, complete_commands(END_DAEMON, library.place.folder)) from None
        notify(message)
        return
    with closing(lock):
        listener = _listen(library, "port" in options, notify)
        for notice in library.notices():
            notify(notice)
        idle_seconds = library.serve.idle_minutes * 60 if leave_idle else None
        from marklight.surfaces.daemon.process import run  # takes a second to import
        from marklight.surfaces.host import LibraryArguments, WorkerPool

        pool = None
        if library.serve.workers > 1 and not leave_idle:
            arguments = LibraryArguments(library.place.folder, given, tuple(assignments))
            pool = WorkerPool(library.serve.workers, arguments)
        run(library, listener, file, settings, idle_seconds, ready, monitor, pool)


def _other_daemon(file: Path) -> State | None:
    """Return the daemon that holds the lock; None while it is starting."""
    before, other = read_state(file), answering_daemon(file)
    if before and not other and read_state(file) == before:
        raise unresponsive(before)
    return other


def _listen(library: Library, port_is_given: bool, notify: Callable[[str], None]) -> socket:
    """Bind to the configured address; to a free port if the default port is taken."""
    from marklight.surfaces.http import check_host, configured_address, listen

    serve = library.serve
    check_host(serve.host)
    configured_address(serve, serve.port)  # raises if it must not be opened
    try:
        return listen(serve.host, serve.port)
    except UsageError as error:
        if port_is_given or library.settings.sources["serve.port"] != "built-in":
            raise
        listener = listen(serve.host, 0)
        notify(f"{error.message}. Using a free port")
        return listener


# In a process of its own


def start(
    folder: Path, arguments: Sequence[str], settings: Mapping[str, object], token: str = ""
) -> subprocess.Popen[bytes]:
    """Start a daemon that outlives this process, with a log file beside its state file."""
    log = _open_log(state_file(folder, settings).with_suffix(".log"))
    try:
        return subprocess.Popen(
            [*PROGRAM, "serve", "--in", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            # Not an argument: every user of the machine can read those.
            env={**os.environ, **({"MARKLIGHT_SERVE_TOKEN": token} if token else {})},
            start_new_session=True,
            close_fds=True,
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0)
            | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    finally:
        os.close(log)


def _open_log(log: Path) -> int:
    """Open an empty log file; a link or a pipe at its path is replaced, not written through."""
    if not is_plain_file(log):
        with suppress(FileNotFoundError):
            log.unlink()
    return open_private(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def start_for_client(folder: Path, assignments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a daemon that ends when idle; where one is running already, the second ends at once."""
    arguments = ["--leave-idle", *set_options(assignments)]
    return start(folder, arguments, process_settings(assignments))


def detach(
    folder: Path | None,
    options: Mapping[str, Any],
    assignments: Sequence[str],
    notify: Callable[[str], None],
) -> State:
    """Start a daemon and return once it answers; return the running one if there is one."""
    place, settings = locate(folder), process_settings(assignments)
    address = [
        (f"--{name}", str(options[name])) for name in ("host", "port", "workers") if name in options
    ]
    arguments = [*(word for pair in address for word in pair), *set_options(assignments)]
    process = start(place.folder, arguments, settings, options.get("token", ""))
    file = state_file(place.folder, settings)
    state = wait_until_ready(file, process, READY_SECONDS)
    if state is None:
        log = file.with_suffix(".log").read_text("utf-8", "replace").strip().splitlines()
        reason = log[-1].removeprefix("marklight: ") if log else "it does not answer"
        error = UsageError if process.poll() == UsageError.exit_code else StoreError
        raise error(f"The daemon did not start: {reason}")
    if state.pid != process.pid:
        if process.poll() is None:
            process.wait(READY_SECONDS)
        notify(f"A daemon is already running (process {state.pid})")
        if process.returncode:
            raise UsageError(
                f"{place.folder} is already served at {state.address}",
                complete_commands(END_DAEMON, place.folder),
            )
    return state


def is_autostart(folder: Path, assignments: Sequence[str]) -> bool:
    """Return the setting `serve.start`; false if the settings are invalid, which is reported when the library is opened."""
    from marklight.library.configuration import read_settings

    try:
        return bool(read_settings(folder, assignments)["serve.start"])
    except SettingsError:
        return False


def wait_until_ready(file: Path, process: subprocess.Popen[bytes], seconds: float) -> State | None:
    """Wait until a daemon answers, whichever process started it; return None at the time limit."""
    deadline = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None
        if state := answering_daemon(file):
            return state
        if ended or time.monotonic() > deadline:
            return None
        time.sleep(POLL_SECONDS)


# Running daemons


def answering_daemon(file: Path) -> State | None:
    """Return the daemon of a state file if it answers."""
    state = read_state(file)
    if state is None:
        return None
    try:
        connection = connect(file, state)
    except Unreachable:
        return None
    if connection is None:
        return None
    connection.close()
    return state


def running_daemons(folder: Path | None) -> list[tuple[Path, State]]:
    """Return the running daemons of a library, or all of this user, with their state files."""
    running = []
    for file, state in list(state_files(folder)):
        try:
            connection = connect(file, state)
        except Unreachable as error:
            raise unresponsive(state, error) from None
        if connection:
            connection.close()
            running.append((file, state))
    return running


def stop(folder: Path | None) -> list[State]:
    """Stop the daemons of a library, or all of this user; return them."""
    running = running_daemons(folder)
    for file, state in running:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(state.pid, signal.SIGTERM)
        try:
            # A daemon holds its lock until it has ended.
            with closing(lock_file(file.with_suffix(".lock"), STOP_SECONDS)):
                remove_state(file, state)  # on Windows it ends at once
        except TimeoutError:
            raise unresponsive(state) from None
    return [state for _, state in running]


def unresponsive(state: State, error: Exception | None = None) -> StoreError:
    """Create the error for a daemon that holds its lock but does not answer."""
    if isinstance(error, ClosedEarly):
        return StoreError(
            f"The daemon (process {state.pid}) {OVERLOADED}",
            f"Try again when fewer are connected; `{kill_command(state.pid)}` ends it without data loss",
        )
    return StoreError(
        f"The daemon (process {state.pid}) does not answer",
        f"`{kill_command(state.pid)}` ends it without data loss",
    )
