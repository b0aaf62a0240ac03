"""Watch the files of a library: a background thread that indexes changes while a process serves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from marklight.errors import MarklightError, Message, ModelError, Stopped, StoreError
from marklight.ingest.watch import Watch, open_watch
from marklight.library.history import continue_history
from marklight.library.progress import IndexingProgress, ProgressMeter
from marklight.library.refresh import (
    embed_for_seconds,
    embeds_here,
    index_changes,
    measure_unrelated,
)
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.library import Library

IN_BACKGROUND = ("Embedding", "Reading commits")
"""Beginnings of phases during which all documents can be found."""
EMBEDDING_SECONDS = 2.0
"""Seconds of embedding before the next check for changed files."""
SCAN_SHARE = 20
"""Without file-system events, scans take at most one part in so many of the time."""
FIRST_SECONDS = 1.0
"""Time limit of a search that waits for the first indexing of a library."""
MODEL_RETRY_SECONDS = 30.0
"""Time until a model that could not be loaded is tried again."""
SCANNING = "Scanning files"
PROBLEM_SECONDS = 0.5
"""Seconds until `watch` reports a problem."""


class Watcher:
    """Watches the files of one library in a thread and keeps its index up to date."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.progress: IndexingProgress | None = None
        """Progress of the current run; None if the index is up to date."""
        self.problem = ""
        """Why the last run or a part of it failed; empty if it did not."""
        self.remark = ""
        """Why there are no file-system events, and what is done instead."""
        self.watching = False
        """True if the system delivers file-system events; else the disk is scanned now and then."""
        self.listeners: list[Callable[[Report], None]] = []
        """Called after every run or refresh that changed something, in the thread that did it."""
        self._meter = ProgressMeter()
        self._model_problem = ""
        self._model_retry_at = 0.0
        self._commits_problem = ""
        self._stopping, self._wake, self._text_tried = Event(), Event(), Event()
        self._thread = Thread(target=self._run, name="marklight-watcher", daemon=True)

    def start(self) -> None:
        """Start the thread; return at once."""
        self.progress = IndexingProgress(SCANNING, 0, 0)
        self.library.watcher = self
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; what is indexed so far is kept."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.library.watcher is self:
            self.library.watcher = None

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON for `status`."""
        progress = self.progress
        return {
            "indexing": progress.to_dict() if progress else None,
            "watching": self.watching,
            "problem": ". ".join(filter(None, (self.problem, self.remark))),
        }

    @property
    def is_reading(self) -> bool:
        """Return true while text is being indexed."""
        progress = self.progress
        return progress is not None and not progress.phase.startswith(IN_BACKGROUND)

    @property
    def is_scanning(self) -> bool:
        """Return true while files are listed and compared with the index."""
        progress = self.progress
        return progress is not None and progress.phase == SCANNING

    @property
    def text_was_tried(self) -> bool:
        """Return true once the first indexing run is over."""
        return self._text_tried.is_set()

    @property
    def verified(self) -> str:
        """Return the version of the index that equals the disk now; empty if changes are not indexed yet."""
        if not self.watching:
            return ""
        with suppress(MarklightError):
            diff = self.library.text_ingest.compare()
            return "" if diff else diff.version
        return ""

    def wait_for_text(self) -> bool:
        """Wait a moment for the first run, which suffices for a small library; return true if it is over."""
        return self._text_tried.wait(FIRST_SECONDS)

    def notify(self, report: Report) -> None:
        """Report a change to the listeners and embed the new passages soon."""
        if report:
            report = replace(report, index=self.library.text_ingest.counts())
            for listener in tuple(self.listeners):
                listener(report)
            self.wake()

    def wake(self) -> None:
        """Wake the thread, as there may be passages to embed."""
        self._wake.set()

    # In the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except Stopped:
                pass
            except MarklightError as error:
                self.problem = Message(str(error), error.message)
            except Exception as error:  # without this, the thread would end unnoticed
                self.problem = f"Watching the files failed: {type(error).__name__}: {error}"
            self.progress, self.watching = None, False
            self._text_tried.set()
            self._stopping.wait(self.library.limits.poll_seconds)

    def _watch(self) -> None:
        if not self.library.indexes_here:
            return
        scan_at = 0.0
        watch, reopen_seconds = self._open_watch(), self.library.limits.reconcile_seconds
        reopen_at = time.monotonic() + reopen_seconds
        try:
            while not self._stopping.is_set():
                started = time.monotonic()
                if started >= scan_at:
                    if watch.problem and started >= reopen_at:
                        watch.close()
                        watch, reopen_at = self._open_watch(), started + reopen_seconds
                    self._index(everything=True)
                    scan_at = time.monotonic() + self._pause(watch, time.monotonic() - started)
                embedding = self._embed()
                self._update_state(watch)
                next_at = min(scan_at, self._model_retry_at) if self._model_problem else scan_at
                seconds = 0 if embedding else next_at - time.monotonic()
                is_changed = watch.wait(seconds, self._wake)
                if not self._stopping.is_set():
                    self._wake.clear()
                if is_changed:
                    self._index()
                    scan_at = min(scan_at, time.monotonic() + self._pause(watch, 0))
        finally:
            if (scans := self.library.text_ingest.scans).watch is watch:
                scans.watch = None
            watch.close()

    def _open_watch(self) -> Watch:
        """Start to watch; the next scan adds all folders."""
        ingest = self.library.text_ingest
        roots = map(os.path.realpath, ingest.collections.values())
        watch = open_watch(ingest.discover, self.library.limits.debounce_ms, roots)
        ingest.scans.watch = watch
        return watch

    def _pause(self, watch: Watch, scan_seconds: float) -> float:
        """Return the time until the next full scan; a folder that is missing may appear at any time."""
        limits = self.library.limits
        if watch.problem:
            return max(limits.poll_seconds, SCAN_SHARE * scan_seconds)
        if self.library.files.missing():
            return min(limits.poll_seconds, limits.reconcile_seconds)
        return limits.reconcile_seconds

    def _update_state(self, watch: Watch) -> None:
        self.watching = not watch.problem
        every = self.library.limits.poll_seconds
        self.remark = watch.problem and f"{watch.problem}; it is scanned every {every:g} s"
        problems = (self._model_problem, self._commits_problem, *self.library.files.missing())
        self.problem = ". ".join(filter(None, problems))

    def _index(self, *, everything: bool = False) -> None:
        """Index the text of changed files, while no search refreshes; compare all of them, or those with events."""
        library = self.library
        try:
            with library.refreshes.exclusive():
                if everything:
                    library.text_ingest.scans.compare_everything()
                self.notify(index_changes(library, self._report)[1])
        finally:
            self.progress = None
            self._text_tried.set()

    def _embed(self) -> bool:
        """Embed passages for a time; return true if there is more to do. Without a model, text is still indexed."""
        if self._model_problem and time.monotonic() < self._model_retry_at:
            return False
        try:
            more = any([self._embed_documents(), self._continue_history()])
        except ModelError as error:
            self._model_problem, more = str(error), False
            self._model_retry_at = time.monotonic() + MODEL_RETRY_SECONDS
        else:
            self._model_problem = ""
        if not more:
            self.progress = None
        return more

    def _embed_documents(self) -> bool:
        library = self.library
        if not embeds_here(library):
            library.text_ingest.request_replacement()
        elif embed_for_seconds(library.ingest, library.embedding, self._report, EMBEDDING_SECONDS):
            return True
        measure_unrelated(library)
        library.text_ingest.update_communities()
        return False

    def _continue_history(self) -> bool:
        """Read and embed commits for a time; a history index that cannot be written must not stop the watcher."""
        try:
            more = continue_history(self.library, self._report, EMBEDDING_SECONDS)
        except StoreError as error:
            self._commits_problem = f"Commits could not be indexed: {error}"
            return False
        self._commits_problem = ""
        return more

    def _report(self, phase: str, done: int, total: int) -> None:
        if self._stopping.is_set():
            raise Stopped("The process ends")
        self.progress = self._meter(phase, done, total)


def watch(library: Library) -> Generator[Report, None, None]:
    """Yield a report for each batch of changes; a problem is a report with notices only."""
    reports: SimpleQueue[Report] = SimpleQueue()
    watcher = Watcher(library)
    watcher.listeners.append(reports.put)
    watcher.start()
    last_problem = ""
    try:
        while True:
            try:
                report = reports.get(timeout=PROBLEM_SECONDS)
                # In this thread, since the fingerprint of the model may have to be requested first.
                with suppress(StoreError), library.engine.snapshot() as snapshot:
                    counts = snapshot.status.counts(library.models.fingerprint()[0])
                    several = library.files.several
                    report = replace(report, index=counts, several_collections=several)
                yield report
            except Empty:
                problem = str(watcher.to_dict()["problem"])
                if problem and problem != last_problem:
                    yield Report(notices=(problem,))
                last_problem = problem
    finally:
        watcher.close()
