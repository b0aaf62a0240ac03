"""Daemon: one process that keeps a library open and its model loaded; commands and assistants connect to it.

This module finds running daemons: there is one state file per daemon, which only its user can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.place import locate
from marklight.private_files import read_private, state_folder, write_private

if TYPE_CHECKING:
    from marklight.surfaces.daemon.client import RemoteLibrary

IRRELEVANT_VARIABLES = ("MARKLIGHT_STATE_DIR", "MARKLIGHT_DAEMON", "MARKLIGHT_SERVE_")
"""Prefixes of environment variables that change which process answers, never the answer."""
SUFFIX = ".json"


class State(NamedTuple):
    """Content of a state file: the process ID, port and credentials of one daemon."""

    folder: str
    """Root folder of the library."""
    pid: int
    port: int
    """Port of the IPC server."""
    secret: str = ""
    """Authenticates the client to the daemon."""
    proof: str = ""
    """Authenticates the daemon to the client: another program on the same port cannot send it."""
    address: str = ""
    """URL of the web page."""
    version: str = ""
    started: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the public fields, without the credentials."""
        return {
            "pid": self.pid,
            "address": self.address,
            "mcp": f"{self.address}mcp",
            "version": self.version,
            "started": self.started,
        }


def open_remote(
    folder: Path | None,
    assignments: Sequence[str],
    notify: Callable[[str], None],
    *,
    searching: bool = False,
) -> RemoteLibrary | None:
    """Connect to the daemon of the library around a folder; None without one that uses the same settings."""
    if is_disabled():
        return None
    place = locate(folder)
    if not any(True for _ in state_files(place.folder)):
        return None
    from marklight.surfaces.daemon.client import RemoteLibrary, attach

    per_call = [item for item in assignments if searching and item.lstrip().startswith("search.")]
    others = [item for item in assignments if item not in per_call]
    attached = attach(place.folder, others, "call", notify)
    return RemoteLibrary(*attached, place, assignments, per_call, notify) if attached else None


def is_disabled() -> bool:
    """Return true if the user turned daemons off (`--no-daemon`, MARKLIGHT_DAEMON=off)."""
    return os.environ.get("MARKLIGHT_DAEMON") == "off"


def process_settings(assignments: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings of this process beside the files; a daemon serves only clients with equal ones."""
    return {
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("MARKLIGHT_") and not name.startswith(IRRELEVANT_VARIABLES)
        },
        # These decide where the user's settings file and the record of trusted folders are.
        "home": [
            os.path.expanduser("~"),
            *(os.environ.get(name, "") for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")),
        ],
        "assignments": [item for item in assignments if not item.lstrip().startswith("serve.")],
    }


def state_files(folder: Path | None = None) -> Iterator[tuple[Path, State]]:
    """Yield the state files of one library's daemons, or of all; some of the daemons may have ended."""
    with suppress(OSError), os.scandir(state_folder()) as entries:
        for entry in entries:
            if not entry.name.endswith(SUFFIX):
                continue
            state = read_state(Path(entry.path))
            if state and (folder is None or state.folder == str(folder)):
                yield Path(entry.path), state


def read_state(file: Path) -> State | None:
    """Return the content of a state file; None for a foreign or incomplete file, a link or a pipe."""
    try:
        state = State(**json.loads(read_private(file)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return state if _is_valid(state) else None


def _is_valid(state: State) -> bool:
    types: Mapping[str, type] = {"pid": int, "port": int}
    return all(
        type(value) is types.get(name, str) for name, value in state._asdict().items()
    ) and bool(state.secret and state.proof and 0 < state.port < 65_536)


def write_state(file: Path, state: State) -> None:
    """Write a state file atomically, readable by this user only from its first byte."""
    write_private(file, json.dumps(state._asdict()).encode())


def remove_state(file: Path, state: State) -> None:
    """Remove a state file, unless another daemon has replaced it."""
    if read_state(file) == state:
        with suppress(OSError):
            file.unlink()


def make_state_folder() -> Path:
    """Create the folder of state files, accessible by this user only."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid") and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
