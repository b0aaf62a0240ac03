"""The index of words: derived from the tables, at least as new as they are, mended when it is not.

A commit adds its passages here before it commits the tables, and passages that died are deleted
here a while after. So the index always holds all that a view can ask for, and what it holds
beyond that is told by rows that the view does not have.

Passages that died still weigh in the scores of the others, so the index is built anew when they
have become many; a view that is older than that makes do without it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines.embedded.lexical_files import (
    MOST_BYTES,
    Outdated,
    Unfit,
    demand_safe,
    make_private,
    open_writer,
    sound,
)
from marklight.engines.embedded.session import Session
from marklight.engines.embedded.sqlite_errors import explain
from marklight.engines.lexical import analyzer_fingerprint
from marklight.private_files import read_private, write_private

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tantivy

    from marklight.engines.embedded.insert import Placed

GRACE_SECONDS = 60.0
"""How long dead passages stay for views that are older than their death and look late."""

MOST_DEAD, LEAST_DEAD = 0.25, 200
"""Dead passages, as a share of the living and at least so many, that bend the scores too much."""


class Stamp(NamedTuple):
    """Identity and history of the index: library, analyzer, and the random ids of its last commits."""

    library: str
    recipe: str
    died: int
    """Number of passages that were deleted before the index was last rebuilt."""
    whole: bool
    """Untrue from just before they are built anew until they are."""
    commits: list[str]
    """Ids of commits, the newest last; one is added just before the commit that it names."""

    def followed_by(self, commit: str) -> Stamp:
        """Return the stamp of the index after one more commit."""
        return self._replace(commits=[*self.commits, commit][-COMMITS:])

    def at(self, commit: str) -> Stamp:
        """Return the stamp of the index as of a commit; without any history where it does not know that."""
        known = self.commits.index(commit) + 1 if commit in self.commits else 0
        return self._replace(commits=self.commits[:known])


COMMITS = 256
"""Commits that the stamp names: so many may come while a reader holds an older snapshot."""


def new_commit() -> str:
    """Return the random id of a commit."""
    return secrets.token_hex(8)


class Opened(NamedTuple):
    """The index as it was when a view took it."""

    searcher: tantivy.Searcher
    died: int
    """How many passages had died before it was built: all that died since may still stand in it."""
    ahead: bool = False
    """True if the index contains a later commit than the snapshot."""


def died(session: Session) -> int:
    """How many passages ever died: rows are numbered once, so all but the living."""
    ever = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0)"
    return int(session.value(f"SELECT {ever} - chunks FROM state"))


class LexicalIndex:
    """The folder of the index, one writer to it, one set of mapped files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "words"
        self._guard = RLock()
        self._index: tantivy.Index | None = None
        self._seen, self._died, self._ahead = (-1, ""), 0, False
        self._writer: tantivy.IndexWriter | None = None
        self.news: deque[str] = deque()
        """What was done unasked and took a while, until somebody is told."""

    @property
    def loaded(self) -> bool:
        """Whether this process has the index open, so that a view of it costs next to nothing."""
        return self._index is not None

    def opstamp(self, library: str) -> int:
        """Which commit the files on disk are; raises where they are no index of this library."""
        self.stamp_of(library)
        try:
            return int(json.loads(read_private(self.folder / "meta.json", MOST_BYTES))["opstamp"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise Unfit(str(error)) from error

    def stamp(self) -> Stamp:
        """Return the identity and history of the index on disk."""
        try:
            return Stamp(**json.loads(read_private(self.folder / "marklight.json")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise Unfit(str(error)) from error

    def stamp_of(self, library: str) -> Stamp:
        """Return the stamp; raises where the index is of another library or analyzer."""
        stamp = self.stamp()
        if stamp.library != library:
            raise Unfit("made for another library")
        if stamp.recipe != analyzer_fingerprint():
            raise Outdated("made with other words")
        return stamp

    def put_stamp(self, stamp: Stamp, folder: Path | None = None) -> None:
        """Write the stamp, whole or not at all."""
        data = json.dumps(stamp._asdict()).encode()
        write_private((folder or self.folder) / "marklight.json", data)

    def opened(
        self, library: str, generation: int, expected: int, commit: str, died: int
    ) -> Opened:
        """The index at least as new as this generation, with all that had not died before it."""
        with self._guard, sound():
            import tantivy

            if self._index is None or (generation, commit) != self._seen:
                if self.opstamp(library) < expected:
                    raise Unfit("older than the tables")
                if commit not in self.stamp_of(library).commits:
                    raise Unfit("of another history than the tables")
                if self._index is None:
                    demand_safe(self.folder)
                    self._index = tantivy.Index.open(str(self.folder))
                    self._index.config_reader("manual")
                self._index.reload()
                self._seen = generation, commit
                # Noted before it is built, so looked at after it was opened.
                stamp = self.stamp()
                if stamp.died > died:
                    self.forget()
                    raise Unfit("built when passages of this view had died")
                self._died = stamp.died if stamp.whole else 0  # else it may be the one before
                self._ahead = stamp.commits[-1:] != [commit]
            return Opened(self._index.searcher(), self._died, self._ahead)

    def drifted(self, session: Session, most: float = MOST_DEAD, least: int = LEAST_DEAD) -> bool:
        """Whether too many passages died since it was built whole."""
        try:
            stamp = self.stamp()
        except Unfit:  # then it will be built anew in any case
            return False
        dead = died(session) - stamp.died
        return not stamp.whole or dead > max(
            least, most * session.value("SELECT chunks FROM state")
        )

    def forget(self) -> None:
        """Look at the files anew next time."""
        with self._guard:
            self._index, self._seen = None, (-1, "")

    def prepare(self, session: Session) -> None:
        """Bring the index to where the tables are, ready to be added to."""
        if self._writer is not None:
            return
        from marklight.engines.embedded import mend

        for anew in (False, True):
            mend.words(self, session, anew=anew)
            try:
                with sound():
                    self._writer = open_writer(self.folder)
                    return
            except Unfit as error:
                if anew:
                    raise explain(error, self.folder) from error

    def add(self, session: Session, placed: Sequence[Placed]) -> None:
        """Put new passages in, take long dead ones out, and note how far the index is."""
        from marklight.engines.embedded.passages import delete, placed_passages

        assert self._writer is not None
        settled = time.time() - GRACE_SECONDS
        commit = new_commit()
        with self._failing():
            self.put_stamp(self.stamp().followed_by(commit))
            for passage in placed_passages(placed):
                self._writer.add_document(passage)
            dead = session.all("SELECT chunk FROM dead WHERE since < ?", [settled])
            delete(self._writer, [row for (row,) in dead])
            opstamp = self._writer.commit()
            make_private(self.folder)
        session.run("DELETE FROM dead WHERE since < ?", [settled])
        session.run("UPDATE state SET opstamp = ?, lexical_commit = ?", [opstamp, commit])

    def finish(self) -> None:
        """Let merges end and give tantivy's own lock back."""
        writer, self._writer = self._writer, None
        if writer is not None:
            # Everything is committed: a merge that fails, on a full disk for one, loses nothing.
            with suppress(Unfit), sound():
                writer.wait_merging_threads()
                make_private(self.folder)

    def abandon(self) -> None:
        """Drop what was not committed; the next writer finds out what was."""
        self._writer = None

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            with sound():
                yield
        except Unfit as error:
            self.abandon()
            raise explain(error, self.folder) from error
