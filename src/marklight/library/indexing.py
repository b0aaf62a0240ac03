"""Indexing runs and their result: index everything, report the status, explain why a file is not indexed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from marklight.errors import ModelServerError
from marklight.ingest.discover import OUTSIDE, Discover, visible_files
from marklight.library.history import index_history
from marklight.library.progress import published, published_progress
from marklight.library.refresh import (
    embeds_here,
    forget_incomplete_copy,
    incomplete_notices,
    measure_unrelated,
    repeat_if_lost,
)
from marklight.models.record import KNOWN, MULTILINGUAL
from marklight.place import STORE, nested_libraries, nested_notices
from marklight.ports import WRITER_SECONDS, Progress, Snapshot
from marklight.report import Report
from marklight.serialization import json_values
from marklight.text.languages import CODES

if TYPE_CHECKING:
    from marklight.library import Library

MAX_SHARED_BLOCKS = 5
"""Blocks of boilerplate that `status` shows."""
MAX_LANGUAGES = 100
"""Values of the key `language` that are read: frontmatter may use it for something else."""
TEXT_IS_INDEXED = "All text is indexed and keyword search finds it; the next run embeds the rest"


FIRST_SCAN_SECONDS = 2.0
"""Time to count the files of a folder before its first run is confirmed."""


class FirstRun(NamedTuple):
    """Count the files that the first indexing run of a folder would index."""

    folder: Path
    files: int
    complete: bool
    """False if there are more files: counting them stopped after `FIRST_SCAN_SECONDS`."""
    has_own: bool
    """True if some of the files are in the folder itself, or in the folder of a collection, and not below it."""
    libraries: Sequence[str]
    """Other libraries below the folder; they are left out."""
    others: Mapping[str, int]
    """Numbers of documents that are not indexed, by format, such as PDF."""


OTHER_FORMATS = {
    ".pdf": "PDF", ".doc": "Word", ".docx": "Word", ".odt": "OpenDocument", ".rtf": "RTF", ".epub": "EPUB",
    ".html": "HTML", ".htm": "HTML", ".ipynb": "notebook", ".rst": "reStructuredText", ".adoc": "AsciiDoc",
    ".org": "Org",
}  # fmt: skip
"""Formats of documents that are not indexed, by ending."""


def first_run(library: Library) -> FirstRun | None:
    """Return what the first run would index; None for a folder that has an index, or whose index is on a server."""
    folder = library.address.folder
    if folder is None or (folder / STORE).exists():
        return None
    until = time.monotonic() + FIRST_SCAN_SECONDS
    scan = library.settings.build(Discover, "files")(library.collections, until=until)
    below = list(map(str, nested_libraries(library.place.folder)[1]))
    return FirstRun(
        library.place.folder,
        len(scan.files),
        scan.checked is None,
        any("/" not in id.path for id in scan.files),
        below,
        _other_formats(library.collections.values(), until),
    )


def _other_formats(folders: Iterable[Path], until: float) -> Mapping[str, int]:
    """Count documents in formats that are not indexed, until a time; hidden folders are left out."""
    counts: Counter[str] = Counter()
    for entry in chain.from_iterable(map(visible_files, folders)):
        if format := OTHER_FORMATS.get(os.path.splitext(entry.name)[1].lower()):
            counts[format] += 1
        if time.monotonic() > until:
            break
    return dict(counts.most_common())


def index(library: Library, *, rebuild: bool, history: bool | None, progress: Progress) -> Report:
    """Bring the index up to date: text first, which is searchable at once, then vectors, then the history."""
    started = time.perf_counter()
    before = library.ingest.counts()
    nested = [] if before.generation else nested_notices(library.place.folder)
    with published(library.address.folder, progress) as publish:
        report = _index_documents(library, publish, rebuild=rebuild)
        after = library.ingest.counts()
        commits = index_history(library, history, publish, rebuild=rebuild)
    return replace(
        report,
        several_collections=library.files.several,
        history=commits,
        index=after,
        folder=str(library.place.folder),
        notices=(
            *library.notices(),
            *nested,
            *report.notices,
            *library.models.first_use_notices(embedding=True),
            *library.engine.take_notices(),
        ),
        took_ms=(time.perf_counter() - started) * 1000,
    )


def _index_documents(library: Library, progress: Progress, *, rebuild: bool) -> Report:
    """Index all text, then embed all passages, without a time limit."""
    ingest = library.ingest
    with library.refreshes.exclusive(), ingest.engine.writing(WRITER_SECONDS):
        report = ingest.index_text(ingest.compare(rebuild=rebuild), progress)
    if library.shared:
        library.shared.remember_folder()
    else:  # what the copy lacks was read from the files
        forget_incomplete_copy(ingest.engine)
    ingest.update_communities()
    if not embeds_here(library):
        if library.shared:
            library.shared.open_queue()
            ingest.request_replacement()
        return report
    with library.embedding:
        try:
            embedded = ingest.embed_missing(progress)
        except ModelServerError as error:
            hint = f"{error.hint}. {TEXT_IS_INDEXED}" if error.hint else TEXT_IS_INDEXED
            raise ModelServerError(error.message, hint) from error
        ingest.drop_unused_vectors()
    measure_unrelated(library)
    changed = (*report.changed, *embedded.replaced)
    return replace(report, changed=changed, newly_embedded=embedded.passages)


def ignored(library: Library, path: Path | str) -> str:
    """Return why a file is not indexed; empty if it is."""
    discover = library.settings.build(Discover, "files")
    places = list(_meant_by(library, os.fspath(path)))
    for place in list(filter(os.path.lexists, places)) or places:
        if (reason := discover.reason_ignored(place, library.collections)) != OUTSIDE:
            return reason or _failure(library, place)
    return OUTSIDE


def _meant_by(library: Library, reference: str) -> Iterator[Path]:
    """Yield the files that a reference may mean: from the current folder, in the collection that it begins with, in any."""
    from marklight.reference import readings, targets

    roots = library.collections
    for name in (name for reading in readings(reference) for name in reading.names):
        yield Path(name)
        for target in targets(name, roots if library.files.several else ()):
            folders = roots.values() if target.collection is None else [roots[target.collection]]
            yield from (folder / target.path for folder in folders)


def _failure(library: Library, place: Path) -> str:
    """Return why the last attempt to index a file failed; empty if it did not."""
    with library.engine.snapshot() as snapshot:
        failures = snapshot.status.failures()
    for failure in failures:
        folder = library.collections.get(failure.document.collection)
        if folder and os.path.realpath(folder / failure.document.path) == os.path.realpath(place):
            return f"it was refused: {failure.reason}"
    return ""


class Overview(NamedTuple):
    """Describe a library in a few facts, which are read without loading a model."""

    documents: int
    passages: int
    pending: int
    """Passages without a vector; 0 if no model is configured."""
    collections: Mapping[str, int]
    """Number of documents of each collection."""
    folders: Mapping[str, int]
    """Number of documents in each top folder of a single collection, most first."""
    languages: Sequence[str]
    """ISO 639-1 codes of the languages of more than a tenth of the documents, most frequent first."""
    reranker: bool
    """A cross-encoder is on this machine or configured."""


@repeat_if_lost
def overview(library: Library) -> Overview:
    """Return the facts by which a library introduces itself."""
    with library.engine.snapshot() as snapshot:
        counts = snapshot.status.counts("")
        embedded = max(snapshot.status.models().values(), default=0)
        ids = snapshot.documents.files()
        languages = snapshot.metadata.values("language", MAX_LANGUAGES)
    counted = {name: count for name, count in languages.items() if name in CODES}
    folders = Counter(id.path.split("/", 1)[0] for id in ids if "/" in id.path)
    has_model = library.settings["model.name"] != "none"
    return Overview(
        documents=counts.documents,
        passages=counts.chunks,
        pending=max(0, counts.chunks - counts.boilerplate - embedded) if has_model else 0,
        collections={
            **dict.fromkeys(library.collections, 0),
            **Counter(id.collection for id in ids),
        },
        folders=dict(folders.most_common()) if len(library.collections) == 1 else {},
        languages=[name for name, count in counted.items() if 10 * count > sum(counted.values())],
        reranker=library.models.has_reranker,
    )


@repeat_if_lost
def status(library: Library) -> dict[str, Any]:
    """Return what is indexed, what is pending and what failed."""
    from marklight.search.probability import is_calibrated

    fingerprint, problem = library.models.fingerprint()
    with library.engine.snapshot() as snapshot:
        counts, failures = snapshot.status.counts(fingerprint), snapshot.status.failures()
        remarks = snapshot.status.remarks()
        files = snapshot.documents.files()
        documents = Counter(id.collection for id in files)
        recipe = library.text_ingest.recipe
        outdated = sum(
            file.recipe != recipe
            for id, file in files.items()
            if id.collection in library.collections
        )
        incomplete = incomplete_notices(snapshot)
        languages = snapshot.metadata.values("language", MAX_LANGUAGES)
        multilingual = _multilingual_status(library, snapshot)
        shared = _shared_blocks(snapshot)
    model_server, reranker_server = library.models.embedder_server, library.models.reranker_server
    ask_server = library.models.generator_server
    reranker_problem = library.models.reranker_problem()
    watcher, indexing = library.watcher, published_progress(library.address.folder)
    server, several = dict(library.engine.server()), library.files.several
    others = sorted(documents.keys() - library.collections.keys()) if library.shared else []
    return {
        "documents": counts.documents,
        "chunks": counts.chunks,
        "embedded": counts.embedded,
        "pending": counts.pending,
        **({"outdated": outdated} if outdated else {}),
        "boilerplate": {"passages": counts.boilerplate, **shared},
        "failed": [
            {**json_values(failure.document, several), "reason": failure.reason}
            for failure in failures
        ],
        "remarks": [{**json_values(id, several), "remark": remark} for id, remark in remarks],
        "languages": {name: count for name, count in languages.items() if name in CODES},
        "generation": counts.generation,
        "model": library.settings["model.name"],
        **({"model_address": model_server.address} if model_server else {}),
        **({"model_problem": problem} if problem else {}),
        **multilingual,
        "calibrated": is_calibrated("hybrid", fingerprint),
        "reranker": library.settings["reranker.name"] or "none",
        **({"reranker_address": reranker_server.address} if reranker_server else {}),
        **({"reranker_problem": reranker_problem} if reranker_problem else {}),
        "ask": library.settings["ask.name"] or "none",
        **({"ask_address": ask_server.address} if ask_server else {}),
        "engine": library.engine.describe(),
        "location": str(library.address.folder or library.address),
        **({"server": server} if server else {}),
        **(library.shared.queue_status(fingerprint) if library.shared else {}),
        "sizes": dict(library.engine.sizes()),
        "unused_vectors": library.engine.count_unused_vectors(),
        **({"incomplete_copy": True} if incomplete else {}),
        **_history_status(library, fingerprint),
        **({"following": watcher.to_dict()} if watcher else {}),
        **({"indexing": indexing.to_dict()} if indexing else {}),
        "collections": {
            name: {"path": str(folder), "documents": documents[name]}
            for name, folder in library.collections.items()
        }
        | {name: {"path": "", "documents": documents[name]} for name in others},
        "notices": [*library.notices(), *incomplete],
    }


def _multilingual_status(library: Library, snapshot: Snapshot) -> dict[str, Any]:
    """Return the second model and the number of its vectors; empty if it is not used."""
    embedded = snapshot.status.models().get(KNOWN[MULTILINGUAL].fingerprint, 0)
    if not embedded or library.settings["model.name"] == MULTILINGUAL:
        return {}
    return {"multilingual": {"model": MULTILINGUAL, "embedded": embedded}}


def _shared_blocks(snapshot: Snapshot) -> dict[str, Any]:
    """Return the number of blocks that are boilerplate, and those that most documents have."""
    from marklight.ingest.boilerplate import block_text

    examples = [
        {
            "text": block_text(stored[0], block.example.collection, block.digest),
            "documents": block.documents,
        }
        for block in snapshot.blocks.most_shared(MAX_SHARED_BLOCKS)
        if (stored := snapshot.documents.text_and_outline(block.example))
    ]
    return {"blocks": snapshot.blocks.count(), "most_shared": examples}


def _history_status(library: Library, fingerprint: str) -> dict[str, Any]:
    """Return the status of the history index; empty if there is none."""
    with library.commits_engine.snapshot() as snapshot:
        counts, failures = snapshot.status.counts(fingerprint), snapshot.status.failures()
        remarks = snapshot.status.remarks()
    if not counts.generation:
        return {}
    status = {
        "commits": counts.documents,
        "chunks": counts.chunks,
        "embedded": counts.embedded,
        "pending": counts.pending,
        "failed": [
            {"commit": failure.document.path, "reason": failure.reason} for failure in failures
        ],
        "remarks": [{"commit": id.path, "remark": remark} for id, remark in remarks],
        "sizes": dict(library.commits_engine.sizes()),
    }
    return {"history": status}
