"""Where a daemon tells its user's other programs how to reach it: one small file, for nobody else's eyes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from marklight.private_files import read_private, state_folder

NO_MATTER = ("MARKLIGHT_STATE_DIR", "MARKLIGHT_DAEMON", "MARKLIGHT_SERVE_")
"""Variables that change who answers and where, and never what."""
SUFFIX = ".json"


class State(NamedTuple):
    """A daemon as its file tells of it."""

    folder: str
    """The library's."""
    pid: int
    port: int
    """Of its private door."""
    secret: str = ""
    """What a client sends, which only this user can know."""
    proof: str = ""
    """What the daemon answers with: a stranger who took over its port does not know it."""
    address: str = ""
    """Of the web page."""
    version: str = ""
    started: str = ""

    def to_dict(self) -> dict[str, Any]:
        """What others may see of it."""
        return {
            "pid": self.pid,
            "address": self.address,
            "mcp": f"{self.address}mcp",
            "version": self.version,
            "started": self.started,
        }


def own_settings(assignments: Sequence[str] = ()) -> dict[str, Any]:
    """What decides how this process answers, beside the files: two that are alike answer alike."""
    return {
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith("MARKLIGHT_") and not name.startswith(NO_MATTER)
        },
        # Where the user's own settings file and their trust in folders are looked for.
        "home": [
            os.path.expanduser("~"),
            *(os.environ.get(name, "") for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")),
        ],
        "assignments": [one for one in assignments if not one.lstrip().startswith("serve.")],
    }


def states(folder: Path | None = None) -> Iterator[tuple[Path, State]]:
    """The daemons that tell of themselves, of one library or of all; whether they live is another matter."""
    with suppress(OSError), os.scandir(state_folder()) as entries:
        for entry in entries:
            if not entry.name.endswith(SUFFIX):
                continue
            found = read(Path(entry.path))
            if found and (folder is None or found.folder == str(folder)):
                yield Path(entry.path), found


def read(file: Path) -> State | None:
    """Return the content of a state file; None for a foreign or incomplete file, a link or a pipe."""
    try:
        told = State(**json.loads(read_private(file)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return told if _is_sound(told) else None


def _is_sound(told: State) -> bool:
    kinds: Mapping[str, type] = {"pid": int, "port": int}
    return all(
        type(value) is kinds.get(name, str) for name, value in told._asdict().items()
    ) and bool(told.secret and told.proof and 0 < told.port < 65_536)


def write(file: Path, told: State) -> None:
    """Whole or not at all, and for this user alone from its first byte."""
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        draft.unlink()
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            json.dump(told._asdict(), opened)
        os.replace(draft, file)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def forget(file: Path, told: State) -> None:
    """Remove what is no longer true, unless another daemon has written anew."""
    if read(file) == told:
        with suppress(OSError):
            file.unlink()


def make_folder() -> Path:
    """The folder, which only this user may look into."""
    folder = state_folder()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid") and folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder
