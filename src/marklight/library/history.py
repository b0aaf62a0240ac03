"""Commits beside the documents: an index of their own, asked by the same pipeline and models."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from marklight import engines
from marklight.answer import Query
from marklight.commits import Commit
from marklight.errors import Busy, HistoryError, StoreError
from marklight.ingest.history.news import known
from marklight.ingest.history.pipeline import History
from marklight.ingest.history.repository import Repository, find
from marklight.library.compose import Index
from marklight.library.upkeep import EMBED_FIRST, name_key
from marklight.model import Batch, Document, DocumentId
from marklight.ports import FIELD_BOOSTS, Engine, Progress, Reader
from marklight.report import Report
from marklight.text import query_words

FOLDER = "history"
"""Where commits live, in the folder of the library's own index."""
_SHORT_HASH = re.compile(r"[0-9a-f]{4,64}")


def open_engine(address: str) -> Engine:
    """The engine of commits beside the one of documents."""
    return engines.open(address if address == "memory:" else f"{address}/{FOLDER}")


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

    history: History
    limits: Index
    read_seconds: float

    def run(self, progress: Progress, *, rebuild: bool = False) -> Report:
        """All of it, however long it takes: messages and diffs first, then vectors."""
        with self.history.engine.writing(self.limits.wait_seconds):
            report = self.history.text(progress, rebuild=rebuild)
            self._embed(progress)
        return replace(report, index=self.history.counts(), notices=self.notices())

    def refresh(self, query: Query, progress: Progress) -> list[str]:
        """What came and went, and vectors for a while; what could not be done is said and is not fatal."""
        history, limits = self.history, self.limits
        try:
            differs = history.differs()
            if not differs and not history.waiting():
                return []
            empty = not history.counts().documents
            with history.engine.writing(limits.wait_seconds if empty else 0.0):
                report = Report()
                if differs:
                    report = history.text(progress, time.monotonic() + self.read_seconds)
                seconds = limits.first_search_seconds if empty else limits.search_seconds
                self._embed(progress, time.monotonic() + seconds, lambda: self._likely(query))
            return [
                *report.notices,
                *(f"{each.document.path[:7]}: {each.reason}" for each in report.skipped),
            ]
        except Busy:
            return ["another process is reading the history; answering from what is there"]
        except (StoreError, HistoryError) as error:
            if not history.counts().documents:
                raise
            return [f"the history could not be brought up to date: {error}"]

    def notices(self) -> tuple[str, ...]:
        """What the asker should know of the repositories."""
        said = []
        with self.history.engine.snapshot() as reader:
            manifest = reader.manifest()
            count = reader.counts("").documents
        for name, each in self.history.repositories.items():
            if each.edge():
                said.append(
                    f"{each.folder} is a shallow clone, so older commits are not here;"
                    " `git fetch --unshallow` gets them"
                )
            if problem := known(manifest, name).problem:
                said.append(f"{each.folder} is damaged, so some commits cannot be read: {problem}")
            if not count:
                said.append(f"there are no commits in {each.folder} yet")
        return tuple(said)

    def commits(self, reader: Reader, documents: Iterable[DocumentId]) -> dict[DocumentId, Commit]:
        """Those with these names, and the branches and tags that mean them."""
        found = [each for id in documents if (each := reader.document(id))]
        refs: dict[str, list[str]] = {}
        for name, repository in self.history.repositories.items():
            with suppress(HistoryError):
                refs |= repository.named([each.id.path for each in found if each.id[0] == name])
        return {each.id: _commit(each, refs.get(each.id.path, [])) for each in found}

    def meant(self, text: str) -> str:
        """The whole hash where a question is nothing but the beginning of one."""
        if not _SHORT_HASH.fullmatch(text.strip()):
            return text
        for repository in self.history.repositories.values():
            if whole := repository.meant(text.strip()):
                return whole
        return text

    def _embed(
        self,
        progress: Progress,
        until: float | None = None,
        first: Callable[[], list[str]] = list,
    ) -> None:
        model, engine = self.history.embedder, self.history.engine
        if model is None:
            return
        with engine.snapshot() as reader:
            noted = reader.manifest().get(name_key(model.fingerprint)) == model.name
        if not noted:
            engine.commit(Batch(manifest={name_key(model.fingerprint): model.name}))
        self.history.vectors(progress, until, first)

    def _likely(self, query: Query) -> list[str]:
        with self.history.engine.snapshot() as reader:
            words = query_words(query.text)
            found = reader.keyword(words, FIELD_BOOSTS, query.filters, EMBED_FIRST)
            return [one.chunk for one in found]


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
