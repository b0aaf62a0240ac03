"""What a library is made of: its place, settings, engine and models, each opened when first needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from marklight import engines, models
from marklight.answer import Query
from marklight.errors import ModelError, UsageError
from marklight.ingest.chunk import Chunker
from marklight.ingest.discover import Discover
from marklight.ingest.history.repository import Repository
from marklight.ingest.pipeline import Ingest
from marklight.library.bookmark import Bookmark
from marklight.library.chosen import Model, Reranking
from marklight.library.compose import Index, Serve, Terminal, compose_pipeline, read_settings
from marklight.library.files import Files
from marklight.library.flight import Flight
from marklight.library.history import open_engine
from marklight.library.locate import index_address, path_of, scope_of
from marklight.models.remembering import Remembering
from marklight.once import once
from marklight.place import Place, locate
from marklight.ports import Embedder, Engine, Reranker, Resting
from marklight.search.pipeline import Pipeline
from marklight.search.refine.rerank import Rerank
from marklight.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from marklight.library.following import Following
    from marklight.library.upkeep import Freshness
    from marklight.models.remote.server import Server

DEFAULT_COLLECTION = "default"
"""The one collection of a library that names none; the same wherever the folder moves to."""
THREADS = 4
"""Retrievers that work at once, whatever number of searches asks for them."""
SEARCHES = os.cpu_count() or 1
"""Searches that work at once. More would only take the interpreter from each other: on two cores eight
of them answer 45 questions a second, two of them 80, one 60."""
MANY = 500_000
"""Passages from which on one search has several retrievers at work at once. Below, handing them over costs
more than it saves, since most of what they do holds Python's lock: on two cores 18.4 ms against 16.6 in
turn at 190,000 passages, 11.6 against 10.7 at 19,000."""
OPEN = ("ingest", "reading", "engine", "commits_engine", "pool")
"""What is open, or made of what is; none of it outlives a library."""
MODELS = ("embedder", "reranker", "any_reranker")

Value = TypeVar("Value")


class Parts:
    """The parts, for the verbs to work with; safe to ask for from several threads."""

    def __init__(
        self,
        folder: Path | str | None = None,
        given: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
    ) -> None:
        self.closed = False
        self.looks: Flight[Freshness] = Flight()
        self.embedding, self.embedding_commits = Lock(), Lock()
        self.repositories: Mapping[str, Repository] = {}
        """Those that hold the collections, once they were asked for."""
        self.following: Following | None = None
        """Who follows the files on the disk, where somebody does."""
        self._places, self._free = BoundedSemaphore(SEARCHES), BoundedSemaphore(1)
        self.place: Place = locate(Path(folder) if folder is not None else None)
        self._given, self._assignments = dict(given or {}), tuple(assignments)
        self.settings: Settings = read_settings(self.place.folder, assignments, given)
        self.pipeline = compose_pipeline(self.settings)
        self.address, self.notice = index_address(self.place.folder, self.settings["engine"])

    @once
    def collections(self) -> Mapping[str, Path]:
        """Names and folders."""
        named = self.settings["collections"] or {DEFAULT_COLLECTION: "."}
        return {
            name: path_of(folder, self.place.folder, f"collections.{name}")
            for name, folder in named.items()
        }

    @once
    def files(self) -> Files:
        """What stands in them."""
        return Files(self.collections)

    @once
    def serve(self) -> Serve:
        """How it is served to many."""
        return self.settings.build(Serve, "serve")

    @once
    def link_address(self) -> str:
        """What a click on a place in a terminal opens."""
        return self.settings.build(Terminal, "terminal").address

    @once
    def engine(self) -> Engine:
        """Where the index lives."""
        self._demand_open()
        return engines.open(self.address)

    @once
    def commits_engine(self) -> Engine:
        """Where the index of commits lives."""
        self._demand_open()
        return open_engine(self.address)

    @once
    def embedder(self) -> Embedder | None:
        """The configured model; None when the settings want none."""
        model = self.settings.build(Model, "model")
        return None if model.name == "none" else self.model_named(model.name)

    @once
    def model_named(self) -> Callable[[str], Embedder]:
        """Models by their names, each made once: an earlier one may answer for a while."""
        model = self.settings.build(Model, "model")
        server, threads = model.server, model.threads
        return cache(lambda name: Remembering(models.load(name, threads=threads, server=server)))

    @once
    def server(self) -> Server | None:
        """Where the configured model is, if that is on a server."""
        return self.settings.build(Model, "model").server

    @once
    def reranker_server(self) -> Server | None:
        """The same for the cross-encoder."""
        return self.settings.build(Reranking, "reranker").server

    def sent_to(self, *, embedding: bool = False, reranking: bool = False) -> list[str]:
        """Which servers get texts from now on that nobody was told of; each is told once."""
        asked = [self.server if embedding else None, self.reranker_server if reranking else None]
        far = [server for server in asked if server and not server.is_local]
        if not far:
            return []
        from marklight.models.remote.memory import Memory

        return [
            f"texts of this library and questions are sent to {server.address} for {server.name}"
            f"{', unencrypted' if server.address.startswith('http:') else ''}; this is said once"
            for server in far
            if Memory(server).first_use()
        ]

    @once
    def reading(self) -> Ingest:
        """Files to text in the index; needs no model."""
        return Ingest(
            engine=self.engine,
            collections=self.collections,
            discover=self.settings.build(Discover, "files"),
            chunker=self.settings.build(Chunker, "chunk"),
            embedder=None,
            max_bytes=self.settings["index.max_bytes"],
        )

    @once
    def ingest(self) -> Ingest:
        """Files to text and vectors in the index."""
        return replace(self.reading, embedder=self.embedder)

    @once
    def limits(self) -> Index:
        """How long things may take."""
        return self.settings.build(Index, "index")

    @once
    def bookmark(self) -> Bookmark:
        """Where the last look at the files stopped."""
        kept = self.address.startswith("file:")
        return Bookmark(Path(self.address.removeprefix("file:")) if kept else None)

    @once
    def scope(self) -> tuple[tuple[str, str], ...]:
        """The part of the library that was named by its folder; empty for all of it."""
        return scope_of(self.collections, self.place.part) if self.place.part else ()

    @once
    def reranker(self) -> Reranker | None:
        """The configured cross-encoder; None when the settings name none."""
        chosen = self.settings.build(Reranking, "reranker")
        if chosen.name in ("", "none"):
            return None
        return models.load_reranker(chosen.name, threads=chosen.threads, server=chosen.server)

    @once
    def any_reranker(self) -> Reranker:
        """The configured cross-encoder, else the default one if it is on this machine."""
        chosen = self.settings.build(Reranking, "reranker")
        return self.reranker or models.load_reranker(threads=chosen.threads)

    def reranker_for(self, query: Query, pipeline: Pipeline) -> Reranker | None:
        """The cross-encoder that this question needs; one that is not needed is not looked for."""
        if not _reads(query, pipeline):
            return None
        return self.any_reranker if query.rerank else self.reranker

    def reranks(self, text: str, rerank: bool | None = None) -> bool:
        """Whether a cross-encoder is to read for this question; it is not looked for yet."""
        configured = self.settings["reranker.name"] not in ("", "none")
        return _reads(Query(text, rerank=rerank), self.pipeline) and (bool(rerank) or configured)

    @once
    def pool(self) -> ThreadPoolExecutor:
        """The one pool of threads that all searches of this library share."""
        from concurrent.futures import ThreadPoolExecutor  # brings logging along

        self._demand_open()
        return ThreadPoolExecutor(THREADS, thread_name_prefix="marklight")

    @contextmanager
    def at_work(self) -> Iterator[bool]:
        """A place among the searches at work; whether it is the only one, with the pool for itself."""
        with self._places:
            alone = self._free.acquire(blocking=False)
            try:
                yield alone
            finally:
                if alone:
                    self._free.release()

    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Do several things at once; the caller's own thread does the last one, and what nobody began.

        Nothing is still at work when this returns or raises: what the tasks read may be closed then.
        """
        if len(tasks) < 2:
            return [task() for task in tasks]
        *others, own = tasks
        begun: list[Future[Value]] = []
        try:
            begun.extend(self._submit(task) for task in others)
            last = own()
            # Whoever waits for a task that waits for a thread would wait for ever.
            rest = [
                task() if each.cancel() else each.result()
                for task, each in zip(others, begun, strict=True)
            ]
            return [*rest, last]
        finally:
            from concurrent.futures import wait

            wait([each for each in begun if not each.cancel()])

    def _submit(self, task: Callable[[], Value]) -> Future[Value]:
        try:
            return self.pool.submit(task)
        except RuntimeError:  # closed by another thread meanwhile
            self._demand_open()
            raise

    def pipeline_with(self, given: Mapping[str, Any], assignments: Sequence[str] = ()) -> Pipeline:
        """The stages with some settings changed for one call; other parts are made already."""
        if not given and not assignments:
            return self.pipeline
        if not isinstance(given, Mapping):
            raise UsageError(f"settings are a table, not {given!r}")
        if others := set(given) - {"search"}:
            raise UsageError(
                f"a single search cannot change {', '.join(sorted(map(str, others)))}",
                "Open a library with it",
            )
        own = {**self._given, **given}
        written = (*self._assignments, *assignments)
        return compose_pipeline(read_settings(self.place.folder, written, own))

    def rest(self) -> None:
        """Give back the memory of models until somebody needs them again."""
        for name in MODELS:
            model = self.__dict__.get(name)
            if isinstance(model, Resting):
                model.rest()

    def again(self) -> Self:
        """The same library opened anew, with settings as their files say now."""
        return type(self)(self.place.folder, self._given, self._assignments)

    def model_problem(self) -> tuple[str, str]:
        """The configured model's fingerprint, or why it has none."""
        try:
            return (self.embedder.fingerprint if self.embedder else ""), ""
        except ModelError as error:
            return "", str(error)

    def reranker_problem(self) -> str:
        """Why the configured cross-encoder cannot be used; empty when it can, or there is none."""
        try:
            _ = self.reranker
        except ModelError as error:
            return str(error)
        return ""

    def close(self) -> None:
        """Give back what is open; searches that run are awaited or end with a clear error."""
        self.closed = True
        made = {name: self.__dict__.pop(name, None) for name in OPEN}
        if made["pool"]:
            made["pool"].shutdown()
        for engine in ("engine", "commits_engine"):
            if made[engine]:
                made[engine].close()

    def _demand_open(self) -> None:
        if self.closed:
            raise UsageError("this library is closed", "Open it again to ask it")


def _reads(query: Query, pipeline: Pipeline) -> bool:
    stage = pipeline.refine.get("rerank")
    return isinstance(stage, Rerank) and stage.wants(query)


def in_turn(tasks: Sequence[Callable[[], Value]]) -> list[Value]:
    """One after the other, which beside other searches is quicker too."""
    return [task() for task in tasks]
