"""Find an embedding model or reranker by name and open it: bundled, a folder, downloaded, on a server, or a fake."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.record import (
    DEFAULT,
    DEFAULT_RERANKER,
    KINDS,
    KNOWN,
    MULTILINGUAL,
    UNIVERSAL,
    Kind,
    ModelRecord,
    is_remote,
)
from marklight.ports import Unloadable

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector
    from marklight.models.cross_encoder import CrossEncoder
    from marklight.models.remote.server import Server
    from marklight.ports import Embedder, Reranker


CACHED_QUERIES = 256
"""Most recent queries that are kept: half a megabyte."""


class CachingEmbedder:
    """Wraps an embedder and keeps its most recent query vectors (LRU).

    Retrievers run at the same time: the first one embeds the query, the others wait for its vector.
    """

    def __init__(self, model: Embedder) -> None:
        self._model = model
        self._vectors: OrderedDict[str, Future[Vector]] = OrderedDict()
        self._lock = Lock()

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    @property
    def dimension(self) -> int:
        return self._model.dimension

    @property
    def token_limit(self) -> int:
        return self._model.token_limit

    @property
    def languages(self) -> tuple[str, ...]:
        return self._model.languages

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._model.count_tokens(texts)

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._model.embed_passages(texts)

    def with_time_limit(self, seconds: float) -> Embedder:
        """Return the same model with the wrapped one limited in time; the cache is shared."""
        other = copy(self)
        other._model = self._model.with_time_limit(seconds)
        return other

    def unload(self) -> None:
        """Unload the wrapped model, where it supports that; the cache stays."""
        if isinstance(self._model, Unloadable):
            self._model.unload()

    def embed_query(self, text: str) -> Vector:
        with self._lock:
            cached = self._vectors.get(text)
            first = cached is None
            if cached is None:
                cached = self._vectors[text] = Future()
            self._vectors.move_to_end(text)
            while len(self._vectors) > CACHED_QUERIES:
                self._vectors.popitem(last=False)
        if first:
            try:
                vector = self._model.embed_query(text)
            except BaseException as error:
                with self._lock:
                    self._vectors.pop(text, None)  # the next caller tries again
                cached.set_exception(error)
                raise
            vector.flags.writeable = False  # all callers share it
            cached.set_result(vector)
        return cached.result()


__all__ = [
    "DEFAULT",
    "DEFAULT_RERANKER",
    "KNOWN",
    "MULTILINGUAL",
    "ModelRecord",
    "load",
    "load_reranker",
]


def load(
    name: str = DEFAULT,
    *,
    cache_dir: Path | None = None,
    threads: int | None = None,
    server: Server | None = None,
) -> Embedder:
    """Return the embedding model of this name: known, pulled, imported, a folder, on a server, or `fake`.

    Files are opened on first use, and nothing is downloaded. A name such as `ollama:…` is
    looked up on the server only.
    """
    if name == "fake":
        from marklight.models.fake import FakeEmbedder

        return FakeEmbedder()
    if is_remote(name):
        return _remote_embedder(name, server, cache_dir)
    return _embedder(name, cache_dir=cache_dir, threads=threads)


def load_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    cache_dir: Path | None = None,
    threads: int | None = None,
    server: Server | None = None,
) -> Reranker:
    """Return the cross-encoder of this name: pulled, imported, a folder, or on a server.

    Files are opened on first use, and nothing is downloaded.
    """
    if is_remote(name):
        return _remote_reranker(name, server, cache_dir)
    return _reranker(name, cache_dir=cache_dir, threads=threads)


def _embedder(name: str, *, cache_dir: Path | None, threads: int | None) -> Embedder:
    """Open an embedding model: a bundled one, one that was pulled or imported, or a folder."""
    from marklight.models.onnx import OnnxEmbedder

    if name in KNOWN and KNOWN[name].package:
        return _installed(KNOWN[name], threads)
    record, folder = _published(name, "embedder", cache_dir)
    return OnnxEmbedder(record, *_verified_readers(record, folder), threads)


def _reranker(name: str, *, cache_dir: Path | None, threads: int | None) -> CrossEncoder:
    """Open a cross-encoder that was pulled or imported, or a folder."""
    from marklight.models.cross_encoder import CrossEncoder

    record, folder = _published(name, "reranker", cache_dir)
    return CrossEncoder(record, *_verified_readers(record, folder), threads)


def _remote_embedder(name: str, server: Server | None, cache_dir: Path | None) -> Embedder:
    """Return the embedding model on the configured server."""
    from marklight.models.remote.embedder import RemoteEmbedder

    return RemoteEmbedder(_configured(name, server), cache_dir)


def _remote_reranker(name: str, server: Server | None, cache_dir: Path | None) -> Reranker:
    """Return the cross-encoder on the configured server."""
    from marklight.models.remote.reranker import RemoteReranker

    server = _configured(name, server)
    if server.kind == "ollama":
        raise ModelError(
            f"Ollama cannot rerank, so {name} cannot be used as a reranker",
            "Use a server that can, such as llama.cpp, vLLM or TEI: reranker.name = openai:MODEL",
        )
    return RemoteReranker(server, cache_dir)


def _configured(name: str, server: Server | None) -> Server:
    # Only the server that the settings name now receives text.
    if server is None or server.name != name:
        raise ModelError(f"No server is configured for {name}", "Set model.name")
    return server


def _installed(record: ModelRecord, threads: int | None) -> Embedder:
    """Open a model whose files are part of a Python package."""
    from marklight.models.onnx import OnnxEmbedder
    from marklight.models.store import package_folder
    from marklight.models.universal_encoder import UniversalEmbedder

    folder = package_folder(record)
    if record is UNIVERSAL:
        return UniversalEmbedder(record, folder, threads)
    model, tokenizer = (folder / file.path for file in record.files)
    return OnnxEmbedder(record, lambda: str(model), tokenizer.read_bytes, threads)


def _published(name: str, kind: Kind, cache_dir: Path | None) -> tuple[ModelRecord, Path]:
    """Return a model's record and folder; raise if it is of another kind."""
    from marklight.models.folder import describe
    from marklight.models.store import missing, stored_folder, stored_record

    folder = stored_folder(name, cache_dir)
    if folder is not None:
        record = stored_record(folder)
    elif name in KNOWN and KNOWN[name].kind != kind:
        raise _wrong_kind(KNOWN[name])
    elif name not in KNOWN and Path(name).expanduser().is_dir():
        folder = Path(name).expanduser()
        record = describe(folder)
    else:
        raise missing(name, cache_dir, kind)
    if record.kind != kind:
        raise _wrong_kind(record)
    return record, folder


