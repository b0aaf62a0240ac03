"""Index the documents of a dataset in the user's cache, and resolve its judgements to places in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from marklight.answer import Hit
from marklight.errors import MarklightError, StoreError, UsageError
from marklight.eval.dataset import Dataset, JudgedQuery, Judgement, Text
from marklight.lazy import dataclass
from marklight.library import DEFAULT_COLLECTION, Library
from marklight.library.configuration import compose_pipeline, read_settings
from marklight.model import digest
from marklight.place import PROJECT_FILE
from marklight.ports import Progress, no_progress
from marklight.private_files import cache_folder, lock_file
from marklight.settings import Settings

MODES_WITHOUT_VECTORS = ("keyword", "code")
"""Modes for which nothing is embedded."""
RENDERING = "2"
"""Version of `render`; a new one invalidates cached documents."""
UNTITLED = "…"
"""Title of a document without one; otherwise it would be the file name, a meaningless number.

By raw cosines on 200 queries of CoSQA, MRR@10 is .811 without any title, .803 with a number and .810
with this character, which keyword search ignores.
"""
MODIFIED_AT = 946_684_800
"""Modification time of every file, the first second of 2000, so that no document is more recent than another."""
FILES_PER_FOLDER = 1_000
"""Some file systems are slow with more. Hand-set; not measured."""
LOCK_SECONDS = 600
"""Timeout of the lock on the documents; writing takes seconds. Hand-set; not measured."""


class Place(NamedTuple):
    """A document or a range of its lines."""

    document: str
    lines: tuple[int, int] | None = None

    def overlaps(self, hit: Hit, document: str) -> bool:
        """Return true if a passage of this document is at least partly in the place."""
        if document != self.document:
            return False
        first, last = hit.chunk.lines
        return self.lines is None or (first <= self.lines[1] and last >= self.lines[0])


@dataclass(frozen=True, slots=True)
class Collection:
    """An indexed library with the dataset's ids of its documents."""

    library: Library
    ids: Mapping[str, str]
    """Ids of the dataset by path."""
    given: Mapping[str, Any]
    assignments: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    def id_of(self, hit: Hit) -> str:
        """Return the dataset's id of a result's document."""
        return self.ids.get(hit.chunk.path, hit.chunk.path)

    def with_settings(self, more: Sequence[str]) -> Collection:
        """Return the collection with other search settings; the open index is shared."""
        assignments = (*self.assignments, *more)
        settings = read_settings(self.library.place.folder, assignments, self.given)
        other = copy(self.library)
        other.settings, other.pipeline = settings, compose_pipeline(settings)
        return replace(self, library=other, assignments=assignments)


@contextmanager
def open_collection(
    dataset: Dataset, mode: str, assignments: Sequence[str] = (), progress: Progress = no_progress
) -> Iterator[Collection]:
    """Open the indexed documents of a dataset; what an earlier run has indexed is reused."""
    ids = {file_name(index): text.id for index, text in enumerate(dataset.texts)}
    folder, home = _folders(dataset)
    given: dict[str, Any] = {"collections": {DEFAULT_COLLECTION: str(folder)}}
    all_assignments = tuple(assignments)
    if mode in MODES_WITHOUT_VECTORS:
        all_assignments = (*assignments, "model.name=none")
    settings = read_settings(folder, all_assignments, given)
    given["engine"] = f"file:{home / f'index-{_index_key(settings)}'}"
    with Library(folder, given, all_assignments) as library:
        report = library.index(progress=progress)
        if not report.index.documents:
            raise UsageError(f"There are no documents in {folder}", "Expected Markdown or text")
        yield Collection(library, ids, given, all_assignments, tuple(report.notices))


def resolve_answers(collection: Collection, dataset: Dataset) -> list[dict[str, Place]]:
    """Return the places of each query's answers; an answer that does not exist is an error that names its line."""
    indexed = _indexed_ids(collection)
    places = []
    for query in dataset.queries:
        if dataset.references:
            places.append(
                {
                    answer: _resolve(collection, dataset, answer, judgement, indexed)
                    for answer, judgement in query.answers.items()
                }
            )
        else:
            _require_documents(dataset, query, indexed)
            places.append({answer: Place(answer) for answer in query.answers})
    return places


def unindexed_answers(collection: Collection, dataset: Dataset) -> list[str]:
    """Return judged documents that exist on disk but are not in the index, so that no query can find them."""
    if dataset.folder is None or dataset.references:
        return []
    judged = {answer for query in dataset.queries for answer in query.answers}
    return sorted(judged - _indexed_ids(collection))


