"""A daemon that a person starts and leaves to itself: where it is, or why it could not begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marklight.errors import StoreError, UsageError
from marklight.place import locate
from marklight.surfaces.daemon.attach import as_arguments
from marklight.surfaces.daemon.starting import file_for, start, wait_for
from marklight.surfaces.daemon.state import State, own_settings

READY_SECONDS = 30.0
"""For a daemon to answer; it loads no model before it does."""


def detach(
    folder: Path | None,
    asked: Mapping[str, Any],
    assignments: Sequence[str],
    say: Callable[[str], None],
) -> State:
    """Start one and return once it answers, or the one that was there before."""
    place, settings = locate(folder), own_settings(assignments)
    where = [(f"--{name}", str(asked[name])) for name in ("host", "port") if name in asked]
    arguments = [*(word for pair in where for word in pair), *as_arguments(assignments)]
    process = start(place.folder, arguments, settings, asked.get("token", ""))
    file = file_for(place.folder, settings)
    found = wait_for(file, process, READY_SECONDS)
    if found is None:
        said = file.with_suffix(".log").read_text("utf-8", "replace").strip().splitlines()
        reason = said[-1].removeprefix("marklight: ") if said else "it does not answer"
        error = UsageError if process.poll() == UsageError.exit_code else StoreError
        raise error(f"no daemon could be started: {reason}")
    if found.pid != process.pid:
        if process.poll() is None:
            process.wait(READY_SECONDS)
        say(f"it was running already, as process {found.pid}")
        if process.returncode:
            raise UsageError(
                f"{place.folder} is served at {found.address}", "`marklight stop` ends it"
            )
    return found
