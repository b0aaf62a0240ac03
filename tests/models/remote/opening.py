"""Open a model on the test server through settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marklight.library.settings_tables import Model
from marklight.models.fake import FakeEmbedder
from marklight.models.remote.embedder import RemoteEmbedder

FAKE = FakeEmbedder()
"""What the test server answers with."""
KINDS = ("openai", "ollama")


def opened(address: str, cache: Path, kind: str = "openai", **more: Any) -> RemoteEmbedder:
    given: dict[str, Any] = {"timeout_seconds": 30.0, "query_seconds": 30.0, **more}
    server = Model(name=f"{kind}:m", address=address, **given).server
    assert server is not None
    return RemoteEmbedder(server, cache)
