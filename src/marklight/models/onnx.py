"""Run ONNX models: a tokenizer and an onnxruntime session, and sentence embeddings in batches of one length."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from marklight.errors import ModelError
from marklight.models.record import ModelRecord
from marklight.once import once

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from marklight.model import Matrix, Vector

MAX_THREADS = 8
"""Every thread holds one batch, about 30 MB by estimate; not measured beyond two cores."""

MAX_CHARACTERS_PER_TOKEN = 100
"""A text longer than this times the token limit is truncated before tokenization, so that its time is
bounded; tokens that long occur only in rulers such as `-----`."""

BATCH_TOKENS = 1024
"""Tokens in one run at most. More takes memory in every thread and gains nothing: on a quiet
machine 512, 2048 and 8192 are within 4 % of it, single texts within 6 % (benchmarks/embedding.py)."""


class Session(NamedTuple):
    """An onnxruntime session that runs on one thread, its inputs besides `input_ids`, and its outputs."""

    run: Callable[..., list[Any]]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class OnnxModel:
    """A tokenizer and a session, each opened on first use, once for all threads."""

    def __init__(
        self,
        record: ModelRecord,
        read_model: Callable[[], bytes | str],
        read_tokenizer: Callable[[], bytes],
        threads: int | None = None,
    ) -> None:
        self.record = record
        self.threads = thread_count(threads)
        self._read_model = read_model
        self._read_tokenizer = read_tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        return self.record.name

    @once
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, without padding or truncation."""
        from tokenizers import Tokenizer

        data = self._read_tokenizer()
        try:
            tokenizer = Tokenizer.from_buffer(data)
        except Exception as error:  # the tokenizers package raises nothing narrower
            raise ModelError(f"The tokenizer of {self.name} cannot be read: {error}") from error
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @once
    def session(self) -> Session:
        """The onnxruntime session."""
        return _open_session(self.name, self._read_model())

    def unload(self) -> None:
        """Close the session and the tokenizer; the next call opens them again."""
        for part in ("session", "tokenizer"):
            self.__dict__.pop(part, None)


class OnnxEmbedder(OnnxModel):
    """A sentence-embedding model."""

    @once
    def fingerprint(self) -> str:
        return self.record.fingerprint  # kept: a digest over many fields, read by several stages

    @property
    def dimension(self) -> int:
        return self.record.dimension

    @property
    def token_limit(self) -> int:
        return self.record.token_limit

    @property
    def languages(self) -> tuple[str, ...]:
        return self.record.languages

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        prefixed = [self.record.passage_prefix + replace_surrogates(text) for text in texts]
        return [len(encoding) for encoding in self.tokenizer.encode_batch_fast(prefixed)]

    def embed_passages(self, texts: Sequence[str]) -> Matrix:
        return self._embed([self.record.passage_prefix + text for text in texts])

    def embed_query(self, text: str) -> Vector:
        vector: Vector = self._embed([self.record.query_prefix + text])[0]
        return vector

    def with_time_limit(self, seconds: float) -> Self:  # noqa: ARG002
        return self  # nothing to wait for

    def _embed(self, texts: Sequence[str]) -> Matrix:
        import numpy as np

        rows = np.zeros((len(texts), self.dimension), np.float32)
        if not texts:
            return rows
        tokens = self.tokenize(texts)
        grouped = list(batches([len(ids) for ids in tokens]))

        def fill(positions: list[int]) -> None:
            rows[positions] = self._run([tokens[position] for position in positions])

        if len(grouped) == 1:  # most often a query
            fill(grouped[0])
            return rows
        # Several batches at once, one thread each, are faster than one batch on all threads, where every
        # operation waits for the slowest thread (benchmarks/embedding.py: 1.2 times on idle cores, 1.7 on busy ones).
        pool = ThreadPoolExecutor(min(self.threads, len(grouped)))
        try:
            for _ in pool.map(fill, grouped):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
        return rows

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated at the token limit."""
        most = self.token_limit * MAX_CHARACTERS_PER_TOKEN
        shortened = [replace_surrogates(text[:most]) for text in texts]
        return [self._truncate(each) for each in self.tokenizer.encode_batch_fast(shortened)]

    def _truncate(self, encoding: Encoding) -> list[int]:
        ids: list[int] = encoding.ids
        if len(ids) > self.token_limit:
            end = self._closing_tokens
            ids = ids[: self.token_limit - end] + ids[len(ids) - end :]
        # A session needs at least one token, also where the tokenizer adds no special ones.
        return ids or [0]

    def _run(self, tokens: list[list[int]]) -> Matrix:
        import numpy as np

        ids = np.array(tokens, np.int64)
        session = self.session
        feeds = {"input_ids": ids}
        for name in session.inputs:
            # No text is padded, so every token counts and all are of type 0.
            feeds[name] = np.ones_like(ids) if name == "attention_mask" else np.zeros_like(ids)
        # Exports with built-in pooling use this output name; others return one vector per token first.
        pooled = "sentence_embedding" in session.outputs
        output = "sentence_embedding" if pooled else session.outputs[0]
        (value,) = session.run([output], feeds)
        vectors: Matrix = np.asarray(value, np.float32)
        if vectors.ndim == 3:
            vectors = vectors[:, 0] if self.record.pooling == "cls" else vectors.mean(axis=1)
        if vectors.shape[1:] != (self.dimension,):
            raise ModelError(
                f"The model {self.name} returns {vectors.shape[-1]} numbers per vector, not {self.dimension}",
                "Correct `dimension` in its description",
            )
        if self.record.normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors

    @once
    def _closing_tokens(self) -> int:
        """Number of special tokens at the end of every text; a truncated text keeps them."""
        mask: list[int] = self.tokenizer.encode("a").special_tokens_mask
        return next((at for at, special in enumerate(reversed(mask)) if not special), 0)


def batches(lengths: Sequence[int], most: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Yield positions of texts that share a run: all of one length, longest first."""
    positions = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    batch: list[int] = []
    for position in positions:
        length = lengths[position]
        if batch and (length != lengths[batch[0]] or (len(batch) + 1) * length > most):
            yield batch
            batch = []
        batch.append(position)
    if batch:
        yield batch


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which the tokenizer cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _open_session(name: str, model: bytes | str) -> Session:
    # Must be set before the import: the package sends telemetry otherwise.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no narrower base class
        first = str(error).splitlines()[0][:200]
        raise ModelError(f"onnxruntime cannot open the model {name}: {first}") from error
    return Session(
        session.run,
        tuple(value.name for value in session.get_inputs() if value.name != "input_ids"),
        tuple(value.name for value in session.get_outputs()),
    )


def thread_count(wanted: int | None) -> int:
    """Return the configured number of threads, else the number of usable cores, at most MAX_THREADS."""
    if wanted:
        return wanted
    # A container may have fewer cores than the machine.
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)
