"""Embed passages of any length: one over the token limit of the model is embedded in parts, and its vector is their mean.

Passages depend on the chunk settings alone and never on the model, so that a library can be embedded by another model
and by the first one again. The parts exist only while they are embedded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from marklight.model import Chunk, trail
from marklight.ports import Embedder
from marklight.text.lines import sentence_ends
from marklight.text.markdown import chunk_embedding_text, strip_markup

if TYPE_CHECKING:
    from marklight.model import Matrix

_TARGET_SHARE = 0.9
"""Parts are cut for a little less than the limit, because tokens are not spread evenly over the text."""


class Part(NamedTuple):
    """A text to embed: a whole passage or a part of it, with the number of the passage."""

    passage: int
    text: str
    weight: int
    """Characters of the passage that it contains."""


def embed_chunks(embedder: Embedder, chunks: Sequence[Chunk]) -> Matrix:
    """Return the vectors of passages, one row each, whatever the token limit of the model."""
    import numpy as np

    parts = embedding_parts(embedder, chunks)
    rows = embedder.embed_passages([part.text for part in parts])
    if len(parts) == len(chunks):
        return rows
    sums = np.zeros((len(chunks), rows.shape[1]), np.float32)
    numbers = [part.passage for part in parts]
    np.add.at(sums, numbers, rows * np.array([[part.weight] for part in parts], np.float32))
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    means: Matrix = np.divide(sums, lengths, out=sums, where=lengths > 0)
    whole, first = np.unique(numbers, return_index=True)
    single = np.bincount(numbers)[whole] == 1
    means[whole[single]] = rows[first[single]]  # exactly the vector of the model
    return means


def embedding_parts(embedder: Embedder, chunks: Sequence[Chunk]) -> list[Part]:
    """Return the texts to embed for passages, ordered by passage; none exceeds the token limit.

    Each part begins with title and headings, as the passage does.
    """
    limit = embedder.token_limit
    texts = [chunk_embedding_text(chunk) for chunk in chunks]
    over = {
        number
        for number, count in enumerate(embedder.count_tokens(texts) if texts else ())
        if count > limit
    }
    parts = [Part(number, text, 1) for number, text in enumerate(texts) if number not in over]
    prefixes = {number: _short_trail(embedder, chunks[number]) for number in over}
    waiting = [(number, strip_markup(chunks[number].own_text).strip()) for number in sorted(over)]
    while waiting:
        texts = [f"{prefixes[number][0]}\n\n{body}" for number, body in waiting]
        shorter: list[tuple[int, str]] = []
        for (number, body), text, count in zip(
            waiting, texts, embedder.count_tokens(texts), strict=True
        ):
            if count <= limit or len(body) < 2:  # no cut can shorten a single character
                parts.append(Part(number, text, len(body)))
                continue
            prefix_count = prefixes[number][1]
            share = (limit - prefix_count) / max(1, count - prefix_count)
            size = max(1, min(len(body) - 1, int(len(body) * share * _TARGET_SHARE)))
            shorter += ((number, piece) for piece in _pieces(body, size))
        waiting = shorter
    return sorted(parts, key=lambda part: part.passage)


def _short_trail(embedder: Embedder, chunk: Chunk) -> tuple[str, int]:
    """Return title and headings in at most half of the token limit, with the number of tokens.

    The innermost heading is kept, as it is the most specific one.
    """
    limit = embedder.token_limit // 2
    text = trail(chunk.title, chunk.headings)
    count = embedder.count_tokens([text])[0]
    if count > limit and chunk.headings:
        text = chunk.headings[-1]
        count = embedder.count_tokens([text])[0]
    while count > limit and text:
        text = text[: int(len(text) * min(limit / count, _TARGET_SHARE))]
        count = embedder.count_tokens([text])[0]
    return text, min(count, limit)


def _pieces(text: str, max_chars: int) -> Iterator[str]:
    """Cut a text into pieces of similar length, after sentences where possible, else after words; none is blank."""
    size = -(-len(text) // -(-len(text) // max_chars))
    cuts = [0]
    while len(text) - cuts[-1] > size:
        start, end = cuts[-1], cuts[-1] + size
        ends = sentence_ends(text, start + size // 2, end)
        space = text.rfind(" ", start + size // 2, end)
        cuts.append(ends[-1] if ends else space + 1 if space >= 0 else end)
    for first, last in pairwise((*cuts, len(text))):
        if piece := text[first:last].strip():
            yield piece
