"""How a place is drawn: bold and clickable on a terminal, the same text without signs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from marklight.model import DocumentId


@dataclass(frozen=True, slots=True)
class Style:
    """What a terminal is told beside the text; by default nothing."""

    signs: bool = False
    """Whether whoever reads is a terminal that takes signs."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Collections and where they are, so that a path can be clicked."""
    address: str = ""
    """What a click opens, with `{path}` and `{line}`; empty opens the file with whatever opens such files."""
    terminal: bool = False
    """True if the output goes to a terminal."""

    def bold(self, text: str) -> str:
        """Text that is seen first."""
        return f"\x1b[1m{text}\x1b[0m" if self.signs else text

    def dim(self, text: str) -> str:
        """Text that is seen last."""
        return f"\x1b[2m{text}\x1b[0m" if self.signs else text

    def link(self, text: str, document: DocumentId, line: int = 1) -> str:
        """Text that opens the document's file when it is clicked, at the line where the editor can."""
        folder = self.folders.get(document.collection)
        if not self.signs or folder is None:
            return text
        return hyperlink(text, folder / document.path, line, self.address)

    def file(self, document: DocumentId) -> str:
        """The document's file as other programs open it from here: below this folder, else in full.

        A name with a leading dash gets `./` before it, or a program would take it for an option.
        """
        folder, file = self.folders.get(document.collection), document.path
        if folder is not None:
            file = str(folder / document.path)
            with suppress(ValueError, OSError):
                file = str((folder / document.path).relative_to(Path.cwd()))
        return f"./{file}" if file.startswith("-") else file


PLAIN = Style()


def style_for(
    stream: TextIO,
    environment: Mapping[str, str],
    folders: Mapping[str, Path],
    *,
    color: str = "auto",
    address: str = "",
) -> Style:
    """Signs for a terminal whose user has not asked for none; `color` may say always or never."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    signs = color == "always" or (color == "auto" and wanted and stream.isatty())
    terminal = color == "always" or stream.isatty()
    return Style(signs, folders, address, terminal)


def hyperlink(text: str, file: Path, line: int = 1, address: str = "") -> str:
    """The text as an OSC 8 hyperlink; the host stays empty, as the file is on this machine."""
    plain = file.absolute().as_uri()
    path = plain.removeprefix("file://")
    aim = address.replace("{path}", path).replace("{line}", str(line)) if address else plain
    return f"\x1b]8;;{aim}\x1b\\{text}\x1b]8;;\x1b\\"
