"""The promises: what engines, models and stages owe to each other."""

from __future__ import annotations

from marklight.ports.index import (
    FIELD_BOOSTS,
    MOST_CONCEPTS,
    Concept,
    Covered,
    Engine,
    Indexed,
    Pending,
    Reader,
    Scored,
    Span,
)
from marklight.ports.models import Embedder, Reranker, TimeLimited, Unloadable, with_time_limit
from marklight.ports.progress import Progress, nobody_stops, silent
from marklight.ports.stages import Fuse, Refine, Retrieve, Rewrite, Tools

__all__ = [
    "FIELD_BOOSTS",
    "MOST_CONCEPTS",
    "Concept",
    "Covered",
    "Embedder",
    "Engine",
    "Fuse",
    "Indexed",
    "Pending",
    "Progress",
    "Reader",
    "Refine",
    "Reranker",
    "Retrieve",
    "Rewrite",
    "Scored",
    "Span",
    "TimeLimited",
    "Tools",
    "Unloadable",
    "nobody_stops",
    "silent",
    "with_time_limit",
]
