"""The index of words: derived from the tables, at least as new as they are, mended when it is not.

A commit adds its passages here before it commits the tables, and passages that died are deleted
here a while after. So the index always holds all that a view can ask for, and what it holds
beyond that is told by rows that the view does not have.

Passages that died still weigh in the scores of the others, so the index is built anew when they
have become many; a view that is older than that makes do without it.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from marklight.engines.embedded.session import Session, listed
from marklight.engines.embedded.trouble import explain
from marklight.engines.fields import recipe
from marklight.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import tantivy

    from marklight.engines.embedded.insert import Placed

GRACE_SECONDS = 60.0
"""How long dead passages stay for views that are older than their death and look late."""

HEAP_BYTES = 64_000_000
"""One thread: a second one gains nothing while Python makes the words."""

MOST_DEAD, LEAST_DEAD = 0.25, 200
"""Dead passages, as a share of the living and at least so many, that bend the scores too much."""


class Unfit(Exception):
    """The index on disk is missing, foreign, damaged or behind."""


class Outdated(Unfit):
    """It is well, but its words are made in the way of an earlier version."""


class Stamp(NamedTuple):
    """Whose words these are, and how many passages had died before they were built whole."""

    library: str
    recipe: str
    died: int
    whole: bool
    """Untrue from just before they are built anew until they are."""


class Opened(NamedTuple):
    """The index as it was when a view took it."""

    searcher: tantivy.Searcher
    died: int
    """How many passages had died before it was built: all that died since may still stand in it."""


def died(session: Session) -> int:
    """How many passages ever died: rows are numbered once, so all but the living."""
    ever = "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'chunks'), 0)"
    return int(session.value(f"SELECT {ever} - chunks FROM state"))


@contextmanager
def sound() -> Iterator[None]:
    """Whatever tantivy says or does inside means that the index cannot be used as it is."""
    try:
        yield
    except (Unfit, StoreError):
        raise
    except BaseException as error:
        # A panic in Rust arrives outside of Exception.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise Unfit(str(error)) from error
        raise


class Words:
    """The folder of the index, one writer to it, one set of mapped files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "words"
        self._guard = RLock()
        self._index: tantivy.Index | None = None
        self._seen, self._died = -1, 0
        self._writer: tantivy.IndexWriter | None = None
        self.news: deque[str] = deque()
        """What was done unasked and took a while, until somebody is told."""

    @property
    def loaded(self) -> bool:
        """Whether this process has the index open, so that a view of it costs next to nothing."""
        return self._index is not None

    def opstamp(self, library: str) -> int:
        """Which commit the files on disk are; raises where they are no index of this library."""
        stamp = self.stamp()
        if stamp.library != library:
            raise Unfit("made for another library")
        if stamp.recipe != recipe():
            raise Outdated("made with other words")
        try:
            return int(json.loads((self.folder / "meta.json").read_bytes())["opstamp"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unfit(str(error)) from error

    def stamp(self) -> Stamp:
        """What was noted when it was last built whole."""
        try:
            return Stamp(**json.loads((self.folder / "marklight.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise Unfit(str(error)) from error

    def opened(self, library: str, generation: int, expected: int, died: int) -> Opened:
        """The index at least as new as this generation, with all that had not died before it."""
        with self._guard, sound():
            import tantivy

            if self._index is None or generation != self._seen:
                if self.opstamp(library) < expected:
                    raise Unfit("older than the tables")
                if self._index is None:
                    self._index = tantivy.Index.open(str(self.folder))
                    self._index.config_reader("manual")
                self._index.reload()
                self._seen = generation
                # Noted before it is built, so looked at after it was opened.
                stamp = self.stamp()
                if stamp.died > died:
                    self.forget()
                    raise Unfit("built when passages of this view had died")
                self._died = stamp.died if stamp.whole else 0  # else it may be the one before
            return Opened(self._index.searcher(), self._died)

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
            self._index, self._seen = None, -1

    def prepare(self, session: Session) -> None:
        """Bring the index to where the tables are, ready to be added to."""
        if self._writer is not None:
            return
        import tantivy

        from marklight.engines.embedded import mend

        for anew in (False, True):
            mend.words(self, session, anew=anew)
            try:
                with sound():
                    index = tantivy.Index.open(str(self.folder))
                    self._writer = index.writer(heap_size=HEAP_BYTES, num_threads=1)
                    return
            except Unfit as error:
                if anew:
                    raise explain(error, self.folder) from error

    def add(self, session: Session, placed: Sequence[Placed]) -> None:
        """Put new passages in, take long dead ones out, and note how far the index is."""
        from marklight.engines.embedded.passages import delete, placed_passages

        assert self._writer is not None
        settled = time.time() - GRACE_SECONDS
        with self._failing():
            for passage in placed_passages(placed):
                self._writer.add_document(passage)
            dead = session.all("SELECT chunk FROM dead WHERE since < ?", [settled])
            delete(self._writer, [row for (row,) in dead])
            opstamp = self._writer.commit()
        session.run("DELETE FROM dead WHERE since < ?", [settled])
        session.run("UPDATE state SET opstamp = ?", [opstamp])

    def finish(self) -> None:
        """Let merges end and give tantivy's own lock back."""
        writer, self._writer = self._writer, None
        if writer is not None:
            # Everything is committed: a merge that fails, on a full disk for one, loses nothing.
            with suppress(Unfit), sound():
                writer.wait_merging_threads()

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


def living(session: Session, rows: Sequence[int]) -> dict[int, str]:
    """Of these passages, the ones that the view has."""
    return dict(
        session.all(
            "SELECT c.row, c.id FROM json_each(?) r CROSS JOIN chunks c ON c.row = r.value",
            [listed(rows)],
        )
    )


def rows_of(session: Session, chunks: Sequence[str]) -> dict[int, str]:
    """The rows of these passages; those that the view does not have are left out."""
    return dict(
        session.all(
            "SELECT c.row, c.id FROM json_each(?) j CROSS JOIN chunks c ON c.id = j.value",
            [listed(chunks)],
        )
    )
