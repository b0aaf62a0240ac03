"""Open a file at a line in the user's editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath

from marklight.errors import MarklightError, UsageError

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


def open_in_editor(file: Path, line: int) -> None:
    """Open a file in the user's editor and wait until it exits."""
    command = editor_command(file, line, os.environ)
    try:
        result = subprocess.run(command, check=False)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = f"Cannot start {command[0]}: {reason}"
        raise UsageError(problem, "Set VISUAL or EDITOR to your editor") from None
    if result.returncode and command[0] != OPENERS["win32"]:  # which exits with 1 on success
        raise MarklightError(f"{command[0]} exited with code {result.returncode}")
