"""What views of one commit read last, kept for the next of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from marklight.engines.embedded import edges, nearby, read, stored
from marklight.engines.embedded.lexical_index import living, rows_of
from marklight.engines.embedded.session import Session
from marklight.model import DocumentId

if TYPE_CHECKING:
    from marklight.engines.embedded.vector_files import VectorFileInfo

PASSAGES, DOCUMENTS, PLACES = 4096, 8192, 16384
"""At most so many of each, some 15 MB together. Of the passages that a search reads, half were read for
one of the hundred searches before it (benchmarks/searching.py, 19,415 passages)."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Values by their keys, all forgotten at once when they become too many.

    Safe without a lock: what stands here is added to or left for a new one, never taken from.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, Value] = {}

    def known(self, keys: Iterable[Key]) -> dict[Key, Value]:
        """Those that need not be read."""
        known = self._known
        return {key: known[key] for key in keys if key in known}

    def of(
        self, keys: Collection[Key], read: Callable[[list[Key]], Mapping[Key, Value]]
    ) -> dict[Key, Value]:
        """Those that there are; only what is not known is read."""
        found = self.known(keys)
        if len(found) == len(keys):
            return found
        fresh = read([key for key in keys if key not in found])
        self.note(fresh)
        return {**found, **fresh}

    def note(self, fresh: Mapping[Key, Value]) -> None:
        """What was read otherwise."""
        known = self._known
        if len(known) + len(fresh) > self._most:
            known = self._known = {}
        if len(fresh) <= self._most:
            known.update(fresh)


class Standing(NamedTuple):
    """Where vectors of one model stand."""

    ids: Recent[int, tuple[str, ...]]
    """Of the passages that a place belongs to."""
    places: Recent[str, int]
    """Of passages."""


class Kept(NamedTuple):
    """Of one library in one generation."""

    library: str
    generation: int
    passages: Recent[str, stored.Passage]
    documents: Recent[DocumentId, read.Facts]
    rows: Recent[int, str]
    """Passages by their rows."""
    linked: dict[int, Recent[DocumentId, int]]
    """How many documents each is linked with, by how far that was counted."""
    models: dict[tuple[int, int], Standing]
    """By the row and the epoch of each."""

    def of(self, session: Session, ids: Collection[str]) -> Mapping[str, stored.Passage]:
        """Those of these passages that there are."""

        def fresh(some: list[str]) -> Mapping[str, stored.Passage]:
            passages, facts = stored.passages(session, some)
            self.documents.note(facts)
            return passages

        return self.passages.of(ids, fresh)

    def owners(self, session: Session, ids: Collection[str]) -> Mapping[str, DocumentId]:
        """Whose they are; passages are not read for that."""
        found = {id: each.chunk.document for id, each in self.passages.known(ids).items()}
        lacking = [id for id in ids if id not in found]
        return {**found, **stored.owners(session, lacking)} if lacking else found

    def living(self, session: Session, rows: Collection[int]) -> Mapping[int, str]:
        """Of these passages, the ones that the view has."""
        return self.rows.of(rows, lambda some: living(session, some))

    def rows_of(self, session: Session, ids: Collection[str]) -> Mapping[int, str]:
        """Passages by their rows; those that the view does not have are left out."""
        found = {each.row: id for id, each in self.passages.known(ids).items()}
        lacking = set(ids).difference(found.values())
        return {**found, **rows_of(session, list(lacking))} if lacking else found

    def degrees(
        self, session: Session, documents: Collection[DocumentId], most: int
    ) -> Mapping[DocumentId, int]:
        """How many documents each is linked with, counted up to so many each way."""

        def count(some: list[DocumentId]) -> Mapping[DocumentId, int]:
            ask = edges.degrees if edges.right(session) else nearby.degrees
            return ask(session, some, most)

        return self.linked.setdefault(most, Recent(DOCUMENTS)).of(documents, count)

    def standing(self, info: VectorFileInfo) -> Standing:
        """Of the vectors of this file."""
        new = Standing(Recent(PLACES), Recent(PLACES))
        return self.models.setdefault((info.model_row, info.epoch), new)

    def facts(
        self, session: Session, documents: Collection[DocumentId]
    ) -> Mapping[DocumentId, read.Facts]:
        """What stages ask of these documents."""
        return self.documents.of(documents, lambda some: read.facts(session, some))


def kept(cache: dict[str, Kept], library: str, generation: int) -> Kept:
    """That of this commit; of several commits, what was read of the newest is kept."""
    last = cache.get(library)
    if last and last.generation == generation:
        return last
    now = Kept(library, generation, Recent(PASSAGES), Recent(DOCUMENTS), Recent(PLACES), {}, {})
    if last is None or last.generation < generation:
        cache[library] = now
    return now
