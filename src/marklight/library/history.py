"""Commits beside the documents: an index of their own, asked by the same pipeline and models."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

from marklight import engines, ownership
from marklight.answer import Query
from marklight.commits import SHORT, Commit
from marklight.errors import Busy, HistoryError, ModelServerError, StoreError
from marklight.ingest.embedding import passages_matching
from marklight.ingest.history.commit_diff import indexed_state
from marklight.ingest.history.pipeline import CommitIngest
from marklight.ingest.history.repository import Repository, find
from marklight.library.compose import Index
from marklight.library.upkeep import MOMENT_SECONDS
from marklight.model import Document, DocumentId, Failure
from marklight.ownership import Origin
from marklight.ports import Engine, Progress, Snapshot
from marklight.report import Report

FOLDER = "history"
"""Where commits live, in the folder of the library's own index."""
_SHORT_HASH = re.compile(r"[0-9a-f]{4,64}")


def open_engine(address: str) -> tuple[Engine, str]:
    """Open the engine of commits beside the one of documents; also return a notice where it is in another place."""
    folder = engines.parse_address(address).folder
    if folder is None:
        return engines.open(address), ""
    beside = folder / FOLDER
    if ownership.origin(beside) is not Origin.FOREIGN:
        return engines.open(beside), ""
    away = ownership.place_away(beside)
    notice = f"{beside} was not made by you on this machine and is not used (delete it to keep the index of commits there), so that is in {away}"
    return engines.open(away), notice


def repositories(
    collections: Mapping[str, Path],
) -> tuple[dict[str, Repository], dict[str, HistoryError]]:
    """The repositories that hold the collections, each under the name of its first; and which git refuses."""
    found: dict[str, Repository] = {}
    refused: dict[str, HistoryError] = {}
    for name, folder in collections.items():
        try:
            one = find(folder)
        except HistoryError as error:
            refused[name] = error
            continue
        if one and one.store not in {each.store for each in found.values()}:
            found[name] = one
    return found, refused


@dataclass(frozen=True, slots=True)
class Annals:
    """The history of a library, kept up to date and asked."""

    history: CommitIngest
    limits: Index
    read_seconds: float
    embedding: Lock
    """Held by the one thread that makes vectors."""

    def run(self, progress: Progress, *, rebuild: bool = False) -> Report:
        """All of it, however long it takes: messages and diffs first, then vectors."""
        began, before = time.perf_counter(), self.history.counts()
        with self.history.engine.writing(self.limits.wait_seconds):
            report = self.history.index_text(progress, rebuild=rebuild)
        with self.embedding:
            self.history.embed_missing(_of_commits(progress), wait_seconds=self.limits.wait_seconds)
            self.history.drop_unused_vectors()
        after = self.history.counts()
        return replace(
            report,
            index=after,
            newly_embedded=max(0, after.embedded - before.embedded),
            notices=self.notices(),
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def refresh(self, query: Query, progress: Progress) -> list[str]:
        """What came and went, and vectors for a while; what could not be done is said and is not fatal."""
        history, limits = self.history, self.limits
        told: list[str] = []
        try:
            empty = not history.counts().documents
            if history.differs():
                with history.engine.writing(limits.wait_seconds if empty else MOMENT_SECONDS):
                    report = history.index_text(progress, time.monotonic() + self.read_seconds)
                told += [*report.notices, *map(_unread, report.skipped)]
            if history.has_pending() and self.embedding.acquire(blocking=False):
                try:
                    self._embed(
                        query,
                        progress,
                        limits.first_search_seconds if empty else limits.search_seconds,
                    )
                finally:
                    self.embedding.release()
            return told
        except ModelServerError as error:
            return [*told, f"what is new could not be embedded: {error}"]
        except Busy:
            return ["another process is reading the history; answering from what is there"]
        except (StoreError, HistoryError) as error:
            if not history.counts().documents:
                raise
            return [f"the history could not be brought up to date: {error}"]

    def _embed(self, query: Query, progress: Progress, seconds: float) -> None:
        history, until = self.history, time.monotonic() + seconds
        first = partial(passages_matching, history.engine, query)
        hurried, told = history.with_time_limit(seconds), _of_commits(progress)
        hurried.embed_missing(told, until, first, self.limits.wait_seconds)
        history.drop_unused_vectors()

    def embed_some(self, progress: Progress, seconds: float) -> bool:
        """Vectors for a while; whether there is more to do. A question that makes some itself comes first."""
        history = self.history
        if not history.has_pending():
            return False
        if not self.embedding.acquire(timeout=MOMENT_SECONDS):
            return True
        try:
            before = history.counts().embedded
            until = time.monotonic() + seconds
            history.embed_missing(_of_commits(progress), until, wait_seconds=MOMENT_SECONDS)
            if history.has_pending():
                # Where none was made there is something that cannot be done.
                return history.counts().embedded != before
            history.drop_unused_vectors()
            return False
        finally:
            self.embedding.release()

    def notices(self) -> tuple[str, ...]:
        """What the asker should know of the repositories."""
        said = []
        with self.history.engine.snapshot() as snapshot:
            manifest = snapshot.status.manifest()
            count = snapshot.status.counts("").documents
        for name, each in self.history.repositories.items():
            if each.shallow_edge():
                said.append(
                    f"{each.folder} is a shallow clone, so older commits are not here;"
                    " `git fetch --unshallow` gets them"
                )
            read = indexed_state(manifest, name)
            if read.problem:
                said.append(
                    f"{each.folder} is damaged, so some commits cannot be read: {read.problem}"
                )
            if read.lacking:
                said.append(
                    f"diffs in {each.folder} cannot be read, so messages alone are searched: {read.lacking}"
                )
            if not count:
                said.append(f"there are no commits in {each.folder} yet")
        return tuple(said)

    def commits(
        self, snapshot: Snapshot, documents: Iterable[DocumentId]
    ) -> dict[DocumentId, Commit]:
        """Those with these names, and the branches and tags that mean them."""
        found = [each for id in documents if (each := snapshot.documents.get(id))]
        refs: dict[str, list[str]] = {}
        for name, repository in self.history.repositories.items():
            with suppress(HistoryError):
                refs |= repository.refs_at([each.id.path for each in found if each.id[0] == name])
        return {each.id: _commit(each, refs.get(each.id.path, [])) for each in found}

    def meant(self, text: str) -> str:
        """The whole hash where a question is nothing but the beginning of one."""
        if not _SHORT_HASH.fullmatch(text.strip()):
            return text
        for repository in self.history.repositories.values():
            if whole := repository.full_hash(text.strip()):
                return whole
        return text


def _of_commits(progress: Progress) -> Progress:
    """Told apart from what is done for documents, whose phases have the same names."""

    def tell(phase: str, done: int, total: int) -> None:
        progress(f"{phase} of commits", done, total)

    return tell


def _unread(failure: Failure) -> str:
    return f"the commit {failure.document.path[:SHORT]} cannot be read: {failure.reason}"


def _commit(document: Document, refs: Iterable[str]) -> Commit:
    name, email, *_ = document.metadata["author"]
    return Commit(
        repository=document.id.collection,
        hash=document.id.path,
        subject=document.title,
        name=name,
        email=email,
        date=document.date or "",
        files=tuple(document.metadata["files"]),
        refs=tuple(refs),
    )
