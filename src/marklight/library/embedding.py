"""Vectors for what is indexed: those that a question needs first, and none that nothing uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from marklight.answer import Query
from marklight.ingest.vectors import Indexing
from marklight.model import Batch
from marklight.ports import FIELD_BOOSTS, Engine, Progress
from marklight.text import query_terms

EMBED_FIRST = 60
"""Passages that match the question's words and are embedded first while vectors are missing."""
TIDY_SHARE = 0.25
"""Unused vectors beyond this share of all passages are dropped after a run."""
TIDY_LEAST = 1000
"""Fewer unused vectors are kept: a file that comes back needs them."""


def embed(
    ingest: Indexing,
    wait_seconds: float,
    progress: Progress,
    until: float | None = None,
    first: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Note under which name the model can be loaded again, then embed."""
    model, engine = ingest.embedder, ingest.engine
    if model is None:
        return
    with engine.snapshot() as snapshot:
        key = name_key(model.fingerprint)
        noted = snapshot.status.manifest().get(key) == model.name
    if not noted:
        with engine.writing(wait_seconds):
            engine.commit(Batch(manifest={key: model.name}))
    ingest.vectors(progress, until, first)


def likely(engine: Engine, query: Query) -> list[str]:
    """Passages with the question's words."""
    with engine.snapshot() as snapshot:
        words = query_terms(query.text)
        found = snapshot.lexical.search(words, FIELD_BOOSTS, query.filters, EMBED_FIRST)
        return [one.chunk_id for one in found]


def tidy(ingest: Indexing) -> None:
    """Once the model covers everything, drop the vectors of others and those that nothing uses."""
    model, engine = ingest.embedder, ingest.engine
    if model is None:
        return
    with engine.snapshot() as snapshot:
        counts, models = snapshot.status.counts(model.fingerprint), snapshot.vectors.models()
    if counts.pending:
        return
    unused = engine.count_unused_vectors()
    if len(models) > 1 or unused > max(TIDY_LEAST, TIDY_SHARE * counts.chunks):
        engine.clean(keep={model.fingerprint})


def name_key(fingerprint: str) -> str:
    """Where the manifest keeps the name of the model with this fingerprint."""
    return f"model {fingerprint}"
