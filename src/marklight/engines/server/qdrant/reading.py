"""Shared by the readers of one snapshot: the state of the index, document frequencies, rows and ids, stored terms.

PostgreSQL decides which passages a snapshot has. Qdrant may have more: those of later commits, and removed ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from marklight.engines.server.postgres.vector_table import STORED
from marklight.engines.server.qdrant import collections
from marklight.engines.server.qdrant.filters import (
    exact_dates,
    has_dates,
    is_native,
    living_filter,
    native_filter,
    row_filter,
)
from marklight.engines.server.qdrant.outbox import IndexState, read_index
from marklight.engines.server.qdrant.points import stored_terms
from marklight.engines.server.qdrant.terms import StoredTerms
from marklight.errors import StoreError
from marklight.query import Filters

if TYPE_CHECKING:
    from marklight.engines.server.qdrant.cluster import Cluster

MAX_TERMS = 4096
"""Passages whose terms are cached, some 15 MB: term coverage is computed of passages that a search returned."""
MAX_FREQUENCIES = 100_000
"""Document frequencies that are cached, of the terms of some thousand queries."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Values by key; the least recently used ones are dropped. Safe for threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(
        self, keys: Iterable[Key], read: Callable[[list[Key]], Mapping[Key, Value]]
    ) -> dict[Key, Value]:
        """Return the values of these keys; missing ones are read together, and skipped if they do not exist."""
        wanted = list(dict.fromkeys(keys))
        with self._lock:
            known = {key: self._values[key] for key in wanted if key in self._values}
            for key in known:
                self._values.move_to_end(key)
        missing = [key for key in wanted if key not in known]
        if missing:
            found = read(missing)
            self.add(found)
            known.update(found)
        return known

    def add(self, values: Mapping[Key, Value]) -> None:
        """Cache values."""
        with self._lock:
            self._values.update(values)
            while len(self._values) > self._size:
                self._values.popitem(last=False)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()


class Caches:
    """Caches of one engine: terms of passages, which never change, and document frequencies by generation."""

    def __init__(self) -> None:
        self.terms: Cache[tuple[str, int], StoredTerms] = Cache(MAX_TERMS)
        self.frequencies: Cache[tuple[int, int, int], int] = Cache(MAX_FREQUENCIES)

    def clear(self) -> None:
        """Drop everything."""
        self.terms.clear()
        self.frequencies.clear()


