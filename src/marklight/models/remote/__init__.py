"""Models on a server that speaks OpenAI's or Ollama's protocol; nothing here is used unless the settings name one."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["openai", "ollama"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def is_remote(name: str) -> bool:
    """Whether a name is a server's, such as `ollama:nomic-embed-text`."""
    return name.partition(":")[0] in KINDS and ":" in name
