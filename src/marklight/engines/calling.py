"""What a document and its sections are called, and which passages that means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from marklight.model import Entry
from marklight.text import normalize

DOCUMENT, SECTION = 1.0, 0.5
"""How much a name says: one that means a whole document, and one that means a part of it."""


class Calling(NamedTuple):
    """A name with the first and last ordinal of the passages that it means."""

    name: str
    first: int
    last: int
    score: float


class Headed(NamedTuple):
    """A passage by what stands above it."""

    ordinal: int
    headings: tuple[str, ...]
    merged: tuple[str, ...]


def entry_callings(entry: Entry) -> list[Calling]:
    """The same of a document at hand."""
    document = entry.document
    passages = [Headed(each.ordinal, each.headings, each.merged) for each in entry.chunks]
    return callings(document.id.path, document.title, document.aliases, passages)


def callings(
    path: str, title: str, aliases: Iterable[str], passages: Sequence[Headed]
) -> list[Calling]:
    """Every name of a document and of its sections, none twice."""
    if not passages:
        return []
    ordered = sorted(passages)
    ends = ordered[0].ordinal, ordered[-1].ordinal
    file = PurePosixPath(path)
    names = {normalize(each) for each in (title, *aliases, file.name, file.stem)}
    found = [Calling(name, *ends, DOCUMENT) for name in sorted(names) if name]
    for name, first, last in _sections(ordered):
        if name := normalize(name):
            found.append(Calling(name, first, last, SECTION))
    return found


def _sections(passages: Sequence[Headed]) -> Iterator[tuple[str, int, int]]:
    """Headings, each with the run of passages below it; one that has no text of its own included."""
    open_at: dict[tuple[str, ...], tuple[int, int]] = {}
    for each in passages:
        above = [each.headings[:depth] for depth in range(1, len(each.headings) + 1)]
        above.extend((*each.headings, name) for name in each.merged)
        for section in [section for section in open_at if section not in above]:
            yield section[-1], *open_at.pop(section)
        for section in above:
            first, _ = open_at.get(section, (each.ordinal, 0))
            open_at[section] = first, each.ordinal
    for section, ends in open_at.items():
        yield section[-1], *ends
