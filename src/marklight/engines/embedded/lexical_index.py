"""Lexical index: keyword search and term coverage in an inverted index of tantivy, which a snapshot opens only if it matches the tables.

Every build of the index has a folder of its own, which the tables name. A commit adds its passages here before it commits the
tables, and tombstones are purged here a while after. So the index contains every passage of a snapshot; what it contains beyond
that has row numbers that the snapshot does not have, and is dropped from results. An index that does not match the tables is
rebuilt from them, or replaced by one in memory.

Deleted passages still count in the scores of the others, so the index is also rebuilt when they have become many. tantivy is
imported by the functions that need it: a commit without passages must not load it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from marklight.engines.embedded.session import SqliteSession
from marklight.errors import StoreError
from marklight.lexical import (
    FIELDS,
    PHRASE_FIELDS,
    SCORE_DIGITS,
    WHOLE,
    RepeatableSearch,
    analyzer_fingerprint,
    coverage,
    distinct_terms,
    term_weight,
)
from marklight.ports import ScoredChunk, TermCoverage
from marklight.private_files import is_plain_folder, read_private, write_private
from marklight.query import Filters

if TYPE_CHECKING:
    from concurrent.futures import Future

    import tantivy

    from marklight.engines.embedded.engine import EmbeddedSnapshot
    from marklight.engines.relational.filters import RowFilter

Value = TypeVar("Value")

FOLDER = "lexical"
META = "meta.json"
MANAGED = ".managed.json"
"""File in which tantivy lists the files that it may delete."""
DATA_FILE = re.compile(r"[0-9a-f]{32}(\.\d+)?\.[a-z]+")
"""Names of the data files that tantivy creates and may delete."""
MAX_JSON_BYTES = 64_000_000
"""Limit for a JSON file of the index: a crafted one must not fill the memory."""
GRACE_SECONDS = 60.0
"""Seconds that tombstones stay in the index for snapshots that are older than the deletion."""
MAX_DELETED_SHARE, MIN_DELETED = 0.25, 200
"""The index is rebuilt when more passages were deleted than this share of the existing ones, and than so many:
deleted passages still count in idf and average length, and a small index would be rebuilt by every other commit."""


class UnusableIndex(Exception):
    """Raised for an index on disk that is missing, foreign, damaged or out of date."""


class OutdatedAnalyzer(UnusableIndex):
    """Raised for an intact index whose terms another version of the analyzer produced."""


class TableState(NamedTuple):
    """The build and the commit of the index that belong to a state of the tables."""

    folder: str
    """Name of the folder of the build; empty before the first."""
    commit: str
    """Random id of the commit."""
    opstamp: int
    """Number that tantivy gave to the commit."""


def table_state(session: SqliteSession) -> TableState:
    """Return the build and the commit of the index that belong to the tables."""
    return TableState(*session.all("SELECT lexical, lexical_commit, opstamp FROM state")[0])


class Stamp(NamedTuple):
    """The state of a build, as `marklight.json` in its folder stores it."""

    analyzer: str
    """Fingerprint of the analyzer."""
    deleted: int
    """Number of passages that were deleted before the build: those deleted since may be in the index."""
    commits: list[str]
    """Ids of the last two commits, the newest last; one is added just before the commit itself."""


class OpenIndex(NamedTuple):
    """The index as it was when a snapshot opened it."""

    searcher: tantivy.Searcher
    deleted: int
    """Passages deleted before it was built: all that were deleted since may still be in it."""


class LexicalIndex:
    """The folder of the index, with its open searcher and its writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self._guard = RLock()
        self._index: tantivy.Index | None = None
        self._opened = TableState("", "", -1)
        self._deleted = 0
        self.writer: tantivy.IndexWriter | None = None
        """Open from the first commit of a writer until the writer lock is released."""
        self.commit: Future[int] | None = None
        """The last commit, which may not have ended."""
        self.notices: deque[str] = deque()
        """Notices about automatic repairs, until they are read."""

    @property
    def is_open(self) -> bool:
        """Return true if this process has the index open, so that another snapshot of it is cheap."""
        return self._index is not None

    def stamp(self, state: TableState) -> Stamp:
        """Return the stamp of a build; raise UnusableIndex if there is none."""
        try:
            data = read_private(self.folder / (state.folder or "-") / "marklight.json")
            return Stamp(**json.loads(data))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UnusableIndex(str(error)) from error

    def _usable_stamp(self, state: TableState) -> Stamp:
        """Return the stamp of a build; raise UnusableIndex if another analyzer produced its terms."""
        stamp = self.stamp(state)
        if stamp.analyzer != analyzer_fingerprint():
            raise OutdatedAnalyzer("another version of the analyzer produced its terms")
        return stamp

    def write_stamp(self, name: str, stamp: Stamp) -> None:
        """Write the stamp of a build atomically."""
        data = json.dumps(stamp._asdict()).encode()
        write_private(self.folder / name / "marklight.json", data)

    def opstamp(self, state: TableState) -> int:
        """Return the number of the last commit on disk."""
        try:
            meta = read_private(self.folder / state.folder / META, MAX_JSON_BYTES)
            return int(json.loads(meta)["opstamp"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnusableIndex(str(error)) from error

    def require_match(self, state: TableState) -> Stamp:
        """Return the stamp of the build; raise UnusableIndex unless its last commit is that of the tables."""
        stamp = self._usable_stamp(state)
        if stamp.commits[-1:] != [state.commit] or self.opstamp(state) != state.opstamp:
            raise UnusableIndex("its last commit is not that of the database")
        return stamp

    def open(self, state: TableState, newest: Callable[[], TableState]) -> OpenIndex:
        """Open the index for a snapshot; raise UnusableIndex where it may lack passages of it.

        `newest` returns the state of the newest tables: the index may be one commit ahead of them, while a writer
        commits or after a crash. It contains the passages of older snapshots too.
        """
        with self._guard, tantivy_errors():
            import tantivy

            if self._index is None or state != self._opened:
                stamp = self._usable_stamp(state)
                if stamp.commits[-1:] != [state.commit]:
                    last = newest()
                    if last.folder == state.folder and last.commit not in stamp.commits:
                        raise UnusableIndex("it belongs to another history of the database")
                if self.opstamp(state) < state.opstamp:
                    raise UnusableIndex("it is older than the database")
                if self._index is None or self._opened.folder != state.folder:
                    folder = self.folder / state.folder
                    check_safe(folder)
                    self._index = tantivy.Index.open(str(folder))
                    self._index.config_reader("manual")
                self._index.reload()
                self._opened, self._deleted = state, stamp.deleted
            return OpenIndex(self._index.searcher(), self._deleted)

    def has_many_deleted(
        self, session: SqliteSession, share: float = MAX_DELETED_SHARE, least: int = MIN_DELETED
    ) -> bool:
        """Return true if more passages were deleted since the index was built than a share of the existing ones."""
        try:
            stamp = self.stamp(table_state(session))
        except UnusableIndex:  # then it will be rebuilt in any case
            return False
        limit = max(least, share * session.value("SELECT chunks FROM state"))
        return bool(count_deleted(session) - stamp.deleted > limit)

    def forget(self) -> None:
        """Drop the open index; the next reader opens the files again."""
        with self._guard:
            self._index = None

    def abandon_writer(self) -> None:
        """Drop what was not committed; the next writer compares the index with the tables."""
        if self.commit is not None:
            self.commit.exception()  # waits for its end
        self.writer = self.commit = None


@contextmanager
def tantivy_errors() -> Iterator[None]:
    """Raise UnusableIndex for whatever tantivy raises inside."""
    try:
        yield
    except (UnusableIndex, StoreError):
        raise
    except BaseException as error:
        # A panic in Rust is no subclass of Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UnusableIndex(str(error)) from error
        raise


def check_safe(folder: Path) -> None:
    """Raise UnusableIndex where the index is no plain folder of plain files, or lists foreign files for deletion.

    tantivy deletes files by a list that is stored beside them, and follows symbolic links.
    """
    try:
        safe = is_plain_folder(folder) and is_plain_folder(folder.parent)
        with os.scandir(folder) as entries:
            safe = safe and all(entry.is_file(follow_symlinks=False) for entry in entries)
        if not safe:
            raise UnusableIndex("it contains links or folders")
        names = json.loads(read_private(folder / MANAGED, MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise UnusableIndex(str(error)) from error
    if not isinstance(names, list) or not all(
        isinstance(name, str) and (name == META or DATA_FILE.fullmatch(name)) for name in names
    ):
        raise UnusableIndex("its list of files contains foreign names")


@cache
def schema() -> tantivy.Schema:
    """Return the schema: a document for each passage, with fields of terms that are separated by blanks."""
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_unsigned_field("document", indexed=True)
    for field in FIELDS:
        builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def rows_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Return the row numbers of the passages at these addresses of the index."""
    return [int(row or 0) for row in searcher.fast_field_values("row", addresses)]


def count_deleted(session: SqliteSession) -> int:
    """Return how many passages were ever deleted: row numbers are never reused, so all but the existing ones."""
    highest = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0)"
    return int(session.value(f"SELECT {highest} - chunks FROM state"))


class EmbeddedLexical(RepeatableSearch):
    """Keyword search in the index of one snapshot, opened on first use by one of several threads."""

    def __init__(self, snapshot: EmbeddedSnapshot) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._parts = snapshot.parts
        self._index: OpenIndex | None = None
        self._state = snapshot.lexical_state
        self._opening = Lock()
        self._deleted = snapshot.deleted_count

    def find(
        self, terms: Sequence[str], boosts: Mapping[str, float], filters: Filters, limit: int
    ) -> list[ScoredChunk]:
        rows = self._snapshot.row_filter(filters)
        if (rows and rows.matches_nothing) or self._is_empty:
            return []

        def found(index: OpenIndex) -> list[ScoredChunk]:
            query = bm25_query(index.searcher, terms, boosts, rows)
            return best(index.searcher, query, limit, self._snapshot.ids_of)

        return self._run(found)

    def term_coverage(
        self, terms: Sequence[str], chunks: Sequence[str]
    ) -> Mapping[str, TermCoverage]:
        ids = self._snapshot.rows_of(chunks) if terms and chunks else {}
        rows = {row: id for id, row in ids.items()}
        return self._run(lambda index: _coverage(index.searcher, terms, rows)) if rows else {}

    def existing_terms(self, terms: Sequence[str]) -> set[str]:
        if self._is_empty:
            return set()

        def existing(index: OpenIndex) -> set[str]:
            # Passages beyond the snapshot: those deleted since the index was built, and newer ones.
            newer = max(0, index.searcher.num_docs - self._snapshot.chunk_count)
            beyond = self._deleted - index.deleted + newer
            frequencies = {
                term: index.searcher.doc_freq(WHOLE, term) for term in dict.fromkeys(terms)
            }
            return {
                term
                for term, frequency in frequencies.items()
                # A frequency above that is proof in a thousandth of the time of a search.
                if frequency > beyond or (frequency and self._contains(index, term))
            }

        return self._run(existing)

    def _contains(self, index: OpenIndex, term: str) -> bool:
        query = _term(WHOLE, term)
        return bool(best(index.searcher, query, 1, self._snapshot.ids_of))

    def rows_with_terms(self, terms: Sequence[str], rows: RowFilter | None) -> list[int]:
        """Return all passages with all of these terms in one field, in no order; some may be deleted."""
        if self._is_empty:
            return []
        fields = (_all_of(_term(field, term) for term in terms) for field in PHRASE_FIELDS)
        query = _restricted(_any_of(fields), rows)
        return self._run(lambda index: _all_rows(index.searcher, query))

    def rows_by_term(
        self, terms: Sequence[str], field: str, rows: RowFilter | None
    ) -> dict[str, list[int]]:
        """Return all passages with each of these terms in a field, in no order; some may be deleted."""
        if self._is_empty:
            return {term: [] for term in terms}
        queries = {term: _restricted(_term(field, term), rows) for term in terms}
        return self._run(
            lambda index: {
                term: _all_rows(index.searcher, query) for term, query in queries.items()
            }
        )

    @property
    def _is_empty(self) -> bool:
        return not self._snapshot.chunk_count

    def _run(self, search: Callable[[OpenIndex], Value]) -> Value:
        """Search the index; if that fails, rebuild it and try once more."""
        for last_try in (False, True):
            index = self._index or self._open_once()
            try:
                with tantivy_errors():
                    return search(index)
            except UnusableIndex as error:
                if last_try:
                    raise StoreError(
                        f"{self._parts.lexical.folder} cannot be searched ({error})",
                        "Run `marklight doctor`",
                    ) from error
                self._replace(index, error)
        raise AssertionError("unreachable")

    def open_early(self) -> None:
        """Open the index if that costs nothing, so that no later commit changes what this snapshot finds."""
        if self._parts.lexical.is_open and not self._is_empty:
            try:
                self._index = self._on_disk()
            except UnusableIndex:
                self._parts.lexical.forget()

    def _open_once(self) -> OpenIndex:
        with self._opening:
            self._index = self._index or self._open_or_rebuild()
            return self._index

    def _replace(self, unfit: OpenIndex, reason: UnusableIndex) -> None:
        with self._opening:
            if self._index is unfit:  # else another thread has done it
                self._index = None
                self._rebuild(reason)

    def _open_or_rebuild(self) -> OpenIndex:
        try:
            return self._on_disk()
        except UnusableIndex:
            self._rebuild()
        try:
            return self._on_disk()
        except UnusableIndex:
            self._parts.lexical.forget()
        from marklight.engines.embedded.lexical_writer import build_in_memory

        return OpenIndex(build_in_memory(self._snapshot.session).searcher(), self._deleted)

    def _on_disk(self) -> OpenIndex:
        """Open the index of the folder; raise UnusableIndex where it may lack passages of this snapshot."""
        index = self._parts.lexical.open(self._state, lambda: self._newest()[1])
        # Checked after opening: a process can be stopped for a minute at any moment.
        is_late = time.monotonic() - self._snapshot.opened_at > GRACE_SECONDS / 2
        if is_late and self._newest()[0] != self._snapshot.generation:
            raise UnusableIndex("passages that the snapshot still has may be deleted from it")
        return index

    def _newest(self) -> tuple[int, TableState]:
        """Return the newest generation and the build and commit of the index that belong to it."""
        with self._parts.store.snapshot() as session:
            return int(session.value("SELECT generation FROM state")), table_state(session)

    def _rebuild(self, reason: UnusableIndex | None = None) -> None:
        """Rebuild the index if it does not match the tables; a build of the same generation serves this snapshot too."""
        from marklight.engines.embedded.lexical_writer import rebuild_if_unlocked

        rebuild_if_unlocked(self._parts, reason)
        generation, state = self._newest()
        if generation == self._snapshot.generation:
            self._state = state


def _term(field: str, value: str | int) -> tantivy.Query:
    import tantivy

    return tantivy.Query.term_query(schema(), field, value)


def _any_of(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    import tantivy

    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _all_of(queries: Iterable[tantivy.Query]) -> tantivy.Query:
    import tantivy

    return tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in queries])


def bm25_query(
    searcher: tantivy.Searcher,
    terms: Sequence[str],
    boosts: Mapping[str, float],
    rows: RowFilter | None = None,
) -> tantivy.Query:
    """Return a query for any of the terms in any of the boosted fields that have it: half of the clauses would match nothing."""
    from tantivy import Query

    fields = schema()
    any_term = _any_of(
        Query.boost_query(Query.term_query(fields, field, term), times * boost)
        # A repeated term is one clause with a higher boost: a pasted text would cost more otherwise.
        for term, times in Counter(terms).items()
        for field, boost in boosts.items()
        if boost > 0 and searcher.doc_freq(field, term)
    )
    return _restricted(any_term, rows)


def _restricted(query: tantivy.Query, rows: RowFilter | None) -> tantivy.Query:
    """Restrict a query to matching rows, which do not change its scores."""
    if rows is None or (rows.exclude and not rows.rows):
        return query
    from tantivy import Occur, Query

    those = Query.term_set_query(schema(), rows.column, rows.rows)
    if rows.exclude:
        return Query.boolean_query([(Occur.Must, query), (Occur.MustNot, those)])
    return _all_of((query, Query.const_score_query(those, 0.0)))


def _all_rows(searcher: tantivy.Searcher, query: tantivy.Query) -> list[int]:
    """Return the rows of all passages that match a query, in no order."""
    hits = searcher.search(query, limit=max(1, searcher.num_docs), count=False).hits
    return rows_at(searcher, [address for _, address in hits])


def best(
    searcher: tantivy.Searcher,
    query: tantivy.Query,
    limit: int,
    living: Callable[[Sequence[int]], Mapping[int, str]],
) -> list[ScoredChunk]:
    """Return the best passages that the snapshot has, ties ordered by id.

    Others are dropped, and more are requested until the limit is filled with everything that ties for it.
    """
    everything = max(1, searcher.num_docs)
    requested = limit + limit // 4 + 8
    while True:
        requested = min(requested, everything)  # tantivy allocates memory for as many
        hits = searcher.search(query, limit=requested, count=False).hits
        rows = rows_at(searcher, [address for _, address in hits])
        scores = [round(score, SCORE_DIGITS) for score, _ in hits]
        # Each row is a page of the database to read: first as many as suffice if none was deleted.
        enough = sum(score >= scores[limit - 1] for score in scores) if len(hits) > limit else 0
        for count in (enough, len(hits)):
            ids = living(rows[:count]) if count else {}
            results = [
                ScoredChunk(ids[row], score)
                for row, score in zip(rows[:count], scores, strict=False)
                if row in ids
            ]
            if len(results) >= limit and scores[-1] < results[limit - 1].score:
                return _ranked(results, limit)
        if len(hits) < requested or requested == everything:
            return _ranked(results, limit)
        requested *= 4


def _ranked(results: list[ScoredChunk], limit: int) -> list[ScoredChunk]:
    return sorted(results, key=lambda result: (-result.score, result.chunk_id))[:limit]


TERMS_PER_QUERY = 12
"""Terms in one coverage query: each has two bits of a score, a 32-bit float, whose integers are exact up to 24 bits. The
lower half of the bits is of terms anywhere in the passage, the upper half of terms in the title."""


def _coverage(
    searcher: tantivy.Searcher, terms: Sequence[str], chunks: Mapping[int, str]
) -> dict[str, TermCoverage]:
    """Return the term coverage of passages, given by their rows."""
    wanted = distinct_terms(terms)
    weights = {
        term: term_weight(searcher.num_docs, searcher.doc_freq(WHOLE, term)) for term in wanted
    }
    rows, bits_of = list(chunks), dict[int, int]()
    for begin in range(0, len(wanted), TERMS_PER_QUERY):
        for row, bits in _term_bits(searcher, wanted[begin : begin + TERMS_PER_QUERY], rows):
            bits_of[row] = bits_of.get(row, 0) | bits << 2 * begin
    places = {
        term: 2 * TERMS_PER_QUERY * (place // TERMS_PER_QUERY) + place % TERMS_PER_QUERY
        for place, term in enumerate(wanted)
    }
    # Most passages have one of a few sets of terms.
    shares = {
        bits: coverage(
            weights,
            [term for term, place in places.items() if bits >> place & 1],
            [term for term, place in places.items() if bits >> place + TERMS_PER_QUERY & 1],
        )
        for bits in set(bits_of.values())
    }
    return {chunks[row]: shares[bits] for row, bits in bits_of.items()}


def _term_bits(
    searcher: tantivy.Searcher, terms: Sequence[str], rows: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Return for each row with any of the terms a bit set of those terms, computed as a sum of scores."""
    from tantivy import Query

    fields = schema()
    # One clause per row: a term set query walks over all terms of the field, which takes twice as long.
    these = _any_of(Query.term_query(fields, "row", row) for row in rows)
    any_term = _any_of(
        Query.const_score_query(Query.term_query(fields, field, term), float(1 << bit))
        for place, term in enumerate(terms)
        for field, bit in ((WHOLE, place), ("title", place + TERMS_PER_QUERY))
    )
    query = _all_of((any_term, Query.const_score_query(these, 0.0)))
    hits = searcher.search(query, limit=len(rows), count=False).hits
    matching = rows_at(searcher, [address for _, address in hits])
    return zip(matching, (int(score) for score, _ in hits), strict=True)
