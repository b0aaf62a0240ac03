"""Find an embedding model or reranker by name and open it: bundled, a folder, downloaded, on a server, or a fake."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from marklight.errors import ModelError
from marklight.models.record import (
    DEFAULT,
    DEFAULT_RERANKER,
    GRANITE,
    KINDS,
    KNOWN,
    UNIVERSAL,
    Kind,
    ModelRecord,
    is_remote,
    package_folder,
)
from marklight.platforms import check_address_space

if TYPE_CHECKING:
    from marklight.model import Vector
    from marklight.models.remote import Server
    from marklight.ports import Embedder, Reranker


CACHED_QUERIES = 256
"""Most recent queries that are kept: half a megabyte."""


class CachingEmbedder:
    """Forwards to an embedder, and keeps its most recent query vectors (LRU): several stages of a search need the same one."""

    def __init__(self, model: Embedder, embed_query: Callable[[str], Vector] | None = None) -> None:
        self._model = model
        self.embed_query = embed_query or lru_cache(CACHED_QUERIES)(partial(_read_only, model))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def with_time_limit(self, seconds: float) -> Embedder:
        """Return the same model with a time limit for passages; the cache of queries is shared."""
        limited = CachingEmbedder(self._model.with_time_limit(seconds), self.embed_query)
        return cast("Embedder", limited)


def _read_only(model: Embedder, text: str) -> Vector:
    vector = model.embed_query(text)
    vector.flags.writeable = False  # all callers share it
    return vector


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
        from marklight.models.remote.embedder import RemoteEmbedder

        return RemoteEmbedder(_configured(name, server), cache_dir)
    check_address_space(ModelError)
    from marklight.models.onnx import BundledEmbedder, OnnxEmbedder

    record, folder = _find(name, "embedder", cache_dir)
    if record is UNIVERSAL:
        from marklight.models.universal_encoder import UniversalEmbedder

        return UniversalEmbedder(record, folder, threads)
    return (BundledEmbedder if record is GRANITE else OnnxEmbedder)(record, folder, threads)


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
        from marklight.models.remote.reranker import RemoteReranker

        server = _configured(name, server)
        if server.kind == "ollama":
            raise ModelError(
                f"Ollama cannot rerank, so {name} cannot be used as a reranker",
                "Use a server that can, such as llama.cpp, vLLM or TEI: reranker.name = openai:MODEL",
            )
        return RemoteReranker(server, cache_dir)
    from marklight.models.onnx import CrossEncoder

    return CrossEncoder(*_find(name, "reranker", cache_dir), threads)


def _configured(name: str, server: Server | None) -> Server:
    # Only the server that the settings name now receives text.
    if server is None or server.name != name:
        raise ModelError(f"No server is configured for {name}", "Set model.name")
    return server


_WRONG_KIND = {
    "embedder": ("cannot rerank", "Set model.name to it, and reranker.name to a cross-encoder"),
    "reranker": (
        "does not produce vectors",
        "Set reranker.name to it, and model.name to an embedding model",
    ),
}


def _find(name: str, kind: Kind, cache_dir: Path | None) -> tuple[ModelRecord, Path]:
    """Return the record and the folder of a model on this machine; raise if there is none of this kind."""
    record = KNOWN.get(name)
    if record is not None and record.package and record.kind == kind:
        return record, package_folder(record)
    from marklight.models import store

    if record is not None and record.package:
        folder = Path()
    elif stored := store.stored_folder(name, cache_dir):
        record, folder = store.stored_record(stored), stored
    elif record is None and Path(name).expanduser().is_dir():
        folder = Path(name).expanduser()
        record = store.describe(folder)
    elif record is None or record.kind == kind:
        raise store.missing(name, cache_dir, kind)
    if record.kind != kind:
        cannot, advice = _WRONG_KIND[record.kind]
        raise ModelError(f"{record.name} is {KINDS[record.kind]}: it {cannot}", advice)
    return record, folder
