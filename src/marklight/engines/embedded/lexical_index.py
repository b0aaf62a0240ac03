"""Lexical index: an inverted index of tantivy, derived from the tables; a snapshot opens it only if it matches them.

Every build of the index has a folder of its own, which the tables name. A commit adds its passages here before it commits the
tables, and tombstones are purged here a while after. So the index contains every passage of a snapshot; what it contains beyond
that has row numbers that the snapshot does not have. An index that does not match the tables is rebuilt from them.

Deleted passages still count in the scores of the others, so the index is also rebuilt when they have become many.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines.embedded.session import SqliteSession
from marklight.engines.lexical import FIELDS, analyzer_fingerprint
from marklight.errors import StoreError
from marklight.private_files import is_plain_folder, read_private, write_private

if TYPE_CHECKING:
    from concurrent.futures import Future

    import tantivy

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
