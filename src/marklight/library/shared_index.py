"""An index on a server, which other machines use too: reading without the right to write, files that are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from marklight.model import DocumentId
from marklight.ports import IndexedFile

if TYPE_CHECKING:
    from marklight.library import Library

ELSEWHERE = "Documents whose files are not on this machine are shown as they were indexed"


class SharedIndex:
    """The index of a library on a server. Each notice is given once."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._given: set[str] = set()
        self._lock = Lock()

    @property
    def read_only(self) -> bool:
        """Return true if this user may only read the index."""
        return self._library.engine.read_only()

    def read_only_notices(self) -> tuple[str, ...]:
        """Return the notice that the index is not refreshed here, and when it was last written."""
        if not self._is_first("read only"):
            return ()
        written = self._library.engine.server().get("last_write")
        when = f"It was last updated {written}" if written else "Nothing is indexed yet"
        address = self._library.address
        return (f"You may only read the index {address}, so changes are not indexed. {when}",)

    def missing_notices(self) -> list[str]:
        """Return notices about collections whose folder is not on this machine."""
        return [notice for notice in self._library.files.missing() if self._is_first(notice)]

    def elsewhere_notices(self, files: Mapping[DocumentId, IndexedFile]) -> tuple[str, ...]:
        """Return the notice that results come from files that are not on this machine."""
        is_here = self._library.files.is_here
        away = any(each.file.is_elsewhere and not is_here(id) for id, each in files.items())
        return (ELSEWHERE,) if away and self._is_first(ELSEWHERE) else ()

    def _is_first(self, notice: str) -> bool:
        with self._lock:
            is_first = notice not in self._given
            self._given.add(notice)
        return is_first
