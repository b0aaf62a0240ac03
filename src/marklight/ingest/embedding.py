"""Embed passages and vocabulary terms that have no vector yet, and passages before they replace others; drop unused vectors.

Vectors are computed in windows, each one commit, so that an interruption loses only seconds of work. Passages depend on
the chunk settings alone and never on the model, so that a library can be embedded by another model and by the first one
again: a passage over the token limit of the model is embedded in parts, and its vector is their mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Self

from marklight.lazy import dataclass
from marklight.model import Batch, Chunk, Counts, DocumentId, Vectors, trail
from marklight.ports import (
    FIELD_BOOSTS,
    VOCABULARY_SIZE,
    WRITER_SECONDS,
    Embedder,
    Engine,
    Progress,
    no_progress,
)
from marklight.text.analyzer import query_terms
from marklight.text.lines import sentence_ends
from marklight.text.markdown import chunk_embedding_text, strip_markup

if TYPE_CHECKING:
    from marklight.model import Matrix, Vector
    from marklight.query import Query

WINDOW = 256
"""Passages embedded for one commit: some six seconds of work on two cores."""
SMALL_WINDOW = 32
"""Passages for one commit under a time limit: below a second of work."""
TERM_WINDOW = 1024
"""Vocabulary terms embedded for one commit: a second of work on two cores."""
SMALL_TERM_WINDOW = 128
"""Vocabulary terms for one commit under a time limit."""
TERM_SECONDS = 0.5
"""Most time that a search spends on vocabulary terms, however much it has: it works without them too."""

EMBED_FIRST = 60
"""Passages that match the query terms and are embedded first while vectors are missing."""
MAX_PREFERRED = 1_000
"""Passages that are remembered to be embedded first: more than a few queries match or a few edits change."""
UNUSED_SHARE = 0.25
"""Unused vectors beyond this share of all passages are dropped after a run."""
UNUSED_MIN = 1000
"""Fewer unused vectors are kept: a file that comes back needs them."""

MISSING = "missing"
"""Manifest value: some vocabulary terms have no vector of this model."""


StoredVectors = Callable[[str, Sequence[str]], Mapping[str, "Vector"]]


class Embedded(NamedTuple):
    """Count the passages that a call embedded, and list the documents whose passages it replaced."""

    passages: int = 0
    replaced: tuple[DocumentId, ...] = ()


@dataclass(frozen=True, slots=True)
class Indexing:
    """Base of indexing files and indexing commits: an engine, the embedding model, and the vectors still missing."""

    engine: Engine
    embedder: Embedder | None
    second: Callable[[Mapping[str, int]], Embedder | None] = field(
        default=lambda _: None, kw_only=True, compare=False
    )
    """Returns the model that also embeds the passages, given the languages of the documents."""
    stored: StoredVectors = field(default=lambda *_: {}, kw_only=True, compare=False)
    """Returns vectors of a model that exist elsewhere, by digest."""
    outdated: dict[DocumentId, None] = field(default_factory=dict, kw_only=True, compare=False)
    """Documents with unchanged text that another recipe parsed or chunked, as far as scans have found them; shared by copies."""

    preferred: dict[str, None] = field(default_factory=dict, kw_only=True, compare=False)
    """Passages to embed first, the last one before others: edited ones, and those that match a query; shared by copies."""

    def embed_missing(
        self,
        progress: Progress = no_progress,
        until: float | None = None,
        first: Callable[[], Sequence[str]] = tuple,
    ) -> Embedded:
        """Embed the passages without a vector, those in `first` before others; replace outdated ones; embed vocabulary terms.

        `until` is a `time.monotonic` value.
        """
        self.store_model_names()
        count = self.embed_passages(progress, until, first)
        replaced = self.replace_outdated(progress, until)
        if not self.counts().pending:
            self.embed_vocabulary(progress, until)
        return Embedded(count + replaced.passages, replaced.replaced)

    def embed_passages(
        self, progress: Progress, until: float | None, first: Callable[[], Sequence[str]] = tuple
    ) -> int:
        """Embed the passages in the index that have no vector, those in `first` before others; return how many."""
        models = self.models()
        self.prefer(first() if models else ())
        counts = [self._embed_passages(model, progress, until) for model in models]
        return max(counts, default=0)

    def prefer(self, passages: Sequence[str]) -> None:
        """Embed these passages, best first, before those that were preferred earlier and before all others."""
        for id in reversed(passages):
            self.preferred.pop(id, None)
            self.preferred[id] = None
        for id in list(self.preferred)[:-MAX_PREFERRED]:
            self.preferred.pop(id, None)

    def _embed_passages(self, model: Embedder, progress: Progress, until: float | None) -> int:
        window = WINDOW if until is None else SMALL_WINDOW
        count = 0
        while until is None or time.monotonic() < until:
            with self.engine.snapshot() as snapshot:
                counts = snapshot.status.counts(model.fingerprint)
                if not counts.pending:
                    break
                first = list(self.preferred)[::-1]
                pending = snapshot.vectors.pending(model.fingerprint, window, first)
            if not pending:
                break
            progress("Embedding passages", counts.embedded, counts.chunks)
            self._commit_vectors(model, {passage.digest: passage.chunk for passage in pending})
            count += len(pending)
        return count

    def replace_outdated(self, progress: Progress, until: float | None) -> Embedded:  # noqa: ARG002
        """Replace the passages of documents that were chunked with other settings; here there are none."""
        return Embedded()

    def embed_ahead(
        self, passages: Iterable[Chunk], until: float | None = None
    ) -> tuple[int, bool]:
        """Embed passages that are not in the index yet; return how many, and false if the time was too short for all.

        Once they replace others, vector search finds them at once.
        """
        distinct = {chunk.digest: chunk for chunk in passages if chunk.digest}
        count = 0
        for model in self.models():
            with self.engine.snapshot() as snapshot:
                missing = snapshot.vectors.missing(model.fingerprint, list(distinct))
            window = WINDOW if until is None else SMALL_WINDOW
            for start in range(0, len(missing), window):
                if until is not None and time.monotonic() >= until:
                    return count, False
                digests = missing[start : start + window]
                self._commit_vectors(model, {digest: distinct[digest] for digest in digests})
                count += len(digests)
        return count, True

    def _commit_vectors(self, model: Embedder, passages: Mapping[str, Chunk]) -> None:
        """Embed passages, given by digest, except those with a stored vector, and commit the vectors."""
        import numpy as np

        from marklight.vector_math import round_vectors

        digests = tuple(passages)
        vectors = dict(self.stored(model.fingerprint, digests))
        missing = [digest for digest in digests if digest not in vectors]
        if missing:
            rows = embed_chunks(model, [passages[digest] for digest in missing])
            vectors.update(zip(missing, rows, strict=True))
        matrix = round_vectors(np.stack([vectors[digest] for digest in digests]))
        self.commit(Batch(vectors=Vectors(model.fingerprint, digests, matrix)))

    def commit(self, batch: Batch) -> None:
        """Commit a batch. The writer lock is held for that only, so that text can be indexed while vectors are computed."""
        with self.engine.writing(WRITER_SECONDS):
            self.engine.commit(batch)

    def models(self) -> list[Embedder]:
        """Return the models that embed the passages: none, the configured one, or also the second one."""
        if self.embedder is None:
            return []
        with self.engine.snapshot() as snapshot:
            second = self.second(snapshot.metadata.languages())
        return [self.embedder, *([second] if second else [])]

    def embed_vocabulary(
        self, progress: Progress = no_progress, until: float | None = None
    ) -> None:
        """Embed the terms of the vocabulary without a vector, the most frequent first.

        The manifest records whether some are left, so that a search need not count terms to find out.
        """
        if self.embedder is None:
            return
        from marklight.vector_math import round_vectors

        model, window = self.embedder.fingerprint, TERM_WINDOW
        if until is not None:
            window, until = SMALL_TERM_WINDOW, min(until, time.monotonic() + TERM_SECONDS)
        with self.engine.snapshot() as snapshot:
            missing = snapshot.vocabulary.terms_without_vector(model, VOCABULARY_SIZE)
            recorded = _terms_missing(snapshot.status.manifest(), model)
        done = 0
        while done < len(missing) and (until is None or time.monotonic() < until):
            progress("Embedding vocabulary", done, len(missing))
            terms = tuple(missing[done : done + window])
            matrix = round_vectors(self.embedder.embed_passages(terms))
            self.commit(Batch(concepts=Vectors(model, terms, matrix)))
            done += len(terms)
        if (left := done < len(missing)) != recorded:
            self.commit(Batch(manifest={_terms_key(model): MISSING if left else ""}))

    def with_time_limit(self, seconds: float) -> Self:
        """Return a copy whose model gives up after so many seconds, if it is a remote one."""
        return replace(self, embedder=self.embedder and self.embedder.with_time_limit(seconds))

    def has_pending(self) -> bool:
        """Return true if passages or vocabulary terms have no vector yet, or passages are to be replaced."""
        if self.outdated:
            return True
        if self.embedder is None:
            return False
        models = [model.fingerprint for model in self.models()]
        with self.engine.snapshot() as snapshot:
            pending = any(snapshot.status.counts(model).pending > 0 for model in models)
            return pending or _terms_missing(snapshot.status.manifest(), models[0])

    def counts(self) -> Counts:
        """Return the counts of the index, for the configured model."""
        with self.engine.snapshot() as snapshot:
            return snapshot.status.counts(self.embedder.fingerprint if self.embedder else "")

    def drop_unused_vectors(self) -> None:
        """Once every passage has a vector, drop the vectors of other models and those without a passage."""
        if self.embedder is None:
            return
        with self.engine.snapshot() as snapshot:
            counts = snapshot.status.counts(self.embedder.fingerprint)
            models = snapshot.status.models()
        if counts.pending:
            return
        keep = {model.fingerprint for model in self.models()}
        unused = self.engine.count_unused_vectors()
        if set(models) - keep or unused > max(UNUSED_MIN, UNUSED_SHARE * counts.chunks):
            self.engine.clean(keep=keep)

    def store_model_names(self) -> None:
        """Store the names by which the models of these vectors can be loaded again."""
        names = {model_name_key(model.fingerprint): model.name for model in self.models()}
        with self.engine.snapshot() as snapshot:
            stored = snapshot.status.manifest()
        if new := dict(names.items() - stored.items()):
            self.commit(Batch(manifest=new))


def passages_matching(engine: Engine, query: Query) -> list[str]:
    """Return the ids of the passages that match the query terms, best first."""
    with engine.snapshot() as snapshot:
        terms = query_terms(query.text, languages=query.languages)
        candidates = snapshot.lexical.search(terms, FIELD_BOOSTS, query.filters, EMBED_FIRST)
        return [candidate.chunk_id for candidate in candidates]


def model_name_key(fingerprint: str) -> str:
    """Return the manifest key of the name of the model with this fingerprint."""
    return f"model {fingerprint}"


def _terms_missing(manifest: Mapping[str, str], model: str) -> bool:
    """Return true if vocabulary terms have no vector of this model, or it is not recorded."""
    return manifest.get(_terms_key(model), MISSING) == MISSING


def _terms_key(model: str) -> str:
    return f"words {model}"


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
