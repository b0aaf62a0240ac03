"""Vectors for passages that have none: in windows, each a commit, so that a stop loses seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from marklight.model import Batch, DocumentId, Entry, Vectors
from marklight.ports import Embedder, Engine, Progress, silent
from marklight.text import chunk_embedding_text

WINDOW = 256
"""Texts embedded for one commit: some six seconds of work on two cores."""
HURRIED_WINDOW = 32
"""The same for a caller with little time, below a second."""
COMMIT_SECONDS = 10.0
"""How long a commit waits for another writer."""


def embed_pending(
    engine: Engine,
    embedder: Embedder,
    recut: Callable[[Iterable[DocumentId]], Sequence[Entry]],
    progress: Progress = silent,
    until: float | None = None,
    first: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Embed what is missing, the passages in `first` before others, until a `time.monotonic`.

    The writer's place is taken for each commit alone: whoever has text to write need not wait for vectors.

    Here the model first meets a passage, so here its tokens are counted: a document with one that
    is too long is cut anew and comes back with the next window. Counting all passages when they
    are read would delay the first answer by words by half.
    """
    leading = first()
    window = WINDOW if until is None else HURRIED_WINDOW
    cut: set[DocumentId] = set()
    while until is None or time.monotonic() < until:
        with engine.snapshot() as snapshot:
            counts = snapshot.status.counts(embedder.fingerprint)
            pending = snapshot.vectors.pending(embedder.fingerprint, window, leading)
        if not pending:
            return
        progress("Embedding passages", counts.embedded, counts.chunks)
        texts = [chunk_embedding_text(one.chunk) for one in pending]
        lengths = embedder.count_tokens(texts)
        too_long = {
            one.chunk.document
            for one, length in zip(pending, lengths, strict=True)
            if length > embedder.token_limit
        } - cut
        if too_long:
            cut |= too_long
            with engine.writing(COMMIT_SECONDS):
                if entries := recut(too_long):
                    engine.commit(Batch(entries=tuple(entries)))
            continue
        matrix = embedder.embed_passages(texts)
        digests = tuple(one.digest for one in pending)
        with engine.writing(COMMIT_SECONDS):
            engine.commit(Batch(vectors=Vectors(embedder.fingerprint, digests, matrix)))
