"""Keep the index true: text as the disk has it, vectors as far as time allows, nothing left over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import NamedTuple

from marklight.answer import Query
from marklight.errors import Busy, ModelServerError, StoreError
from marklight.ingest.embedding import passages_matching
from marklight.ingest.index_diff import IndexDiff
from marklight.ingest.pipeline import Ingest
from marklight.library.bookmark import Bookmark
from marklight.library.collections import shown_folder, unlisted_notice
from marklight.library.compose import Index
from marklight.library.concurrency import SingleFlight
from marklight.model import Batch, DocumentId
from marklight.ports import PathRange, Progress
from marklight.report import Report

MOMENT_SECONDS = 0.5
"""How long a search waits for whoever writes: commits of vectors are short, those of much text are not."""
MOST_NAMED = 3
"""Folders that a notice names."""
GOES_ON = "All text is indexed and found by its words; the next run goes on with the rest"
BUSY = "another process is indexing this library; answering from what is there"


class Freshness(NamedTuple):
    """How true the index is after a look."""

    notices: tuple[str, ...] = ()
    unread: int = 0
    """Files that changed and are not read yet."""
    report: Report = Report()


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What happens to the index between two questions."""

    ingest: Ingest
    limits: Index
    bookmark: Bookmark
    refreshes: SingleFlight[Freshness]
    embedding: Lock
    followed: bool = False
    """Whether the system tells somebody of all changes, so that no look has to find them."""

    def run(self, progress: Progress, *, rebuild: bool) -> Report:
        """All of it, however long it takes: text first, searchable at once, then vectors."""

        def read() -> Report:
            with self.ingest.engine.writing(self.limits.wait_seconds):
                report = self.ingest.index_text(self.ingest.compare(rebuild=rebuild), progress)
            self.bookmark.keep(None)
            return report

        report = self.refreshes.exclusive(read)
        self.ingest.update_communities()
        with self.embedding:
            try:
                self.ingest.embed_missing(progress, wait_seconds=self.limits.wait_seconds)
            except ModelServerError as error:
                hint = f"{error.hint}. {GOES_ON}" if error.hint else GOES_ON
                raise ModelServerError(error.message, hint) from error
            self.ingest.drop_unused_vectors()
        return report

    def refresh(self, progress: Progress, until: float, *, new: bool) -> Freshness:
        """Text, what is new whole, else for a while; what could not be done is said and is not fatal."""
        try:
            return self._look(progress, until, new=new)
        except Busy:
            return Freshness((BUSY,))
        except StoreError as error:
            if not self.ingest.counts().documents:
                raise
            return Freshness((f"the index could not be brought up to date: {error}",))

    def embed_for(self, query: Query, progress: Progress, until: float) -> str:
        """Vectors for a while, those that this question needs first; what could not be done is said."""
        if not self.ingest.has_pending() or not self.embedding.acquire(timeout=MOMENT_SECONDS):
            return ""  # another thread is at it
        try:
            with self.ingest.engine.writing(MOMENT_SECONDS):
                pass  # who could not write the vectors in the end need not make them
            left = max(0.0, until - time.monotonic())
            first = partial(passages_matching, self.ingest.engine, query)
            limited, wait = self.ingest.with_time_limit(left), self.limits.wait_seconds
            limited.embed_missing(progress, until, first, wait)
            self.ingest.drop_unused_vectors()
            return ""
        except ModelServerError as error:
            return f"what is new could not be embedded: {error}"
        except Busy:
            return BUSY
        except StoreError as error:
            return f"the index could not be brought up to date: {error}"
        finally:
            self.embedding.release()

    def embed_some(self, progress: Progress, seconds: float) -> bool:
        """Vectors for a while; whether there is more to do."""
        with self.embedding:
            before = self._embedded()
            if self.ingest.has_pending():
                until = time.monotonic() + seconds
                self.ingest.embed_missing(progress, until, wait_seconds=self.limits.wait_seconds)
            if self.ingest.has_pending():
                return self._embedded() != before  # else there is something that cannot be done
            self.ingest.update_communities()
            self.ingest.drop_unused_vectors()
        return False

    def _embedded(self) -> tuple[int, int]:
        counts = self.ingest.counts()
        return counts.embedded, counts.generation

    def read(
        self,
        look: Callable[[], IndexDiff],
        progress: Progress,
        wait: float,
        until: float | None = None,
    ) -> tuple[IndexDiff, Report]:
        """Look, and read what differs; who has nothing to write takes nobody's place."""
        began = time.perf_counter()
        found = look()
        if not found:
            return found, Report()
        with self.ingest.engine.writing(wait):
            if self.ingest.counts().generation != found.generation:
                found = look()  # another has written since
            report = self.ingest.index_text(found, progress, until)
        return found, replace(report, took_ms=(time.perf_counter() - began) * 1000)

    def reread(self, documents: Iterable[DocumentId], progress: Progress) -> bool:
        """Read files again that changed or whose index is damaged; return true if that could be done."""
        ids = sorted(documents)
        spans = [PathRange(*id, end=id.path + "\0") for id in ids]
        engine = self.ingest.engine
        try:
            with engine.writing(self._wait(False)):
                with engine.snapshot() as snapshot:
                    damaged = tuple(snapshot.status.damaged_documents(ids))
                if damaged:  # else the unchanged file would count as indexed
                    engine.commit(Batch(removed=damaged))
                self.ingest.index_text(self.ingest.compare(spans=spans), progress)
            return True
        except StoreError:
            return False

    def _look(self, progress: Progress, until: float, *, new: bool) -> Freshness:
        """Compare and read: what is new whole, else as much as there is time for."""
        ingest = self.ingest

        def look() -> IndexDiff:
            if new:
                return ingest.compare()
            ahead = self.bookmark.ahead(ingest.collections)
            walking = time.monotonic() + self.limits.look_ms / 1000
            return ingest.compare(spans=ahead, until=walking, followed_links=self.bookmark.claimed)

        found, report = self.read(look, progress, self._wait(new), None if new else until)
        if new:
            ingest.update_communities()
        unread = [PathRange(*id) for id in report.unread[:1]]
        self.bookmark.keep(unread[0] if unread else found.stopped)
        return Freshness(tuple(self._partly(found, report)), len(report.unread), report)

    def _partly(self, look: IndexDiff, report: Report) -> Iterator[str]:
        for folder in look.denied[:MOST_NAMED]:
            yield unlisted_notice(shown_folder(folder, self.ingest.collections))
        if (more := len(look.denied) - MOST_NAMED) > 0:
            yield f"{more:,} more folders cannot be listed; `marklight status` names them"
        if look.stopped and not self.followed:
            about = max(self.ingest.counts().documents, len(look.files))
            yield (
                f"looked at {len(look.files):,} of about {about:,} files in {self.limits.look_ms:g} ms;"
                " the next searches look at the others"
            )
        if report.unread:
            yield (
                f"{len(report.unread):,} changed files are not read yet;"
                " the next searches or `marklight index` do it"
            )

    def _wait(self, new: bool) -> float:
        return self.limits.wait_seconds if new else MOMENT_SECONDS
