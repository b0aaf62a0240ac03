"""A daemon as a process of its own, and commands that may attach to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from marklight.surfaces.daemon import State, state_files
from tests.waiting import PATIENCE_SECONDS, until

PROGRAM = (sys.executable, "-P", "-c", "from marklight.surfaces.cli import main; main()")
HEAVY = (
    *("numpy", "onnxruntime", "tantivy", "marklight.library"),
    *("mcp", "starlette", "uvicorn", "asyncio", "http.client"),
)
TELLING = f"""
import sys
from marklight.surfaces.cli import run
code = run(sys.argv[1:])
print("loaded:", *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""
"""A command that tells at its end what it had to load."""


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`marklight serve`, as long as this lasts: it ends when the pipe to it is closed."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", str(folder), *(arguments or ("--port", "0"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def of(folder: Path) -> State:
    """What the daemon of a folder tells of itself."""

    def found() -> State | None:
        return next((state for _, state in state_files(folder.resolve())), None)

    return until(found)


def settled(folder: Path) -> State:
    """The same, once it has nothing left to index."""
    state = of(folder)

    def idle() -> bool:
        with urllib.request.urlopen(f"{state.address}health") as response:
            return json.load(response)["indexing"] is None

    until(idle)
    return state


def command(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which tells what it loaded."""
    return subprocess.run(
        [sys.executable, "-c", TELLING, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def loaded(process: subprocess.CompletedProcess[str]) -> set[str]:
    """The heavy modules that it had to load."""
    return set(process.stderr.splitlines()[-1].removeprefix("loaded:").split())


def without_times(value: Any) -> Any:
    """An answer without how long it took."""
    if isinstance(value, dict):
        return {
            name: without_times(each)
            for name, each in value.items()
            if name not in ("took_ms", "ms")
        }
    return [without_times(each) for each in value] if isinstance(value, list) else value
