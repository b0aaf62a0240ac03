"""Verbs that keep the index and tell about it: index, watch, status and ignored."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marklight.ingest.discover import OUTSIDE, Discover
from marklight.library.commits import keep_commits, told_status
from marklight.model import DocumentId
from marklight.ports import Progress
from marklight.report import Report
from marklight.search.calibration import is_calibrated

if TYPE_CHECKING:
    from marklight.library import Library


def index(library: Library, *, rebuild: bool, history: bool | None, progress: Progress) -> Report:
    """Bring the index up to date: text first, searchable at once, then vectors.

    Commits too with `history`, or where they were asked for before.
    """
    began = time.perf_counter()
    before = library.ingest.counts()
    made = [] if before.generation else library.nested_libraries()
    report = library.upkeep(library.ingest).run(progress, rebuild=rebuild)
    after = library.ingest.counts()
    commits = keep_commits(library, history, progress, rebuild=rebuild)
    return replace(
        report,
        history=commits,
        index=after,
        newly_embedded=max(0, after.embedded - before.embedded),
        folder=str(library.place.folder),
        notices=(
            *library.notices(),
            *made,
            *library.models.first_use_notices(embedding=True),
            *library.engine.take_notices(),
        ),
        took_ms=(time.perf_counter() - began) * 1000,
    )


def ignored(library: Library, path: Path | str) -> str:
    """Why a file is left out of the index; empty when it is not.

    A path counts from where the asker stands, else from the folder of a collection.
    """
    discover = library.settings.build(Discover, "files")
    places = [Path(path), *(folder / path for folder in library.collections.values())]
    places.sort(key=lambda each: not os.path.lexists(each))
    for place in places:
        if (reason := discover.reason_ignored(place, library.collections)) != OUTSIDE:
            return reason or _refused(library, place)
    return OUTSIDE


def _refused(library: Library, place: Path) -> str:
    """Why a file that is meant to be read could not be, when that was last tried."""
    with library.engine.snapshot() as snapshot:
        failures = snapshot.status.failures()
    for each in failures:
        folder = library.collections.get(each.document.collection)
        if folder and os.path.realpath(folder / each.document.path) == os.path.realpath(place):
            return f"it was refused: {each.reason}"
    return ""


def status(library: Library) -> dict[str, Any]:
    """What is indexed, what is still to do, what failed."""
    fingerprint, problem = library.models.fingerprint()
    with library.engine.snapshot() as snapshot:
        counts, failures = snapshot.status.counts(fingerprint), snapshot.status.failures()
        remarks = snapshot.status.remarks()
        documents = Counter(id.collection for id in snapshot.documents.files())
    server, reranker = library.models.embedder_server, library.models.reranker_server
    return {
        "documents": counts.documents,
        "chunks": counts.chunks,
        "embedded": counts.embedded,
        "pending": counts.pending,
        "failed": [{**_place(one.document), "reason": one.reason} for one in failures],
        "remarks": [{**_place(id), "remark": said} for id, said in remarks],
        "generation": counts.generation,
        "model": library.settings["model.name"],
        **({"model_address": server.address} if server else {}),
        **({"model_problem": problem} if problem else {}),
        "calibrated": is_calibrated("hybrid", fingerprint),
        "reranker": library.settings["reranker.name"] or "none",
        **({"reranker_address": reranker.address} if reranker else {}),
        **({"reranker_problem": unfit} if (unfit := library.models.reranker_problem()) else {}),
        "engine": library.engine.describe(),
        "sizes": dict(library.engine.sizes()),
        "unused_vectors": library.engine.count_unused_vectors(),
        **told_status(library, fingerprint),
        **({"following": following.to_dict()} if (following := library.following) else {}),
        "collections": {
            each: {"path": str(folder), "documents": documents[each]}
            for each, folder in library.collections.items()
        },
        "notices": list(library.notices()),
    }


def _place(id: DocumentId) -> dict[str, str]:
    return {"path": id.path, "collection": id.collection}
