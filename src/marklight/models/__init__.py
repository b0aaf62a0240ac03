"""Text to numbers: the bundled model, any ONNX model by folder or name, cross-encoders, servers, a fake for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marklight.models.record import DEFAULT, DEFAULT_RERANKER, KNOWN, ModelRecord
from marklight.models.remote import is_remote

if TYPE_CHECKING:
    from marklight.models.remote.server import Server
    from marklight.ports import Embedder, Reranker

__all__ = ["DEFAULT", "DEFAULT_RERANKER", "KNOWN", "ModelRecord", "load", "load_reranker"]


def load(
    name: str = DEFAULT,
    *,
    cache_dir: Path | None = None,
    threads: int | None = None,
    server: Server | None = None,
) -> Embedder:
    """The model of this name: a known one, one that was pulled or imported, a folder, or `fake`.

    Nothing heavy is loaded before the first text is counted or embedded, and nothing is downloaded.
    A name such as `ollama:…` is that of a model on the server, and of no other.
    """
    if name == "fake":
        from marklight.models.fake import FakeEmbedder

        return FakeEmbedder()
    from marklight.models.locate import embedder, remote_embedder

    if is_remote(name):
        return remote_embedder(name, server, cache_dir)
    return embedder(name, cache_dir=cache_dir, threads=threads)


def load_reranker(
    name: str = DEFAULT_RERANKER,
    *,
    cache_dir: Path | None = None,
    threads: int | None = None,
    server: Server | None = None,
) -> Reranker:
    """The cross-encoder of this name: one that was pulled or imported, a folder, or on the server.

    Nothing heavy is loaded before the first passage is scored, and nothing is downloaded.
    """
    from marklight.models.locate import remote_reranker, reranker

    if is_remote(name):
        return remote_reranker(name, server, cache_dir)
    return reranker(name, cache_dir=cache_dir, threads=threads)
