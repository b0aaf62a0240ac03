"""Level of unrelated queries: how near queries about other things come to a library by chance.

The nearest of 20,000 passages is nearer than the nearest of 1,000, and a library about everything has some term of any query. So
abstention compares a query with the median of fixed queries about other things, measured in the same library once it is embedded
(score normalization with a cohort of impostors, as in speaker verification: Auckenthaler et al., 2000).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from math import log
from pathlib import Path

from marklight.ports import Snapshot

MEASURED = ("best_cosine", "best_coverage", "first_coverage")
"""Features whose medians are measured."""
SIZE = "corpus_size"
"""The feature log(1 + passages), by which the others grow."""
GROWTH = 1.5
"""A level is measured again when the library has grown or shrunk by this factor. Hand-set: the level grows with the logarithm."""


@cache
def unrelated_queries() -> tuple[str, ...]:
    """Return the fixed queries. With 30 of them in place of 227, as many queries are answered or refused wrongly."""
    text = Path(__file__).with_name("unrelated_queries.txt").read_text("utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def level_key(model: str) -> str:
    """Return the manifest key of the level with this model."""
    return f"unrelated {model}"


def medians(features: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the level: the median of each measured feature over the queries, and the size of the library."""
    from statistics import median  # 3 ms, and no search needs it

    rows = list(features)
    return {name: median(row[name] for row in rows) for name in (*MEASURED, SIZE)} if rows else {}


def stored_level(snapshot: Snapshot, model: str) -> Mapping[str, float]:
    """Return the level that was measured in this library; empty if there is none, or if it is damaged."""
    try:
        values = json.loads(snapshot.status.manifest().get(level_key(model), "{}"))
        return {name: float(values[name]) for name in (*MEASURED, SIZE)} if values else {}
    except (ValueError, TypeError, KeyError):
        return {}


def is_stale(snapshot: Snapshot, model: str) -> bool:
    """Return True if the library is embedded and its level is missing or of another size."""
    counts = snapshot.status.counts(model)
    if not counts.chunks or counts.pending:
        return False
    level = stored_level(snapshot, model)
    return not level or abs(log(1 + counts.chunks) - level[SIZE]) > log(GROWTH)


def excess(
    features: Mapping[str, float],
    level: Mapping[str, float],
    expected: Mapping[str, tuple[float, float]],
) -> dict[str, float]:
    """Return how far the features of a query exceed those of unrelated queries.

    `expected` has intercept and slope of each median over the size of a library, learned offline: by them a level is estimated
    where none was measured, and lowered where filters leave fewer passages.
    """
    size = features[SIZE]
    return {
        f"excess_{name}": features[name]
        - (level[name] + slope * (size - level[SIZE]) if level else intercept + slope * size)
        for name, (intercept, slope) in expected.items()
    }
