"""Retrievers for LLM frameworks; each needs its own extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marklight.answer import Answer


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Raise ImportError with the line that installs an extra, if an import of its packages fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f'{error.name} is not installed. Install it with: pip install "marklight[{extra}]"',
            name=error.name,
        ) from error


def citations(answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    """Return the text and the metadata of each result; `source` is its place for readers, such as `guide.md:10-24`."""
    citations = []
    for result in answer.to_dict()["results"]:
        content = result.pop("content")
        source = result["ref"]
        # Context levels and the explanation of the score do not describe the passage.
        metadata = {key: value for key, value in result.items() if key not in ("levels", "why")}
        citations.append((content, {"source": source, **metadata}))
    return citations
