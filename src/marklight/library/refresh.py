"""Refresh: bring the index up to date before a query, within a time limit.

A refresh scans the disk, indexes the text of changed files and embeds new passages. Concurrent searches share one
scan (single-flight); that of a huge tree, or of a slow network drive, is continued by the next search.
The files of results are compared with the index once more: those that changed or disappeared since.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial, wraps
from pathlib import Path
from threading import Condition, Lock
from typing import TYPE_CHECKING, Generic, NamedTuple, ParamSpec, TypeVar

from marklight.errors import (
    Busy,
    ConnectionLost,
    Message,
    ModelServerError,
    NotFound,
    Refused,
    StoreError,
)
from marklight.ingest.discover import DENIED
from marklight.lazy import dataclass
from marklight.library.model_selection import EMBEDDING_MODES
from marklight.library.validation import collection_of
from marklight.model import Batch, Counts, DocumentId, FileState, digest
from marklight.place import nested_notices
from marklight.ports import (
    INCOMPLETE,
    WRITER_SECONDS,
    Engine,
    IndexedFile,
    Progress,
    Snapshot,
    Tools,
)
from marklight.query import Query
from marklight.report import Report

if TYPE_CHECKING:
    from marklight.ingest.embedding import Indexing
    from marklight.ingest.pipeline import IndexDiff
    from marklight.library import Library

SHORT_WAIT_SECONDS = 0.5
"""Time limit of a search that waits for a lock (writer, embedding) or for the refresh of another caller: commits of vectors are short, those of much text are not."""
MAX_NAMED = 3
"""Folders or files that a notice names."""
SCAN_SECONDS = 2.0
"""Time limit for checking files before a search: enough for half a million files on a local disk, or for a tenth of them on a busy machine."""
FEW_PASSAGES = 32
"""Passages without a vector that a search embeds itself although a watcher runs."""
MAX_ATTEMPTS = 10
"""Maximum number of times that the files of an answer are indexed again; one that keeps changing is then shown."""
AT_ONCE_SECONDS = 2.0
"""Time limit for embedding in a search whose rest is embedded in the background."""
MAX_SEARCHES = os.cpu_count() or 1
"""Searches that run at once; others wait. More would compete for the interpreter lock: on two cores eight of
them answer 45 queries a second, two of them 80, one 60."""
BUSY = "Another process is indexing this library; results come from the index as it is"
BUSY_HERE = "This library is being indexed; results come from the index as it is"


Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def repeat_if_lost(operation: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Repeat an operation that only reads, once, if the connection to a server ended during it."""

    @wraps(operation)
    def repeated(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        try:
            return operation(*args, **kwargs)
        except ConnectionLost:
            return operation(*args, **kwargs)

    return repeated


class RefreshResult(NamedTuple):
    """The outcome of a refresh."""

    notices: tuple[str, ...] = ()
    unread: int = 0
    """Files that changed and are not indexed yet."""
    generation: int = 0
    """Generation of the index that equals the disk, as far as it was compared; 0 if there was a difference."""


def refresh(library: Library, query: Query | None, progress: Progress) -> RefreshResult:
    """Scan the disk and index changed text, shared with concurrent callers; then embed passages for a query.

    If a watcher runs, many new vectors and the first run of a new library are left to it.
    """
    if library.shared and not library.shared.indexes_here:
        return RefreshResult(library.shared.not_indexed_notices())
    watcher = library.watcher
    before = Counts() if library.has_documents else library.text_ingest.counts()
    library.has_documents = library.has_documents or before.documents > 0
    new = not library.has_documents
    if watcher and new:
        finished = watcher.wait_for_text()
        new = not library.text_ingest.counts().documents
        if not watcher.watching and (new or not finished):
            state = str(watcher.progress or watcher.problem)
            return RefreshResult((state,) if state else ())
    limits = library.limits
    seconds = limits.first_search_seconds if new else limits.search_seconds
    if library.embeds_later:
        seconds = min(seconds, AT_ONCE_SECONDS)
    until = time.monotonic() + seconds
    nested = nested_notices(library.place.folder) if new and not before.generation else []
    result = library.refreshes.run(
        partial(_refresh_text, library, progress, until, new=new),
        WRITER_SECONDS if new else SHORT_WAIT_SECONDS,
    )
    if result is None:
        running = watcher.progress if watcher else None
        return RefreshResult((str(running or BUSY_HERE),))
    if new and library.shared:
        library.shared.remember_folder()
    if nested:
        result = result._replace(notices=(*result.notices, *nested))
    if query is None or query.mode not in EMBEDDING_MODES or not embeds_here(library):
        return result
    outdated = library.text_ingest.outdated
    if result.generation and result.generation == library.embedded_generation and not outdated:
        return result
    if not library.ingest.has_pending():
        library.embedded_generation = result.generation
        return result
    if watcher and (outdated or library.ingest.counts().pending > FEW_PASSAGES):
        return result  # the watcher embeds them
    if library.embeds_later:
        from marklight.library.progress import published_progress

        if published_progress(library.address.folder):
            return result  # a process in the background does
    if not new:  # the first run of the text has a time limit of its own
        seconds = max(0.0, until - time.monotonic())
    notice = embed_for_query(library.ingest, library.embedding, query, progress, seconds)
    if not library.ingest.has_pending():
        measure_unrelated(library)
    more = (notice,) if notice and notice not in result.notices else ()
    return result._replace(notices=(*result.notices, *more))


def _refresh_text(
    library: Library, progress: Progress, until: float, *, new: bool
) -> RefreshResult:
    """Index changed text, without a time limit if the library is new, else until `until`; failures become notices."""
    ingest = library.text_ingest
    try:
        diff, report = index_changes(
            library,
            progress,
            scan_seconds=None if new else SCAN_SECONDS,
            wait_seconds=WRITER_SECONDS if new else SHORT_WAIT_SECONDS,
            until=None if new else until,
        )
        if new:
            ingest.update_communities()
    except Busy:
        return RefreshResult((BUSY,))
    except ConnectionLost:
        raise  # the whole search is repeated
    except StoreError as error:
        if not ingest.counts().documents:
            raise
        return RefreshResult((f"The index could not be updated: {error}",))
    if watcher := library.watcher:
        watcher.notify(report)
    notices = tuple(_scan_notices(library, diff, report))
    return RefreshResult(notices, len(report.unread), 0 if diff else diff.generation)


def index_changes(
    library: Library,
    progress: Progress,
    *,
    scan_seconds: float | None = None,
    wait_seconds: float = SHORT_WAIT_SECONDS,
    until: float | None = None,
) -> tuple[IndexDiff, Report]:
    """Scan the disk and index what differs; without a difference the writer lock is not taken."""
    started = time.perf_counter()
    ingest = library.text_ingest
    stop = time.monotonic() + scan_seconds if scan_seconds is not None else None
    diff = ingest.compare(until=stop)
    if not diff:
        return diff, Report()
    with ingest.engine.writing(wait_seconds):
        if not ingest.is_current(diff):  # another process has written since
            diff = ingest.compare(until=stop)
        report = ingest.index_text(diff, progress, until)
    return diff, replace(report, took_ms=(time.perf_counter() - started) * 1000)


def index_again(library: Library, documents: Iterable[DocumentId], progress: Progress) -> bool:
    """Index files again that changed or whose index is damaged; return false if there are none or that failed."""
    ids = sorted(documents)
    if not ids or not library.indexes_here:
        return False
    ingest = library.text_ingest
    try:
        with ingest.engine.writing(SHORT_WAIT_SECONDS):
            with ingest.engine.snapshot() as snapshot:
                damaged = tuple(snapshot.status.damaged_documents(ids))
            if damaged:  # else the unchanged file would count as indexed
                ingest.engine.commit(Batch(removed=damaged))
            ingest.index_text(ingest.compare(documents=ids), progress)
        return True
    except StoreError:
        return False


def embed_for_query(
    ingest: Indexing, lock: Lock, query: Query, progress: Progress, seconds: float
) -> str:
    """Embed passages for a time, those with words of the query first; return a notice about a failure."""
    if not ingest.has_pending() or not lock.acquire(timeout=SHORT_WAIT_SECONDS):
        return ""  # another thread embeds
    from marklight.ingest.embedding import passages_matching

    try:
        with ingest.engine.writing(SHORT_WAIT_SECONDS):
            pass  # if the index is locked, do not compute vectors that cannot be written
        first = partial(passages_matching, ingest.engine, query)
        limited, until = ingest.with_time_limit(seconds), time.monotonic() + seconds
        limited.embed_missing(progress, until, first)
        if not ingest.outdated:  # else vectors would be dropped whose passages are not stored yet
            ingest.drop_unused_vectors()
        return ""
    except ModelServerError as error:
        return f"New passages could not be embedded: {error}"
    except Busy:
        return BUSY
    except StoreError as error:
        return f"The index could not be updated: {error}"
    finally:
        lock.release()


def embed_for_seconds(ingest: Indexing, lock: Lock, progress: Progress, seconds: float) -> bool:
    """Embed passages for a time; return true if there is more to do. A search that embeds goes first."""
    if not ingest.has_pending():
        return False
    if not lock.acquire(timeout=SHORT_WAIT_SECONDS):
        return True
    try:
        before = ingest.counts()
        until = time.monotonic() + seconds
        embedded = ingest.embed_missing(progress, until)
        if ingest.has_pending():  # without any progress, the rest cannot be embedded here
            return bool(embedded.replaced) or ingest.counts() != before
        ingest.drop_unused_vectors()
        return False
    finally:
        lock.release()


def measure_unrelated(library: Library) -> None:
    """Store the level of unrelated queries once all passages are embedded, and again when the library has grown by half.

    It takes as long as 65 searches. Where it cannot be stored, the level is estimated from the size of the library.
    """
    from marklight.search.probability import is_calibrated
    from marklight.search.unrelated import is_stale, level_key

    with library.engine.snapshot() as snapshot:
        calibrated = (name for name in snapshot.status.models() if is_calibrated("hybrid", name))
        stale = [name for name in calibrated if is_stale(snapshot, name)]
        embedder = library.models.embedder if stale else None
        if embedder is None or embedder.fingerprint not in stale:
            return
        level = library.pipeline.unrelated_level(Tools(snapshot, embedder, explain=False))
    with suppress(StoreError), library.engine.writing(SHORT_WAIT_SECONDS):
        manifest = {level_key(embedder.fingerprint): json.dumps(level)}
        library.engine.commit(Batch(manifest=manifest))


def _scan_notices(library: Library, diff: IndexDiff, report: Report) -> Iterator[str]:
    unreadable = diff.scan.unreadable
    denied = [failure.document for failure in unreadable if failure.reason == DENIED]
    for folder in denied[:MAX_NAMED]:
        yield unlisted_notice(shown_folder(folder, library.collections))
    if (more := len(denied) - MAX_NAMED) > 0:
        statement = f"{more:,} more folders cannot be listed"
        yield Message(f"{statement}; `marklight status` names them", statement)
    if unread := [each.document for each in report.skipped if each.reason != DENIED]:
        several = len(library.collections) > 1
        names = ", ".join(document.named(several) for document in unread[:MAX_NAMED])
        others = f" and {len(unread) - MAX_NAMED:,} more" if len(unread) > MAX_NAMED else ""
        statement = f"{names}{others} cannot be read"
        yield Message(f"{statement}; `marklight status` says why", statement)
    yield from report.notices
    if diff.scan.checked is not None:
        total = library.text_ingest.counts().documents
        yield (
            f"Checked {diff.scan.checked:,} of about {total:,} files for changes in {SCAN_SECONDS:g} s;"
            " the next searches check the others"
        )
    if report.unread:
        statement = f"{len(report.unread):,} changed files are not indexed yet; the next searches"
        yield Message(f"{statement} or `marklight index` index them", f"{statement} index them")


def outdated_notices(library: Library, rest: str) -> list[str]:
    """Return a notice about documents that were chunked with other settings; `rest` is how they are replaced."""
    if not (count := len(library.text_ingest.outdated)):
        return []
    documents = "1 document keeps" if count == 1 else f"{count:,} documents keep"
    statement = f"{documents} the passages of earlier settings until new ones are embedded"
    return [Message(f"{statement}; {rest}", statement)]


def embeds_here(library: Library) -> bool:
    """Return true if processes that index text embed it too, false if workers do."""
    return bool(library.settings["queue.embed"] == "here")


def refresh_existing(library: Library, progress: Progress) -> tuple[str, ...]:
    """Refresh a library that has an index; raise `NotFound` if it has none."""
    if watcher := library.watcher:
        watcher.wait_for_text()
    with library.engine.snapshot() as snapshot:
        if snapshot.generation == 0:
            raise NotFound(
                f"Nothing is indexed in {library.place.folder} yet",
                Message("Name the library's folder, or run `marklight index`", "Try again later"),
            )
    return (*library.settings.notices, *refresh(library, None, progress).notices)


def stale_notice(count: int) -> list[str]:
    """Return the notice about results from files that changed since they were indexed."""
    if not count:
        return []
    files = "A file is" if count == 1 else f"{count} files are"
    statement = f"{files} shown as indexed before the last change"
    return [Message(f"{statement}; a search without --no-refresh indexes changes", statement)]


def incomplete_notices(snapshot: Snapshot) -> list[str]:
    """Return the notice about an index into which only a part of another one was copied so far."""
    if not snapshot.status.manifest().get(INCOMPLETE):
        return []
    statement = "A copy into this index is incomplete, so documents may be missing"
    return [
        Message(
            f"{statement}; run the same `marklight copy` or `marklight import` again", statement
        )
    ]


def forget_incomplete_copy(engine: Engine) -> None:
    """Remove the mark of an incomplete copy, once all files of the library are indexed."""
    with engine.snapshot() as snapshot:
        incomplete = bool(incomplete_notices(snapshot))
    if incomplete:
        with engine.writing(WRITER_SECONDS):
            engine.commit(Batch(manifest={INCOMPLETE: ""}))


@dataclass(frozen=True, slots=True)
class CollectionFiles:
    """The files below the folders of the collections."""

    collections: Mapping[str, Path]
    shared: bool = False
    """True if other machines use the index too: it may contain documents whose files are not on this one."""

    @property
    def several(self) -> bool:
        """Return true if places are printed with their collection, because there are several."""
        return len(self.collections) > 1

    def exists(self, id: DocumentId) -> bool:
        """Return true if the file of a document exists, or may exist on another machine."""
        return self.shared or self.is_here(id)

    def is_here(self, id: DocumentId) -> bool:
        """Return true if the file of a document is on this machine."""
        folder = self.collections.get(id.collection)
        return folder is not None and os.path.exists(f"{folder}/{id.path}")

    def changed(self, indexed: Mapping[DocumentId, IndexedFile]) -> list[DocumentId]:
        """Return the documents whose file changed or disappeared since it was indexed."""
        return [id for id, file in indexed.items() if not self._is_unchanged(id, file)]

    def _is_unchanged(self, id: DocumentId, indexed: IndexedFile) -> bool:
        """Compare a racily clean file by content, any other by its size and time stamps."""
        state = self._state(id)
        if state is None and indexed.file.is_elsewhere:
            return True
        if state is None or not indexed.file.is_racy:
            return state == indexed.file
        from marklight.ingest.read import read

        try:
            text = read(self.collections[id.collection] / id.path, state.size).text
        except Refused:
            return False
        return digest(text) == indexed.digest

    def _state(self, id: DocumentId) -> FileState | None:
        folder = self.collections.get(id.collection)
        try:
            return FileState.from_stat(os.stat(os.path.join(folder, id.path))) if folder else None
        except (OSError, ValueError):
            return None

    def check_exists(self, id: DocumentId) -> None:
        """Raise `NotFound` if the file of a document does not exist or cannot be reached."""
        if self.exists(id):
            return
        if folder := self.denied_folder(id):
            raise NotFound(f"{id.path} cannot be read: permission denied for {folder}")
        raise NotFound(f"{id.path} is no longer on the disk")

    def denied_folder(self, id: DocumentId) -> str:
        """Return the folder above a document that this user may not enter; empty if there is none."""
        root = self.collections.get(id.collection)
        if root is None:
            return ""
        try:
            os.stat(os.path.join(root, id.path))
        except PermissionError:
            parts = id.path.split("/")[:-1]
            folders = ["/".join(parts[:depth]) for depth in range(len(parts) + 1)]
            closed = (folder for folder in folders if not os.access(root / folder, os.X_OK))
            return shown_folder(DocumentId(id.collection, f"{next(closed, '')}/"), self.collections)
        except (OSError, ValueError):
            pass
        return ""

    def missing(self) -> list[str]:
        """Return a notice for each collection whose folder does not exist."""
        what = "is not on this machine" if self.shared else "does not exist"
        return [
            f"The folder of collection {name!r} {what}: {folder}"
            for name, folder in self.collections.items()
            if not os.path.isdir(folder)
        ]

    def document_id(self, path: Path) -> DocumentId | None:
        """Return the id of the document at an absolute path, by its text; None if the path is in no collection.

        Nothing is read from the disk: the path may come from a client that may not learn which files exist.
        """
        file = Path(os.path.normpath(path))
        collection = collection_of(self.collections, file.parent)
        if not collection:
            return None
        return DocumentId(collection, file.relative_to(self.collections[collection]).as_posix())

    def file_id(self, path: Path) -> DocumentId | None:
        """Return the id of the document in an existing file, symbolic links resolved; None if there is none."""
        return self.document_id(Path(os.path.realpath(path))) if os.path.isfile(path) else None


@dataclass(frozen=True, slots=True)
class ExistenceCheck:
    """Returns true for documents whose file exists, and collects the folders that this user may not enter."""

    files: CollectionFiles
    denied: set[str] = field(default_factory=set)

    def __call__(self, id: DocumentId) -> bool:
        if self.files.exists(id):
            return True
        self.denied.update(filter(None, [self.files.denied_folder(id)]))
        return False

    def notices(self) -> list[str]:
        """Return a notice for each of these folders."""
        return [unlisted_notice(folder) for folder in sorted(self.denied)]


def shown_folder(folder: DocumentId, collections: Mapping[str, Path]) -> str:
    """Return the path of a folder as shown to the user; that of a collection's own folder is absolute."""
    is_root = folder.path == "/"
    return str(collections[folder.collection]) if is_root else folder.named(len(collections) > 1)


def unlisted_notice(folder: str) -> str:
    """Return the notice about a folder that this user may not list."""
    return f"{folder} cannot be listed (permission denied); documents below it may be missing"


class SingleFlight(Generic[Value]):
    """Single flight: concurrent callers share one run of a function, the first that begins after their call."""

    def __init__(self) -> None:
        self._idle = Condition()
        self._running = False
        self._started = self._finished = 0
        self._result: Value | None = None
        self.waiting = 0
        """Number of callers that wait for their turn or for the result of another."""

    def run(self, function: Callable[[], Value], timeout_seconds: float) -> Value | None:
        """Return the result of a run that begins from now on, in this or another thread; None on a timeout."""
        until = time.monotonic() + timeout_seconds
        with self._idle:
            wanted = self._started + 1  # the current run may be past what the caller needs
            self.waiting += 1
            try:
                if not self._idle.wait_for(lambda: not self._running, until - time.monotonic()):
                    return None
            finally:
                self.waiting -= 1
            if self._finished >= wanted:
                return self._result
            self._running = True
            self._started = number = self._started + 1
        try:
            result = function()
            with self._idle:
                self._result, self._finished = result, number
            return result
        finally:
            self._release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait until no shared run is active; none starts in this context."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running)
            self._running = True
        try:
            yield
        finally:
            self._release()

    def _release(self) -> None:
        with self._idle:
            self._running = False
            self._idle.notify_all()
