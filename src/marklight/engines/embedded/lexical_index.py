"""Lexical index: an inverted index of tantivy, derived from the tables, and opened only if its files are safe and match them.

A commit adds its passages here before it commits the tables, and tombstones are purged here a while after. So the index
contains every passage of a snapshot; what it contains beyond that has row numbers that the snapshot does not have.

Deleted passages still count in the scores of the others, so the index is compacted when they have become many. A snapshot
from before the compaction cannot use the index.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections import deque
from collections.abc import Iterator
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
    import tantivy

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
"""The index is compacted when more passages were deleted than this share of the existing ones, and than so many:
deleted passages still count in idf and average length, and a small index would be compacted by every other commit."""
_STAMP_COMMITS = 256
"""Commits that the stamp lists: so many may follow while a reader holds an older snapshot."""


class UnusableIndex(Exception):
    """Raised for an index on disk that is missing, foreign, damaged or out of date."""


class OutdatedAnalyzer(UnusableIndex):
    """Raised for an intact index whose terms another version of the analyzer produced."""


class Stamp(NamedTuple):
    """Identity and history of the index, as `marklight.json` stores them; its keys are older than our terms."""

    library: str
    recipe: str
    """Fingerprint of the analyzer."""
    died: int
    """Number of passages that were deleted before the index was last compacted."""
    whole: bool
    """False from just before a compaction until it is complete."""
    commits: list[str]
    """Ids of commits, the newest last; one is added just before the commit itself."""

    def followed_by(self, commit: str) -> Stamp:
        """Return the stamp of the index after one more commit."""
        return self._replace(commits=[*self.commits, commit][-_STAMP_COMMITS:])

    def at(self, commit: str) -> Stamp:
        """Return the stamp of the index as of a commit; without any history where the commit is unknown."""
        count = self.commits.index(commit) + 1 if commit in self.commits else 0
        return self._replace(commits=self.commits[:count])


class OpenIndex(NamedTuple):
    """The index as it was when a snapshot opened it."""

    searcher: tantivy.Searcher
    deleted: int
    """Passages deleted before it was compacted: all that were deleted since may still be in it."""
    ahead: bool = False
    """True if the index contains a later commit than the snapshot."""


class LexicalIndex:
    """The folder of the index, with its open searcher and its writer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "words"  # the folder is older than the term
        self._guard = RLock()
        self._index: tantivy.Index | None = None
        self._seen, self._deleted, self._ahead = (-1, ""), 0, False
        self.writer: tantivy.IndexWriter | None = None
        """Open from the first commit of a writer until the writer lock is released."""
        self.notices: deque[str] = deque()
        """Notices about automatic repairs, until they are read."""

    @property
    def is_open(self) -> bool:
        """Return true if this process has the index open, so that another snapshot of it is cheap."""
        return self._index is not None

    def opstamp(self, library: str) -> int:
        """Return the number of the commit on disk; raise UnusableIndex for no index of this library."""
        self.stamp_of(library)
        try:
            return int(json.loads(read_private(self.folder / META, MAX_JSON_BYTES))["opstamp"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UnusableIndex(str(error)) from error

    def stamp(self) -> Stamp:
        """Return the identity and history of the index on disk."""
        try:
            return Stamp(**json.loads(read_private(self.folder / "marklight.json")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UnusableIndex(str(error)) from error

    def stamp_of(self, library: str) -> Stamp:
        """Return the stamp; raise UnusableIndex where the index is of another library or analyzer."""
        stamp = self.stamp()
        if stamp.library != library:
            raise UnusableIndex("it belongs to another library")
        if stamp.recipe != analyzer_fingerprint():
            raise OutdatedAnalyzer("another version of the analyzer produced its terms")
        return stamp

    def write_stamp(self, stamp: Stamp, folder: Path | None = None) -> None:
        """Write the stamp atomically."""
        data = json.dumps(stamp._asdict()).encode()
        write_private((folder or self.folder) / "marklight.json", data)

    def open(
        self, library: str, generation: int, expected: int, commit: str, deleted: int
    ) -> OpenIndex:
        """Open the index at least as new as a generation; raise UnusableIndex where it lacks passages of it."""
        with self._guard, tantivy_errors():
            import tantivy

            if self._index is None or (generation, commit) != self._seen:
                if self.opstamp(library) < expected:
                    raise UnusableIndex("it is older than the database")
                if commit not in self.stamp_of(library).commits:
                    raise UnusableIndex("it belongs to another history of the database")
                if self._index is None:
                    check_safe(self.folder)
                    self._index = tantivy.Index.open(str(self.folder))
                    self._index.config_reader("manual")
                self._index.reload()
                self._seen = generation, commit
                # The stamp is written before a compaction, so it is read after the index was opened.
                stamp = self.stamp()
                if stamp.died > deleted:
                    self.forget()
                    raise UnusableIndex("it was compacted after the snapshot was taken")
                self._deleted = stamp.died if stamp.whole else 0  # else it may be the old index
                self._ahead = stamp.commits[-1:] != [commit]
            return OpenIndex(self._index.searcher(), self._deleted, self._ahead)

    def needs_compaction(
        self, session: SqliteSession, share: float = MAX_DELETED_SHARE, least: int = MIN_DELETED
    ) -> bool:
        """Return true if too many passages were deleted since the index was compacted, or that was interrupted."""
        try:
            stamp = self.stamp()
        except UnusableIndex:  # then it will be rebuilt in any case
            return False
        deleted = count_deleted(session) - stamp.died
        return not stamp.whole or deleted > max(
            least, share * session.value("SELECT chunks FROM state")
        )

    def forget(self) -> None:
        """Drop the open index; the next reader opens the files again."""
        with self._guard:
            self._index, self._seen = None, (-1, "")

    def abandon_writer(self) -> None:
        """Drop what was not committed; the next writer compares the index with the tables."""
        self.writer = None


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
        safe = is_plain_folder(folder)
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
    builder.add_unsigned_field("checksum", fast=True)
    builder.add_unsigned_field("document", indexed=True)
    for field in FIELDS:
        builder.add_text_field(field, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def rows_at(searcher: tantivy.Searcher, addresses: list[tantivy.DocAddress]) -> list[int]:
    """Return the row numbers of the passages at these addresses of the index."""
    return [int(row or 0) for row in searcher.fast_field_values("row", addresses)]


def new_commit() -> str:
    """Return the random id of a commit."""
    return secrets.token_hex(8)


def count_deleted(session: SqliteSession) -> int:
    """Return how many passages were ever deleted: row numbers are never reused, so all but the existing ones."""
    highest = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0)"
    return int(session.value(f"SELECT {highest} - chunks FROM state"))