def _wrong_kind(record: ModelRecord) -> ModelError:
    if record.kind == "reranker":
        return ModelError(
            f"{record.name} is {KINDS['reranker']}: it does not produce vectors",
            "Set reranker.name to it, and model.name to an embedding model",
        )
    return ModelError(
        f"{record.name} is {KINDS['embedder']}: it cannot rerank",
        "Set model.name to it, and reranker.name to a cross-encoder",
    )


def _verified_readers(
    record: ModelRecord, folder: Path
) -> tuple[Callable[[], bytes | str], Callable[[], bytes]]:
    """Return functions that open the model and the tokenizer after verifying their SHA-256."""
    from marklight.models.folder import file_digest

    def verified(path: str) -> Path:
        for file in record.files:
            # Weights may span several files; the tokenizer is opened and verified separately.
            if (file.path == "tokenizer.json") == (path == "tokenizer.json") and file.sha256 != (
                actual := file_digest(folder / file.path)
            ):
                raise ModelError(
                    f"The model file {folder / file.path} has changed: its SHA-256 is {actual[:12]}…, "
                    f"not {file.sha256[:12]}…",
                    f"Pull or import {record.name} again",
                )
        return folder / path

    return (
        lambda: str(verified(record.files[0].path)),
        lambda: verified("tokenizer.json").read_bytes(),
    )
