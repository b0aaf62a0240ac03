"""Brute force in memory: short, obviously right, what every other engine is tested against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock
from typing import TYPE_CHECKING

from marklight.answer import Filters
from marklight.engines.facts import (
    TAG,
    any_glob,
    asked,
    facts,
    in_time,
    moment,
    storable,
    tag_key,
    time_bounds,
    within,
)
from marklight.engines.fields import CODE, chunk_words, document_words
from marklight.engines.naming import Claim, choose
from marklight.engines.unit import unit
from marklight.errors import Busy, StoreError
from marklight.model import (
    Batch,
    Chunk,
    Counts,
    Document,
    DocumentId,
    Entry,
    Failure,
    ResolvedLink,
    Section,
)
from marklight.ports import Indexed, Pending, Scored

if TYPE_CHECKING:
    from marklight.model import Vector

K1, B = 1.2, 0.75
"""BM25 as tantivy has it."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a commit leaves behind; never changed, so a snapshot is a reference."""

    generation: int = 0
    entries: Mapping[DocumentId, Entry] = field(default_factory=dict)
    failed: Mapping[DocumentId, Failure] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    vectors: Mapping[str, Mapping[str, Vector]] = field(default_factory=dict)

    def after(self, batch: Batch) -> State:
        """What this batch makes of it."""
        entries, failed = dict(self.entries), dict(self.failed)
        for id in (*batch.removed, *(entry.document.id for entry in batch.entries)):
            entries.pop(id, None)
            failed.pop(id, None)
        entries.update({entry.document.id: entry for entry in batch.entries})
        files = [(entry.document.id, entry.document.file) for entry in batch.entries]
        for id, file in (*files, *batch.touched):
            if id in entries:
                document = replace(entries[id].document, file=storable(file))
                entries[id] = replace(entries[id], document=document)
        failed.update({failure.document: failure for failure in batch.failures})
        vectors = dict(self.vectors)
        if batch.vectors and batch.vectors.digests:
            model, known = batch.vectors.model, vectors.get(batch.vectors.model, {})
            if any(len(row) != batch.vectors.matrix.shape[1] for row in known.values()):
                raise StoreError(f"Vectors of {model} changed their length")
            new = dict(zip(batch.vectors.digests, unit(batch.vectors.matrix), strict=True))
            vectors[model] = {**new, **known}
        notes = {**self.notes, **batch.manifest}
        return State(self.generation + 1, entries, failed, notes, vectors)

    def chunks(self) -> Iterator[Chunk]:
        """All passages, oldest document first."""
        for entry in self.entries.values():
            yield from entry.chunks


