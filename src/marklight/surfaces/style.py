"""How a place is drawn: bold and clickable on a terminal, the same text without signs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
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

    def bold(self, text: str) -> str:
        """Text that is seen first."""
        return f"\x1b[1m{text}\x1b[0m" if self.signs else text

    def dim(self, text: str) -> str:
        """Text that is seen last."""
        return f"\x1b[2m{text}\x1b[0m" if self.signs else text

    def link(self, text: str, document: DocumentId) -> str:
        """Text that opens the document's file when it is clicked."""
        folder = self.folders.get(document.collection)
        if not self.signs or folder is None:
            return text
        return hyperlink(text, folder / document.path)


PLAIN = Style()


def style_for(stream: TextIO, environment: Mapping[str, str], folders: Mapping[str, Path]) -> Style:
    """Signs only for a terminal whose user has not asked for none."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Style(signs=wanted and stream.isatty(), folders=folders)


def hyperlink(text: str, file: Path) -> str:
    """The text as an OSC 8 hyperlink; the host stays empty, as the file is on this machine."""
    return f"\x1b]8;;{file.absolute().as_uri()}\x1b\\{text}\x1b]8;;\x1b\\"
