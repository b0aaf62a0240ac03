"""Text to vectors with onnxruntime, in batches of one length each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from marklight.errors import ModelError
from marklight.models.record import ModelRecord
from marklight.once import once

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from marklight.model import Matrix, Vector

BATCH_TOKENS = 1024
"""Tokens in one run at most. More takes memory in every thread and brings nothing: on a quiet
machine 512, 2048 and 8192 are within 4 % of it, text by text within 6 % (benchmarks/embedding.py)."""

_MOST_THREADS = 8
"""Every thread holds a batch's values, by estimate some 30 MB; not measured beyond two cores."""

_MOST_CHARACTERS_A_TOKEN = 100
"""A text longer than this times the token limit is cut before it is tokenised, so that the time a
text takes is bounded; tokens that long do not occur outside of rulers such as `-----`."""


class OnnxEmbedder:
    """A sentence-embedding model; its files are opened when they are first needed."""

    def __init__(
        self,
        record: ModelRecord,
        model: Callable[[], bytes | str],
        tokenizer: Callable[[], bytes],
        threads: int | None = None,
    ) -> None:
        self.record = record
        self._open_model = model
        self._open_tokenizer = tokenizer
        self._threads = threads or min(_processors(), _MOST_THREADS)

    def __repr__(self) -> str:
        return f"OnnxEmbedder({self.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def fingerprint(self) -> str:
        return self.record.fingerprint

    @property
    def dimension(self) -> int:
        return self.record.dimension

    @property
    def token_limit(self) -> int:
        return self.record.token_limit

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        prefixed = [self.record.passage_prefix + _clean(text) for text in texts]
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(prefixed)]

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
        pool = ThreadPoolExecutor(min(self._threads, len(grouped)))
        try:
            for _ in pool.map(fill, grouped):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        return rows

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """What the model is given for each text: at most as many tokens as it takes."""
        most = self.token_limit * _MOST_CHARACTERS_A_TOKEN
        encodings = self._tokenizer.encode_batch_fast([_clean(text[:most]) for text in texts])
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
        session, feeds, output = self._session
        given = {"input_ids": ids}
        for name in feeds:
            # No text is padded, so every token counts and all are of the first type.
            given[name] = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
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
        mask: list[int] = self._tokenizer.encode("a").special_tokens_mask
        return next((at for at, special in enumerate(reversed(mask)) if not special), 0)

    @once
    def _tokenizer(self) -> Tokenizer:
        from tokenizers import Tokenizer

        data = self._open_tokenizer()
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers package raises nothing narrower
            raise ModelError(f"The tokenizer of {self.name} cannot be read: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @once
    def _session(self) -> tuple[Any, tuple[str, ...], str]:
        return _open_session(self.name, self._open_model())


def _open_session(name: str, model: bytes | str) -> tuple[Any, tuple[str, ...], str]:
    # Read when it is loaded: its packages report their use to their maker unless told not to.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors share no root but this
        first = str(error).splitlines()[0][:200]
        raise ModelError(f"onnxruntime cannot open the model {name}: {first}") from error
    feeds = tuple(value.name for value in session.get_inputs() if value.name != "input_ids")
    outputs = [value.name for value in session.get_outputs()]
    # Exports that pool by themselves name the result so; all others give one vector a token first.
    chosen = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
    return session, feeds, chosen


def _processors() -> int:
    # What this process may use, where the system tells; a container has less than the machine.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


def _clean(text: str) -> str:
    """Lone surrogates cannot be handed to the tokenizer."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
