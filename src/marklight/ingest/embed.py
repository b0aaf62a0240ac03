"""Vectors for passages that have none: in windows, each a commit, so that a stop loses seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from marklight.model import Batch, Vectors
from marklight.ports import Embedder, Engine, Progress, silent
from marklight.text import passage_of

WINDOW = 256
"""Texts embedded for one commit: some six seconds of work on two cores."""
HURRIED_WINDOW = 32
"""The same for a caller with little time, below a second."""


def embed_pending(
    engine: Engine,
    embedder: Embedder,
    progress: Progress = silent,
    until: float | None = None,
    first: Callable[[], Sequence[str]] = tuple,
) -> int:
    """Embed what is missing, the passages in `first` before others; returns how many are still missing.

    `until` is a time of `time.monotonic`; the work is resumable at every commit.
    """
    leading = first()
    while True:
        with engine.snapshot() as reader:
            counts = reader.counts(embedder.fingerprint)
            window = WINDOW if until is None else HURRIED_WINDOW
            pending = reader.unembedded(embedder.fingerprint, window, leading)
        if not pending or (until is not None and time.monotonic() >= until):
            return counts.pending
        progress("Embedding passages", counts.embedded, counts.chunks)
        matrix = embedder.embed_passages([passage_of(one.chunk) for one in pending])
        digests = tuple(one.digest for one in pending)
        engine.commit(Batch(vectors=Vectors(embedder.fingerprint, digests, matrix)))
