"""Parse and chunk a text in one call."""

from __future__ import annotations

from collections.abc import Iterable

from marklight.ingest.chunk import chunk
from marklight.ingest.document import parse_document
from marklight.ingest.parse import ParsedText
from marklight.ingest.read import Source
from marklight.ingest.recipe import Chunker
from marklight.model import Chunk, Document, DocumentId, Entry, FileState

LIMIT = 20_000_000
"""Size limit of a file, in bytes."""


def parsed(text: str, path: str = "notes/page.md") -> tuple[Document, ParsedText]:
    return parse_document(DocumentId("docs", path), Source(text, FileState(len(text), 0)))


def document(text: str, path: str = "notes/page.md") -> Document:
    return parsed(text, path)[0]


def entry(text: str, path: str = "notes/page.md", chunker: Chunker | None = None) -> Entry:
    return chunk(*parsed(text, path), chunker or Chunker())


def chunks(text: str, path: str = "notes/page.md") -> list[Chunk]:
    return list(entry(text, path).chunks)


def uncovered(made: ParsedText, chunks: Iterable[Chunk]) -> list[tuple[int, str]]:
    """Return the lines with text that are in no passage; headings are in the passages' heading paths."""
    covered = {line for chunk in chunks for line in range(chunk.lines[0], chunk.lines[1] + 1)}
    covered |= {line + 1 for title in made.titles for line in range(title.line, title.end)}
    words = "\n".join([*(chunk.text for chunk in chunks), *_titles(made)])
    return [
        (number, line)
        for number, line in enumerate(made.text.split("\n"), 1)
        if number > made.body
        and any(character.isalnum() for character in line)
        and (number not in covered or not _has(words, line))
    ]


def _titles(made: ParsedText) -> Iterable[str]:
    lines = made.text.split("\n")
    return (line for title in made.titles for line in lines[title.line : title.end])


def _has(words: str, line: str) -> bool:
    # Only a word longer than a passage may be split.
    return all(word in words for word in line.split() if len(word) < 50)
