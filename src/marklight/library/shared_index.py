"""An index on a server, which other machines use too: rights to write, folders that belong to it, files that are elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any

from marklight.library.refresh import embeds_here
from marklight.model import DocumentId
from marklight.place import is_library, remember
from marklight.ports import IndexedFile, QueueStatus

if TYPE_CHECKING:
    from marklight.engines.server.postgres.jobs import JobQueue
    from marklight.library import Library

ELSEWHERE = "Documents whose files are not on this machine are shown as they were indexed"


def queue_of(library: Library) -> JobQueue | None:
    """Return the queue of passages to embed; None if the engine of a library has none."""
    return getattr(library.engine, "queue", None)


class SharedIndex:
    """The index of a library on a server. Each notice is given once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._given: set[str] = set()
        self._lock = Lock()
        self._is_member: bool | None = None

    @property
    def indexes_here(self) -> bool:
        """Return true if changes of files on this machine are indexed.

        A search in a folder that nobody added to the index must not add it: the address of the engine may be that of
        all folders of this user.
        """
        library = self._library
        return not library.engine.read_only() and self.is_member and library.files.has_folder()

    @property
    def is_member(self) -> bool:
        """Return true if the folder belongs to the index: it has settings, was indexed before, or is the first one."""
        if self._is_member is None:
            library = self._library
            declared = bool(library.settings["collections"]) or is_library(library.place.folder)
            if not declared:
                with library.engine.snapshot() as snapshot:
                    declared = not snapshot.status.counts("").documents
            self._is_member = declared
        return self._is_member

    def remember_folder(self) -> None:
        """Record that the folder belongs to the index, after it was indexed."""
        with suppress(OSError):  # then commands must be run in the folder itself
            remember(self._library.place.folder)
        self._is_member = True

    def not_indexed_notices(self) -> tuple[str, ...]:
        """Return the notice why changes are not indexed here."""
        library = self._library
        if library.engine.read_only():
            if not self._is_first("read only"):
                return ()
            written = library.engine.server().get("last_write")
            when = f"It was last updated {written}" if written else "Nothing is indexed yet"
            return (f"You may only read the index {library.address}. {when}",)
        if self.is_member or not self._is_first("not a member"):
            return ()  # folders that are missing have notices of their own
        return (
            f"{library.place.folder} is not part of the index {library.address};"
            " `marklight index` adds its documents",
        )

    def other_collections(self, names: Iterable[str]) -> list[str]:
        """Return the collections that other machines added, if any of the given names is not configured here."""
        library = self._library
        if set(names) <= library.collections.keys():
            return []
        with library.engine.snapshot() as snapshot:
            stored = {id.collection for id in snapshot.documents.files()}
        return sorted(stored - library.collections.keys())

    def open_queue(self) -> None:
        """Queue the passages without a vector for workers, now and with every later commit."""
        fingerprint = self._library.models.fingerprint()[0]
        if (queue := queue_of(self._library)) and fingerprint:
            queue.open(fingerprint)

    def queue_status(self, fingerprint: str) -> dict[str, Any]:
        """Return the state of the queue of a model for `status`; empty if workers do not embed and nothing waits."""
        queue = queue_of(self._library)
        if queue is None or not fingerprint:
            return {}
        state = queue.status(fingerprint)
        if state == QueueStatus() and embeds_here(self._library):
            return {}
        failures = [failure._asdict() for failure in state.failures]
        return {"queue": {**state._asdict(), "failures": failures}}

    def missing_notices(self) -> list[str]:
        """Return notices about collections whose folder is not on this machine."""
        return [notice for notice in self._library.files.missing() if self._is_first(notice)]

    def elsewhere_notices(self, files: Mapping[DocumentId, IndexedFile]) -> tuple[str, ...]:
        """Return the notice that results come from files that are not on this machine."""
        if not self.is_member:
            return ()
        is_here = self._library.files.is_here
        away = any(each.file.is_elsewhere and not is_here(id) for id, each in files.items())
        return (ELSEWHERE,) if away and self._is_first(ELSEWHERE) else ()

    def _is_first(self, notice: str) -> bool:
        with self._lock:
            is_first = notice not in self._given
            self._given.add(notice)
        return is_first
