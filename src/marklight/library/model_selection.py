"""Model selection: load the embedding model and the reranker of the settings on first use, and choose which model a search uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, cast

from marklight import models
from marklight.errors import Message, ModelError, UsageError
from marklight.lazy import once
from marklight.library.configuration import Ask, Model, Reranking
from marklight.models import CachingEmbedder
from marklight.models.record import DEFAULT_RERANKER, KNOWN, MULTILINGUAL
from marklight.ports import Embedder, LanguageModel, Reranker, Snapshot
from marklight.query import Mode, Query
from marklight.search.fuse import Rerank
from marklight.settings import Settings

if TYPE_CHECKING:
    from marklight.models.remote import Server
    from marklight.search.pipeline import Pipeline

EMBEDDING_MODES = (Mode.HYBRID, Mode.SEMANTIC)
"""Search modes that need an embedding model."""
RUN_INDEX = "run `marklight index` to embed the rest"
IN_BACKGROUND = "the rest is embedded in the background"
_MULTILINGUAL_HINT = (
    "For a model that knows more languages: `pip install marklight[multilingual]`,"
    " set model.multilingual to always, run `marklight index`"
)
_LOADED = ("embedder", "reranker", "any_reranker")


class ModelSelection:
    """The models of one library, each loaded on first use; thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._embedders: dict[str, Embedder] = {}
        self._lock = Lock()

    @once
    def embedder(self) -> Embedder | None:
        """Return the configured embedding model; None if the settings name none."""
        model = self.settings.build(Model, "model")
        return None if model.name == "none" else self.embedder_named(model.name)

    def embedder_named(self, name: str) -> Embedder:
        """Return an embedding model by name, loaded once: an earlier one may be used for a while."""
        with self._lock:
            if name not in self._embedders:
                model = self.settings.build(Model, "model")
                loaded = models.load(name, threads=model.threads, server=model.server)
                self._embedders[name] = cast(Embedder, CachingEmbedder(loaded))
            return self._embedders[name]

    def multilingual(self, of_documents: Mapping[str, int]) -> Embedder | None:
        """Return the second model, if it is installed, for documents in languages that the first does not know."""
        from marklight.text.languages import main_languages

        wanted, first = self.settings["model.multilingual"], self.embedder
        if wanted == "never" or first is None or not first.languages:
            return None
        added = set(KNOWN[MULTILINGUAL].languages).difference(first.languages)
        if wanted == "auto" and added.isdisjoint(main_languages(of_documents)):
            return None
        try:
            return self.embedder_named(MULTILINGUAL)
        except ModelError:
            if wanted == "always":
                raise
            return None

    def for_language(
        self, query: Query, snapshot: Snapshot, first: Embedder, of_documents: Mapping[str, int]
    ) -> tuple[Embedder | None, Embedder | None, list[str]]:
        """Return the models for the language of a query and for documents in other languages, and a notice if there is none."""
        from marklight.text.languages import language_name, main_languages

        language = query.languages[0]
        if not first.languages:
            return first, None, []
        second, hint = self.multilingual(of_documents), _MULTILINGUAL_HINT
        if second is not None and second.fingerprint not in snapshot.status.models():
            hint = f"`marklight index` creates the vectors of {second.name}, which does"
            second = None
        knows_documents = not set(first.languages).isdisjoint(main_languages(of_documents))
        if language in first.languages and (knows_documents or second or not of_documents):
            return first, second, []
        if second is not None and language in second.languages:
            return second, None, []
        most = max(of_documents, key=lambda code: of_documents[code], default=language)
        unknown = language if language not in first.languages else most
        notice = f"{first.name} does not know {language_name(unknown)}"
        if query.mode is Mode.SEMANTIC:
            notice += ", so results may be wrong"
            return first, None, [Message(f"{notice}. {hint}", notice)]
        notice += ", so keywords alone are searched"
        message = Message(f"{notice}. {hint}", notice, kind="language")
        return None, None, [message]

    @once
    def embedder_server(self) -> Server | None:
        """Return the server of the embedding model; None for a local one."""
        return self.settings.build(Model, "model").server

    def fingerprint(self) -> tuple[str, str]:
        """Return the fingerprint of the embedding model, and the reason if it cannot be loaded."""
        try:
            return (self.embedder.fingerprint if self.embedder else ""), ""
        except ModelError as error:
            return "", str(error)

    @once
    def reranker(self) -> Reranker | None:
        """Return the configured cross-encoder; None if the settings name none."""
        chosen = self.settings.build(Reranking, "reranker")
        if chosen.name in ("", "none"):
            return None
        return models.load_reranker(
            chosen.name, threads=self.settings["model.threads"], server=chosen.server
        )

    @once
    def any_reranker(self) -> Reranker:
        """Return the configured cross-encoder, else the default one if it is on this machine."""
        return self.reranker or models.load_reranker(threads=self.settings["model.threads"])

    @property
    def has_reranker(self) -> bool:
        """Return true if a cross-encoder is configured, or the default one is on this machine; load nothing."""
        if self.settings["reranker.name"] not in ("", "none"):
            return True
        from marklight.models.store import stored_folder

        return stored_folder(DEFAULT_RERANKER) is not None

    @once
    def reranker_server(self) -> Server | None:
        """Return the server of the cross-encoder; None for a local one."""
        return self.settings.build(Reranking, "reranker").server

    @once
    def generator_server(self) -> Server | None:
        """Return the server of the language model; None if none is configured."""
        return self.settings.build(Ask, "ask").server

    @once
    def generator(self) -> LanguageModel | None:
        """Return the configured language model; None if the settings name none."""
        if self.generator_server is None:
            return None
        from marklight.models.remote.generator import RemoteLanguageModel

        return RemoteLanguageModel(self.generator_server)

    def reranker_for(self, query: Query, pipeline: Pipeline) -> Reranker | None:
        """Return the cross-encoder that a query needs; load none if it needs none."""
        if not _wants_reranking(query, pipeline):
            return None
        return self.any_reranker if query.rerank else self.reranker

    def reranks(self, query: Query, pipeline: Pipeline) -> bool:
        """Return true if a cross-encoder is to rerank the results of a query; load nothing."""
        configured = self.settings["reranker.name"] not in ("", "none")
        return _wants_reranking(query, pipeline) and (bool(query.rerank) or configured)

    def reranker_problem(self) -> str:
        """Return why the configured cross-encoder cannot be loaded; empty if it can or none is configured."""
        try:
            _ = self.reranker
        except ModelError as error:
            return str(error)
        return ""

    def first_use_notices(
        self, *, embedding: bool = False, reranking: bool = False, generating: bool = False
    ) -> list[str]:
        """Return a notice for each remote server that gets texts of this library for the first time."""
        used = [
            self.embedder_server if embedding else None,
            self.reranker_server if reranking else None,
            self.generator_server if generating else None,
        ]
        remote = [server for server in used if server and not server.is_local]
        if not remote:
            return []
        from marklight.models.remote import ServerState

        return [
            f"Passages of this library and queries are sent to {server.address} for {server.name}"
            f"{', unencrypted' if server.address.startswith('http:') else ''}. This notice appears once"
            for server in remote
            if ServerState(server).first_use()
        ]

    def unload(self) -> None:
        """Free the memory of the models; they are loaded again on the next use."""
        for name in _LOADED:
            model = self.__dict__.get(name)
            if model is not None and hasattr(model, "unload"):
                model.unload()


