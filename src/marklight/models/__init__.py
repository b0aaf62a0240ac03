"""Embedding models and rerankers: bundled, by folder, downloaded, on a server, and a fake for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marklight.models.record import DEFAULT, DEFAULT_RERANKER, KNOWN, ModelRecord, is_remote

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
    """Return the embedding model of this name: known, pulled, imported, a folder, on a server, or `fake`.

    Files are opened on first use, and nothing is downloaded. A name such as `ollama:…` is
    looked up on the server only.
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
    """Return the cross-encoder of this name: pulled, imported, a folder, or on a server.

    Files are opened on first use, and nothing is downloaded.
    """
    from marklight.models.locate import remote_reranker, reranker

    if is_remote(name):
        return remote_reranker(name, server, cache_dir)
    return reranker(name, cache_dir=cache_dir, threads=threads)
