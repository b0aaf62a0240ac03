"""In-memory readers of documents, metadata and index status, by plain loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from marklight.answer import Level
from marklight.engines.metadata_filters import (
    AUTHOR,
    FILES,
    LANGUAGE,
    TAG,
    TimeBounds,
    day_range,
    globs_by_collection,
    is_dated,
    matches_any_glob,
    matching_languages,
    metadata_pairs,
    normalize_language,
    normalize_tag,
    required_pairs,
    time_bounds,
    timestamp,
    written_dates,
)
from marklight.engines.relational.documents import DOCUMENT_SCORE, title_entries_of
from marklight.levels import entry_levels
from marklight.lexical import document_terms, passage_terms
from marklight.model import (
    Chunk,
    Counts,
    Document,
    DocumentId,
    Failure,
    Heading,
    Section,
    normalize_key,
)
from marklight.ports import DocumentMatch, IndexedFile, ScoredChunk
from marklight.query import Filters, PathPattern
from marklight.text.analyzer import fold, matches_phrases, normalize, title_key, words_of
from marklight.text.languages import MAX_COUNTED
from tests.oracle.state import State


@dataclass(frozen=True, slots=True)
class MemoryDocuments:
    """Documents, their files, passages and sections."""

    state: State

    def files(self) -> Mapping[DocumentId, IndexedFile]:
        return {
            document.id: IndexedFile(document.file, document.digest, document.recipe)
            for document in self.state.documents()
        }

    def files_of(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, IndexedFile]:
        files = self.files()
        return {id: files[id] for id in documents if id in files}

    def modified_times(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        return {id: each.file.mtime_ns for id, each in self.files_of(documents).items()}

    def dates(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, float]:
        entries = self.state.entries
        known = {id: entries[id].document for id in documents if id in entries}
        return {
            id: _epoch_seconds(timestamp(each.date, each.file.mtime_ns))
            for id, each in known.items()
        }

    def get(self, id: DocumentId) -> Document | None:
        entry = self.state.entries.get(id)
        return entry.document if entry else None

    def text_and_outline(self, id: DocumentId) -> tuple[str, tuple[Heading, ...]] | None:
        document = self.get(id)
        return (document.text, document.outline) if document else None

    def find_by_path(self, path: str) -> list[DocumentId]:
        return sorted(id for id in self.state.entries if id.path == path)

    def find_by_title(self, title: str, filters: Filters, limit: int) -> list[ScoredChunk]:
        scores: dict[str, float] = {}
        for entry in self.state.entries.values():
            matching = [chunk for chunk in entry.chunks if matches(self.state, chunk, filters)]
            for named in title_entries_of(entry):
                own = [chunk for chunk in matching if named.first <= chunk.ordinal <= named.last]
                if own and named.title == title_key(title):
                    first = min(own, key=lambda chunk: chunk.ordinal).id
                    scores[first] = max(named.score, scores.get(first, 0.0))
        return best(self.state, scores, filters, limit)

    def titles_with_prefix(self, prefix: str, limit: int) -> list[str]:
        start = normalize(prefix)
        titles = {
            named.title
            for entry in self.state.entries.values()
            for named in title_entries_of(entry)
            if named.score == DOCUMENT_SCORE and named.title.startswith(start) and start
        } - {start}
        return sorted(titles, key=lambda title: (len(title), title))[: max(0, limit)]

    def find_by_words_of_name(self, text: str, limit: int) -> list[DocumentId]:
        name, ranks = normalize(text), dict[DocumentId, int]()
        for id, entry in self.state.entries.items():
            titles = [
                each.title for each in title_entries_of(entry) if each.score == DOCUMENT_SCORE
            ]
            for title in (*titles, id.path.lower()):
                if name and all(word in title for word in name.split()):
                    rank = 0 if title.startswith(name) else 1 if f" {name}" in title else 2
                    ranks[id] = min(rank, ranks.get(id, rank))
        return sorted(ranks, key=lambda found: (ranks[found], len(found.path), found))[
            : max(0, limit)
        ]

    def words_of_paths(self) -> frozenset[str]:
        return words_of(id.path for id in self.state.entries)

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        known = {chunk.id: chunk for chunk in self.state.chunks()}
        return [known[id] for id in ids if id in known]

    def candidates(self, ids: Sequence[str]) -> Mapping[str, Chunk]:
        return {chunk.id: chunk for chunk in self.chunks(ids)}

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        entry = self.state.entries.get(document)
        return sorted(entry.chunks, key=lambda chunk: chunk.ordinal) if entry else []

    def chunks_around(self, document: DocumentId, ordinal: int, count: int) -> list[Chunk]:
        return [
            chunk for chunk in self.chunks_of(document) if abs(chunk.ordinal - ordinal) <= count
        ]

    def owners(self, chunks: Sequence[str]) -> Mapping[str, DocumentId]:
        return {chunk.id: chunk.document for chunk in self.chunks(chunks)}

    def context_levels(self, ids: Sequence[str]) -> Mapping[str, tuple[Level, ...]]:
        owners = [self.state.entries[id] for id in set(self.owners(ids).values())]
        known = {
            chunk.id: levels
            for entry in owners
            for chunk, levels in zip(entry.chunks, entry_levels(entry), strict=True)
        }
        return {id: known[id] for id in ids if id in known}

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        for entry in self.state.entries.values():
            for section in entry.sections:
                if section.id == id:
                    return entry.document.id, section
        return None


@dataclass(frozen=True, slots=True)
class MemoryMetadata:
    """Frontmatter keys, values and tags, and the documents that match filters."""

    state: State

    def matching_documents(self, filters: Filters, limit: int) -> list[DocumentId]:
        matching = {chunk.document for chunk in self._matching(filters)}
        return sorted(matching)[: max(0, limit)]

    def count_matching(self, filters: Filters) -> int:
        return sum(1 for _ in self._matching(filters))

    def documents_with_terms(
        self, groups: Sequence[Collection[str]], field: str, filters: Filters
    ) -> Mapping[DocumentId, DocumentMatch]:
        matching: dict[DocumentId, DocumentMatch] = {}
        for id, entry in self.state.entries.items():
            shared = document_terms(entry.document)
            held: dict[str, set[int]] = {}
            for chunk in sorted(entry.chunks, key=lambda chunk: chunk.ordinal):
                own = set(passage_terms(shared, chunk)[field])
                numbers = {at for at, group in enumerate(groups) if own.intersection(group)}
                if (numbers or not groups) and matches(self.state, chunk, filters):
                    held[chunk.id] = numbers
            if held and len(set().union(*held.values())) == len(groups):
                best = max(held, key=lambda chunk: len(held[chunk]))
                matching[id] = DocumentMatch(len(held), best)
        return matching

    def _matching(self, filters: Filters) -> Iterator[Chunk]:
        return (chunk for chunk in self.state.chunks() if matches(self.state, chunk, filters))

    def has_key(self, key: str) -> bool:
        return any(True for _ in self._values(normalize_key(key)))

    def values(self, key: str, limit: int) -> Mapping[str, int]:
        counts = Counter(self._values(normalize_key(key)))
        by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return dict(by_frequency[: max(0, limit)])

    def languages(self) -> Mapping[str, int]:
        counts = Counter(self._values(LANGUAGE))
        return {each: min(counts[each], MAX_COUNTED) for each in sorted(counts)}

    def tags(self) -> Mapping[str, int]:
        return Counter(self._values(TAG))

    def _values(self, key: str) -> Iterator[str]:
        return (
            value
            for document in self.state.documents()
            for own, value in metadata_pairs(document)
            if own == key
        )


@dataclass(frozen=True, slots=True)
class MemoryStatus:
    """Counts, manifest and failures; nothing in memory is ever damaged."""

    state: State

    def counts(self, model: str) -> Counts:
        vectors = self.state.vectors.get(model, {})
        return Counts(
            documents=len(self.state.entries),
            chunks=sum(1 for _ in self.state.chunks()),
            embedded=sum(chunk.digest in vectors for chunk in self.state.chunks()),
            failed=len(self.state.failed),
            generation=self.state.generation,
            model=model,
            boilerplate=sum(chunk.is_boilerplate for chunk in self.state.chunks()),
        )

    def models(self) -> Mapping[str, int]:
        used = {
            model: sum(chunk.digest in known for chunk in self.state.chunks())
            for model, known in self.state.vectors.items()
        }
        return {model: count for model, count in used.items() if count}

    def documents_version(self) -> str:
        return str(self.state.generation)

    def manifest(self) -> Mapping[str, str]:
        return dict(self.state.notes)

    def failures(self) -> Sequence[Failure]:
        return [self.state.failed[id] for id in sorted(self.state.failed)]

    def remarks(self) -> list[tuple[DocumentId, str]]:
        return [
            (id, remark)
            for id in sorted(self.state.entries)
            for remark in self.state.entries[id].document.remarks
        ]

    def damaged_chunks(self, ids: Sequence[str]) -> set[DocumentId]:
        return set()

    def damaged_documents(self, documents: Iterable[DocumentId]) -> set[DocumentId]:
        return set()


def best(
    state: State, scores: Mapping[str, float], filters: Filters, limit: int
) -> list[ScoredChunk]:
    """Return the passages that match the filters, best first, ties ordered by id."""
    matching = {chunk.id for chunk in state.chunks() if matches(state, chunk, filters)}
    scored = [ScoredChunk(id, score) for id, score in scores.items() if id in matching]
    return sorted(scored, key=lambda hit: (-hit.score, hit.chunk_id))[: max(0, limit)]


def matches(state: State, chunk: Chunk, filters: Filters) -> bool:
    """Return True if a passage matches the filters."""
    document = state.entries[chunk.document].document
    known = metadata_pairs(document)
    languages = {normalize_language(language) for language in chunk.languages}
    when = timestamp(document.date, document.file.mtime_ns)
    files = [glob.lower() for glob in filters.files]
    authors = [fold(name) for name in filters.authors]
    return (
        (not filters.collections or chunk.collection in filters.collections)
        and (not filters.within or _in_folders(chunk.collection, chunk.path, filters.within))
        and (not filters.paths or _matches_any_path(chunk.document, filters.paths))
        and not _matches_any_path(chunk.document, filters.exclude)
        and (not filters.tags or any((TAG, normalize_tag(tag)) in known for tag in filters.tags))
        and all(fact in known for fact in required_pairs(filters))
        and (
            not files
            or any(key == FILES and matches_any_glob(value, files) for key, value in known)
        )
        and (not authors or any(key == AUTHOR and _has(value, authors) for key, value in known))
        and _in_bounds(document.date, when, time_bounds(filters))
        and (not filters.dated or any(_is_in_days(document, when, days) for days in filters.dated))
        and (not filters.languages or not languages.isdisjoint(matching_languages(filters)))
        and (not filters.documents or chunk.document in filters.documents)
        and matches_phrases(
            filters.phrases,
            filters.without,
            (chunk.text, chunk.title, *chunk.headings, *chunk.merged),
        )
        and (not filters.also or matches(state, chunk, filters.also))
    )


def _has(value: str, parts: Sequence[str]) -> bool:
    return any(part in value for part in parts)


def _epoch_seconds(when: str) -> float:
    """Return a timestamp in seconds since the epoch."""
    return datetime.fromisoformat(when).timestamp()


def _in_bounds(date: str | None, when: str, bounds: TimeBounds | None) -> bool:
    """Return True if a document with this own date and this timestamp is in such a range."""
    if bounds is None:
        return True
    if bounds.written is None or not is_dated(date):
        return _within(when, bounds.instants)
    text = str(date)
    return _within(text, bounds.written) or (_has_zone(text) and _within(when, bounds.instants))


def _is_in_days(document: Document, when: str, days: tuple[str, str]) -> bool:
    """Return True if a date of a document is in a range of days; one without a date of its own has its file time."""
    bounds = day_range(*days)
    if bounds.written and any(_within(date, bounds.written) for date in written_dates(document)):
        return True
    return not is_dated(document.date) and _within(when, bounds.instants)


def _within(value: str, bounds: tuple[str | None, str | None]) -> bool:
    begin, end = bounds
    return (begin is None or value >= begin) and (end is None or value < end)


def _has_zone(date: str) -> bool:
    return date[-1:] == "Z" or (len(date) > 16 and date[-6:-5] in ("+", "-"))


def _in_folders(collection: str, path: str, parts: Iterable[tuple[str, str]]) -> bool:
    """Return True if a document is in one of these folders of these collections."""
    return any(
        collection == owner and (not folder or path.startswith(f"{folder}/"))
        for owner, folder in parts
    )


def _matches_any_path(document: DocumentId, patterns: Iterable[PathPattern]) -> bool:
    """Return True if one of these patterns matches the path of a document."""
    return any(
        owner in (None, document.collection) and matches_any_glob(document.path, globs)
        for owner, globs in globs_by_collection(patterns).items()
    )
