"""The verbs documents and tags: what there is, a part at a time, in an order that additions do not upset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from heapq import nsmallest

from marklight.errors import UsageError
from marklight.library.parts import Parts
from marklight.library.validation import integer
from marklight.model import DocumentId
from marklight.ports import IndexedFile
from marklight.report import Register


def documents(library: Parts, *, like: str = "", after: str = "", limit: int = 100) -> Register:
    """The documents that are indexed, in order; `after` is what the part before called `next`.

    With `like`, those whose path holds this text, whoever begins with it first.
    """
    with library.engine.snapshot() as snapshot:
        return listed(snapshot.documents.files(), like, after, integer("The limit", limit, 1, 1000))


def tags(library: Parts) -> dict[str, int]:
    """Every tag with how many documents have it, or one nested below it."""
    with library.engine.snapshot() as snapshot:
        return dict(sorted(snapshot.metadata.tags().items()))


def listed(files: Mapping[DocumentId, IndexedFile], like: str, after: str, limit: int) -> Register:
    """So many documents after this one; with `like`, the likest of all."""
    if like:
        found = nsmallest(limit, _alike(files, like.lower()))
        return Register(tuple((id, files[id].file) for _, id in found), len(files))
    last = _read(after) if after else None
    rest = [id for id in files if last is None or id > last]
    part = nsmallest(limit, rest)
    more = json.dumps(part[-1], ensure_ascii=False) if len(part) < len(rest) else None
    return Register(tuple((id, files[id].file) for id in part), len(files), more)


def _alike(ids: Iterable[DocumentId], text: str) -> Iterable[tuple[int, DocumentId]]:
    """Those that hold the text: at their beginning, at that of their file's name, or anywhere."""
    for id in ids:
        at = id.path.lower().find(text)
        if at < 0:
            continue
        name = id.path.lower().rpartition("/")[2]
        yield (0 if at == 0 else 1 if name.startswith(text) else 2), id


def _read(after: str) -> DocumentId:
    try:
        collection, path = json.loads(after)
        return DocumentId(str(collection), str(path))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            "`after` is not what a part before called `next`", "Leave it out to begin"
        ) from error
