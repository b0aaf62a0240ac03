"""Run git: without a shell, with an isolated environment, and without anything that a repository configures to be run."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO

from marklight.errors import HistoryError

KEPT = ("GIT_CEILING_DIRECTORIES", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""Environment variables of git that are passed on; all others are removed."""
OVERRIDES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    # Objects that a partial clone lacks are not fetched: nothing leaves this machine.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
MAX_FILE_BYTES = 4_000_000
"""Larger files are binary to git: a diff would take seconds and is never read."""
SETTINGS = (
    *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.quotePath=false"),
    *(f"core.bigFileThreshold={MAX_FILE_BYTES}", "gc.auto=0", "advice.graftFileDeprecated=false"),
    "submodule.recurse=false",
)
QUICK = 20.0
"""Time limit, in seconds, of calls that take milliseconds: a pipe in place of one of its files would block git for ever."""
PATIENCE = 300.0
"""Time limit, in seconds, without any output: git prints nothing while it sorts a large history on a slow disk."""
READ_AHEAD = 32
"""Commits requested from a process before the first is read: few enough that any pipe holds their names."""
WINDOWLESS = getattr(subprocess, "CREATE_NO_WINDOW", 0)


@dataclass(frozen=True, slots=True)
class Location:
    """The folders of a repository, as real paths; linked worktrees of one repository have one `store`."""

    folder: Path
    """Root of the working tree; of a bare repository the git directory."""
    store: Path
    """Common git directory: objects and refs."""
    own: Path
    """Git directory of this worktree: HEAD."""


def run(place: Location, *arguments: str, given: bytes = b"", seconds: float = 0) -> bytes:
    """Run git and return its output; HistoryError where it fails."""
    output, code, messages = try_run(place, *arguments, given=given, seconds=seconds)
    if code:
        raise unreadable(place.folder, messages)
    return output


def try_run(
    place: Location | Path, *arguments: str, given: bytes = b"", seconds: float = 0
) -> tuple[bytes, int, str]:
    """Run git and return its output, its exit code and its messages.

    HistoryError where it prints nothing for `seconds` (default: PATIENCE); on Windows that is the limit for the whole run.
    """
    limit, printed = seconds or PATIENCE, 0
    process = _start(place, arguments, subprocess.PIPE)
    with process:
        try:
            while True:
                try:
                    output, messages = process.communicate(given or None, timeout=limit)
                    return output, process.returncode, messages.decode("utf-8", "replace")
                except subprocess.TimeoutExpired as late:
                    if len(late.output or b"") == printed:
                        raise stalled(place, limit) from None
                    given, printed = b"", len(late.output)
        except BaseException:
            process.kill()
            raise


class Stream:
    """A git process that handles one request after the other until it is closed.

    A watchdog kills it after PATIENCE seconds without output, and HistoryError is raised.
    """

    def __init__(self, place: Location, *arguments: str) -> None:
        self._place = place
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = _start(place, arguments, self._errors)
        except HistoryError:
            self._errors.close()
            raise
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._limit = PATIENCE
        self._waiting_since: float | None = None
        self._stalled = False
        self._closed = Event()
        Thread(target=self._watch, name="git watchdog", daemon=True).start()

    def send(self, lines: bytes) -> bool:
        """Write to its input; return false if it has ended."""
        self._waiting_since = time.monotonic()
        try:
            self._in.write(lines)
            self._in.flush()
        except OSError:
            return False
        finally:
            self._waiting_since = None
        return True

    def read(self) -> bytes:
        """Return the output since the last call, empty at its end. Do not combine with `line` and `take`."""
        return self._wait_for(partial(os.read, self._out.fileno(), 1 << 20))

    def line(self) -> bytes:
        """Return the next line; empty where git has ended."""
        return self._wait_for(self._out.readline)

    def take(self, size: int) -> bytes:
        """Return `size` bytes, fewer where git has ended."""
        data = bytearray()
        while left := size - len(data):
            more = self._wait_for(partial(self._out.read, min(left, 1 << 16)))
            if not more:
                break
            data += more
        return bytes(data)

    def wait_for_error(self) -> str:
        """Wait for git to end and return its error message, in one line."""
        try:
            self._process.wait(QUICK)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.seek(0)
        return error_line(self._errors.read().decode("utf-8", "replace"))

    def close(self) -> None:
        """Kill the process."""
        self._closed.set()
        self._process.kill()
        for each in (self._in, self._out, self._errors):
            with suppress(OSError):  # input that git no longer reads
                each.close()
        self._process.wait()

    def _wait_for(self, reading: Callable[[], bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        try:
            data = reading()
        finally:
            self._waiting_since = None
        if self._stalled:
            raise stalled(self._place, self._limit)
        return data

    def _watch(self) -> None:
        """Kill git after the time limit, which ends the blocked read."""
        while not self._closed.wait(self._limit / 10):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._limit:
                self._stalled = True
                self._process.kill()
                return


@contextmanager
def stream(place: Location, *arguments: str) -> Iterator[Stream]:
    """Open a stream that is closed at the end of the `with` block."""
    opened = Stream(place, *arguments)
    try:
        yield opened
    finally:
        opened.close()


def _start(
    place: Location | Path, arguments: tuple[str, ...], errors: int | IO[bytes]
) -> subprocess.Popen[bytes]:
    settings = [part for setting in SETTINGS for part in ("-c", setting)]
    folder = place.folder if isinstance(place, Location) else place
    try:
        return subprocess.Popen(
            ["git", "--no-pager", *settings, "-C", str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment(place),
            creationflags=WINDOWLESS,
        )
    except OSError as error:
        raise missing(error) from None


def environment(place: Location | Path) -> dict[str, str]:
    """Return the user's environment without variables that would lead git elsewhere, or let it prompt or write.

    In a plain folder git finds the repository itself and checks its owner. Of a known repository it reads the folders that were verified,
    whatever `.git`, `commondir` and `core.worktree` contain by then.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith("GIT_")
    }
    if isinstance(place, Location):
        kept |= {"GIT_DIR": str(place.own), "GIT_COMMON_DIR": str(place.store)}
        if place.folder != place.own:
            kept["GIT_WORK_TREE"] = str(place.folder)
    return {**kept, **OVERRIDES}


def stalled(place: Location | Path, seconds: float) -> HistoryError:
    """Return the error for a git that hangs, for example because one of its files is a pipe or on a lost disk."""
    folder = place.folder if isinstance(place, Location) else place
    return HistoryError(
        f"git did not respond within {seconds:g} s for the repository at {folder}",
        "Check the repository with `git fsck`",
    )


def missing(error: OSError) -> HistoryError:
    """Return the error for a git that cannot be started."""
    if isinstance(error, FileNotFoundError):
        return HistoryError("git is not installed", "Install git to search the history")
    return HistoryError(f"git cannot be run: {error.strerror or error}")


def unreadable(folder: Path, messages: str) -> HistoryError:
    """Return the error for a repository that git does not read."""
    if "dubious ownership" in messages:
        return HistoryError(
            f"The repository at {folder} belongs to another user, so git does not read it",
            trust_hint(folder),
        )
    return HistoryError(f"git cannot read the repository at {folder}: {error_line(messages)}")


def trust_hint(folder: Path) -> str:
    """Return the command that permits git to read a repository, with the path quoted for the shell."""
    return f"If you trust it: git config --global --add safe.directory {shlex.quote(str(folder))}"


def error_line(messages: str) -> str:
    """Return the error among the messages of git, in one line."""
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (fatal or lines or ["git ended without a message"])[-1]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")[:300]
