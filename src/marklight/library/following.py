"""Follow the disk as long as a process serves: index at once, then whatever changes, in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from marklight.errors import MarklightError, ModelError, Stopped, StoreError
from marklight.ingest.discover import FollowedLinks
from marklight.ingest.index_diff import IndexDiff
from marklight.ingest.watch import Watch
from marklight.library.commits import embed_commits
from marklight.library.upkeep import MOMENT_SECONDS
from marklight.ports import PathRange
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.library import Library

SLICE_SECONDS = 2.0
"""How long passages are embedded before changes of files are asked for."""
LOOK_SHARE = 20
"""Where the system tells nothing, the disk is looked at for at most one part in so many of the time."""
FIRST_SECONDS = 1.0
"""How long a question waits for a library that is being read for the first time."""
MODEL_SECONDS = 30.0
"""When a model that is not there is asked for again."""
LOOKING = "Looking at files"
TELL_SECONDS = 0.5
"""How soon whoever follows along hears of a problem."""


@dataclass(frozen=True, slots=True)
class At:
    """How far a run is."""

    phase: str
    done: int
    total: int

    @property
    def percent(self) -> int:
        """Of this phase, rounded down: 100 is done."""
        return 100 * self.done // self.total if self.total else 0

    def __str__(self) -> str:
        if not self.total:
            return f"indexing ({self.phase.lower()})"
        return f"indexing, {self.percent} % ({self.phase.lower()}, {self.done} of {self.total})"


class Following:
    """One library's files, followed by one thread."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.at: At | None = None
        """How far the run is that goes on now; None when nothing is to do."""
        self.problem = ""
        """Why the last run failed, or a part of it; empty if all is well."""
        self.remark = ""
        """Why the system does not tell what changes, and what is done instead."""
        self.watching = False
        """Whether the system tells us what changes; else the disk is looked at now and then."""
        self.heard: list[Callable[[Report], None]] = []
        """Called after every run or look that changed something, in the thread that did it."""
        self._claimed: FollowedLinks = {}
        self._stuck = ""
        """Why no vectors can be made."""
        self._model_at = 0.0
        self._behind = ""
        """Why those of commits cannot."""
        self._over, self._wake, self._tried = Event(), Event(), Event()
        self._thread = Thread(target=self._run, name="marklight-following", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self.at = At(LOOKING, 0, 0)
        self.library.following = self
        self._thread.start()

    def close(self) -> None:
        """Stop; what was indexed so far is kept."""
        self._over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.library.following is self:
            self.library.following = None

    def to_dict(self) -> dict[str, Any]:
        """For `status`."""
        at = self.at
        return {
            "indexing": {"phase": at.phase, "done": at.done, "total": at.total} if at else None,
            "watching": self.watching,
            "problem": ". ".join(filter(None, (self.problem, self.remark))),
        }

    @property
    def reading(self) -> bool:
        """Whether text is on its way into the index."""
        at = self.at
        return at is not None and not at.phase.startswith("Embedding")

    def await_text(self) -> bool:
        """A moment for the first run, and whether it is over: a small library is read before anybody could ask twice."""
        return self._tried.wait(FIRST_SECONDS)

    def told(self, report: Report) -> None:
        """Something changed, whoever found it; vectors for it are made soon."""
        if report:
            report = replace(report, index=self.library.reading.counts())
            for each in tuple(self.heard):
                each(report)
            self.wake()

    def wake(self) -> None:
        """There may be vectors to make."""
        self._wake.set()

    # In the thread

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._follow()
            except Stopped:
                pass
            except MarklightError as error:
                self.problem = str(error)
            except Exception as error:  # nobody else would ever hear of it
                self.problem = f"following the files failed: {type(error).__name__}: {error}"
            self.at, self.watching = None, False
            self._tried.set()
            self._over.wait(self.library.limits.poll_seconds)

    def _follow(self) -> None:
        limits, reading = self.library.limits, self.library.reading
        watch = Watch(reading.discover, reading.collections, limits.debounce_ms)
        try:
            watch.add_folders(self._read(None).folders)
            # Once more at once, since files may have changed before their folder was watched.
            everything_at, renewed_at = 0.0, time.monotonic()
            while not self._over.is_set():
                began = time.monotonic()
                if began >= everything_at:
                    if watch.problem and began >= renewed_at + limits.reconcile_seconds:
                        watch.restart()
                        renewed_at = began
                    watch.add_folders(self._read(None).folders)
                    everything_at = time.monotonic() + self._pause(watch, time.monotonic() - began)
                embedding = self._embed()
                self._say(watch)
                next_at = min(everything_at, self._model_at) if self._stuck else everything_at
                spans = watch.wait(0 if embedding else next_at - time.monotonic(), self._wake)
                if not self._over.is_set():
                    self._wake.clear()
                if spans:
                    watch.add_folders(self._read(spans).folders, spans)
                    everything_at = min(everything_at, time.monotonic() + self._pause(watch, 0))
        finally:
            watch.close()

    def _pause(self, watch: Watch, look_seconds: float) -> float:
        """Until everything is compared again; a folder that is missing may come back at any time."""
        limits = self.library.limits
        if watch.problem:
            return max(limits.poll_seconds, LOOK_SHARE * look_seconds)
        if self.library.files.missing():
            return min(limits.poll_seconds, limits.reconcile_seconds)
        return limits.reconcile_seconds

    def _say(self, watch: Watch) -> None:
        self.watching = not watch.problem
        every = self.library.limits.poll_seconds
        self.remark = watch.problem and f"{watch.problem}; it is looked at every {every:g} s"
        self.problem = ". ".join(
            filter(None, (self._stuck, self._behind, *self.library.files.missing()))
        )

    def _read(self, spans: Sequence[PathRange] | None) -> IndexDiff:
        """Bring the text up to date, while no search does; everything or some spans of it."""
        library = self.library
        if spans is None:
            self._claimed = {}

        def look() -> IndexDiff:
            return library.reading.compare(spans=spans, followed_links=self._claimed)

        def read() -> IndexDiff:
            keep = library.upkeep(library.reading)
            found, report = keep.read(look, self._tell, MOMENT_SECONDS)
            self.told(report)
            if spans is None:
                library.bookmark.keep(None)
            return found

        try:
            return library.refreshes.exclusive(read)
        finally:
            self.at = None
            self._tried.set()

    def _embed(self) -> bool:
        """Vectors for a while; whether there is more to do. Without a model, words are followed all the same."""
        if self._stuck and time.monotonic() < self._model_at:
            return False
        try:
            library = self.library
            more = library.upkeep(library.ingest).embed_some(self._tell, SLICE_SECONDS)
            more = more or self._embed_commits()
        except ModelError as error:
            self._stuck, more = str(error), False
            self._model_at = time.monotonic() + MODEL_SECONDS
        else:
            self._stuck = ""
        if not more:
            self.at = None
        return more

    def _embed_commits(self) -> bool:
        """The same for a history; one that cannot be written must not keep us from the files."""
        try:
            more = embed_commits(self.library, self._tell, SLICE_SECONDS)
        except StoreError as error:
            self._behind = f"vectors of commits could not be made: {error}"
            return False
        self._behind = ""
        return more

    def _tell(self, phase: str, done: int, total: int) -> None:
        if self._over.is_set():
            raise Stopped("the process ends")
        self.at = At(phase, done, total)


def followed(library: Library) -> Generator[Report, None, None]:
    """A report for each batch of changes; what goes wrong is a report with notices alone."""
    found: SimpleQueue[Report] = SimpleQueue()
    following = Following(library)
    following.heard.append(found.put)
    following.start()
    said = ""
    try:
        while True:
            try:
                report = found.get(timeout=TELL_SECONDS)
                # Only here, since a model may have to be asked for its name first.
                with suppress(StoreError), library.engine.snapshot() as snapshot:
                    report = replace(
                        report, index=snapshot.status.counts(library.models.fingerprint()[0])
                    )
                yield report
            except Empty:
                now = str(following.to_dict()["problem"])
                if now and now != said:
                    yield Report(notices=(now,))
                said = now
    finally:
        following.close()
