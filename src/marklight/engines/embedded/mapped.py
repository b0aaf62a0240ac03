"""Files of vectors, mapped once for all views of an engine, and mended where nobody else writes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from marklight.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from numpy.typing import NDArray

    from marklight.engines.embedded.matrix import MatrixFile
    from marklight.engines.embedded.store import Store
    from marklight.engines.embedded.turn import Turn


class Mapped:
    """What is mapped is asked for without a lock; one thread maps or mends, others wait for it."""

    def __init__(self, turn: Turn, store: Store) -> None:
        self._turn = turn
        self._store = store
        self._guard = Lock()
        self._files: dict[Path, NDArray[Any]] = {}

    def rows(self, file: MatrixFile) -> NDArray[Any] | None:
        """The rows of the view; None where the file cannot serve it and may not be mended now."""
        found = self._known(file)
        if found is None:
            with self._guard:
                found = self._known(file)
                if found is None:
                    found = self._map(file)
        return found

    def clear(self) -> None:
        """Map anew what is asked for next."""
        with self._guard:  # else whoever maps a file right now would keep it
            self._files = {}

    def _known(self, file: MatrixFile) -> NDArray[Any] | None:
        mapped, places = self._files.get(file.path), file.shelf.places
        return mapped[:places] if mapped is not None and len(mapped) >= places else None

    def _map(self, file: MatrixFile) -> NDArray[Any] | None:
        if not file.is_whole():
            self._mend(file)
        if not file.is_whole():
            return None
        rows = file.map()
        # Files of other models and epochs are let go: Windows deletes none that is mapped.
        kept = {path: each for path, each in self._files.items() if path.stem == file.path.stem}
        self._files = {**kept, file.path: rows}
        return rows

    def _mend(self, file: MatrixFile) -> None:
        from marklight.engines.embedded.matrix import shelf

        try:
            with self._turn.hold(0):
                session = self._store.writing()
                newest = shelf(session, file.shelf.name)
                if newest and newest.epoch == file.shelf.epoch:
                    type(file)(file.path, file.library, newest).rebuild(session)
        except StoreError:
            return
