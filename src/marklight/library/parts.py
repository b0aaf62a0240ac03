"""What a library is made of: its place, settings, engine and models, each opened when first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from marklight import engines, models
from marklight.errors import ModelError, UsageError
from marklight.ingest.chunk import Chunker
from marklight.ingest.discover import Discover
from marklight.ingest.pipeline import Ingest
from marklight.library.compose import Model, Reranking, compose_pipeline, read_settings
from marklight.library.locate import Place, index_address, locate, path_of, scope_of
from marklight.models.remembering import Remembering
from marklight.ports import Embedder, Engine, Reranker
from marklight.search.pipeline import Pipeline
from marklight.settings import Settings

DEFAULT_COLLECTION = "default"
"""The one collection of a library that names none; the same wherever the folder moves to."""
THREADS = 4
"""Retrievers that work at once, whatever number of searches asks for them."""

Value = TypeVar("Value")


class Parts:
    """The parts, for the verbs to work with; safe to ask for from several threads."""

    def __init__(
        self,
        folder: Path | str | None = None,
        given: Mapping[str, Any] | None = None,
        assignments: Sequence[str] = (),
    ) -> None:
        self.place: Place = locate(Path(folder) if folder is not None else None)
        self._given, self._assignments = dict(given or {}), tuple(assignments)
        self.settings: Settings = read_settings(self.place.folder, assignments, given)
        self.pipeline = compose_pipeline(self.settings)
        self.address, self.notice = index_address(self.place.folder, self.settings["engine"])

    @cached_property
    def collections(self) -> Mapping[str, Path]:
        """Names and folders."""
        named = self.settings["collections"] or {DEFAULT_COLLECTION: "."}
        return {
            name: path_of(folder, self.place.folder, f"collections.{name}")
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
        if model.name == "none":
            return None
        return Remembering(models.load(model.name, threads=model.threads))

    @cached_property
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

    @cached_property
    def ingest(self) -> Ingest:
        """Files to text and vectors in the index."""
        return replace(self.reading, embedder=self.embedder)

    @cached_property
    def scope(self) -> tuple[tuple[str, str], ...]:
        """The part of the library that was named by its folder; empty for all of it."""
        return scope_of(self.collections, self.place.part) if self.place.part else ()

    @cached_property
    def reranker(self) -> Reranker | None:
        """The configured cross-encoder; None when the settings name none."""
        chosen = self.settings.build(Reranking, "reranker")
        return models.load_reranker(chosen.name, threads=chosen.threads) if chosen.name else None

    @cached_property
    def pool(self) -> ThreadPoolExecutor:
        """The one pool of threads that all searches of this library share."""
        return ThreadPoolExecutor(THREADS, thread_name_prefix="marklight")

    def together(self, tasks: Sequence[Callable[[], Value]]) -> list[Value]:
        """Do several things at once; the last one on the caller's own thread, which else would wait."""
        if not tasks:
            return []
        *others, own = tasks
        started = [self.pool.submit(task) for task in others]
        last = own()
        return [*(each.result() for each in started), last]

    def pipeline_with(self, given: Mapping[str, Any]) -> Pipeline:
        """The stages with some settings changed for one call; other parts are made already."""
        if others := set(given) - {"search"}:
            raise UsageError(
                f"a single search cannot change {', '.join(sorted(others))}",
                "Open a library with it",
            )
        own = {**self._given, **given}
        return compose_pipeline(read_settings(self.place.folder, self._assignments, own))

    def model_problem(self) -> tuple[str, str]:
        """The configured model's fingerprint, or why it has none."""
        try:
            return (self.embedder.fingerprint if self.embedder else ""), ""
        except ModelError as error:
            return "", str(error)

    def close(self) -> None:
        """Give back what is open."""
        if "pool" in self.__dict__:
            self.pool.shutdown()
        if "engine" in self.__dict__:
            self.engine.close()
