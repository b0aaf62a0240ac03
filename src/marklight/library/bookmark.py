"""Where the last look at a huge tree stopped, so that the next one goes on there, in whatever process."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from marklight.ingest.discover import FollowedLinks
from marklight.ports import PathRange
from marklight.private_files import read_private, write_private

NAME = "looked.json"
"""Beside the index. Without it, or with one that makes no sense, a look begins at the beginning."""
_MOST_BYTES = 64_000_000


@dataclass(slots=True)
class Bookmark:
    """A place in the walk over all collections."""

    folder: Path | None
    """Of the index; None where it has none."""
    claimed: FollowedLinks = field(default_factory=dict)
    _next: PathRange | None = None
    _read: bool = False

    def ahead(self, collections: Iterable[str]) -> list[PathRange]:
        """Everything, from the place where the last look stopped, round to that place."""
        if not self._read:
            self._read = True
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                self._take()
        names = sorted(collections)
        if self._next is None or self._next.collection not in names:
            return [PathRange(name) for name in names]
        at, path = names.index(self._next.collection), self._next.first
        others = [PathRange(name) for name in (*names[at + 1 :], *names[:at])]
        return [self._next, *others, PathRange(names[at], "", path)]

    def keep(self, stopped: PathRange | None) -> None:
        """Go on there next time; None was the end."""
        before, self._next = self._next, stopped
        if self.folder is None or stopped == before:
            return
        file = self.folder / NAME
        with suppress(OSError):  # an index that cannot be written: this process knows it by itself
            if stopped is None:
                file.unlink(missing_ok=True)
                return
            held = {"next": stopped[:2], "claimed": self.claimed}
            write_private(file, json.dumps(held).encode())

    def _take(self) -> None:
        if self.folder is None:
            return
        held = json.loads(read_private(self.folder / NAME, _MOST_BYTES))
        collection, path = held["next"]
        claimed = {
            str(name): {str(target): str(link) for target, link in links.items()}
            for name, links in held["claimed"].items()
        }
        f"{collection}{path}".encode()  # half a character can be in JSON, and in no path of ours
        self._next, self.claimed = PathRange(str(collection), str(path)), claimed
