"""A look at the disk before a question is answered, and at the files of the answer after it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from marklight.answer import Query
from marklight.errors import NotFound
from marklight.library.model_selection import EMBEDDING_MODES
from marklight.library.upkeep import MOMENT_SECONDS, Freshness
from marklight.model import DocumentId
from marklight.ports import Progress

if TYPE_CHECKING:
    from marklight.library import Library

FEW = 32
"""Passages without a vector that a search embeds by itself though another thread would do it too."""

ROUNDS = 10
"""How often files of an answer are read again at the most: one that changes all the time is shown in the end."""

Found = TypeVar("Found")


def look(library: Library, query: Query | None, progress: Progress) -> Freshness:
    """A look at the disk, one for all who ask at once; then vectors for a while.

    Many vectors are left to whoever follows the disk, and so is a library that is not read yet.
    """
    following = library.following
    before = library.reading.counts()
    new = not before.documents
    if following and new:
        over = following.await_text()
        new = not library.reading.counts().documents
        if not following.watching and (new or not over):
            return Freshness(tuple(filter(None, (str(following.at or following.problem),))))
    limits = library.limits
    seconds = limits.first_search_seconds if new else limits.search_seconds
    until = time.monotonic() + seconds

    def compare() -> Freshness:
        fresh = library.upkeep(library.reading).refresh(progress, until, new=new)
        if following:
            following.told(fresh.report)
        return fresh

    nested = [] if before.generation else library.nested_libraries()
    found = library.refreshes.run(compare, limits.wait_seconds if new else MOMENT_SECONDS)
    if found is None:
        at = following.at if following else None
        return Freshness(
            (str(at or "this library is being indexed; answering from what is there"),)
        )
    if nested:
        found = found._replace(notices=(*found.notices, *nested))
    if query is None or query.mode not in EMBEDDING_MODES:
        return found
    if following and library.ingest.counts().pending > FEW:
        return found  # whoever follows the disk makes them
    if new:  # reading has taken its own time
        until = time.monotonic() + seconds
    said = library.upkeep(library.ingest).embed_for(query, progress, until)
    more = (said,) if said and said not in found.notices else ()
    return found._replace(notices=(*found.notices, *more))


def look_at_known(library: Library, progress: Progress) -> tuple[str, ...]:
    """The same for a library that is there; only a search or a run makes a new one."""
    if following := library.following:
        following.await_text()
    with library.engine.snapshot() as snapshot:
        if snapshot.generation == 0:
            raise NotFound(
                f"nothing is indexed in {library.place.folder} yet",
                "Name the library's folder with --in, or run `marklight index`",
            )
    return (*library.settings.notices, *look(library, None, progress).notices)


def reread(library: Library, some: list[DocumentId], progress: Progress) -> bool:
    """Whether there was something to read again, and that could be done."""
    return bool(some) and library.upkeep(library.reading).reread(some, progress)


def as_now(
    library: Library, ask: Callable[[], tuple[Found, list[DocumentId]]], progress: Progress
) -> tuple[Found, list[DocumentId]]:
    """What is found in files as they are now; with those that could not be read since they changed.

    A look may not have come to them yet: it has its time, and a huge tree takes several. What is read
    again may make way for a copy that changed as well.
    """
    found, stale = ask()
    for _ in range(ROUNDS):
        if not reread(library, stale, progress):
            break
        found, stale = ask()
    return found, stale


def as_before(count: int) -> list[str]:
    """What is said of files that are shown though they changed."""
    if not count:
        return []
    files = "a file is" if count == 1 else f"{count} files are"
    return [
        f"{files} shown as before the last change; without --no-refresh, a search reads what changed"
    ]
