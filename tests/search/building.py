"""Three small pages, lists of retrievers with given scores, and the features of their candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marklight.ports import ScoredChunk, Tools
from marklight.query import Query
from marklight.search.features import PassageFeatures, passage_features

PAGES = {
    "a.md": "# Rollback\n\nReturn to an earlier revision. See [[b]].\n",
    "b.md": "# Scaling\n\nMore replicas carry more load. See [[a]].\n",
    "c.md": "# Kitchen\n\nThe espresso machine needs water.\n",
}


def listed(tools: Tools, **scores: float) -> list[ScoredChunk]:
    """Return the only passage of each page with the given score of a retriever."""
    first = {
        id.path[0]: tools.snapshot.documents.chunks_of(id)[0].id
        for id in tools.snapshot.documents.files()
    }
    wanted = [ScoredChunk(first[page], score) for page, score in scores.items()]
    return sorted(wanted, key=lambda each: -each.score)


def features_by_id(
    lists: Mapping[str, Sequence[ScoredChunk]], query: Query, tools: Tools
) -> dict[str, Any]:
    """Return the features of each candidate by id, in the order of the lists."""
    pool = tools.pool(lists)
    rows = zip(*passage_features(pool, query, tools), strict=True)
    return {id: PassageFeatures(*row) for id, row in zip(pool.rows, rows, strict=True)}
