"""Names of documents: exact titles with the passages that they refer to, and link resolution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from marklight.model import DocumentId, Entry, NameStrength
from marklight.text import title_key

LAST_CHARACTER = "\U0010ffff"
"""Sorts after every other: a prefix with it is the end of the range of texts with that prefix."""

DOCUMENT_SCORE, SECTION_SCORE = 1.0, 0.5
"""Scores of an exact match: the title of a document counts more than the heading of a section."""


class TitleEntry(NamedTuple):
    """A normalised title with the first and last ordinal of the passages below it."""

    title: str
    first: int
    last: int
    score: float


class HeadedPassage(NamedTuple):
    """Position and headings of a passage."""

    ordinal: int
    headings: tuple[str, ...]
    merged: tuple[str, ...]


def title_entries_of(entry: Entry) -> list[TitleEntry]:
    """Return the titles of a parsed document."""
    document = entry.document
    passages = [
        HeadedPassage(each.ordinal, each.headings, each.merged)
        for each in entry.chunks
        if not each.is_boilerplate
    ]
    return title_entries(document.id.path, document.title, document.aliases, passages)


def title_entries(
    path: str, title: str, aliases: Iterable[str], passages: Sequence[HeadedPassage]
) -> list[TitleEntry]:
    """Return the distinct titles, aliases and file names of a document, and its headings."""
    if not passages:
        return []
    ordered = sorted(passages)
    ends = ordered[0].ordinal, ordered[-1].ordinal
    file = PurePosixPath(path)
    names = {title_key(name) for name in (title, *aliases, file.name, file.stem)}
    entries = [TitleEntry(name, *ends, DOCUMENT_SCORE) for name in sorted(names) if name]
    for heading, first, last in _sections(ordered):
        if name := title_key(heading):
            entries.append(TitleEntry(name, first, last, SECTION_SCORE))
    return entries


def _sections(passages: Sequence[HeadedPassage]) -> Iterator[tuple[str, int, int]]:
    """Yield each heading with the run of passages below it, including headings without text of their own."""
    open_sections: dict[tuple[str, ...], tuple[int, int]] = {}
    for passage in passages:
        above = [passage.headings[:depth] for depth in range(1, len(passage.headings) + 1)]
        above.extend((*passage.headings, name) for name in passage.merged)
        for section in [section for section in open_sections if section not in above]:
            yield section[-1], *open_sections.pop(section)
        for section in above:
            first, _ = open_sections.get(section, (passage.ordinal, 0))
            open_sections[section] = first, passage.ordinal
    for section, ends in open_sections.items():
        yield section[-1], *ends


class LinkCandidate(NamedTuple):
    """A document that has a key as its name, and the strength of that name."""

    key: str
    strength: NameStrength
    document: DocumentId


def resolve_link(
    keys: Sequence[str],
    collection: str,
    candidates: Iterable[LinkCandidate],
    folder: str | None = None,
) -> DocumentId | None:
    """Return the target of a link: its own collection first, then its best key, then path before suffix before alias.

    Own collection first, so that adding a collection never changes the links of another. A document that the
    key reaches from the link's own folder comes before others with this name; among equals the
    shortest path wins, as in Obsidian.
    """
    rank = {key: at for at, key in reversed(list(enumerate(keys)))}
    best = min(
        (
            (
                candidate.document.collection != collection,
                rank[candidate.key],
                not _is_near(candidate, folder),
                candidate.strength,
                candidate.document.path.count("/"),
                len(candidate.document.path),
                candidate.document,
            )
            for candidate in candidates
            if candidate.key in rank
        ),
        default=None,
    )
    return best[-1] if best else None


def strongest(candidates: Iterable[LinkCandidate]) -> list[DocumentId]:
    """Return the documents with the strongest of some names, ordered by id."""
    named = list(candidates)
    best = min((each.strength for each in named), default=None)
    return sorted({each.document for each in named if each.strength == best})


def _is_near(candidate: LinkCandidate, folder: str | None) -> bool:
    """Return True if the key is the path of a document relative to a folder."""
    if folder is None or candidate.strength is NameStrength.ALIAS:
        return False
    components = candidate.key.count("/") + 1
    return candidate.document.path.split("/")[:-components] == (folder.split("/") if folder else [])


def folder_of(path: str) -> str:
    """Return the folder of a document; empty for the top of its collection."""
    return path.rpartition("/")[0]
