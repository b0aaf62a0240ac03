"""Line editing, history and completion of the interactive session (prompt_toolkit); files opened in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History
from prompt_toolkit.shortcuts import CompleteStyle

from marklight.errors import MarklightError, UsageError
from marklight.private_files import open_private
from marklight.surfaces.cli.interactive import Session

MAX_LINE = 2_000
"""Characters of a line that is kept; a longer one was pasted."""

REFRESH_SECONDS = 0.5
"""Time until the progress beside the prompt is drawn again."""

PLUS_LINE = {
    "vi", "vim", "nvim", "gvim", "view", "nano", "pico", "emacs", "emacsclient", "micro", "kak",
    "joe", "jed", "mg", "ne",
}  # fmt: skip
"""Editors called as `vim +12 file`."""
COLON_LINE = {"hx", "helix", "subl", "zed"}
"""Editors called as `hx file:12`."""
GOTO_LINE = {"code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"}
"""Editors called as `code -g file:12`."""
OPENERS = {"darwin": "open", "win32": "explorer"}
"""Programs that open a file where no editor is set; `xdg-open` on all other platforms."""


@dataclass(frozen=True, slots=True)
class LineFile:
    """History file of at most `limit` lines, private to the user; unreadable, unwritable or a symbolic link means no history."""

    path: Path
    limit: int = 1_000

    def read(self) -> Sequence[str]:
        """Return the lines, oldest first; truncate a file that has grown beyond the limit."""
        try:
            with open(open_private(self.path), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return []
        lines = [line for line in text.split("\n") if line]
        if len(lines) > self.limit:
            lines = lines[-self.limit :]
            self._replace(lines)
        return lines

    def add(self, line: str) -> None:
        """Append a line, unless it starts with a space, as in a shell."""
        line = " ".join(line.splitlines())
        if not line.strip() or line.startswith(" ") or len(line) > MAX_LINE:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write(self.path, f"{line}\n", os.O_APPEND)

    def _replace(self, lines: Sequence[str]) -> None:
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):
            self._write(temporary, "".join(f"{line}\n" for line in lines), os.O_TRUNC)
            os.replace(temporary, self.path)

    def _write(self, path: Path, text: str, flags: int) -> None:
        with open(open_private(path, os.O_WRONLY | os.O_CREAT | flags), "ab") as file:
            file.write(text.encode("utf-8", "replace"))


class FileHistory(History):
    """Adapter of `LineFile` to prompt_toolkit."""

    def __init__(self, file: LineFile) -> None:
        super().__init__()
        self.file = file

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines, newest first."""
        return reversed(self.file.read())

    def store_string(self, string: str) -> None:
        """Append a line that was entered."""
        self.file.add(string)


class SessionCompleter(Completer):
    """Adapter of `Session.completions` to prompt_toolkit."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
        """Return completions of the last word before the cursor."""
        del event
        typed = document.text_before_cursor
        word_start = len(typed) - len(typed.rpartition(" ")[2])
        for word in self.session.completions(typed):
            yield Completion(word, start_position=word_start - len(typed))


def line_editor(
    session: Session, file: LineFile, progress: Callable[[], str] = str
) -> PromptSession[str]:
    """Return a prompt: Tab completes, Up searches history by prefix, Ctrl-R searches all of it.

    `progress` returns what is shown at the right edge while the user types; empty for nothing.
    """
    return PromptSession(
        history=FileHistory(file),
        completer=SessionCompleter(session),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,
        enable_history_search=True,
        rprompt=progress,
        refresh_interval=REFRESH_SECONDS,
    )


def editor_command(
    file: Path, line: int, environment: Mapping[str, str], platform: str = sys.platform
) -> list[str]:
    """Return the arguments that open a file at a line; a list, so that no shell parses the file name."""
    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(environment.get(variable, ""), posix=platform != "win32")
        except ValueError as error:
            problem = f"Cannot parse ${variable}: {str(error).lower()}"
            raise UsageError(problem, "Fix the quotes in its value") from None
        if words:
            return [words[0].strip('"'), *words[1:], *_file_arguments(words[0], file, line)]
    return [OPENERS.get(platform, "xdg-open"), str(file)]


def _file_arguments(editor: str, file: Path, line: int) -> list[str]:
    name = PurePath(editor.strip('"').replace("\\", "/")).name.lower().removesuffix(".exe")
    if name in PLUS_LINE:
        return [f"+{line}", str(file)]
    if name in COLON_LINE:
        return [f"{file}:{line}"]
    if name.removesuffix(".cmd") in GOTO_LINE:
        return ["-g", f"{file}:{line}"]
    return [str(file)]


def open_in_editor(file: Path, line: int, *, terminal: bool) -> None:
    """Open a file in the user's editor and wait until it exits."""
    command = editor_command(file, line, os.environ)
    try:
        # Lines piped to us are queries and not input of the editor.
        stdin = None if terminal else subprocess.DEVNULL
        result = subprocess.run(command, stdin=stdin, check=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = f"Cannot start {command[0]}: {reason}"
        raise UsageError(problem, "Set VISUAL or EDITOR to your editor") from None
    if result.returncode and command[0] != OPENERS["win32"]:  # which exits with 1 on success
        raise MarklightError(f"{command[0]} exited with code {result.returncode}")
