"""How git is asked: never by a shell, and nothing that a repository configures is run."""

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
"""What a user may have set for git that is right for us too; all other variables of git are left out."""
OWN = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    # What a partial clone lacks is not fetched: nothing leaves this machine.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
}
LARGEST_FILE = 4_000_000
"""Bytes from which on git treats a file as binary: its diff would take seconds and tell nothing."""
SETTINGS = (
    *("core.fsmonitor=false", f"core.hooksPath={os.devnull}", "core.quotePath=false"),
    *(f"core.bigFileThreshold={LARGEST_FILE}", "gc.auto=0", "advice.graftFileDeprecated=false"),
    "submodule.recurse=false",
)
QUICK = 20.0
"""Seconds for what takes git milliseconds: a pipe in place of one of its files would block it for ever."""
PATIENCE = 300.0
"""Seconds without any output: git prints nothing while it sorts the commits of a large history on a slow disk."""
WINDOWLESS = getattr(subprocess, "CREATE_NO_WINDOW", 0)


@dataclass(frozen=True, slots=True)
class Location:
    """The folders of a repository, as real paths; linked worktrees of one repository have one `store`."""

    folder: Path
    """The root of its files, or itself where it has none."""
    store: Path
    """Folder of the objects and branches."""
    own: Path
    """Folder of the HEAD of this worktree."""


def ask(place: Location, *arguments: str, given: bytes = b"", seconds: float = 0) -> bytes:
    """What git prints; HistoryError where it refuses."""
    printed, code, said = attempt(place, *arguments, given=given, seconds=seconds)
    if code:
        raise refusal(place.folder, said)
    return printed


def attempt(
    place: Location | Path, *arguments: str, given: bytes = b"", seconds: float = 0
) -> tuple[bytes, int, str]:
    """Run git and return its output, its exit code and its messages.

    HistoryError where it prints nothing for `seconds`, else PATIENCE; on Windows that is the limit for the whole run.
    """
    limit, printed = seconds or PATIENCE, 0
    process = _start(place, arguments, subprocess.PIPE)
    with process:
        try:
            while True:
                try:
                    out, said = process.communicate(given or None, timeout=limit)
                    return out, process.returncode, said.decode("utf-8", "replace")
                except subprocess.TimeoutExpired as late:
                    if len(late.output or b"") == printed:
                        raise stalled(place, limit) from None
                    given, printed = b"", len(late.output)
        except BaseException:
            process.kill()
            raise


class Stream:
    """A git that is asked one thing after the other and stays until it is closed.

    One that prints nothing for PATIENCE seconds while it is waited for is ended, and HistoryError is raised.
    """

    def __init__(self, place: Location, *arguments: str) -> None:
        self._place = place
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = _start(place, arguments, self._said)
        except HistoryError:
            self._said.close()
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
        """Whether it still listens."""
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
        """Return so many bytes, fewer where git has ended."""
        found = bytearray()
        while left := size - len(found):
            more = self._wait_for(partial(self._out.read, min(left, 1 << 16)))
            if not more:
                break
            found += more
        return bytes(found)

    def last_words(self) -> str:
        """What it complained of, in one line; it is waited for, as it is ending anyway."""
        try:
            self._process.wait(QUICK)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.seek(0)
        return complaint(self._said.read().decode("utf-8", "replace"))

    def close(self) -> None:
        """End it, whatever it is at."""
        self._closed.set()
        self._process.kill()
        for each in (self._in, self._out, self._said):
            with suppress(OSError):  # what it will not read any more
                each.close()
        self._process.wait()

    def _wait_for(self, reading: Callable[[], bytes]) -> bytes:
        self._waiting_since = time.monotonic()
        try:
            found = reading()
        finally:
            self._waiting_since = None
        if self._stalled:
            raise stalled(self._place, self._limit)
        return found

    def _watch(self) -> None:
        """Kill git where it is waited for too long, which ends the read that waits."""
        while not self._closed.wait(self._limit / 10):
            since = self._waiting_since
            if since is not None and time.monotonic() - since > self._limit:
                self._stalled = True
                self._process.kill()
                return


@contextmanager
def stream(place: Location, *arguments: str) -> Iterator[Stream]:
    """A stream that ends with whoever asks."""
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
    """The user's, without what would lead git elsewhere or let it ask or write.

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
    return {**kept, **OWN}


def stalled(place: Location | Path, seconds: float) -> HistoryError:
    """Git does not answer, for example because one of its files is a pipe or on a disk that is gone."""
    folder = place.folder if isinstance(place, Location) else place
    return HistoryError(
        f"git did not answer within {seconds:g} s about the repository at {folder}",
        "Is its .git folder damaged?",
    )


def missing(error: OSError) -> HistoryError:
    """There is no git that can be run."""
    if isinstance(error, FileNotFoundError):
        return HistoryError("git is not installed", "Install it to search the history")
    return HistoryError(f"git cannot be run: {error.strerror or error}")


def refusal(folder: Path, said: str) -> HistoryError:
    """Why git does not read a repository, in a line that says what to do."""
    if "dubious ownership" in said:
        return HistoryError(
            f"the repository at {folder} belongs to someone else, so git does not read it",
            trust_hint(folder),
        )
    return HistoryError(f"git cannot read the repository at {folder}: {complaint(said)}")


def trust_hint(folder: Path) -> str:
    """Return how a user permits git to read a repository; the path may be anything, so it is quoted for the shell."""
    return f"If you trust it: git config --global --add safe.directory {shlex.quote(str(folder))}"


def complaint(said: str) -> str:
    """What went wrong, of all that git says."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (fatal or lines or ["it ended without a word"])[-1]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")[:300]