def _wants_reranking(query: Query, pipeline: Pipeline) -> bool:
    stage = pipeline.refine.get("rerank")
    return isinstance(stage, Rerank) and stage.wants(query)


def choose_embedder(
    query: Query,
    snapshot: Snapshot,
    configured: Embedder | None,
    load: Callable[[str], Embedder],
    rest: str,
) -> tuple[Embedder | None, list[str]]:
    """Return the model whose vectors a query is compared with, and notices about it.

    While the configured model has embedded a part of the passages only, an earlier one that has embedded
    more of them is used. `rest` is the end of the notice: how the others get their vectors.
    """
    if configured is None:
        if query.mode is Mode.SEMANTIC:
            raise UsageError(
                "Semantic search needs a model, but model.name is none",
                Message("Configure a model, or use --mode keyword", "Use the mode keyword"),
            )
        return None, []
    counts = snapshot.status.counts("")
    embedded, total = snapshot.status.models(), counts.chunks - counts.boilerplate
    have = embedded.get(configured.fingerprint, 0)
    if have >= total:
        return configured, []
    embedding = f"{have} of {total} passages are embedded"
    progress = f"{embedding}; {rest}"
    earlier = _earlier_model(snapshot, embedded, have, load)
    if earlier is not None:
        used = f"{earlier.name} is used until {configured.name} is ready"
        return earlier, [Message(f"{used}: {progress}", f"{used}: {embedding}")]
    incomplete = "Semantic search is incomplete"
    return configured, [
        Message(f"{incomplete}: {progress}", f"{incomplete}: {embedding}", kind="indexing")
    ]


def model_in_use(snapshot: Snapshot, configured: Callable[[], str]) -> str:
    """Return the fingerprint of the model whose vectors are compared with each other; empty if there is none.

    `configured` returns the fingerprint of the configured model; it is called only if there are several.
    """
    embedded = snapshot.status.models()
    wanted = configured() if len(embedded) > 1 else ""
    if wanted in embedded:
        return wanted
    return max(embedded, key=lambda model: embedded[model], default="")


def _earlier_model(
    snapshot: Snapshot, embedded: Mapping[str, int], have: int, load: Callable[[str], Embedder]
) -> Embedder | None:
    """Return a model that has embedded more passages than this and is still on this machine."""
    from marklight.ingest.embedding import model_name_key

    names = snapshot.status.manifest()
    for fingerprint, count in sorted(embedded.items(), key=lambda item: -item[1]):
        name = names.get(model_name_key(fingerprint))
        if count <= have or name is None or name == MULTILINGUAL:
            continue
        try:
            model = load(name)
        except ModelError:
            continue
        if model.fingerprint == fingerprint:
            return model
    return None
