"""Retrievers for frameworks in which people build with language models; each an extra of its own."""

from __future__ import annotations

from typing import Any

from marklight.answer import Answer


def citations(answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    """Each hit as its text and what is known about it; `source` is what a reader is shown, `guide.md:10-24`."""
    several = answer.several_collections
    found = []
    for result in answer.to_dict()["results"]:
        content = result.pop("content")
        first, last = result["lines"]
        folder = f"{result['collection']}/" if several else ""
        source = f"{folder}{result['path']}:{first}-{last}"
        # Sizes of what was not asked for, and the parts of a score, are no facts about the passage.
        facts = {key: value for key, value in result.items() if key not in ("levels", "why")}
        found.append((content, {"source": source, **facts}))
    return found
