"""Open a file at a line, in the user's editor or with whatever the platform opens files with."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from marklight.errors import MarklightError, UsageError

WITH_PLUS = {
    "vi", "vim", "nvim", "gvim", "view", "nano", "pico", "emacs", "emacsclient", "micro", "kak",
    "joe", "jed", "mg", "ne",
}  # fmt: skip
"""`vim +12 file`"""
WITH_COLON = {"hx", "helix", "subl", "zed"}
"""`hx file:12`"""
WITH_GOTO = {"code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"}
"""`code -g file:12`"""
OPENERS = {"darwin": "open", "win32": "explorer"}
"""What opens a file where no editor is named; `xdg-open` on all other platforms."""


def editor_call(
    file: Path, line: int, environment: Mapping[str, str], platform: str = sys.platform
) -> list[str]:
    """The words of the call; never one string, so that no shell reads a file's name."""
    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(environment.get(variable, ""), posix=platform != "win32")
        except ValueError as error:
            raise UsageError(f"{variable} cannot be read: {error}", "Mend its quotes") from None
        if words:
            return [words[0].strip('"'), *words[1:], *_at(words[0], file, line)]
    return [OPENERS.get(platform, "xdg-open"), str(file)]


def _at(editor: str, file: Path, line: int) -> list[str]:
    name = PurePath(editor.strip('"').replace("\\", "/")).name.lower().removesuffix(".exe")
    if name in WITH_PLUS:
        return [f"+{line}", str(file)]
    if name in WITH_COLON:
        return [f"{file}:{line}"]
    if name.removesuffix(".cmd") in WITH_GOTO:
        return ["-g", f"{file}:{line}"]
    return [str(file)]


def open_at(file: Path, line: int, *, terminal: bool) -> None:
    """Wait until the editor ends; one that cannot be started is told in one line."""
    call = editor_call(file, line, os.environ)
    try:
        # Lines that are piped to us are questions; they are not the editor's.
        done = subprocess.run(call, stdin=None if terminal else subprocess.DEVNULL, check=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{call[0]} cannot be started: {reason}", "Set VISUAL or EDITOR to your editor"
        ) from None
    if done.returncode and call[0] != OPENERS["win32"]:  # which says 1 when all is well
        raise MarklightError(f"{call[0]} ended with code {done.returncode}")
