"""How git is asked: never by a shell, and nothing that a repository configures is run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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
WINDOWLESS = getattr(subprocess, "CREATE_NO_WINDOW", 0)


def ask(folder: Path, *arguments: str, given: bytes = b"", seconds: float | None = None) -> bytes:
    """What git prints; HistoryError where it refuses."""
    printed, code, said = attempt(folder, *arguments, given=given, seconds=seconds)
    if code:
        raise refusal(folder, said)
    return printed


def attempt(
    folder: Path, *arguments: str, given: bytes = b"", seconds: float | None = None
) -> tuple[bytes, int, str]:
    """What git prints, however it ends; how that is, and what it says about it.

    HistoryError where it takes longer than `seconds`.
    """
    try:
        done = subprocess.run(
            command(folder, *arguments),
            input=given,
            capture_output=True,
            env=environment(),
            check=False,
            creationflags=WINDOWLESS,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise HistoryError(
            f"git did not answer within {seconds:g} s about the repository at {folder}",
            "Is its .git folder damaged?",
        ) from None
    except OSError as error:
        raise missing(error) from None
    return done.stdout, done.returncode, done.stderr.decode("utf-8", "replace")


class Stream:
    """A git that is asked one thing after the other and stays until it is closed."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                command(folder, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=environment(),
                creationflags=WINDOWLESS,
            )
        except OSError as error:
            self._said.close()
            raise missing(error) from None
        assert self._process.stdin
        assert self._process.stdout
        self._in, self.out = self._process.stdin, self._process.stdout

    def send(self, lines: bytes) -> bool:
        """Whether it still listens."""
        try:
            self._in.write(lines)
            self._in.flush()
        except OSError:
            return False
        return True

    def read(self) -> bytes:
        """What it has printed since; nothing where it has ended."""
        return os.read(self.out.fileno(), 1 << 20)

    def last_words(self) -> str:
        """What it complained of, in one line; it is waited for, as it is ending anyway."""
        self._process.wait()
        self._said.seek(0)
        return complaint(self._said.read().decode("utf-8", "replace"))

    def close(self) -> None:
        """End it, whatever it is at."""
        self._process.kill()
        for each in (self._in, self.out, self._said):
            with suppress(OSError):  # what it will not read any more
                each.close()
        self._process.wait()


@contextmanager
def stream(folder: Path, *arguments: str) -> Iterator[Stream]:
    """A stream that ends with whoever asks."""
    opened = Stream(folder, *arguments)
    try:
        yield opened
    finally:
        opened.close()


def command(folder: Path, *arguments: str) -> list[str]:
    """The whole command; git finds the repository itself, so that it can look at whose it is."""
    given = [part for setting in SETTINGS for part in ("-c", setting)]
    return ["git", "--no-pager", *given, "-C", str(folder), *arguments]


def environment() -> dict[str, str]:
    """The user's, without what would lead git elsewhere or let it ask or write."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith("GIT_")
    }
    return {**kept, **OWN}


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
            f"If you trust it: git config --global --add safe.directory {folder}",
        )
    return HistoryError(f"git cannot read the repository at {folder}: {complaint(said)}")


def complaint(said: str) -> str:
    """What went wrong, of all that git says."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
    chosen = (fatal or lines or ["it ended without a word"])[-1]
    return chosen.removeprefix("fatal: ").removeprefix("error: ")[:300]
