"""Composition: picks the engine and the models, and offers the verbs that every surface has."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from marklight import engines, models
from marklight.answer import Answer, Extract, Mode, Query, Report
from marklight.errors import Busy, ModelError, StoreError, UsageError
from marklight.ingest.chunk import Chunker
from marklight.ingest.discover import Discover
from marklight.ingest.pipeline import Ingest
from marklight.library.asking import Several, ask
from marklight.library.compose import Model, compose_pipeline, read_settings
from marklight.library.locate import Place, Scope, index_address, locate, scope_of, standing
from marklight.model import Batch, DocumentId, Heading
from marklight.ports import FIELD_BOOSTS, Embedder, Engine, Progress, Reader, Tools, silent
from marklight.search import present, reference
from marklight.settings import Settings
from marklight.text import query_words

__all__ = ["Library"]

DEFAULT_COLLECTION = "default"
"""The one collection of a library that names none; the same wherever the folder moves to."""
EMBED_FIRST = 60
"""Passages that match the question's words and are embedded first while vectors are missing."""
TIDY_SHARE = 0.25
"""Unused vectors beyond this share of all passages are dropped after a run."""


class Library:
    """A folder of documents with its index."""

    def __init__(
        self,
        folder: Path | str | None = None,
        given: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
        place: Place | None = None,
    ) -> None:
        self.place = place or locate(Path(folder) if folder is not None else None)
        self._given, self._assignments = dict(given or {}), tuple(assignments)
        self.settings: Settings = read_settings(self.place.folder, assignments, given)
        self.address, self._notice = index_address(self.place.folder, self.settings["engine"])

    @classmethod
    def around(cls, folder: Path | None, assignments: Sequence[str] = ()) -> Library:
        """The library that a folder, or the current one, belongs to."""
        return cls(folder, assignments=assignments)

    # What it is made of

    @cached_property
    def collections(self) -> Mapping[str, Path]:
        """Names and folders."""
        named = self.settings["collections"] or {DEFAULT_COLLECTION: "."}
        return {
            name: (self.place.folder / Path(folder).expanduser()).resolve()
            for name, folder in named.items()
        }

    @cached_property
    def engine(self) -> Engine:
        """Where the index lives."""
        return engines.open(self.address)

    @cached_property
    def embedder(self) -> Embedder | None:
        """The configured model; None when the settings want none."""
        model = self.settings.build(Model, "model")
        return None if model.name == "none" else models.load(model.name, threads=model.threads)

    @cached_property
    def ingest(self) -> Ingest:
        """Files to the index."""
        return Ingest(
            engine=self.engine,
            collections=self.collections,
            discover=self.settings.build(Discover, "files"),
            chunker=self.settings.build(Chunker, "chunk"),
            embedder=self.embedder,
            max_bytes=self.settings["index.max_bytes"],
        )

    @cached_property
    def _scope(self) -> Scope:
        """The part of the library that was named by its folder."""
        if self.place.part is None:
            return Scope()
        return scope_of(self.collections, self.place.part)

    # Verbs

    def index(self, *, rebuild: bool = False, progress: Progress = silent) -> Report:
        """Bring the index up to date: text first, searchable at once, then vectors."""
        began = time.perf_counter()
        with self.engine.writing(self.settings["index.wait_seconds"]):
            look = self.ingest.look(rebuild=rebuild)
            report = self.ingest.text(look, progress)
            self.ingest.vectors(progress)
            self._tidy()
        return replace(
            report,
            index=self.ingest.counts(),
            notices=self._notices(),
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def search(
        self,
        text: str,
        *,
        limit: int = 5,
        mode: str = "hybrid",
        min_confidence: float | None = None,
        path: Several = (),
        tag: Several = (),
        where: Mapping[str, str] | Several = (),
        after: str | None = None,
        before: str | None = None,
        exclude: Several = (),
        collection: Several = (),
        max_tokens: int | None = None,
        explain: bool = False,
        refresh: bool = True,
        settings: Mapping[str, Any] | None = None,
        progress: Progress = silent,
    ) -> Answer:
        """Find passages; the index is compared with the disk first unless told not to."""
        began = time.perf_counter()
        query = ask(
            text,
            limit=limit,
            mode=mode,
            min_confidence=min_confidence,
            max_tokens=max_tokens,
            path=path,
            tag=tag,
            where=where,
            after=after,
            before=before,
            exclude=exclude,
            collection=collection,
            here=standing(self.collections, Path.cwd()) if len(self.collections) > 1 else "",
            scope=self._scope,
        )
        notices = [*self._notices(), *(self._refresh(query, progress) if refresh else ())]
        pipeline = compose_pipeline(self._settings_with(settings))
        with self.engine.snapshot() as reader:
            embedder, said = self._model_for(reader, query)
            tools = Tools(reader, embedder, now=time.time())
            try:
                answer = pipeline(query, tools)
            except ModelError as error:
                if query.mode is Mode.SEMANTIC:
                    raise
                answer = pipeline(query, replace(tools, embedder=None))
                said = [f"answering by keywords only: {error}"]
            answer = self._checked(answer, reader)
        if answer.index.documents == 0:
            said = [*said, f"there are no documents in {self.place.folder}"]
        answer = replace(answer, notices=(*notices, *said, *answer.notices), explain=explain)
        answer = present.within_budget(answer)
        return replace(answer, took_ms=(time.perf_counter() - began) * 1000)

    def get(self, ref: str) -> Extract:
        """A document or a part of it: path, path#heading, path:10-40 or a passage's id."""
        with self._ready() as reader:
            return reference.follow(self._inside(ref), reader)

    def outline(self, path: str) -> tuple[DocumentId, Sequence[Heading]]:
        """A document's headings."""
        with self._ready() as reader:
            document = reference.demand(self._inside(path), reader)
            return document.id, document.outline

    def ignored(self, path: Path | str) -> str:
        """Why a file is left out of the index; empty when it is not."""
        discover = self.settings.build(Discover, "files")
        return discover.why_ignored(Path(path), self.collections) or ""

    def status(self) -> dict[str, Any]:
        """What is indexed, what is still to do, what failed."""
        name = self.settings["model.name"]
        with self.engine.snapshot() as reader:
            fingerprint = self.embedder.fingerprint if self.embedder else ""
            counts, failures = reader.counts(fingerprint), reader.failures()
            documents = Counter(id.collection for id in reader.files())
        return {
            "documents": counts.documents,
            "chunks": counts.chunks,
            "embedded": counts.embedded,
            "pending": counts.pending if self.embedder else 0,
            "failed": [
                {
                    "path": one.document.path,
                    "collection": one.document.collection,
                    "reason": one.reason,
                }
                for one in failures
            ],
            "generation": counts.generation,
            "model": name,
            "engine": self.engine.describe(),
            "sizes": dict(self.engine.sizes()),
            "unused_vectors": self.engine.waste(),
            "collections": {
                each: {"path": str(folder), "documents": documents[each]}
                for each, folder in self.collections.items()
            },
        }

    def close(self) -> None:
        """Give back what is open."""
        if "engine" in self.__dict__:
            self.engine.close()

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Inside

    @contextmanager
    def _ready(self) -> Iterator[Reader]:
        """A snapshot to read from, after a look at the disk."""
        self._refresh(None, silent)
        with self.engine.snapshot() as reader:
            yield reader

    def _refresh(self, query: Query | None, progress: Progress) -> list[str]:
        """Bring the text up to date and embed for a while; what could not be done is said, not fatal."""
        try:
            look = self.ingest.look()
            counts = self.ingest.counts()
            if not look and (query is None or not counts.pending):
                return []
            wait = 0.0 if counts.documents else self.settings["index.wait_seconds"]
            with self.engine.writing(wait):
                self.ingest.text(look, progress)
                if query is not None:
                    budget = "search_seconds" if counts.documents else "first_search_seconds"
                    self._embed_for(query, self.settings[f"index.{budget}"], progress)
            return []
        except ModelError:
            with self.engine.snapshot() as reader:
                if not reader.counts("").documents:
                    raise
            # Words can still answer, and the answer says why they do so alone.
            return []
        except Busy:
            return ["another process is indexing this library; answering from what is there"]
        except StoreError as error:
            return [f"the index could not be brought up to date: {error}"]

    def _embed_for(self, query: Query, seconds: float, progress: Progress) -> None:
        """Embed what is missing for so long; passages with the question's words first."""
        until = time.monotonic() + seconds

        def likely() -> list[str]:
            with self.engine.snapshot() as reader:
                words = query_words(query.text)
                found = reader.keyword(words, FIELD_BOOSTS, query.filters, EMBED_FIRST)
                return [one.chunk for one in found]

        self.ingest.vectors(progress, until, likely)

    def _model_for(self, reader: Reader, query: Query) -> tuple[Embedder | None, list[str]]:
        """The model whose vectors cover most: a new one takes over when it is ready."""
        if query.mode not in (Mode.HYBRID, Mode.SEMANTIC):
            return None, []
        try:
            wanted = self.embedder
        except ModelError as error:
            if query.mode is Mode.SEMANTIC:
                raise
            return None, [f"answering by keywords only: {error}"]
        if wanted is None:
            if query.mode is Mode.SEMANTIC:
                raise UsageError("the settings name no model, so there is no semantic search", "")
            return None, []
        covered = reader.models()
        have, total = covered.get(wanted.fingerprint, 0), reader.counts("").chunks
        if have >= total:
            return wanted, []
        done = f"{have} of {total} passages are embedded; `marklight index` does the rest"
        noted = reader.manifest()
        if covered.get(noted.get("model", ""), 0) > have:
            before = self._load_again(noted)
            if before is not None:
                return before, [f"{before.name} answers until {wanted.name} is ready: {done}"]
        return wanted, [f"semantic search is still partial: {done}"]

    def _load_again(self, noted: Mapping[str, str]) -> Embedder | None:
        try:
            found = models.load(noted["model_name"])
        except ModelError:
            return None
        return found if found.fingerprint == noted["model"] else None

    def _checked(self, answer: Answer, reader: Reader) -> Answer:
        """Without hits whose file is gone, and with the file times of the others."""
        files = reader.files() if answer.hits else {}
        alive = tuple(hit for hit in answer.hits if os.path.exists(self._file(hit.chunk.document)))
        dropped = len(answer.hits) - len(alive)
        notices = (f"{dropped} results left out, for their files are gone",) if dropped else ()
        modified = {hit.chunk.document: files[hit.chunk.document].file.mtime_ns for hit in alive}
        return replace(answer, hits=alive, modified=modified, notices=notices)

    def _file(self, id: DocumentId) -> Path:
        return self.collections.get(id.collection, self.place.folder) / id.path

    def _inside(self, ref: str) -> str:
        """A path as a person in the current folder writes it, as one below its collection."""
        here = Path(ref.partition("#")[0]).absolute()
        for folder in self.collections.values():
            if here.is_file() and here.is_relative_to(folder):
                inside = here.relative_to(folder).as_posix()
                return inside + ref[len(ref.partition("#")[0]) :]
        return ref

    def _settings_with(self, given: Mapping[str, Any] | None) -> Settings:
        if not given:
            return self.settings
        return read_settings(self.place.folder, self._assignments, {**self._given, **given})

    def _tidy(self) -> None:
        """Note the model once it covers everything, and drop vectors that nothing uses."""
        model = self.embedder
        if model is None:
            return
        with self.engine.snapshot() as reader:
            counts, noted = reader.counts(model.fingerprint), reader.manifest().get("model")
        if counts.pending:
            return
        if noted != model.fingerprint:
            self.engine.commit(
                Batch(manifest={"model": model.fingerprint, "model_name": model.name})
            )
        if noted not in (None, model.fingerprint) or self.engine.waste() > max(
            1000, TIDY_SHARE * counts.chunks
        ):
            self.engine.clean(keep={model.fingerprint})

    def _notices(self) -> tuple[str, ...]:
        return (self._notice,) if self._notice else ()
