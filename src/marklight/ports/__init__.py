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
from marklight.ports.models import Embedder, Patient, Reranker, Resting, in_haste
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
    "Patient",
    "Pending",
    "Progress",
    "Reader",
    "Refine",
    "Reranker",
    "Resting",
    "Retrieve",
    "Rewrite",
    "Scored",
    "Span",
    "Tools",
    "in_haste",
    "nobody_stops",
    "silent",
]
