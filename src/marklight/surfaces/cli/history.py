"""Lines that were typed, kept for the next session in a file that only its user can read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from marklight.private_files import open_private

LONGEST = 2_000
"""Characters of a line; what is longer was pasted, and nobody looks for it again."""


@dataclass(frozen=True, slots=True)
class LineFile:
    """A bounded file of lines; where it cannot be read or written, or is a link, there is no history and no error."""

    path: Path
    most: int = 1_000
    """Lines that are kept."""

    def read(self) -> Sequence[str]:
        """Oldest first; a file that has grown beyond its bound is cut to its newest lines."""
        try:
            with open(open_private(self.path), encoding="utf-8", errors="replace") as file:
                text = file.read()
        except OSError:
            return []
        lines = [line for line in text.split("\n") if line]
        if len(lines) > self.most:
            lines = lines[-self.most :]
            self._cut_to(lines)
        return lines

    def add(self, line: str) -> None:
        """One line more; one that begins with a space is not kept, as in a shell."""
        line = " ".join(line.splitlines())
        if not line.strip() or line.startswith(" ") or len(line) > LONGEST:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write(self.path, f"{line}\n", os.O_APPEND)

    def _cut_to(self, lines: Sequence[str]) -> None:
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):
            self._write(fresh, "".join(f"{line}\n" for line in lines), os.O_TRUNC)
            os.replace(fresh, self.path)

    def _write(self, path: Path, text: str, how: int) -> None:
        with open(open_private(path, os.O_WRONLY | os.O_CREAT | how), "ab") as file:
            file.write(text.encode("utf-8", "replace"))