def _indexed_ids(collection: Collection) -> set[str]:
    with collection.library.engine.snapshot() as snapshot:
        return {collection.ids.get(id.path, id.path) for id in snapshot.documents.files()}


def _require_documents(dataset: Dataset, query: JudgedQuery, indexed: set[str]) -> None:
    """Raise UsageError for an answer that is not on disk; one that is only not indexed counts as a miss."""
    for answer, judgement in query.answers.items():
        if answer in indexed or dataset.folder is None:
            continue
        if "\0" in answer or not (dataset.folder / answer).is_file():
            raise UsageError(
                f"{judgement.where} judges the document {answer!r}, which is not in {dataset.folder}",
                "Expected a path in that folder, such as guide/auth.md",
            )


def _resolve(
    collection: Collection, dataset: Dataset, answer: str, judgement: Judgement, indexed: set[str]
) -> Place:
    if answer in indexed:
        return Place(answer)
    try:
        extract = collection.library.get(answer)
    except MarklightError as error:
        reason = _why_not_indexed(collection, dataset.folder, answer)
        raise UsageError(f"{judgement.where}: {reason or error.message}", error.hint) from None
    path = extract.document.path
    is_document = "#" not in answer and ":" not in answer
    return Place(path, None if is_document else extract.lines)


def _why_not_indexed(collection: Collection, folder: Path | None, answer: str) -> str:
    """Return why a file on disk is not in the index; empty if it is not on disk."""
    if folder is None or "\0" in answer:
        return ""
    file = folder / answer.partition("#")[0]
    reason = collection.library.ignored(file) if file.is_file() else ""
    return f"{file} is not in the index: {reason}" if reason else ""


def _index_key(settings: Settings) -> str:
    """Return a digest of the settings that change the index, so that each choice has an index of its own."""
    relevant = {
        key: value
        for key, value in settings.values.items()
        if key.startswith(("chunk.", "files.")) or key in ("model.name", "index.max_bytes")
    }
    return digest(json.dumps(relevant, sort_keys=True, default=str), size=6)


def _folders(dataset: Dataset) -> tuple[Path, Path]:
    """Return the folder of the documents, and the cache folder for their index."""
    if dataset.folder is not None:  # shared by all datasets on this folder
        return dataset.folder, _cache_folder(dataset.folder.name, str(dataset.folder))
    home = _cache_folder(
        dataset.name, RENDERING, *(part for text in dataset.texts for part in text)
    )
    folder = home / "documents"
    try:
        if not _is_complete(dataset.texts, folder):
            _write(dataset.texts, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot write the documents of {dataset.name} to {home}: {error.strerror or error}",
            "Set MARKLIGHT_CACHE_DIR to another folder",
        ) from None
    return folder, home


def _cache_folder(name: str, *contents: str) -> Path:
    stem = re.sub(r"[^\w.-]+", "-", name)[:40].strip(".-") or "dataset"
    return cache_folder() / "eval" / f"{stem}-{digest(*contents, size=8)}"


def _is_complete(texts: Sequence[Text], folder: Path) -> bool:
    """Return true if no file is missing: caches are cleaned, sometimes in part."""
    return sum(1 for _ in folder.glob("*/*.txt")) == len(texts)


def _write(texts: Sequence[Text], folder: Path) -> None:
    """Write all documents atomically: into a temporary folder that is then renamed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with closing(lock_file(folder.parent.resolve() / f"{folder.name}.lock", LOCK_SECONDS)):
        if _is_complete(texts, folder):  # another process was faster
            return
        shutil.rmtree(folder, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=folder.parent))
        try:
            # An empty settings file, so that none above the cache applies.
            (draft / PROJECT_FILE).touch()
            for index, text in enumerate(texts):
                file = draft / file_name(index)
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(render(text).encode("utf-8", "replace"))
                os.utime(file, (MODIFIED_AT, MODIFIED_AT))
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise


def file_name(index: int) -> str:
    """Return the path of the dataset's text with this index."""
    return f"{index // FILES_PER_FOLDER:03}/{index:06}.txt"


def render(text: Text) -> str:
    """Render a document as plain text with its title as frontmatter; a text that is blank becomes its title.

    Not as Markdown, in which a Python comment is a heading, indented lines are code and `__init__` is bold.
    """
    title = " ".join("".join(char if char.isprintable() else " " for char in text.title).split())
    front = f"title: {json.dumps(title or UNTITLED, ensure_ascii=False)}\n"
    # A file with control characters would not be recognised as text.
    body = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", " ", text.text)
    return f"---\n{front}---\n{body if body.strip() else title}\n"
