"""A dataset's documents as a library in the user's cache, and its answers as places in that library."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from marklight.answer import Hit
from marklight.errors import MarklightError, UsageError
from marklight.eval.corpus import file_name, home_of
from marklight.eval.dataset import Dataset, Judgement, Question
from marklight.library import DEFAULT_COLLECTION, Library
from marklight.library.compose import compose_pipeline, read_settings
from marklight.ports import Progress, silent
from marklight.settings import Settings
from marklight.text import digest

WORDS_ONLY = ("keyword", "code")
"""Modes for which nothing is embedded."""


class Place(NamedTuple):
    """A document, or some lines of it."""

    document: str
    lines: tuple[int, int] | None = None

    def holds(self, hit: Hit, document: str) -> bool:
        """Whether a passage stands there, at least in part."""
        if document != self.document:
            return False
        first, last = hit.chunk.lines
        return self.lines is None or (first <= self.lines[1] and last >= self.lines[0])


@dataclass(frozen=True, slots=True)
class Collection:
    """A library, and how a dataset calls its documents."""

    library: Library
    names: Mapping[str, str]
    """By path."""
    given: Mapping[str, Any]
    assignments: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    def called(self, hit: Hit) -> str:
        """A passage's document as the dataset calls it."""
        return self.names.get(hit.chunk.path, hit.chunk.path)

    def varied(self, more: Sequence[str]) -> Collection:
        """The same documents asked with other settings of search; what is open is shared."""
        assignments = (*self.assignments, *more)
        settings = read_settings(self.library.place.folder, assignments, self.given)
        other = copy(self.library)
        other.settings, other.pipeline = settings, compose_pipeline(settings)
        return replace(self, library=other, assignments=assignments)


@contextmanager
def open_collection(
    dataset: Dataset, mode: str, assignments: Sequence[str] = (), progress: Progress = silent
) -> Iterator[Collection]:
    """The documents, indexed; what was done in an earlier run is not done again."""
    names = {file_name(index): text.id for index, text in enumerate(dataset.texts)}
    folder, home = home_of(dataset)
    given: dict[str, Any] = {"collections": {DEFAULT_COLLECTION: str(folder)}}
    # Search by words needs no model, and no time for vectors.
    own = (*assignments, "model.name=none") if mode in WORDS_ONLY else tuple(assignments)
    settings = read_settings(folder, own, given)
    given["engine"] = f"file:{home / f'index-{_recipe(settings)}'}"
    with Library(folder, given, own) as library:
        report = library.index(progress=progress)
        if not report.index.documents:
            raise UsageError(f"there are no documents in {folder}", "Expected Markdown or text")
        yield Collection(library, names, given, own, tuple(report.notices))


def places(collection: Collection, dataset: Dataset) -> list[dict[str, Place]]:
    """For each question its answers as places; an answer that is nowhere is an error that names its line."""
    known = _known(collection)
    found = []
    for question in dataset.questions:
        if dataset.references:
            found.append(
                {
                    answer: _referred(collection, dataset, answer, one, known)
                    for answer, one in question.answers.items()
                }
            )
        else:
            _demand_known(dataset, question, known)
            found.append({answer: Place(answer) for answer in question.answers})
    return found


def missing(collection: Collection, dataset: Dataset) -> list[str]:
    """Judged documents that are on the disk and not in the index, so that no question can find them."""
    if dataset.folder is None or dataset.references:
        return []
    known = _known(collection)
    judged = {answer for question in dataset.questions for answer in question.answers}
    return sorted(judged - known)


def _known(collection: Collection) -> set[str]:
    with collection.library.engine.snapshot() as snapshot:
        return {collection.names.get(id.path, id.path) for id in snapshot.documents.files()}


def _demand_known(dataset: Dataset, question: Question, known: set[str]) -> None:
    """A file that is there but not in the index is a miss; one that is not there is a mistake."""
    for answer, one in question.answers.items():
        if answer in known or dataset.folder is None:
            continue
        if "\0" in answer or not (dataset.folder / answer).is_file():
            raise UsageError(
                f"{one.where} judges the document {answer!r}, which is not in {dataset.folder}",
                "Expected a path below that folder, such as guide/auth.md",
            )


def _referred(
    collection: Collection, dataset: Dataset, answer: str, one: Judgement, known: set[str]
) -> Place:
    if answer in known:
        return Place(answer)
    try:
        extract = collection.library.get(answer)
    except MarklightError as error:
        why = _left_out(collection, dataset.folder, answer)
        raise UsageError(f"{one.where}: {why or error.message}", error.hint) from None
    path = extract.document.path
    whole = "#" not in answer and ":" not in answer
    return Place(path, None if whole else extract.lines)


def _left_out(collection: Collection, folder: Path | None, answer: str) -> str:
    """Why a document that is on the disk is not in the index; empty if it is not on the disk."""
    if folder is None or "\0" in answer:
        return ""
    file = folder / answer.partition("#")[0]
    why = collection.library.ignored(file) if file.is_file() else ""
    return f"{file} is not in the index: {why}" if why else ""


def _recipe(settings: Settings) -> str:
    """Settings that change what is in the index: each such choice has its own, so that none is lost to another."""
    kept = {
        key: value
        for key, value in settings.values.items()
        if key.startswith(("chunk.", "files.")) or key in ("model.name", "index.max_bytes")
    }
    return digest(json.dumps(kept, sort_keys=True, default=str), size=6)
