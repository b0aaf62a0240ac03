"""Text to numbers: the bundled model, any ONNX model by folder or name, cross-encoders, and a fake for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marklight.models.record import DEFAULT, DEFAULT_RERANKER, KNOWN, ModelRecord

if TYPE_CHECKING:
    from marklight.ports import Embedder, Reranker

__all__ = ["DEFAULT", "DEFAULT_RERANKER", "KNOWN", "ModelRecord", "load", "load_reranker"]


def load(
    name: str = DEFAULT, *, cache_dir: Path | None = None, threads: int | None = None
) -> Embedder:
    """The model of this name: a known one, one that was pulled or imported, a folder, or `fake`.

    Nothing heavy is loaded before the first text is counted or embedded, and nothing is downloaded.
    """
    if name == "fake":
        from marklight.models.fake import FakeEmbedder

        return FakeEmbedder()
    from marklight.models.locate import embedder

    return embedder(name, cache_dir=cache_dir, threads=threads)


def load_reranker(
    name: str = DEFAULT_RERANKER, *, cache_dir: Path | None = None, threads: int | None = None
) -> Reranker:
    """The cross-encoder of this name: one that was pulled or imported, or a folder.

    Nothing heavy is loaded before the first passage is scored, and nothing is downloaded.
    """
    from marklight.models.locate import reranker

    return reranker(name, cache_dir=cache_dir, threads=threads)
