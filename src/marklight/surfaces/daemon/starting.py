"""Start a daemon that outlives its starter, and wait until it answers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from marklight.private_files import is_plain_file, open_private
from marklight.surfaces.daemon import state
from marklight.surfaces.daemon.attach import PROGRAM, Gone, as_arguments, greet
from marklight.surfaces.daemon.state import State, own_settings
from marklight.text.digests import digest

POLL_SECONDS = 0.02


def file_for(folder: Path, settings: Mapping[str, object]) -> Path:
    """The state file of a library under these settings, in a folder that is there."""
    return state.make_folder() / f"{digest(str(folder), repr(settings))}{state.SUFFIX}"


def start(
    folder: Path, arguments: Sequence[str], settings: Mapping[str, object], token: str = ""
) -> subprocess.Popen[bytes]:
    """A process of its own: no terminal, no parent to mind, its words in a log beside its state file."""
    out = _open_log(file_for(folder, settings).with_suffix(".log"))
    try:
        return subprocess.Popen(
            [*PROGRAM, "serve", "--in", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            # Not among the arguments, which every user of the machine can read.
            env={**os.environ, **({"MARKLIGHT_SERVE_TOKEN": token} if token else {})},
            start_new_session=True,
            close_fds=True,
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0)
            | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    finally:
        os.close(out)


def _open_log(log: Path) -> int:
    """Open an empty log; a link or a pipe at its path is replaced, not written through."""
    if not is_plain_file(log):
        with suppress(FileNotFoundError):
            log.unlink()
    return open_private(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)


def start_for_client(folder: Path, assignments: Sequence[str]) -> subprocess.Popen[bytes]:
    """One that leaves again when nobody has asked for a while; where one is, the second ends at once."""
    arguments = ["--leave-idle", *as_arguments(assignments)]
    return start(folder, arguments, own_settings(assignments))


def is_wanted(folder: Path, assignments: Sequence[str]) -> bool:
    """Whether `serve.start` says so, read without loading what all other settings belong to."""
    from marklight.errors import SettingsError
    from marklight.settings import from_user_file
    from marklight.trust import is_trusted, read_folder_file

    try:
        layers, file = [*from_user_file()], read_folder_file(folder)
        if file and file.layer and is_trusted(file):
            layers.append(file.layer)
        tables = [layer.values.get("serve") for layer in layers]
    except SettingsError:
        return False  # told by whoever reads all of them
    written = [one.partition("=")[2].strip() for one in assignments if _is_start(one)]
    said = [table.get("start") for table in tables if isinstance(table, dict)]
    last = [*said, os.environ.get("MARKLIGHT_SERVE_START"), *written]
    return next((value in (True, "true") for value in reversed(last) if value is not None), False)


def _is_start(assignment: str) -> bool:
    return assignment.partition("=")[0].strip() == "serve.start"


def wait_for(file: Path, process: subprocess.Popen[bytes], seconds: float) -> State | None:
    """The daemon that answers there, whoever started it; None if there is none in time."""
    until = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None
        if found := answering(file):
            return found
        if ended or time.monotonic() > until:
            return None
        time.sleep(POLL_SECONDS)


def answering(file: Path) -> State | None:
    """The daemon of a state file, if it lives."""
    told = state.read(file)
    if told is None:
        return None
    try:
        line = greet(file, told, "control")
    except Gone:
        return None
    if line is None:
        return None
    line.close()
    return told
