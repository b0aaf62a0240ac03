"""Text to vectors with onnxruntime, in batches of one length each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.opened import MOST_CHARACTERS_A_TOKEN, Opened, clean
from marklight.once import once

if TYPE_CHECKING:
    from tokenizers import Encoding

    from marklight.model import Matrix, Vector

BATCH_TOKENS = 1024
"""Tokens in one run at most. More takes memory in every thread and brings nothing: on a quiet
machine 512, 2048 and 8192 are within 4 % of it, text by text within 6 % (benchmarks/embedding.py)."""


class OnnxEmbedder(Opened):
    """A sentence-embedding model; its files are opened when they are first needed."""

    @once
    def fingerprint(self) -> str:
        return self.record.fingerprint  # a digest of much, and stages ask for it again and again

    @property
    def dimension(self) -> int:
        return self.record.dimension

    @property
    def token_limit(self) -> int:
        return self.record.token_limit

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        prefixed = [self.record.passage_prefix + clean(text) for text in texts]
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(prefixed)]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._embed([self.record.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self._embed([self.record.query_prefix + text])[0]
        return vector

    def _embed(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), np.float32)
        if not texts:
            return rows
        tokens = self.tokens(texts)
        grouped = list(batches([len(ids) for ids in tokens]))

        def fill(places: list[int]) -> None:
            rows[places] = self._run([tokens[place] for place in places])

        if len(grouped) == 1:  # a question, most often
            fill(grouped[0])
            return rows
        # Batches side by side, each on one thread, beat one batch on all threads: nobody waits for
        # the slowest after every operation (benchmarks/embedding.py: 1.2 times on quiet cores, 1.7 on busy ones).
        pool = ThreadPoolExecutor(min(self.threads, len(grouped)))
        try:
            for _ in pool.map(fill, grouped):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        return rows

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """What the model is given for each text: at most as many tokens as it takes."""
        most = self.token_limit * MOST_CHARACTERS_A_TOKEN
        encodings = self.tokenizer.encode_batch_fast([clean(text[:most]) for text in texts])
        return [self._cut(encoding) for encoding in encodings]

    def _cut(self, encoding: Encoding) -> list[int]:
        ids: list[int] = encoding.ids
        if len(ids) > self.token_limit:
            end = self._closing
            ids = ids[: self.token_limit - end] + ids[len(ids) - end :]
        # A model needs something to look at, even where a tokenizer adds no special tokens.
        return ids or [0]

    def _run(self, tokens: list[list[int]]) -> Matrix:
        import numpy as np

        ids = np.array(tokens, np.int64)
        session = self.session
        given = {"input_ids": ids}
        for name in session.feeds:
            # No text is padded, so every token counts and all are of the first type.
            given[name] = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
        # Exports that pool by themselves name the result so; others give one vector a token first.
        pooled = "sentence_embedding" in session.outputs
        output = "sentence_embedding" if pooled else session.outputs[0]
        (value,) = session.run([output], given)
        vectors: Matrix = np.asarray(value, np.float32)
        if vectors.ndim == 3:
            vectors = vectors[:, 0] if self.record.pooling == "cls" else vectors.mean(axis=1)
        if vectors.shape[1:] != (self.dimension,):
            raise ModelError(
                f"The model {self.name} gives {vectors.shape[-1]} numbers, not {self.dimension}",
                "Correct the dimension in its description",
            )
        if self.record.normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    @once
    def _closing(self) -> int:
        """How many special tokens end every text: a cut text keeps them."""
        mask: list[int] = self.tokenizer.encode("a").special_tokens_mask
        return next((at for at, special in enumerate(reversed(mask)) if not special), 0)


def batches(lengths: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Places of texts that go into one run: all of one length, longest first."""
    places = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batch: list[int] = []
    for place in places:
        length = lengths[place]
        if batch and (length != lengths[batch[0]] or (len(batch) + 1) * length > most):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
