"""Open a model on the test server through settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from marklight.library.configuration import Model
from marklight.models.fake import FakeEmbedder
from marklight.models.remote.embedder import RemoteEmbedder

FAKE = FakeEmbedder()
"""What the test server answers with."""
KINDS = ("openai", "ollama")
LIMITS = ("batch_texts", "batch_characters", "query_seconds", "retries")
"""Limits of a server that are constants and not settings."""


def opened(address: str, cache: Path, kind: str = "openai", **more: Any) -> RemoteEmbedder:
    limits = {name: more.pop(name) for name in LIMITS if name in more}
    given: dict[str, Any] = {"timeout_seconds": 30.0, **more}
    server = Model(name=f"{kind}:m", address=address, **given).server
    assert server is not None
    return RemoteEmbedder(replace(server, **{"query_seconds": 30.0, **limits}), cache)
