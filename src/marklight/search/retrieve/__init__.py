"""Query to hits: stages that find candidates."""

from __future__ import annotations

from marklight.answer import Query
from marklight.errors import SettingsError

MOST_DEEP, MOST_FETCHED = 1_000, 100_000
"""All candidates of a retriever stand in memory at once, with their texts."""


def demand_depth(depth: int, least: int) -> None:
    """What a retriever is told to fetch must be something."""
    if not 1 <= depth <= MOST_DEEP or not 1 <= least <= MOST_FETCHED:
        raise SettingsError(
            f"a retriever's depth must be 1 to {MOST_DEEP} and its least 1 to {MOST_FETCHED},"
            f" not {depth}, {least}"
        )


def candidates(query: Query, depth: int, least: int) -> int:
    """How many a retriever fetches: more where more results are asked for, and in a deeper look."""
    return query.depth_factor * max(least, depth * query.limit)
