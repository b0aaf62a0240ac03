"""What is embedded for a passage: where it stands, then what it says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from marklight.model import trail
from marklight.text.markup import plain

if TYPE_CHECKING:
    from marklight.model import Chunk


def passage(title: str, headings: Iterable[str], text: str) -> str:
    """What is embedded for a passage; the blank line keeps its place in the document apart from it."""
    return f"{trail(title, headings)}\n\n{plain(text)}"


def passage_of(chunk: Chunk) -> str:
    """What is embedded for this chunk."""
    return passage(chunk.title, chunk.headings, chunk.text)
