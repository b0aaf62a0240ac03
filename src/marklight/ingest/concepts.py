"""Vectors for words of the vocabulary that have none: after the passages, in windows, each a commit."""

from __future__ import annotations

import time
from collections.abc import Mapping

from marklight.ingest.embed import COMMIT_SECONDS
from marklight.model import Batch, Vectors
from marklight.ports import VOCABULARY_SIZE, Embedder, Engine, Progress, silent

WINDOW = 1024
"""Words embedded for one commit: a second of work on two cores."""
HURRIED_WINDOW = 128
"""The same for a caller with little time."""
HURRIED_SECONDS = 0.5
"""What a search spends on words at most, however much time it has: it is answered without them too."""

MISSING = "missing"
"""What the manifest says of a model that has not seen all words."""


def embed_vocabulary(
    engine: Engine, embedder: Embedder, progress: Progress = silent, until: float | None = None
) -> None:
    """Embed the words that are missing, the commonest first, until a `time.monotonic`.

    What is left is noted, so that a search need not count words to know that there are some.
    """
    window = WINDOW
    if until is not None:
        window, until = HURRIED_WINDOW, min(until, time.monotonic() + HURRIED_SECONDS)
    with engine.snapshot() as snapshot:
        missing = snapshot.vocabulary.terms_without_vector(embedder.fingerprint, VOCABULARY_SIZE)
        noted = words_missing(snapshot.status.manifest(), embedder.fingerprint)
    done = 0
    while done < len(missing) and (until is None or time.monotonic() < until):
        progress("Embedding vocabulary", done, len(missing))
        terms = tuple(missing[done : done + window])
        rows = embedder.embed_passages(terms)
        with engine.writing(COMMIT_SECONDS):
            engine.commit(Batch(concepts=Vectors(embedder.fingerprint, terms, rows)))
        done += len(terms)
    if (left := done < len(missing)) != noted:
        with engine.writing(COMMIT_SECONDS):
            engine.commit(Batch(manifest={_key(embedder.fingerprint): MISSING if left else ""}))


def words_missing(manifest: Mapping[str, str], model: str) -> bool:
    """Whether the last run left words without a vector of this model, or never asked.

    A library that was made before there was a vocabulary has no note of it.
    """
    return manifest.get(_key(model), MISSING) == MISSING


def _key(model: str) -> str:
    return f"words {model}"
