"""A model on a server as `models list` shows it and `models verify` tries it."""

from __future__ import annotations

from pathlib import Path

from marklight.errors import ModelServerError
from marklight.models.record import Kind
from marklight.models.remote.embedder import RemoteEmbedder
from marklight.models.remote.reranker import RemoteReranker
from marklight.models.remote.server import Server
from marklight.models.store import ModelRow

TRIED_MS = 60_000.0


def row(server: Server, kind: Kind, cache_dir: Path | None = None) -> ModelRow:
    """What is known without asking."""
    embedder = RemoteEmbedder(server, cache_dir)
    facts = embedder.memory.facts if kind == "embedder" else None
    return ModelRow(
        name=server.name,
        kind=kind,
        state=f"at {server.address}",
        usable=True,
        default=False,
        dimension=facts.dimension if facts else 0,
        token_limit=embedder.token_limit if kind == "embedder" else 0,
        licence="",
    )


def verify(server: Server, kind: Kind, cache_dir: Path | None = None) -> list[str]:
    """What is wrong with it, in words; what it tells is learned anew."""
    try:
        if kind == "embedder":
            RemoteEmbedder(server, cache_dir).learn()
        else:
            reranker = RemoteReranker(server, cache_dir)
            reranker.memory.answered()
            reranker.score("how do I undo a rollout", ["undo a rollout"], TRIED_MS)
    except ModelServerError as error:
        return [str(error)]
    return []
