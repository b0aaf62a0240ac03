"""The models of a library: those that the settings name, each loaded when first needed, and where they are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING

from marklight import models
from marklight.answer import Query
from marklight.errors import ModelError
from marklight.library.chosen import Model, Reranking
from marklight.models.query_cache import CachingEmbedder
from marklight.once import once
from marklight.ports import Embedder, Reranker, Unloadable
from marklight.search.pipeline import Pipeline
from marklight.search.refine.rerank import Rerank
from marklight.settings import Settings

if TYPE_CHECKING:
    from marklight.models.remote.server import Server

LOADED = ("embedder", "reranker", "any_reranker")


class Models:
    """What embeds and what reads again; safe to ask for from several threads."""

    settings: Settings
    pipeline: Pipeline

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
        load = cache(
            lambda name: CachingEmbedder(models.load(name, threads=threads, server=server))
        )
        loading = Lock()

        def named(name: str) -> Embedder:
            with loading:  # `cache` lets two threads make two
                return load(name)

        return named

    @once
    def server(self) -> Server | None:
        """Where the configured model is, if that is on a server."""
        return self.settings.build(Model, "model").server

    def model_problem(self) -> tuple[str, str]:
        """The configured model's fingerprint, or why it has none."""
        try:
            return (self.embedder.fingerprint if self.embedder else ""), ""
        except ModelError as error:
            return "", str(error)

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

    @once
    def reranker_server(self) -> Server | None:
        """Where the configured cross-encoder is, if that is on a server."""
        return self.settings.build(Reranking, "reranker").server

    def reranker_for(self, query: Query, pipeline: Pipeline) -> Reranker | None:
        """The cross-encoder that this question needs; one that is not needed is not looked for."""
        if not _reads(query, pipeline):
            return None
        return self.any_reranker if query.rerank else self.reranker

    def reranks(self, text: str, rerank: bool | None = None) -> bool:
        """Whether a cross-encoder is to read for this question; it is not looked for yet."""
        configured = self.settings["reranker.name"] not in ("", "none")
        return _reads(Query(text, rerank=rerank), self.pipeline) and (bool(rerank) or configured)

    def reranker_problem(self) -> str:
        """Why the configured cross-encoder cannot be used; empty when it can, or there is none."""
        try:
            _ = self.reranker
        except ModelError as error:
            return str(error)
        return ""

    def sent_to(self, *, embedding: bool = False, reranking: bool = False) -> list[str]:
        """Which servers get texts from now on that nobody was told of; each is told once."""
        asked = [self.server if embedding else None, self.reranker_server if reranking else None]
        far = [server for server in asked if server and not server.is_local]
        if not far:
            return []
        from marklight.models.remote.server_state import ServerState

        return [
            f"texts of this library and questions are sent to {server.address} for {server.name}"
            f"{', unencrypted' if server.address.startswith('http:') else ''}; this is said once"
            for server in far
            if ServerState(server).first_use()
        ]

    def rest(self) -> None:
        """Give back the memory of models until somebody needs them again."""
        for name in LOADED:
            model = self.__dict__.get(name)
            if isinstance(model, Unloadable):
                model.unload()


def _reads(query: Query, pipeline: Pipeline) -> bool:
    stage = pipeline.refine.get("rerank")
    return isinstance(stage, Rerank) and stage.wants(query)
