"""A commit's document to passages: its message, then its diff along files and hunks, small files together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from marklight.model import Chunk, Document, Entry, Heading, Kind
from marklight.text import digest, embedding_text

VERSION = "commits 1"
MOST_CHARS = 1200
"""Signs of a passage: code has more tokens than prose, and few models read more than 512 of them."""
FEW_CHARS = 400
"""Files with less than this share a passage with their neighbours."""
LONGEST_TITLE = 200
"""Signs of the subject that stand before every passage of a commit."""
SEARCHED_NAMES = 30
"""Files that a message can be found by."""


class _Part(NamedTuple):
    """Lines of one file, or of the message."""

    head: Heading
    first: int
    lines: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(len(line) + 1 for line in self.lines)


def cut(document: Document, most_chars: int = MOST_CHARS) -> Entry:
    """The commit with its passages, made from its text and outline alone, so that it can be cut anew."""
    lines = document.text.split("\n")
    message, *files = document.outline
    names = document.metadata["files"][:SEARCHED_NAMES]
    drafts = [
        _chunk(document, part, (), tuple(names) if part.first == 1 else (), Kind.PROSE)
        for part in _pieces(message, lines, most_chars)
    ]
    parts = [part for head in files for part in _pieces(head, lines, most_chars)]
    groups = _together(parts, min(most_chars, 2 * FEW_CHARS))
    drafts += [_of_files(document, group) for group in groups]
    return Entry(document, tuple(_numbered(document, drafts)))


def _pieces(head: Heading, lines: Sequence[str], most_chars: int) -> Iterator[_Part]:
    """Lines until it is full; the next begins at a hunk or a paragraph, if there is one in its last half."""
    first, last = head.lines
    at = first
    while at <= last:
        size, end, good = 0, at, 0
        while end <= last and (size + len(lines[end - 1]) < most_chars or end == at):
            size += len(lines[end - 1]) + 1
            end += 1
            begins = end <= last and (lines[end - 1].startswith("@@") or not lines[end - 2].strip())
            if begins and size > most_chars // 2:
                good = end
        end = good if good and end <= last else end
        taken = tuple(lines[at - 1 : end - 1])
        if any(line.strip() for line in taken):
            yield _Part(head, at, taken)
        at = end


def _together(parts: Sequence[_Part], most_chars: int) -> list[list[_Part]]:
    groups: list[list[_Part]] = []
    for part in parts:
        small = groups and part.size < FEW_CHARS and groups[-1][-1].size < FEW_CHARS
        if small and sum(each.size for each in groups[-1]) + part.size < most_chars:
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _of_files(document: Document, group: Sequence[_Part]) -> Chunk:
    if len(group) == 1:
        return _chunk(document, group[0], (group[0].head.text,), (), Kind.CODE)
    lines = [line for part in group for line in (part.head.text, *part.lines)]
    names = tuple(dict.fromkeys(part.head.text for part in group))
    head = group[0].head._replace(lines=(group[0].first, group[-1].head.lines[1]))
    return _chunk(document, _Part(head, group[0].first, tuple(lines)), (), names, Kind.CODE)


def _chunk(
    document: Document, part: _Part, headings: tuple[str, ...], merged: tuple[str, ...], kind: Kind
) -> Chunk:
    text = "\n".join(part.lines).strip("\n")
    title = document.title[:LONGEST_TITLE]
    code = "\n".join(line[1:] if line[:1] in "+- " else line for line in part.lines)
    return Chunk(
        id="",
        document=document.id,
        ordinal=0,
        title=title,
        headings=headings,
        anchor=part.head.anchor,
        lines=(part.first, max(part.first, part.first + len(part.lines) - 1)),
        kind=kind,
        text=text,
        parent="",
        digest=digest(embedding_text(title, headings, text)),
        merged=merged,
        code=code if kind is Kind.CODE else "",
    )


def _numbered(document: Document, drafts: Sequence[Chunk]) -> Iterator[Chunk]:
    for ordinal, draft in enumerate(drafts):
        id = digest(*document.id, draft.anchor, str(draft.lines[0]), str(ordinal), size=8)
        yield replace(draft, id=id, ordinal=ordinal)
