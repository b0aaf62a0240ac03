"""Verbs that tell how documents belong together: links, related and graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from marklight.library.looking import look_at_known
from marklight.library.model_selection import model_in_use
from marklight.library.parts import Parts
from marklight.library.showing import about
from marklight.library.validation import integer
from marklight.ports import Progress, Snapshot, silent
from marklight.report import Graph, Links, Related
from marklight.search import reference, relations
from marklight.search.reference import FindDocument


def links(
    library: Parts,
    path: str | None = None,
    *,
    limit: int = 100,
    near: Path | None = None,
    progress: Progress = silent,
) -> Links:
    """Links to and from a document; without one, what in the library leads nowhere or stands alone."""
    integer("The limit", limit, 1, relations.MAX_BACKLINKS)

    def read(snapshot: Snapshot, find: FindDocument) -> Links:
        if path is None:
            return relations.unresolved_and_orphans(snapshot, limit, library.files.has)
        id = reference.require_document(path, snapshot, find).id
        return relations.links(id, snapshot, limit, library.files.has)

    return about(library, read, near, progress)


def related(
    library: Parts,
    path: str,
    *,
    limit: int = 10,
    near: Path | None = None,
    progress: Progress = silent,
) -> Related:
    """Documents that belong to this one: by links, shared tags and meaning, each with its reasons."""
    integer("The limit", limit, 1, 100)

    def read(snapshot: Snapshot, find: FindDocument) -> Related:
        document = reference.require_document(path, snapshot, find)
        wanted = library.settings["model.name"] != "none"
        model = model_in_use(snapshot, lambda: library.models.fingerprint()[0]) if wanted else ""
        return relations.related(document, snapshot, model, limit, library.files.has)

    return about(library, read, near, progress)


def graph(
    library: Parts,
    path: str | None = None,
    *,
    depth: int = 1,
    limit: int = 100,
    near: Path | None = None,
    progress: Progress = silent,
) -> Graph:
    """Documents and the links between them: around one, or without one the best linked of all."""
    integer("The depth", depth, 1, relations.MAX_DEPTH)
    integer("The limit", limit, 1, relations.MAX_NODES)
    notices = look_at_known(library, progress)
    with library.engine.snapshot() as snapshot:
        if path is None:
            found = relations.graph_of_best_linked(snapshot, limit, library.files.has)
        else:
            id = reference.require_document(path, snapshot, library.files.near(snapshot, near)).id
            found = relations.graph_around(id, snapshot, depth, limit, library.files.has)
    return replace(found, notices=notices)
