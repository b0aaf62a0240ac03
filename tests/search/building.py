"""Three small pages, and lists of retrievers with given scores."""

from __future__ import annotations

from marklight.answer import Hits
from marklight.ports import ScoredChunk, Tools

PAGES = {
    "a.md": "# Rollback\n\nReturn to an earlier revision. See [[b]].\n",
    "b.md": "# Scaling\n\nMore replicas carry more load. See [[a]].\n",
    "c.md": "# Kitchen\n\nThe espresso machine needs water.\n",
}


def listed(tools: Tools, by: str, **scores: float) -> Hits:
    """Return the only passage of each page with the given score of a retriever."""
    first = {
        id.path[0]: tools.snapshot.documents.chunks_of(id)[0].id
        for id in tools.snapshot.documents.files()
    }
    wanted = [ScoredChunk(first[page], score) for page, score in scores.items()]
    return tools.hits(sorted(wanted, key=lambda each: -each.score), by=by)
