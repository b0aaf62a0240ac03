"""Daemons that run, asked about themselves: which answer, and to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from marklight.errors import StoreError
from marklight.surfaces.daemon.attach import CROWDED, Gone, HungUp, greet
from marklight.surfaces.daemon.state import State, states

STOP_SECONDS = 20.0


def running(folder: Path | None) -> list[State]:
    """Those of a library, or all of this user's."""
    found = []
    for file, state in list(states(folder)):
        try:
            line = greet(file, state, "control")
        except Gone as error:
            raise stuck(state, error) from None
        if line:
            line.close()
            found.append(state)
    return found


def end(folder: Path | None, ended: Callable[[State], None]) -> bool:
    """End those of a library, or all of this user's; whether there was one."""
    from filelock import FileLock, Timeout

    any_ended = False
    for file, state in list(states(folder)):
        try:
            if (line := greet(file, state, "control")) is None:
                continue
            line.send({"do": "stop"})
            line.receive()
            line.close()
            # Which it holds as long as it lives.
            with FileLock(file.with_suffix(".lock"), timeout=STOP_SECONDS):
                pass
        except (Gone, Timeout) as error:
            raise stuck(state, error) from None
        any_ended = True
        ended(state)
    return any_ended


def stuck(state: State, error: Exception | None = None) -> StoreError:
    """What is said of one that holds its lock and is silent."""
    if isinstance(error, HungUp):
        return StoreError(
            f"the daemon, process {state.pid}, {CROWDED}",
            f"Try again once some have gone; `kill -9 {state.pid}` ends it, and nothing is lost",
        )
    return StoreError(
        f"the daemon, process {state.pid}, does not answer",
        f"`kill -9 {state.pid}` ends it; nothing is lost",
    )