class SharedReader:
    """State that the lexical and the vector reader of one snapshot share."""

    def __init__(
        self,
        snapshot: Any,
        cluster: Cluster,
        caches: Caches,
        failure: Callable[[], StoreError | None],
    ) -> None:
        """`failure` returns why the index could not be brought up to date, if that was so."""
        self.snapshot = snapshot
        self._failure = failure
        self.session = snapshot.session
        self.cluster = cluster
        self._caches = caches
        self._lock = Lock()
        self._state: tuple[IndexState | None] | None = None
        self._models: dict[str, str] = {}
        self._rows: dict[str, int] = {}

    @property
    def state(self) -> IndexState | None:
        """Return the state of the index in this snapshot, read once; None if there is no passage to find.

        Raises StoreError if there are passages, but none was ever shipped: no answer would be a wrong answer.
        """
        if not self.snapshot.chunk_count:  # the tables of this index may not exist yet
            return None
        with self._lock:
            if self._state is None:
                state, self._models = read_index(self.session)
                self._state = (state,)
        if self._state[0] is None:
            raise self._failure() or StoreError(
                f"The passages of this library are not in Qdrant at {self.cluster} yet",
                "Run `marklight index` with a role that may write: it copies them from PostgreSQL",
            )
        return self._state[0]

    def collection_of(self, model: str) -> str | None:
        """Return the collection with the vectors of a model; None if it has none."""
        return self._models.get(model) if self.state else None

    def condition(self, state: IndexState, filters: Filters) -> Any:
        """Return the condition for Qdrant; None if no passage can match."""
        if not filters:
            return living_filter(state.generation)
        if is_native(filters):
            return native_filter(filters, state.generation)
        rows = self.snapshot.row_filter(filters)
        if rows is None:
            return living_filter(state.generation)
        return None if rows.matches_nothing else row_filter(rows, state.generation)

    def frequencies(self, dimensions: Sequence[int]) -> Mapping[int, int]:
        """Return the number of passages with each dimension, 0 where there is none."""
        state = self.state
        if state is None:
            return {}
        version, generation = state.version, state.generation

        def read(keys: list[tuple[int, int, int]]) -> Mapping[tuple[int, int, int], int]:
            counts = dict(
                self.session.all(
                    "SELECT t.dimension, t.passages FROM integers(?) i CROSS JOIN term_frequencies t"
                    " ON t.version = ? AND t.dimension = i.value",
                    [[own for _, _, own in keys], version],
                )
            )
            return {key: counts.get(key[2], 0) for key in keys}

        keys = [(version, generation, own) for own in dimensions]
        found = self._caches.frequencies.get(keys, read)
        return {own: count for (_, _, own), count in found.items()}

    def living(self, rows: Sequence[int], filters: Filters) -> dict[int, str]:
        """Return the ids of those rows that the snapshot has, with a date that matches."""
        cache = self.snapshot.cache.ids
        ids: dict[int, str] = {} if has_dates(filters) else cache.known(rows)
        missing = [row for row in rows if row not in ids]
        found: dict[int, str] = dict(self._living("c.id", "", missing, [], filters))
        cache.add(found)
        ids.update(found)
        self._rows.update((id, row) for row, id in ids.items())
        return ids

    def living_vectors(
        self, rows: Sequence[int], filters: Filters, model: int
    ) -> list[tuple[str, bytes]]:
        """Return the ids and stored vectors of those rows that the snapshot has, with a vector of this model."""
        join = " CROSS JOIN vectors v ON v.digest = c.digest AND v.model = ?"
        found = self._living(f"c.id, {STORED}", join, rows, [model], filters)
        self._rows.update((id, row) for row, id, _ in found)
        return [(id, stored) for _, id, stored in found]

    def _living(
        self, columns: str, join: str, rows: Sequence[int], values: list[Any], filters: Filters
    ) -> list[Any]:
        if not rows:
            return []
        dates, limits = exact_dates(filters)
        if dates:
            join += " CROSS JOIN documents d ON d.row = c.document"
        found: list[Any] = self.session.all(
            f"SELECT c.row, {columns} FROM integers(?) r CROSS JOIN chunks c ON c.row = r.value"
            f"{join} WHERE true{dates}",
            [list(rows), *values, *limits],
        )
        return found

    def rows_of(self, chunks: Sequence[str]) -> dict[str, int]:
        """Return the rows of passages; missing ids are skipped."""
        known = self._rows
        rows = {id: known[id] for id in chunks if id in known}
        if missing := [id for id in dict.fromkeys(chunks) if id not in rows]:
            found = self.session.all(
                "SELECT c.id, c.row FROM texts(?) t CROSS JOIN chunks c ON c.id = t.value",
                [missing],
            )
            self._rows.update(found)
            rows.update(found)
        return rows

    def keep_terms(self, terms: Mapping[int, StoredTerms]) -> Mapping[int, StoredTerms]:
        """Cache the terms of passages that a search returned."""
        if state := self.state:
            self._caches.terms.add({(state.collection, row): own for row, own in terms.items()})
        return terms

    def stored_terms(self, rows: Sequence[int]) -> Mapping[int, StoredTerms]:
        """Return the terms of passages, those that are not cached in one request."""
        state = self.state
        if state is None:
            return {}

        def read(keys: list[tuple[str, int]]) -> Mapping[tuple[str, int], StoredTerms]:
            missing = [row for _, row in keys]
            points = collections.get(
                self.cluster, state.collection, missing, vectors=True, payload=False
            )
            return {(state.collection, point.id.num): stored_terms(point) for point in points}

        found = self._caches.terms.get([(state.collection, row) for row in rows], read)
        return {row: own for (_, row), own in found.items()}