@dataclass(frozen=True, slots=True)
class MemoryReader:
    """One state, read by plain loops."""

    state: State

    @property
    def generation(self) -> int:
        return self.state.generation

    def counts(self, model: str) -> Counts:
        return Counts(
            documents=len(self.state.entries),
            chunks=sum(1 for _ in self.state.chunks()),
            embedded=self.models().get(model, 0),
            failed=len(self.state.failed),
            generation=self.state.generation,
            model=model,
        )

    def manifest(self) -> Mapping[str, str]:
        return dict(self.state.notes)

    def models(self) -> Mapping[str, int]:
        used = {
            model: sum(chunk.digest in known for chunk in self.state.chunks())
            for model, known in self.state.vectors.items()
        }
        return {model: count for model, count in used.items() if count}

    def files(self) -> Mapping[DocumentId, Indexed]:
        documents = (entry.document for entry in self.state.entries.values())
        return {each.id: Indexed(each.file, each.digest, each.recipe) for each in documents}

    def modified(self, documents: Iterable[DocumentId]) -> Mapping[DocumentId, int]:
        files = self.files()
        return {id: files[id].file.mtime_ns for id in documents if id in files}

    def find(self, path: str) -> list[DocumentId]:
        return sorted(id for id in self.state.entries if id.path == path)

    def failures(self) -> Sequence[Failure]:
        return [self.state.failed[id] for id in sorted(self.state.failed)]

    def remarks(self) -> list[tuple[DocumentId, str]]:
        return [
            (id, said)
            for id in sorted(self.state.entries)
            for said in self.state.entries[id].document.remarks
        ]

    def document(self, id: DocumentId) -> Document | None:
        entry = self.state.entries.get(id)
        return entry.document if entry else None

    def chunks(self, ids: Sequence[str]) -> list[Chunk]:
        known = {chunk.id: chunk for chunk in self.state.chunks()}
        return [known[id] for id in ids if id in known]

    def chunks_of(self, document: DocumentId) -> list[Chunk]:
        entry = self.state.entries.get(document)
        return sorted(entry.chunks, key=lambda chunk: chunk.ordinal) if entry else []

    def section(self, id: str) -> tuple[DocumentId, Section] | None:
        for entry in self.state.entries.values():
            for section in entry.sections:
                if section.id == id:
                    return entry.document.id, section
        return None

    def links_from(self, document: DocumentId) -> list[ResolvedLink]:
        return [link for link in self._links() if link.source == document]

    def links_to(self, document: DocumentId) -> list[ResolvedLink]:
        return [link for link in self._links() if link.target == document]

    def unresolved(self) -> list[ResolvedLink]:
        return [link for link in self._links() if link.target is None]

    def resolve(self, keys: Sequence[str], collection: str) -> DocumentId | None:
        return choose(keys, collection, self._claims())

    def _links(self) -> Iterator[ResolvedLink]:
        for id in sorted(self.state.entries):
            for link in self.state.entries[id].document.links:
                yield ResolvedLink(id, link, self.resolve(link.keys, id.collection))

    def _claims(self) -> Iterator[Claim]:
        for id, entry in self.state.entries.items():
            for name in entry.document.names:
                yield Claim(name.key, name.strength, id)

    def keyword(
        self, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[Scored]:
        return self._bm25(words, boosts, filters, limit)

    def code(self, tokens: Sequence[str], filters: Filters, limit: int) -> list[Scored]:
        return self._bm25(tokens, {CODE: 1.0}, filters, limit)

    def _bm25(
        self, words: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[Scored]:
        fields: dict[str, Mapping[str, list[str]]] = {}
        for entry in self.state.entries.values():
            shared = document_words(entry.document)
            fields.update({each.id: {**shared, **chunk_words(each)} for each in entry.chunks})
        scores = dict.fromkeys(fields, 0.0)
        for name, boost in boosts.items():
            average = sum(len(each[name]) for each in fields.values()) / max(1, len(fields))
            times = {id: Counter(each[name]) for id, each in fields.items()}
            for word in words:
                holders = [id for id in fields if times[id][word]]
                rarity = math.log(1 + (len(fields) - len(holders) + 0.5) / (len(holders) + 0.5))
                for id in holders:
                    often, length = times[id][word], len(fields[id][name])
                    damping = often + K1 * (1 - B + B * length / average)
                    scores[id] += boost * rarity * (K1 + 1) * often / damping
        return self._best({id: score for id, score in scores.items() if score > 0}, filters, limit)

    def semantic(self, vector: Vector, model: str, filters: Filters, limit: int) -> list[Scored]:
        known, question = self.state.vectors.get(model, {}), unit(vector)
        if any(len(row) != len(question) for row in known.values()):
            raise StoreError(f"The question has {len(question)} numbers, vectors of {model} others")
        scores = {
            chunk.id: float(known[chunk.digest] @ question)
            for chunk in self.state.chunks()
            if chunk.digest in known
        }
        return self._best(scores, filters, limit)

    def _best(self, scores: Mapping[str, float], filters: Filters, limit: int) -> list[Scored]:
        allowed = {chunk.id for chunk in self.state.chunks() if self._passes(chunk, filters)}
        found = [Scored(id, score) for id, score in scores.items() if id in allowed]
        return sorted(found, key=lambda each: (-each.score, each.chunk))[: max(0, limit)]

    def _passes(self, chunk: Chunk, filters: Filters) -> bool:
        document = self.state.entries[chunk.document].document
        known = facts(document)
        spoken = {language.lower() for language in chunk.languages}
        when = moment(document.date, document.file.mtime_ns)
        return (
            (not filters.collections or chunk.collection in filters.collections)
            and (not filters.within or within(chunk.collection, chunk.path, filters.within))
            and (not filters.paths or any_glob(chunk.path, filters.paths))
            and not any_glob(chunk.path, filters.exclude)
            and (not filters.tags or any((TAG, tag_key(tag)) in known for tag in filters.tags))
            and all(fact in known for fact in asked(filters))
            and in_time(when, time_bounds(filters))
            and (not filters.languages or any(each.lower() in spoken for each in filters.languages))
        )

    def unembedded(self, model: str, limit: int, first: Sequence[str] = ()) -> list[Pending]:
        known = self.state.vectors.get(model, {})
        waiting: dict[str, Pending] = {}
        for chunk in (*self.chunks(first), *self.state.chunks()):
            if chunk.digest not in known:
                waiting.setdefault(chunk.digest, Pending(chunk.digest, chunk))
        return list(waiting.values())[: max(0, limit)]


@dataclass(slots=True)
class MemoryEngine:
    """An index that ends with its process."""

    state: State = field(default_factory=State)
    place: RLock = field(default_factory=RLock)
    holders: int = 0

    @contextmanager
    def snapshot(self) -> Iterator[MemoryReader]:
        yield MemoryReader(self.state)

    @contextmanager
    def writing(self, wait_seconds: float) -> Iterator[None]:
        if not self.place.acquire(timeout=max(0.0, wait_seconds)):
            raise Busy("Another thread is writing to this library", "Try again when it is done")
        self.holders += 1
        try:
            yield
        finally:
            self.holders -= 1
            self.place.release()

    def commit(self, batch: Batch) -> int:
        if not self.holders:
            raise RuntimeError("Only the holder of the writer's place may write: use writing()")
        if batch:
            self.state = self.state.after(batch)
        return self.state.generation

    def clean(self, keep: Iterable[str]) -> int:
        kept, used = set(keep), {chunk.digest for chunk in self.state.chunks()}
        vectors = {
            model: {digest: row for digest, row in known.items() if digest in used}
            for model, known in self.state.vectors.items()
            if model in kept
        }
        dropped = _total(self.state.vectors) - _total(vectors)
        if dropped:
            generation = self.state.generation + 1
            self.state = replace(self.state, generation=generation, vectors=vectors)
        return dropped

    def sizes(self) -> Mapping[str, int]:
        return {}

    def waste(self) -> int:
        used = {chunk.digest for chunk in self.state.chunks()}
        return sum(len(known.keys() - used) for known in self.state.vectors.values())

    def check(self) -> list[str]:
        return []

    def describe(self) -> str:
        return "memory:"

    def close(self) -> None:
        """Nothing to give back."""


def _total(vectors: Mapping[str, Mapping[str, Vector]]) -> int:
    return sum(len(known) for known in vectors.values())
