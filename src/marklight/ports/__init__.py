"""Protocols between packages: engines, models and search stages."""

from __future__ import annotations

from marklight.ports.documents import DocumentReader, IndexedFile, PathRange, ScoredChunk
from marklight.ports.engine import INCOMPLETE, Engine, Snapshot, StatusReader
from marklight.ports.lexical import (
    BOILERPLATE,
    FIELD_BOOSTS,
    FULL_COVERAGE,
    LexicalReader,
    TermCoverage,
)
from marklight.ports.links import LinkReader
from marklight.ports.metadata import DocumentMatch, MetadataReader
from marklight.ports.models import Embedder, LanguageModel, Prompt, Reranker, Unloadable
from marklight.ports.stages import (
    Fuse,
    Progress,
    Refine,
    Retrieve,
    Rewrite,
    Tools,
    never_cancelled,
    no_progress,
)
from marklight.ports.vectors import Pending, VectorReader
from marklight.ports.vocabulary import VOCABULARY_SIZE, ScoredTerm, VocabularyReader

__all__ = [
    "BOILERPLATE",
    "FIELD_BOOSTS",
    "FULL_COVERAGE",
    "INCOMPLETE",
    "VOCABULARY_SIZE",
    "DocumentMatch",
    "DocumentReader",
    "Embedder",
    "Engine",
    "Fuse",
    "IndexedFile",
    "LanguageModel",
    "LexicalReader",
    "LinkReader",
    "MetadataReader",
    "PathRange",
    "Pending",
    "Progress",
    "Prompt",
    "Refine",
    "Reranker",
    "Retrieve",
    "Rewrite",
    "ScoredChunk",
    "ScoredTerm",
    "Snapshot",
    "StatusReader",
    "TermCoverage",
    "Tools",
    "Unloadable",
    "VectorReader",
    "VocabularyReader",
    "never_cancelled",
    "no_progress",
]
