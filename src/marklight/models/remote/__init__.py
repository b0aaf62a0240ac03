"""Models on a server with OpenAI's or Ollama's API; used only if the settings name one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import ModelServerError
from marklight.ports import Prompt

if TYPE_CHECKING:
    from marklight.models.record import Kind
    from marklight.models.remote.server import Server
    from marklight.models.store import ModelRow

VERIFY_MS = 60_000.0
"""Time limit of the one reranking that `models verify` tries."""
VERIFY_PROMPT = Prompt("Answer in one word.", "Which colour has grass?", 16)
"""Sent to a language model by `models verify`; no text of the user's."""


def model_row(server: Server, kind: Kind, cache_dir: Path | None = None) -> ModelRow:
    """Return the line of `models list` for a configured server, without a request."""
    from marklight.models.remote.embedder import RemoteEmbedder
    from marklight.models.store import ModelRow

    embedder = RemoteEmbedder(server, cache_dir)
    info = embedder.state.info if kind == "embedder" else None
    return ModelRow(
        name=server.name,
        kind=kind,
        state=f"at {server.address}",
        usable=True,
        default=False,
        dimension=info.dimension if info else 0,
        token_limit=embedder.token_limit if kind == "embedder" else 0,
        licence="",
    )


def verify(server: Server, kind: Kind, cache_dir: Path | None = None) -> list[str]:
    """Send a request to a server, store its model info, and return the problems."""
    from marklight.models.remote.embedder import RemoteEmbedder
    from marklight.models.remote.reranker import RemoteReranker

    try:
        if kind == "embedder":
            RemoteEmbedder(server, cache_dir).learn()
        elif kind == "generator":
            from marklight.models.remote.generator import RemoteLanguageModel

            pieces = RemoteLanguageModel(server).generate(VERIFY_PROMPT, lambda: None)
            next(pieces)
        else:
            reranker = RemoteReranker(server, cache_dir)
            reranker.state.record_success()
            reranker.score("how do I undo a rollout", ["undo a rollout"], VERIFY_MS)
    except ModelServerError as error:
        return [str(error)]
    return []
